"""Kafka's assignment of replicas to brokers (`AdminUtils`). Pure.

The first replicas of a topic's partitions go round the brokers from a start index; the other replicas follow at a shift
that grows by one with each round, so that a dead broker's load spreads over all others. If every broker has a rack,
brokers alternate by rack, and no rack gets a second replica before each has one. A broker has one root, so
replicas never share one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, zip_longest

from stratalog.storage import errors


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Replicas of the partitions `first_partition …`, the preferred leader first.

    `brokers` maps the live brokers to their racks; if one has no rack, racks are ignored. `start_index` and `shift` are
    random numbers of the caller, ≥ 0. Raises InvalidPartitionsError and InvalidReplicationFactorError.

    >>> assign_replicas({0: None, 1: None, 2: None}, 3, 2, start_index=0, shift=0)
    [(0, 1), (1, 2), (2, 0)]
    """
    _check_counts(len(brokers), partitions, replication_factor)
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if len(racks) < len(brokers):
        racks = {}
    ring = rack_alternated(racks) if racks else sorted(brokers)
    placed = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start_index) % len(ring)
        placed.append(_replicas_of_one(ring, racks, first, shift, replication_factor))
    return placed


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers in an order that changes the rack at every step as long as possible.

    >>> rack_alternated({0: "a", 1: "a", 2: "b", 3: "c"})
    [0, 2, 3, 1]
    """
    by_rack = [sorted(b for b in racks if racks[b] == rack) for rack in sorted(set(racks.values()))]
    return [broker for layer in zip_longest(*by_rack) for broker in layer if broker is not None]


def check_assignment(
    assignment: Mapping[int, Sequence[int]], registered: Collection[int], first_partition: int = 0
) -> None:
    """Check a manual replica assignment: partition -> replicas, the preferred leader first.

    Raises InvalidReplicaAssignmentError, in Kafka's words: partitions not numbered from `first_partition`
    without a gap, an empty list, a broker named twice or not registered, lists of different lengths.
    """
    if sorted(assignment) != list(range(first_partition, first_partition + len(assignment))) or not assignment:
        raise errors.InvalidReplicaAssignmentError(
            f"partitions should be a consecutive {first_partition}-based integer sequence, got {sorted(assignment)}"
        )
    replication_factor = len(assignment[first_partition])
    for partition in sorted(assignment):
        check_replicas(assignment[partition], registered)
        check_replica_count(len(assignment[partition]), replication_factor)


def check_replica_count(given: int, expected: int) -> None:
    """InvalidReplicaAssignmentError unless a partition gets as many replicas as the ones before it."""
    if given != expected:
        raise errors.InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {given} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )


def check_replicas(replicas: Sequence[int], registered: Collection[int]) -> None:
    """InvalidReplicaAssignmentError, in Kafka's words: an empty list, a broker named twice or not registered."""
    start = "The manual partition assignment includes"
    if not replicas:
        raise errors.InvalidReplicaAssignmentError(f"{start} an empty replica list.")
    for position, broker in enumerate(replicas):
        if broker not in registered:
            raise errors.InvalidReplicaAssignmentError(f"{start} broker {broker}, but no such broker is registered.")
        if broker in replicas[:position]:
            raise errors.InvalidReplicaAssignmentError(f"{start} the broker {broker} more than once.")


def _check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    if replication_factor <= 0:
        raise errors.InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if partitions <= 0:
        raise errors.InvalidPartitionsError("Number of partitions must be larger than 0.")
    if replication_factor > brokers:
        raise errors.InvalidReplicationFactorError(
            f"Replication factor: {replication_factor} larger than available brokers: {brokers}."
        )


def _replicas_of_one(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """`first`: the preferred leader's index in the ring; followers come at growing shifts behind it."""
    rack_count = len(set(racks.values()))
    candidates = _followers(ring, first, shift * max(rack_count, 1))
    replicas = [ring[first]]
    while len(replicas) < replication_factor:
        broker = next(candidates)
        used_racks = {racks[b] for b in replicas} if racks else set()
        rack_is_free = len(used_racks) == rack_count or racks[broker] not in used_racks
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
    return tuple(replicas)


def _followers(ring: Sequence[int], first: int, shift: int) -> Iterator[int]:
    """All other brokers over and over, beginning `1 + shift` steps behind `first` (modulo the ring)."""
    for step in count():
        behind = 1 + (shift + step) % (len(ring) - 1)
        yield ring[(first + behind) % len(ring)]
