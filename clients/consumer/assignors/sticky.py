"""Sticky and cooperative sticky: as even as possible, with as few moves as possible. Pure.

Source: `AbstractStickyAssignor`, `StickyAssignor` and `CooperativeStickyAssignor` of Kafka 4.3.1. Choices among equals
are Kafka's, too (`java_strings.hash_order`), so that a group may have leaders of both implementations. Different: Kafka
4.3.1 may assign a topic to a member that does not subscribe to it, when the first member has no topics, and when a
partition returns to an owner of an older generation that has dropped the topic. Owned partitions that a topic no longer
has are ignored, where Kafka assigns others twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.clients.consumer.assignors.assignor import (
    NO_RACKS,
    AssignorMember,
    MemberAssignments,
    PartitionRacks,
    StickyRacks,
    subscribed_counts,
)
from stratalog.clients.consumer.assignors.sticky_even import share_evenly
from stratalog.clients.consumer.assignors.sticky_uneven import UnevenShares
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import PARTITIONS, UNKNOWN_GENERATION, Subscription, partitions_of, topics_of
from stratalog.wire.java_strings import hash_order
from stratalog.wire.kafka_types import Field, Struct, layout

_GENERATION = Field("generation", "int32", first_version=1)
_STICKY_DATA = Struct("StickyAssignorUserData", (Field("previous_assignment", PARTITIONS, is_array=True), _GENERATION))
_COOPERATIVE_DATA = layout(Struct("CooperativeStickyAssignorUserData", (_GENERATION,)), 1)
_GENERATION_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Holding:
    """The partitions that a member claims, and their generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


@dataclass(slots=True)
class _Claims:
    """Owners after conflicts: `owned` by member, where the newer generation wins; `contested` partitions, which two
    members of one generation claim, have no owner."""

    owned: dict[str, list[TopicPartition]] = field(default_factory=dict)
    contested: set[TopicPartition] = field(default_factory=set)


class StickyAssignor:
    """Members revoke all partitions for a rebalance; their user data has them (KIP-54, KIP-341)."""

    name = "sticky"
    cooperative = False

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, AssignorMember],
        partition_racks: PartitionRacks = NO_RACKS,
    ) -> MemberAssignments:
        holdings = {member_id: _claim_of_user_data(member.subscription) for member_id, member in members.items()}
        return _shares(partition_counts, members, partition_racks, holdings)[0]

    def user_data(self, partitions: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        fields = {"previous_assignment": topics_of(partitions), "generation": generation_id}
        return layout(_STICKY_DATA, 1).write(fields)


class CooperativeStickyAssignor:
    """As StickyAssignor, but a partition that moves stays unassigned until its owner has revoked it: that owner starts
    the rebalance that assigns it (KIP-429)."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, AssignorMember],
        partition_racks: PartitionRacks = NO_RACKS,
    ) -> MemberAssignments:
        holdings = {member_id: _claim_of_subscription(member.subscription) for member_id, member in members.items()}
        assignments, moving = _shares(partition_counts, members, partition_racks, holdings)
        if moving is None:
            moving = _moving(members, assignments)
        return {
            member_id: [partition for partition in partitions if moving.get(partition) != member_id]
            for member_id, partitions in assignments.items()
        }

    def user_data(self, _partitions: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        return _COOPERATIVE_DATA.write({"generation": generation_id})


def _shares(
    partition_counts: Mapping[str, int],
    members: Mapping[str, AssignorMember],
    partition_racks: PartitionRacks,
    holdings: Mapping[str, _Holding],
) -> tuple[MemberAssignments, dict[TopicPartition, str] | None]:
    """Assignments, and the new owners of partitions that move; None if these follow from the assignments."""
    if not members:
        return {}, {}
    counts = subscribed_counts(partition_counts, members)
    walked = hash_order(members)
    claims = _settle_claims(walked, counts, members, holdings)
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    racks = StickyRacks(
        {member_id: member.subscription.rack_id for member_id, member in members.items()}, partitions, partition_racks
    )
    if len({frozenset(member.subscription.topics) for member in members.values()}) == 1:
        return share_evenly(counts, claims.owned, claims.contested, racks)
    topics = {member_id: frozenset(members[member_id].subscription.topics) & counts.keys() for member_id in walked}
    previous = _previous_owners(walked, holdings)
    return UnevenShares(counts, topics, claims.owned, previous, racks).share(), None


def _settle_claims(
    walked: Sequence[str],
    counts: Mapping[str, int],
    members: Mapping[str, AssignorMember],
    holdings: Mapping[str, _Holding],
) -> _Claims:
    claims = _Claims()
    owner: dict[TopicPartition, str] = {}
    for member_id in walked:
        claims.owned[member_id] = []
        generation = holdings[member_id].generation
        for partition in holdings[member_id].partitions:
            if partition.partition >= counts.get(partition.topic, 0):
                continue
            other = owner.get(partition)
            # Kafka uses the generation in the other's subscription, not that in its user data.
            other_generation = members[other].subscription.generation_id if other is not None else UNKNOWN_GENERATION
            if other is not None and generation < other_generation:
                continue
            if other is not None and partition in claims.owned[other]:
                claims.owned[other].remove(partition)
            if other is not None and generation == other_generation:
                claims.contested.add(partition)
            else:
                claims.owned[member_id].append(partition)
            owner[partition] = member_id
    return claims


def _previous_owners(walked: Sequence[str], holdings: Mapping[str, _Holding]) -> dict[TopicPartition, str]:
    """The latest owner of each partition from a generation before the newest."""
    newest = max(holding.generation for holding in holdings.values())
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member_id in walked:
        generation = holdings[member_id].generation
        if generation >= newest:
            continue
        for partition in holdings[member_id].partitions:
            if partition not in found or generation > found[partition][0]:
                found[partition] = (generation, member_id)
    return {partition: member_id for partition, (_, member_id) in found.items()}


def _moving(members: Mapping[str, AssignorMember], assignments: MemberAssignments) -> dict[TopicPartition, str]:
    """Partitions that move from one member to another, with their new owners."""
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member_id, partitions in assignments.items():
        owned = set(members[member_id].subscription.owned_partitions)
        added.update((partition, member_id) for partition in partitions if partition not in owned)
        given_up |= owned.difference(partitions)
    return {partition: member_id for partition, member_id in added.items() if partition in given_up}


def _claim_of_user_data(subscription: Subscription) -> _Holding:
    """The claim in a sticky member's user data; empty if it cannot be read. Version 0 has no generation."""
    if not subscription.user_data:
        return _Holding((), UNKNOWN_GENERATION)
    try:
        fields, end = layout(_STICKY_DATA, 0).read(subscription.user_data)
        if len(subscription.user_data) - end >= _GENERATION_BYTES:
            fields, end = layout(_STICKY_DATA, 1).read(subscription.user_data)
    except CorruptMessageError:
        return _Holding((), UNKNOWN_GENERATION)
    return _Holding(partitions_of(fields["previous_assignment"]), fields.get("generation", UNKNOWN_GENERATION))


def _claim_of_subscription(subscription: Subscription) -> _Holding:
    """The claim of a cooperative member; its generation is in its user data before version 2."""
    generation = subscription.generation_id
    if generation < 0 and subscription.user_data is not None and len(subscription.user_data) >= _GENERATION_BYTES:
        generation = _COOPERATIVE_DATA.read(subscription.user_data)[0]["generation"]
    return _Holding(subscription.owned_partitions, max(generation, UNKNOWN_GENERATION))
