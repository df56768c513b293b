"""The port of assignors of classic groups, the orders and racks that they share, and the score of a balance. Pure.

An assignor spreads the partitions of topics over the members that subscribe to them; the group's leader, a client,
runs it. Source: `ConsumerPartitionAssignor`, `AbstractPartitionAssignor` and `AbstractStickyAssignor.RackInfo` of
Kafka 4.3.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import Subscription
from stratalog.wire.java_strings import string_order

MemberAssignments = dict[str, list[TopicPartition]]
"""Partitions of each member id; every member has an entry."""

PartitionRacks = Mapping[TopicPartition, Set[str]]
"""The racks of each partition's replicas, as far as they are known."""

NO_RACKS: PartitionRacks = {}


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """One member in the leader's JoinGroup response."""

    subscription: Subscription
    group_instance_id: str | None = None


class Assignor(Protocol):
    """One strategy; `name` is what members offer in JoinGroup."""

    @property
    def name(self) -> str: ...

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance and revoke only those that move."""

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, AssignorMember],
        partition_racks: PartitionRacks = NO_RACKS,
    ) -> MemberAssignments:
        """Partitions by member id. `partition_counts` has the known topics; others get no partitions. The order of
        `members` is that of the JoinGroup response and decides among equals only."""

    def user_data(self, partitions: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """The user data of a member that owns `partitions` since `generation_id`, for its next JoinGroup."""


def subscribed_counts(partition_counts: Mapping[str, int], members: Mapping[str, AssignorMember]) -> dict[str, int]:
    """The topics with partitions that a member subscribes to, with their numbers of partitions."""
    subscribed = {topic for member in members.values() for topic in member.subscription.topics}
    return {topic: count for topic, count in partition_counts.items() if count > 0 and topic in subscribed}


def member_order(members: Mapping[str, AssignorMember], member_id: str) -> tuple[bool, bytes]:
    """A key that sorts static members first, by group instance id, then the others by member id: so assignments stay
    when static members come back with new member ids. Source: `AbstractPartitionAssignor.MemberInfo`."""
    instance_id = members[member_id].group_instance_id
    return (instance_id is None, string_order(member_id if instance_id is None else instance_id))


def partition_order(partition: TopicPartition) -> tuple[bytes, int]:
    """A key that sorts by topic, then by number. Source: `TopicPartitionComparator`."""
    return (string_order(partition.topic), partition.partition)


def racks_matter(
    member_racks: Iterable[str], partition_racks: PartitionRacks, partitions: Iterable[TopicPartition]
) -> bool:
    """Whether placing by rack can help: members and replicas share a rack, and not every partition is on all racks
    (KIP-881, `useRackAwareAssignment`)."""
    racks = [partition_racks.get(partition, frozenset()) for partition in partitions]
    all_racks = frozenset().union(*racks)
    return not all_racks.isdisjoint(member_racks) and any(one != all_racks for one in racks)


def balance_score(assignments: Mapping[str, Sequence[TopicPartition]]) -> int:
    """The sum over all pairs of members of the difference between their numbers of partitions; 0 is even.

    >>> balance_score({"a": [TopicPartition("t", 0), TopicPartition("t", 1)], "b": [], "c": []})
    4
    """
    sizes = sorted(len(partitions) for partitions in assignments.values())
    return sum(size * (2 * rank - len(sizes) + 1) for rank, size in enumerate(sizes))


class StickyRacks:
    """Racks of members and partitions. `matter` is False, and every member fits everywhere, unless both sides share a
    rack and some partition is not on all racks."""

    def __init__(
        self,
        member_racks: Mapping[str, str | None],
        partitions: Sequence[TopicPartition],
        partition_racks: PartitionRacks,
    ) -> None:
        known = {member_id: rack for member_id, rack in member_racks.items() if rack}
        self.matter = bool(known) and racks_matter(known.values(), partition_racks, partitions)
        self._member_racks = known if self.matter else {}
        self._partition_racks = partition_racks if self.matter else {}
        self._members_on = Counter(known.values())

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition no replica on it."""
        rack = self._member_racks.get(member_id)
        return rack is not None and rack not in self._partition_racks.get(partition, ())

    def scarcest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sorted by how many members have a rack of the partition: those with the fewest choices come first."""
        if not self.matter:
            return partitions
        return sorted(
            partitions,
            key=lambda partition: sum(self._members_on[rack] for rack in self._partition_racks.get(partition, ())),
        )

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int:
        """Position of the first member on a rack of the partition, from `first` on and round; -1 if there is none."""
        racks = self._partition_racks.get(partition, ())
        for step in range(len(members) if racks else 0):
            at = (first + step) % len(members)
            if self._member_racks.get(members[at]) in racks:
                return at
        return -1
