"""Decisions on brokers' registration, fencing and shutdown, and on leaders' ISR changes. Pure.

Each function reads a `ClusterImage` and returns a `Result`: the records of one event, to be committed in one piece, and
the answer. No records: nothing to do. A refusal is raised and commits nothing. A decision made again, on a newer image
after a lost race, or after a lost answer, leads to the same end.

An ISR change under a leader that stays bumps the partition epoch only, whoever proposes it. Within a leader epoch only
the leader adds members to its ISR; decisions for brokers that come and go only remove some. So the ISR that a leader
knows contains the committed one, and its high watermark waits for enough (decision 0142). The leader epoch is bumped
when the leader changes or registers again, after an unclean election, when a reassignment changes the replicas, and
when what a follower has published does not hold any more (`leave_isr`).
Each ISR change also updates the eligible leaders: see `eligible_leaders`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from stratalog.replication.controller.election.eligible_leaders import (
    topic_min_isr,
    update_eligible_leaders,
    with_eligible_leaders,
)
from stratalog.replication.controller.election.leader_election import (
    Election,
    UncleanOf,
    always_clean,
    elect_controlled_shutdown,
    elect_offline,
)
from stratalog.replication.controller.reassignment import with_isr
from stratalog.replication.metadata.image import BrokerState, ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.records import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, TopicPartition


class OfflineReplica(NamedTuple):
    """A leader cannot serve a partition from its storage, as it judged while `partition_epoch` was in force.

    is_absent  there is no table, and an empty one may not begin the leader epoch; False: damage, or no space
    """

    partition: IdentifiedPartition
    partition_epoch: int
    is_absent: bool = False


class IsrChange(NamedTuple):
    """A leader proposes `isr` for a partition whose `leader_epoch` and `partition_epoch` it knows.

    `broker_epochs` maps new members to the broker epochs under which they caught up: one that has restarted since may
    have lost its log and is refused, as is one without (KIP-903).
    """

    partition: IdentifiedPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = MappingProxyType({})


class LongerLog(NamedTuple):
    """The leader of `leader_epoch`, which is alone in the ISR and has not begun this epoch, found that the log of
    `broker_id`, under that broker's registration `broker_epoch`, is longer than its own and any other."""

    partition: IdentifiedPartition
    leader_epoch: int
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FoundRoot:
    """What a starting broker process found in its root.

    previous_broker_epoch  of the registration whose clean stop is marked there; Kafka's field of the registration
    directory_id           of this very directory (KIP-858); None: unknown
    held                   the replicas with a table; None: it was not looked
    """

    previous_broker_epoch: int = NO_BROKER_EPOCH
    directory_id: str | None = None
    held: frozenset[TopicPartition] | None = None


NOTHING_FOUND = FoundRoot()


def register_broker(
    image: ClusterImage,
    broker_id: int,
    incarnation_id: str,
    root: str,
    rack: str | None = None,
    endpoint: str | None = None,
    *,
    found: FoundRoot = NOTHING_FOUND,
    recovers: bool = False,
) -> Result[int]:
    """Register a broker process; the answer is its broker epoch (KIP-380, KIP-966).

    The same commit bumps the leader epoch of every partition that the broker leads, so that an earlier process of the
    same broker is fenced. It also removes the broker from every ISR with another member, from every ELR, and from an
    ISR of its own where other replicas are eligible: its disk may have lost records that it acknowledged. Not so after
    a clean stop whose mark was found, or for the same process, fenced meanwhile, on the same root. Where the broker is
    all that remains and its table went with an earlier disk, the partition stays offline with the broker as `lost`,
    until it returns with the table.

    recovers  register as fenced: earlier processes are fenced now, and the broker leads nothing until it has recovered
              its tables and registers again, as the same incarnation

    An incarnation that is registered and not fenced gets its epoch again. Raises DuplicateBrokerRegistrationError (the
    id is live on another root), InvalidRequestError (the root belongs to another broker, or a negative id).
    """
    known = image.brokers.get(broker_id)
    if known and not known.fenced and known.registration.incarnation_id == incarnation_id:
        return Result((), known.broker_epoch)
    _check_registration(image, broker_id, root)
    epoch = image.last_broker_epoch + 1
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(broker_id, epoch, incarnation_id, root, rack, endpoint, found.directory_id)
    ]
    restart = _Restart(
        broker_id,
        live=frozenset(image.live_brokers().keys() - {broker_id}),
        is_intact=known is not None and _has_kept_log(known, incarnation_id, root, found),
        is_another_disk=known is not None and _is_another_disk(known, found),
        found=found,
        recovers=recovers,
        controller_epoch=image.controller_epoch,
    )
    records += filter(None, map(restart.applied_to, image.partitions.values()))
    updated = update_eligible_leaders(image, records, lost=() if restart.is_intact else (broker_id,))
    return Result((*updated, FenceBrokerRecord(broker_id, epoch)) if recovers else updated, epoch)


def _check_registration(image: ClusterImage, broker_id: int, root: str) -> None:
    if broker_id < 0:
        raise errors.InvalidRequestError(f"broker id {broker_id} is negative")
    known = image.brokers.get(broker_id)
    if known and not known.fenced and not _same_root(known.registration.root, root):
        raise errors.DuplicateBrokerRegistrationError(
            f"broker {broker_id} is live on {known.registration.root} (broker epoch {known.broker_epoch}), "
            f"another one cannot register on {root}"
        )
    for other_id, other in image.brokers.items():
        if other_id != broker_id and _same_root(other.registration.root, root):
            raise errors.InvalidRequestError(
                f"broker {broker_id} cannot use the root {root}: it is broker {other_id}'s"
            )


def _has_kept_log(known: BrokerState, incarnation_id: str, root: str, found: FoundRoot) -> bool:
    """The metadata alone does not show it: a controlled shutdown is recorded before the last write, and the disk may
    be another one since."""
    is_same_process = known.registration.incarnation_id == incarnation_id
    was_clean = known.clean_shutdown and found.previous_broker_epoch == known.broker_epoch
    is_same_place = _same_root(known.registration.root, root) and not _is_another_disk(known, found)
    return (was_clean or is_same_process) and is_same_place


def _is_another_disk(known: BrokerState, found: FoundRoot) -> bool:
    before = known.registration.directory_id
    return before is not None and found.directory_id is not None and before != found.directory_id


def _same_root(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


@dataclass(frozen=True, slots=True)
class _Restart:
    """A registration of a broker, and the brokers that are `live` besides."""

    broker_id: int
    live: frozenset[int]
    is_intact: bool
    is_another_disk: bool
    found: FoundRoot
    recovers: bool
    controller_epoch: int

    def applied_to(self, partition: PartitionRecord) -> PartitionRecord | None:
        """The partition after the registration; None when nothing changes."""
        if partition.domain_of(self.broker_id):
            return self._applied_in_domain(partition)
        if self.broker_id not in partition.isr:
            is_eligible = self.broker_id in partition.elr and not self.is_intact
            return self._changed(partition) if is_eligible else None
        if not self.is_intact and _others(partition, self.broker_id):
            return _without_log(partition, self.broker_id, self.live, self.controller_epoch)
        lost = self._is_lost(partition)
        if lost and self.broker_id not in partition.lost:
            return _without_log(partition, self.broker_id, self.live, self.controller_epoch)
        if not lost and self.broker_id in partition.lost:
            return replace(self._changed(partition), lost=())
        if partition.leader != self.broker_id:
            return None
        leader = NO_LEADER if self.recovers else self.broker_id
        return partition.changed(controller_epoch=self.controller_epoch, leader=leader, bump_leader_epoch=True)

    def _applied_in_domain(self, partition: PartitionRecord) -> PartitionRecord | None:
        """The broker's disk has nothing of it. A table that was gone is looked for again, one out of reach tried."""
        reached = replace(partition, offline=_without(partition.offline, (self.broker_id,)))
        if self.broker_id in partition.lost:
            sharing = partition.sharing(self.broker_id)
            return replace(self._changed(reached), lost=tuple(r for r in partition.lost if r not in sharing))
        if partition.leader != self.broker_id:
            return self._changed(reached) if reached != partition else None
        leader = NO_LEADER if self.recovers else self.broker_id
        return reached.changed(controller_epoch=self.controller_epoch, leader=leader, bump_leader_epoch=True)

    def _changed(self, partition: PartitionRecord) -> PartitionRecord:
        return partition.changed(controller_epoch=self.controller_epoch, bump_leader_epoch=False)

    def _is_lost(self, partition: PartitionRecord) -> bool:
        """Whether the table of a member of the ISR is gone. An absent table alone does not show it: the partition may
        be so new that there was none yet."""
        is_held = self.found.held is not None and partition.topic_partition in self.found.held
        return not is_held and (self.is_another_disk or self.broker_id in partition.lost)


def _others(partition: PartitionRecord, broker_id: int) -> tuple[int, ...]:
    """The replicas with another table than the broker's that have every committed record: the rest of the ISR, else the
    ELR."""
    sharing = partition.sharing(broker_id)
    return _without(partition.isr, sharing) or _without(partition.elr, sharing)


def _without(replicas: Iterable[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(r for r in replicas if r not in others)


def _without_log(
    partition: PartitionRecord, broker_id: int, live: Collection[int], controller_epoch: int
) -> PartitionRecord:
    """The partition when the log of a member of its ISR cannot be counted on any more. The others lead, or are waited
    for; without others nobody leads, and the member stays as a lost one."""
    others, sharing = _others(partition, broker_id), partition.sharing(broker_id)
    if not others:
        offline = partition.changed(controller_epoch=controller_epoch, leader=NO_LEADER, bump_leader_epoch=True)
        return replace(offline, lost=sharing)
    if partition.leader not in sharing:
        is_led = partition.leader != NO_LEADER  # else the ELR may take the place of the ISR: not under the same epoch
        return partition.changed(controller_epoch=controller_epoch, isr=others, bump_leader_epoch=not is_led)
    staying = _without(partition.isr, sharing)
    election = elect_offline(replace(partition, isr=staying), [r for r in live if r not in sharing], unclean=False)
    leader, isr = (election.leader, election.isr) if election else (NO_LEADER, others)
    return partition.changed(controller_epoch=controller_epoch, leader=leader, isr=isr, bump_leader_epoch=True)


def fence_brokers(
    image: ClusterImage, broker_epochs: Mapping[int, int], unclean_of: UncleanOf = always_clean
) -> Result[tuple[int, ...]]:
    """Fence brokers whose sessions expired, and update every partition with one of them as leader or in the ISR.

    `broker_epochs` maps broker ids to the broker epochs whose sessions expired; a broker that has been fenced or
    registered again since is skipped. The new leader is a live ISR member, else a live eligible replica, else with
    `unclean_of(topic)` any live replica, else none. The answer names the brokers fenced now.
    """
    dead = tuple(i for i, epoch in sorted(broker_epochs.items()) if image.is_current(i, epoch))
    live = image.live_brokers().keys() - dead
    records: list[MetadataRecord] = [FenceBrokerRecord(i, broker_epochs[i]) for i in dead]
    affected = (p for p in image.partitions.values() if p.leader in dead or any(r in dead for r in p.isr))
    records += filter(None, (_with_live(p, live, unclean_of, image.controller_epoch) for p in affected))
    return Result(update_eligible_leaders(image, records), dead)


def give_up_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Result[tuple[int, ...]]:
    """Fence a broker whose own root answers nothing, as its process reports through the metadata root.

    As `fence_brokers`, long before its session expires. Unclean elections are left to the controller. The only live
    broker stays, since nobody else could lead. The answer names the broker if it is fenced now.
    """
    if image.live_brokers().keys() <= {broker_id}:
        return Result((), ())
    return fence_brokers(image, {broker_id: broker_epoch})


def online_partitions(image: ClusterImage, unclean_of: UncleanOf = always_clean) -> Result[tuple[TopicPartition, ...]]:
    """Elect a leader for each partition without a live one, where possible; the answer names those partitions.

    To be called after a broker's registration, a config change, or a controller's election. A partition whose leader is
    fenced goes offline if no other replica can lead.
    """
    live = image.live_brokers().keys()
    waiting = (p for p in image.partitions.values() if p.leader not in live)
    changed = tuple(filter(None, (_with_live(p, live, unclean_of, image.controller_epoch) for p in waiting)))
    elected = tuple(p.topic_partition for p in changed if p.leader != NO_LEADER)
    return Result(update_eligible_leaders(image, changed), elected)


def _with_live(
    partition: PartitionRecord, live: Collection[int], unclean_of: UncleanOf, controller_epoch: int
) -> PartitionRecord | None:
    """The partition's next state with only the `live` brokers; None when nothing changes."""
    if partition.leader in live:
        isr = tuple(r for r in partition.isr if r in live)
        return _elected(partition, Election(partition.leader, isr), controller_epoch)
    return _elected(partition, elect_offline(partition, live, unclean_of(partition.topic)), controller_epoch)


def _elected(partition: PartitionRecord, election: Election | None, controller_epoch: int) -> PartitionRecord | None:
    """The partition after an election; without one it is offline and keeps its ISR. None when nothing changes."""
    if election is None:
        if partition.leader == NO_LEADER:
            return None
        return partition.changed(controller_epoch=controller_epoch, leader=NO_LEADER, bump_leader_epoch=True)
    if not election.changes(partition):
        return None
    return election.applied_to(partition, controller_epoch)


def shut_down_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Result[tuple[TopicPartition, ...]]:
    """Controlled shutdown: the broker's leaderships are moved, it leaves the ISRs, and it is fenced as clean.

    The answer names the partitions without a leader, since no other ISR member or eligible replica is live; they keep
    the broker in their ISR. StaleBrokerEpochError when `broker_epoch` is not its live registration, except after this
    same shutdown: then there is nothing to do.
    """
    known = image.brokers.get(broker_id)
    if known and _has_shut_down(known, broker_epoch):
        waiting = (p for p in image.partitions.values() if p.leader == NO_LEADER and broker_id in p.isr)
        return Result((), tuple(p.topic_partition for p in waiting))
    check_broker_epoch(image, broker_id, broker_epoch)
    live = image.live_brokers().keys()
    affected = (p for p in image.partitions.values() if broker_id in p.isr or p.leader == broker_id)
    moved = (_elected(p, elect_controlled_shutdown(p, live, {broker_id}), image.controller_epoch) for p in affected)
    changed = tuple(filter(None, moved))
    remaining = tuple(p.topic_partition for p in changed if p.leader == NO_LEADER)
    fenced = FenceBrokerRecord(broker_id, broker_epoch, clean=True)
    return Result((*update_eligible_leaders(image, changed), fenced), remaining)


def report_offline(
    image: ClusterImage, broker_id: int, broker_epoch: int, offline: Iterable[OfflineReplica]
) -> Result[tuple[TopicPartition, ...]]:
    """The broker cannot serve these replicas, as with a damaged table: live ISR members lead, or eligible replicas.

    The answer names the moved partitions. One without another live candidate stays, unless it has no table: then it is
    `_without_log`, so that nobody leads an empty one. A report counts for the state under which the leader judged, and
    no other: under a newer one it judges again (`decide_leader_and_isr`), and perhaps leads, as where all leave the ISR
    that may have had more. Kafka's brokers report a whole log directory. StaleBrokerEpochError when `broker_epoch` is
    not the broker's live registration.

    A replica in a storage domain is `offline` from then on. Leaders {1,2,3} of a domain that nobody can reach report
    one after the other: 1/{1,2,3}, 2/{2,3}, 3/{3}, and 3 stays, which tries on; no leadership moves again before one of
    them can reach the domain (`report_online`).
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    live = image.live_brokers().keys()
    moved: list[PartitionRecord] = []
    for replica in offline:
        partition = image.state_of(replica.partition)
        if partition is None or (partition.leader, partition.partition_epoch) != (broker_id, replica.partition_epoch):
            continue
        is_gone = replica.is_absent and bool(partition.domain_of(broker_id))
        election = None if is_gone else elect_controlled_shutdown(partition, live, {broker_id})
        if election is not None and election.changes(partition):
            moved.append(_marked_offline(election.applied_to(partition, image.controller_epoch), broker_id))
        elif election is None and replica.is_absent:
            moved.append(_without_log(partition, broker_id, live, image.controller_epoch))
        elif partition.domain_of(broker_id) and broker_id not in partition.offline:
            stays = partition.changed(controller_epoch=image.controller_epoch, bump_leader_epoch=False)
            moved.append(_marked_offline(stays, broker_id))
    records = update_eligible_leaders(image, moved, lost=(broker_id,))
    return Result(records, tuple(p.topic_partition for p in moved))


def _marked_offline(partition: PartitionRecord, broker_id: int) -> PartitionRecord:
    if not partition.domain_of(broker_id):
        return partition
    return replace(partition, offline=(*partition.offline, broker_id))


def report_online(
    image: ClusterImage, broker_id: int, broker_epoch: int, online: Iterable[IdentifiedPartition]
) -> Result[tuple[TopicPartition, ...]]:
    """The broker can reach the storage domain of these replicas, which it had reported as offline, again.

    It leads where nobody does, or only a leader that reported the same and could not be replaced. Elsewhere the leader
    adds it to the ISR. The answer names the partitions that changed. StaleBrokerEpochError when `broker_epoch` is not
    the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    live = image.live_brokers().keys()
    changed: list[PartitionRecord] = []
    for named in online:
        partition = image.state_of(named)
        if partition is None or broker_id not in partition.offline:
            continue
        back = replace(partition, offline=_without(partition.offline, (broker_id,)))
        election = elect_offline(back, live, unclean=False) if back.leader in (NO_LEADER, *back.offline) else None
        if election is None:
            changed.append(back.changed(controller_epoch=image.controller_epoch, bump_leader_epoch=False))
        else:
            changed.append(election.applied_to(back, image.controller_epoch))
    return Result(update_eligible_leaders(image, changed), tuple(p.topic_partition for p in changed))


def leave_isr(
    image: ClusterImage, broker_id: int, broker_epoch: int, named: IdentifiedPartition, *, ends_epoch: bool
) -> Result[int | None]:
    """A follower with a damaged table leaves ISR and ELR, and a new leader epoch begins.

    Its registration goes on, so that only a new epoch ends what it has published as its progress: the leader would add
    it again by that. `ends_epoch`: also when it is outside both already.
    The answer is the leader epoch then; None where it does not follow: the partition is gone, has no leader, or the
    broker leads it. The leader stays, so the ISR is never empty.
    StaleBrokerEpochError when `broker_epoch` is not the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    partition = image.state_of(named)
    if partition is None or partition.leader in (broker_id, NO_LEADER) or broker_id not in partition.replicas:
        return Result((), None)
    if broker_id not in (*partition.isr, *partition.elr) and not ends_epoch:
        return Result((), partition.leader_epoch)
    sharing = partition.sharing(broker_id)
    isr = tuple(member for member in partition.isr if member not in sharing)
    changed = partition.changed(controller_epoch=image.controller_epoch, isr=isr, bump_leader_epoch=True)
    return Result(update_eligible_leaders(image, (changed,), lost=sharing), changed.leader_epoch)


def hand_to_longer_log(image: ClusterImage, broker_id: int, broker_epoch: int, longer: LongerLog) -> Result[bool]:
    """The only member of the ISR has the replica with the longest log lead, alone in the ISR (KIP-966: unclean
    recovery). It lost a part of its own log with its power, as all members did, and has not begun its epoch.

    The longer log has every committed record of the shorter one (`LogEnd`), so no promise is weakened and the election
    is not marked as unclean. The answer is False, and nothing changes, where this was decided on another state: another
    leader, leader epoch or ISR, another registration of the other broker, which may have lost records since.
    StaleBrokerEpochError when `broker_epoch` is not the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    partition = image.state_of(longer.partition)
    if partition is None or (partition.leader, partition.leader_epoch) != (broker_id, longer.leader_epoch):
        return Result((), False)
    may_lead = longer.broker_id in partition.replicas and image.is_current(longer.broker_id, longer.broker_epoch)
    if partition.isr != (broker_id,) or longer.broker_id == broker_id or not may_lead:
        return Result((), False)
    changed = Election(longer.broker_id, (longer.broker_id,)).applied_to(partition, image.controller_epoch)
    return Result(update_eligible_leaders(image, (changed,), lost=(broker_id,)), True)


def _has_shut_down(broker: BrokerState, broker_epoch: int) -> bool:
    return broker.fenced and broker.clean_shutdown and broker.broker_epoch == broker_epoch


def alter_partition(
    image: ClusterImage, broker_id: int, broker_epoch: int, changes: Iterable[IsrChange]
) -> Result[list[PartitionRecord | StratalogError]]:
    """Decide the ISR changes of leader `broker_id`, each by itself; the answers are in the order of the changes.

    An answer is the partition's new state, or an error: UnknownTopicOrPartition, UnknownTopicId, FencedLeaderEpoch,
    UnknownLeaderEpoch, NotLeaderOrFollower, InvalidUpdateVersion (the state has changed since), InvalidRequest (an
    illegal ISR). An ISR that is in force already is answered with the current state. An ISR with all target replicas of
    a reassignment also ends it, under a new leader epoch. Raises StaleBrokerEpochError for all when `broker_epoch` is
    not the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    decided: dict[IdentifiedPartition, PartitionRecord] = {}
    answers: list[PartitionRecord | StratalogError] = []
    for change in changes:
        try:
            current = decided.get(change.partition) or _known(image, change.partition)
            answer = _altered(image, current, broker_id, change)
        except StratalogError as refusal:
            answers.append(refusal.as_value())
            continue
        if answer is not current:
            decided[change.partition] = answer
        answers.append(answer)
    return Result(tuple(decided.values()), answers)


def _known(image: ClusterImage, named: IdentifiedPartition) -> PartitionRecord:
    """UnknownTopicOrPartitionError, UnknownTopicIdError where another topic has the name."""
    state = image.partition(named.topic_partition)
    if image.state_of(named) is None:
        known = image.identified(named.topic_partition).topic_id
        raise errors.UnknownTopicIdError(f"{named}: topic id {named.topic_id} is unknown, it is {known}")
    return state


def _altered(image: ClusterImage, current: PartitionRecord, broker_id: int, change: IsrChange) -> PartitionRecord:
    _check_leader(current, broker_id, change)
    if set(change.isr) == set(current.isr):
        # Within a leader epoch only the leader adds members: this is its own change, decided before, or others removed
        # the same members meanwhile.
        return current
    if change.partition_epoch != current.partition_epoch:
        raise errors.InvalidUpdateVersionError(
            f"{current.topic_partition}: ISR change from partition epoch {change.partition_epoch}, "
            f"current is {current.partition_epoch}"
        )
    _check_isr(image, current, change)
    changed = with_isr(current, change.isr, image.live_brokers().keys(), image.controller_epoch)
    return with_eligible_leaders(current, changed, topic_min_isr(image, current.topic))


def _check_leader(current: PartitionRecord, broker_id: int, change: IsrChange) -> None:
    where = f"{current.topic_partition}: ISR change under leader epoch {change.leader_epoch}"
    if change.leader_epoch < current.leader_epoch:
        raise errors.FencedLeaderEpochError(f"{where}, current is {current.leader_epoch}")
    if change.leader_epoch > current.leader_epoch:
        raise errors.UnknownLeaderEpochError(f"{where}, current is {current.leader_epoch}")
    if current.leader != broker_id:
        raise errors.NotLeaderOrFollowerError(f"{where} by broker {broker_id}, the leader is {current.leader}")


def _check_isr(image: ClusterImage, current: PartitionRecord, change: IsrChange) -> None:
    where = f"{current.topic_partition}: new ISR {list(change.isr)}"
    if current.leader not in change.isr:
        raise errors.InvalidRequestError(f"{where} is without the leader {current.leader}")
    if len(set(change.isr)) != len(change.isr):
        raise errors.InvalidRequestError(f"{where} names a broker twice")
    for member in change.isr:
        if member not in current.replicas:
            raise errors.InvalidRequestError(
                f"{where}: broker {member} is not in the replicas {list(current.replicas)}"
            )
        if member in current.offline and member not in current.isr:
            raise errors.InvalidRequestError(f"{where}: broker {member} reported that it cannot serve the partition")
        if member not in current.isr:
            _check_addition(image, where, member, change.broker_epochs.get(member))


def _check_addition(image: ClusterImage, where: str, member: int, broker_epoch: int | None) -> None:
    broker = image.live_brokers().get(member)
    if broker is None:
        raise errors.InvalidRequestError(f"{where}: broker {member} is fenced or not registered")
    if broker_epoch != broker.broker_epoch:
        raise errors.InvalidRequestError(
            f"{where}: broker {member} caught up under broker epoch {broker_epoch}, it is {broker.broker_epoch} now"
        )
