"""Partition reassignment: replicas move to other brokers while the partition stays available (KIP-455). Pure.

Kafka's eleven steps are three kinds of commit here. The request (`alter_partition_reassignments`) sets the replicas to
OAR + RAR (original and target replicas) and begins a leader epoch, in which the new ones are added. The leader adds
them to the ISR one by one as they catch up (`brokers.alter_partition`). The change with which all of RAR is in the ISR
also ends the reassignment (`with_isr`): ISR and replicas become RAR, a replica of RAR leads, the other brokers drop
their replicas. All of it is in the partition's own record, so a dying controller leaves nothing half done, and its
successor continues from its fold (`finish_reassignments`).

OAR {1,2,3} -> RAR {4,5,6}: replicas 4,5,6,1,2,3, adding 4,5,6, removing 1,2,3; then 4/{4,5,6}, replicas 4,5,6.
Source: `ReplicationControlManager`, `PartitionReassignmentReplicas`, `PartitionReassignmentRevert`,
`PartitionChangeBuilder` of Kafka's KRaft controller. A new target during a reassignment keeps OAR, as in KIP-455:
replicas of the earlier target only are dropped at once, and a cancellation returns to OAR.

In a storage domain all replicas have the same table: the request itself ends the reassignment, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stratalog.replication.controller.domains.moves import arriving
from stratalog.replication.controller.election.eligible_leaders import update_eligible_leaders
from stratalog.replication.controller.election.leader_election import UncleanOf, always_clean, elect_reassigned
from stratalog.replication.controller.placement import assign_replicas, check_replicas
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

Target = Sequence[int] | None
"""The target replicas, the preferred leader first; None cancels the reassignment under way."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment under way: all replicas, those being added and those to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def is_reassigning(partition: PartitionRecord) -> bool:
    """Whether a reassignment of the partition, or a move to other places, is under way."""
    return bool(partition.adding or partition.removing or partition.target)


def target_replicas(partition: PartitionRecord) -> tuple[int, ...]:
    """RAR, the replicas after the reassignment; without one, the replicas."""
    return tuple(r for r in partition.replicas if r not in partition.removing)


def original_replicas(partition: PartitionRecord) -> tuple[int, ...]:
    """OAR, to which a cancellation returns; replicas of both OAR and RAR in the order of RAR, as in Kafka."""
    return tuple(r for r in partition.replicas if r not in partition.adding)


def alter_partition_reassignments(
    image: ClusterImage,
    targets: Mapping[TopicPartition, Target],
    *,
    unclean_of: UncleanOf = always_clean,
    allow_replication_factor_change: bool = True,
) -> Result[dict[TopicPartition, StratalogError | None]]:
    """Begin, change or cancel reassignments, each partition by itself; the answer of a success is None.

    A target of another length changes the replication factor. A target that is in sync already is reached in the same
    commit. A target under way or reached writes nothing. The errors are UnknownTopicOrPartition,
    InvalidReplicaAssignment (an empty list, a broker named twice or not registered; or no member of the ISR would be
    left), InvalidReplicationFactor, NoReassignmentInProgress (nothing to cancel).
    """
    decided: list[PartitionRecord] = []
    answers: dict[TopicPartition, StratalogError | None] = {}
    for topic_partition, target in targets.items():
        try:
            current = image.partition(topic_partition)
            wanted = _wanted(image, current, target, allow_replication_factor_change)
            changed = _reassigned(image, current, wanted, unclean_of(current.topic))
        except StratalogError as refusal:
            answers[topic_partition] = refusal.as_value()
            continue
        answers[topic_partition] = None
        if changed is not current:
            decided.append(changed)
    return Result(update_eligible_leaders(image, decided), answers)


def list_partition_reassignments(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """The reassignments under way, in order: of the named partitions (without unknown ones, as in Kafka), or of all."""
    asked = image.partitions if topic_partitions is None else topic_partitions
    states = (image.partitions.get(named) for named in sorted(asked))
    return {state.topic_partition: _under_way(state) for state in states if state is not None and is_reassigning(state)}


def _under_way(state: PartitionRecord) -> PartitionReassignment:
    """Of a move: the replicas that are not there yet, and those that leave when all are."""
    if not state.target:
        return PartitionReassignment(state.replicas, state.adding, state.removing)
    ends = dict(state.target)
    replicas = tuple(dict.fromkeys([*ends, *state.replicas]))
    return PartitionReassignment(replicas, arriving(state), tuple(r for r in replicas if r not in ends))


def with_isr(
    current: PartitionRecord, isr: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionRecord:
    """The partition's next state with this ISR, which ends a reassignment whose RAR it contains.

    Under leader 1 with ISR {1,2,3,4,5}, RAR {4,5,6}: the proposed ISR {1,2,3,4,5,6} becomes 4/{4,5,6}.
    """
    after = replace(current, isr=tuple(isr))
    return _next_state(current, _finished(after, live) or after, controller_epoch)


def finish_reassignments(image: ClusterImage) -> Result[tuple[TopicPartition, ...]]:
    """End the reassignments whose RAR is in sync; the answer names them.

    To be called after a controller's election and after brokers came or went: where no replica of RAR was live when the
    last of them joined the ISR, the reassignment ends when one is.
    """
    live = image.live_brokers().keys()
    waiting = [p for p in image.partitions.values() if p.adding or p.removing]
    pairs = ((p, _finished(p, live)) for p in waiting)
    ended = tuple(_next_state(p, after, image.controller_epoch) for p, after in pairs if after is not None)
    return Result(update_eligible_leaders(image, ended), tuple(p.topic_partition for p in ended))


def propose_assignment(
    current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], *, start_index: int, shift: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """A balanced assignment of these partitions to the brokers of `racks` (broker id -> rack), in order.

    Each topic is placed like a new one, with the replication factor of its first partition here.
    `start_index` and `shift` are the caller's random numbers for `assign_replicas`. InvalidReplicationFactorError.
    Source: `ReassignPartitionsCommand.calculateAssignment`.
    """
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in sorted({named.topic for named in current}):
        of_topic = sorted(named for named in current if named.topic == topic)
        factor = len(current[of_topic[0]])
        placed = assign_replicas(racks, len(of_topic), factor, start_index=start_index, shift=shift)
        proposed.update(zip(of_topic, placed, strict=True))
    return proposed


def _wanted(
    image: ClusterImage, current: PartitionRecord, target: Target, allow_replication_factor_change: bool
) -> tuple[int, ...]:
    if current.target:
        raise errors.InvalidRequestError(
            f"{current.topic_partition} moves to other places, to {dict(current.target)}: let that end, or set "
            f"{DOMAIN_CONFIG} and {COPIES_CONFIG} of topic {current.topic} back"
        )
    if target is None:
        if not is_reassigning(current):
            raise errors.NoReassignmentInProgressError("No partition reassignment is in progress.")
        return original_replicas(current)
    check_replicas(target, image.brokers)
    factor = len(original_replicas(current))
    if not allow_replication_factor_change and len(target) != factor:
        raise errors.InvalidReplicationFactorError(
            f"The replication factor is changed from {factor} to {len(target)} for {current.topic_partition}"
        )
    return tuple(target)


def _reassigned(
    image: ClusterImage, current: PartitionRecord, target: tuple[int, ...], unclean_allowed: bool
) -> PartitionRecord:
    """The next state towards `target`; `current` itself when `target` is under way or reached."""
    live = image.live_brokers().keys()
    if current.has_one_table:
        return _next_state(current, _moved_in_domain(current, target, live), image.controller_epoch)
    original = original_replicas(current)
    removing = tuple(sorted(set(original) - set(target)))
    replicas = (*target, *removing)
    isr = tuple(r for r in current.isr if r in replicas)
    is_unclean = not isr
    if is_unclean:
        if not unclean_allowed:
            raise errors.InvalidReplicaAssignmentError(
                f"Unable to revert partition assignment for {current.topic}:{current.partition} because it would "
                f"require an unclean leader election: the ISR {list(current.isr)} has none of {list(replicas)}."
            )
        isr = (next((r for r in replicas if r in live), replicas[0]),)
    after = replace(
        current, replicas=replicas, adding=tuple(sorted(set(target) - set(original))), removing=removing, isr=isr
    )
    if current.leader not in (*replicas, NO_LEADER):
        election = elect_reassigned(after, live, replicas)
        after = replace(after, leader=NO_LEADER if election is None else election.leader)
    after = _finished(after, live) or after
    return _next_state(current, after, image.controller_epoch, unclean=is_unclean)


def _moved_in_domain(current: PartitionRecord, target: tuple[int, ...], live: Collection[int]) -> PartitionRecord:
    """The partition on these brokers, apart from epochs. Without a live one it keeps an ISR, which is never empty."""
    in_sync = tuple(r for r in target if r in live and r not in current.offline)
    leader = current.leader if current.leader in in_sync else next(iter(in_sync), NO_LEADER)
    stays = leader == current.leader and set(target) == set(current.replicas)  # another ISR is the leader's to propose
    return replace(current, replicas=target, isr=current.isr if stays else in_sync or target, leader=leader)


def _finished(partition: PartitionRecord, live: Collection[int]) -> PartitionRecord | None:
    """The partition after its reassignment, apart from epochs; None while that cannot end.

    All of RAR must be in the ISR, and one of it live: otherwise replicas would be dropped that could still lead.
    """
    target = target_replicas(partition)
    is_under_way = partition.adding or partition.removing
    if not is_under_way or not target or not set(target) <= set(partition.isr):
        return None
    leader = partition.leader
    if leader not in target or leader not in live:
        election = elect_reassigned(partition, live, target)
        if election is None:
            return None
        leader = election.leader
    isr = tuple(r for r in partition.isr if r in target)
    return replace(partition, replicas=target, adding=(), removing=(), isr=isr, leader=leader)


def _next_state(
    current: PartitionRecord, after: PartitionRecord, controller_epoch: int, *, unclean: bool = False
) -> PartitionRecord:
    """`after` as the successor of `current`; a leader epoch begins when the leader or the set of replicas changes.

    So an added replica is in another epoch than an earlier one that was removed from that broker, and the broker
    distinguishes the table to delete from the new copy.
    """
    if after == current:
        return current
    changed = current.changed(
        controller_epoch=controller_epoch,
        leader=after.leader,
        isr=after.isr,
        bump_leader_epoch=after.leader != current.leader or set(after.replicas) != set(current.replicas),
        unclean=unclean,
    )
    return replace(changed, replicas=after.replicas, adding=after.adding, removing=after.removing)
