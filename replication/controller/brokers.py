"""What brokers' comings, goings and ISR changes do to the partitions. Pure.

Every function reads a `ClusterImage` and answers a `Result`: the records of one event, to be committed in one
piece, and the answer. No records means nothing to do. A refusal is raised and commits nothing. Decided again on
a newer image after a lost race, or after an answer that never arrived, each comes to the right end.

Every ISR change made for a broker that comes or goes bumps the leader epoch, so that no leader goes on with an
ISR it does not know of. A leader's own change (`alter_partition`) counts up the partition epoch only, unless a
reassignment ends with it.
Whatever changes the ISR also says who is eligible to lead beside it: see `eligible_leaders`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from stratalog.replication.controller.election import Election, elect_controlled_shutdown, elect_offline
from stratalog.replication.controller.eligible_leaders import (
    settle_eligible_leaders,
    topic_min_isr,
    with_eligible_leaders,
)
from stratalog.replication.controller.reassignment import with_isr
from stratalog.replication.metadata.image import BrokerState, ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.records import (
    NO_LEADER,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from stratalog.storage.errors import (
    DuplicateBrokerRegistrationError,
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotLeaderOrFollowerError,
    StratalogError,
    UnknownLeaderEpochError,
)
from stratalog.storage.records import TopicPartition

UncleanOf = Callable[[str], bool]
"""A topic's `unclean.leader.election.enable`."""


def always_clean(_topic: str) -> bool:
    """The `UncleanOf` of a cluster where no topic allows unclean elections."""
    return False


class IsrChange(NamedTuple):
    """A leader wants `isr` for a partition it knows at `leader_epoch` and `partition_epoch`.

    `broker_epochs` maps members being added to the broker epochs under which they caught up: one that
    restarted since may have lost its log and is refused (KIP-903).
    """

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = MappingProxyType({})


def register_broker(
    image: ClusterImage,
    broker_id: int,
    incarnation_id: str,
    root: str,
    rack: str | None = None,
    endpoint: str | None = None,
) -> Result[int]:
    """A broker process comes up; the answer is its broker epoch (KIP-380, KIP-966).

    The same commit bumps the leader epoch of every partition it leads, so that an earlier process of the same
    broker is fenced, and takes the broker out of every ISR that keeps another member: its disk may have lost what
    it acknowledged. So it leaves every ELR too, and an ISR of its own where others are eligible: those have all that is
    committed. Not so when it stopped cleanly, or is the same process that was fenced meanwhile, on the same root.
    An incarnation that is registered and not fenced is answered again. Raises
    DuplicateBrokerRegistrationError (the id is live on another root), InvalidRequestError (the root belongs to
    another broker, or a negative id).
    """
    known = image.brokers.get(broker_id)
    if known and not known.fenced and known.registration.incarnation_id == incarnation_id:
        return Result((), known.broker_epoch)
    _check_registration(image, broker_id, root)
    epoch = image.last_broker_epoch + 1
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(broker_id, epoch, incarnation_id, root, rack=rack, endpoint=endpoint)
    ]
    is_intact = known is not None and _has_kept_log(known, incarnation_id, root)
    live = {*image.live_brokers(), broker_id}
    for partition in image.partitions.values():
        changed = _after_restart(partition, broker_id, live, is_intact, image.controller_epoch)
        if changed:
            records.append(changed)
    return Result(settle_eligible_leaders(image, records, lost=() if is_intact else (broker_id,)), epoch)


def _check_registration(image: ClusterImage, broker_id: int, root: str) -> None:
    if broker_id < 0:
        raise InvalidRequestError(f"broker id {broker_id} is negative")
    known = image.brokers.get(broker_id)
    if known and not known.fenced and not _same_root(known.registration.root, root):
        raise DuplicateBrokerRegistrationError(
            f"broker {broker_id} is live on {known.registration.root} (broker epoch {known.broker_epoch}), "
            f"another one cannot register on {root}"
        )
    for other_id, other in image.brokers.items():
        if other_id != broker_id and _same_root(other.registration.root, root):
            raise InvalidRequestError(f"broker {broker_id} cannot use the root {root}: it is broker {other_id}'s")


def _has_kept_log(known: BrokerState, incarnation_id: str, root: str) -> bool:
    is_same_process = known.registration.incarnation_id == incarnation_id
    return (known.clean_shutdown or is_same_process) and _same_root(known.registration.root, root)


def _same_root(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def _after_restart(
    partition: PartitionRecord, broker_id: int, live: Collection[int], is_intact: bool, controller_epoch: int
) -> PartitionRecord | None:
    """The partition after broker `broker_id` came up as a new process; None when nothing changes."""
    staying = tuple(r for r in partition.isr if r != broker_id)
    others = staying or tuple(r for r in partition.elr if r != broker_id)
    leaves = broker_id in partition.isr and bool(others) and not is_intact
    if not leaves:
        if partition.leader == broker_id:
            return partition.changed(controller_epoch=controller_epoch, bump_leader_epoch=True)
        if broker_id in partition.elr and not is_intact:
            return partition.changed(controller_epoch=controller_epoch, bump_leader_epoch=False)
        return None
    if partition.leader != broker_id:
        return partition.changed(controller_epoch=controller_epoch, isr=others, bump_leader_epoch=True)
    election = elect_offline(replace(partition, isr=staying), [r for r in live if r != broker_id], unclean=False)
    leader, isr = (election.leader, election.isr) if election else (NO_LEADER, others)
    return partition.changed(controller_epoch=controller_epoch, leader=leader, isr=isr, bump_leader_epoch=True)


def fence_brokers(
    image: ClusterImage, broker_epochs: Mapping[int, int], unclean_of: UncleanOf = always_clean
) -> Result[tuple[int, ...]]:
    """Brokers' sessions expired: fence them and elect anew in every partition that they lead or are in sync in.

    `broker_epochs` maps broker ids to the broker epochs whose sessions expired; a broker that is fenced or
    registered anew since is left alone. A partition led by a dead broker gets a live ISR member, else a live eligible
    one, else with `unclean_of(topic)` any live replica, else no leader. The answer names the brokers fenced now.
    """
    dead = tuple(i for i, epoch in sorted(broker_epochs.items()) if image.is_current(i, epoch))
    live = image.live_brokers().keys() - dead
    records: list[MetadataRecord] = [FenceBrokerRecord(i, broker_epochs[i]) for i in dead]
    for partition in image.partitions.values():
        if partition.leader in dead or any(r in dead for r in partition.isr):
            changed = _settled(partition, live, unclean_of, image.controller_epoch)
            if changed:
                records.append(changed)
    return Result(settle_eligible_leaders(image, records), dead)


def online_partitions(image: ClusterImage, unclean_of: UncleanOf = always_clean) -> Result[tuple[TopicPartition, ...]]:
    """Elect a leader for each partition that has no live one and can get one now; the response names those partitions.

    To be asked after a broker came up, a config changed, or a controller took over. A partition whose leader is
    fenced and that can get no other one goes offline.
    """
    live = image.live_brokers().keys()
    waiting = [p for p in image.partitions.values() if p.leader not in live]
    settled = (_settled(p, live, unclean_of, image.controller_epoch) for p in waiting)
    changed = tuple(p for p in settled if p)
    elected = tuple(p.topic_partition for p in changed if p.leader != NO_LEADER)
    return Result(settle_eligible_leaders(image, changed), elected)


def _settled(
    partition: PartitionRecord, live: Collection[int], unclean_of: UncleanOf, controller_epoch: int
) -> PartitionRecord | None:
    """The partition's next state when only `live` brokers are left; None when it is that already."""
    if partition.leader in live:
        isr = tuple(r for r in partition.isr if r in live)
        return _elected(partition, Election(partition.leader, isr), controller_epoch)
    return _elected(partition, elect_offline(partition, live, unclean_of(partition.topic)), controller_epoch)


def _elected(partition: PartitionRecord, election: Election | None, controller_epoch: int) -> PartitionRecord | None:
    """The partition after an election; without one it is offline and keeps its ISR. None when it is that already."""
    if election is None:
        if partition.leader == NO_LEADER:
            return None
        return partition.changed(controller_epoch=controller_epoch, leader=NO_LEADER, bump_leader_epoch=True)
    if not election.changes(partition):
        return None
    return election.applied_to(partition, controller_epoch)


def shut_down_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Result[tuple[TopicPartition, ...]]:
    """Controlled shutdown: the broker hands its leaderships over, leaves the ISRs, and is fenced as clean.

    The answer names the partitions that stay without a leader because no other ISR member is live, nor one that is
    eligible; they keep the broker in their ISR. StaleBrokerEpochError when `broker_epoch` is not its live registration,
    except after this same shutdown: then there is nothing to do.
    """
    known = image.brokers.get(broker_id)
    if known and _has_shut_down(known, broker_epoch):
        waiting = (p for p in image.partitions.values() if p.leader == NO_LEADER and broker_id in p.isr)
        return Result((), tuple(p.topic_partition for p in waiting))
    check_broker_epoch(image, broker_id, broker_epoch)
    live = image.live_brokers().keys()
    touched = [p for p in image.partitions.values() if broker_id in p.isr or p.leader == broker_id]
    moved = [_elected(p, elect_controlled_shutdown(p, live, {broker_id}), image.controller_epoch) for p in touched]
    changed = tuple(p for p in moved if p)
    remaining = tuple(p.topic_partition for p in changed if p.leader == NO_LEADER)
    fenced = FenceBrokerRecord(broker_id, broker_epoch, clean=True)
    return Result((*settle_eligible_leaders(image, changed), fenced), remaining)


def report_offline(
    image: ClusterImage, broker_id: int, broker_epoch: int, topic_partitions: Iterable[TopicPartition]
) -> Result[tuple[TopicPartition, ...]]:
    """The broker cannot serve these replicas of its own (a damaged table): live ISR members lead, or eligible ones.

    The answer names those that moved. One without another live replica that may lead stays where it is. Kafka's
    brokers say this of a whole log directory. StaleBrokerEpochError when `broker_epoch` is not its live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    live = image.live_brokers().keys()
    moved: list[PartitionRecord] = []
    for topic_partition in topic_partitions:
        partition = image.partitions.get(topic_partition)
        if partition is None or partition.leader != broker_id:
            continue
        election = elect_controlled_shutdown(partition, live, {broker_id})
        changed = _elected(partition, election, image.controller_epoch)
        if changed is not None and changed.leader != NO_LEADER:
            moved.append(changed)
    records = settle_eligible_leaders(image, moved, lost=(broker_id,))
    return Result(records, tuple(p.topic_partition for p in moved))


def withdraw_replica(
    image: ClusterImage, broker_id: int, broker_epoch: int, topic_partition: TopicPartition, *, ends_epoch: bool
) -> Result[int | None]:
    """A follower's table cannot be trusted: it leaves ISR and ELR, and a leader epoch begins in which it is out.

    `ends_epoch`: in any case, since what the follower published so far is not so any more. Otherwise nothing is written
    when it is outside both already. The answer is the leader epoch that holds then, None where it does not follow:
    the partition is gone, has no leader, or the broker leads it. The leader stays, so the ISR is never empty.
    StaleBrokerEpochError when `broker_epoch` is not the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    partition = image.partitions.get(topic_partition)
    if partition is None or partition.leader in (broker_id, NO_LEADER) or broker_id not in partition.replicas:
        return Result((), None)
    if broker_id not in (*partition.isr, *partition.elr) and not ends_epoch:
        return Result((), partition.leader_epoch)
    isr = tuple(member for member in partition.isr if member != broker_id)
    changed = partition.changed(controller_epoch=image.controller_epoch, isr=isr, bump_leader_epoch=True)
    return Result(settle_eligible_leaders(image, (changed,), lost=(broker_id,)), changed.leader_epoch)


def _has_shut_down(broker: BrokerState, broker_epoch: int) -> bool:
    return broker.fenced and broker.clean_shutdown and broker.broker_epoch == broker_epoch


def alter_partition(
    image: ClusterImage, broker_id: int, broker_epoch: int, changes: Iterable[IsrChange]
) -> Result[list[PartitionRecord | StratalogError]]:
    """Decide the ISR changes of leader `broker_id`, each for itself; the answers are in the order asked.

    An answer is the partition's state to go on with, or an error: UnknownTopicOrPartition, FencedLeaderEpoch,
    UnknownLeaderEpoch, NotLeaderOrFollower, InvalidUpdateVersion (the state moved on), InvalidRequest (an ISR
    that may not be). An ISR that is so already is answered with the current state. An ISR that holds all replicas
    a reassignment wants also ends that, under a new leader epoch. Raises StaleBrokerEpochError for all when the
    broker is not the live registration `broker_epoch`.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    decided: dict[TopicPartition, PartitionRecord] = {}
    answers: list[PartitionRecord | StratalogError] = []
    for change in changes:
        try:
            current = decided.get(change.topic_partition) or image.partition(change.topic_partition)
            answer = _altered(image, current, broker_id, change)
        except StratalogError as refusal:
            answers.append(refusal)
            continue
        if answer is not current:
            decided[change.topic_partition] = answer
        answers.append(answer)
    return Result(tuple(decided.values()), answers)


def _altered(image: ClusterImage, current: PartitionRecord, broker_id: int, change: IsrChange) -> PartitionRecord:
    _check_leader(current, broker_id, change)
    if set(change.isr) == set(current.isr):
        # Within a leader epoch only its leader changes the ISR: this is its own change, answered once more.
        return current
    if change.partition_epoch != current.partition_epoch:
        raise InvalidUpdateVersionError(
            f"{current.topic_partition}: ISR change from partition epoch {change.partition_epoch}, "
            f"current is {current.partition_epoch}"
        )
    _check_isr(image, current, change)
    changed = with_isr(current, change.isr, image.live_brokers().keys(), image.controller_epoch)
    return with_eligible_leaders(current, changed, topic_min_isr(image, current.topic))


def _check_leader(current: PartitionRecord, broker_id: int, change: IsrChange) -> None:
    where = f"{current.topic_partition}: ISR change under leader epoch {change.leader_epoch}"
    if change.leader_epoch < current.leader_epoch:
        raise FencedLeaderEpochError(f"{where}, current is {current.leader_epoch}")
    if change.leader_epoch > current.leader_epoch:
        raise UnknownLeaderEpochError(f"{where}, current is {current.leader_epoch}")
    if current.leader != broker_id:
        raise NotLeaderOrFollowerError(f"{where} by broker {broker_id}, the leader is {current.leader}")


def _check_isr(image: ClusterImage, current: PartitionRecord, change: IsrChange) -> None:
    where = f"{current.topic_partition}: new ISR {list(change.isr)}"
    if current.leader not in change.isr:
        raise InvalidRequestError(f"{where} is without the leader {current.leader}")
    if len(set(change.isr)) != len(change.isr):
        raise InvalidRequestError(f"{where} names a broker twice")
    for member in change.isr:
        if member not in current.replicas:
            raise InvalidRequestError(f"{where}: broker {member} is not in the replicas {list(current.replicas)}")
        if member not in current.isr:
            _check_addition(image, where, member, change.broker_epochs.get(member))


def _check_addition(image: ClusterImage, where: str, member: int, broker_epoch: int | None) -> None:
    broker = image.live_brokers().get(member)
    if broker is None:
        raise InvalidRequestError(f"{where}: broker {member} is fenced or not registered")
    if broker_epoch is not None and broker_epoch != broker.broker_epoch:
        raise InvalidRequestError(
            f"{where}: broker {member} caught up under broker epoch {broker_epoch}, it is {broker.broker_epoch} now"
        )
