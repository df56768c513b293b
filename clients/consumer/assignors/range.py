"""Range and round robin: the two assignors without regard to earlier assignments. Pure.

Source: `RangeAssignor` and `RoundRobinAssignor` of Kafka 4.3.1. Range assigns each topic by itself, so of three
topics of three partitions two members get six and three partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from stratalog.clients.consumer.assignors.assignor import (
    NO_RACKS,
    AssignorMember,
    MemberAssignments,
    PartitionRacks,
    member_order,
    partition_order,
    racks_matter,
    subscribed_counts,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.java_strings import string_order


class RangeAssignor:
    """Each topic's partitions in numeric order, cut into one range per subscribed member; the first members get one
    more when it does not come out even. With racks known on both sides, partitions go first to members on a rack of
    theirs, as far as the ranges' sizes and equal numbers across topics allow it (KIP-881).

    >>> from stratalog.wire.consumer_protocol import Subscription
    >>> members = {name: AssignorMember(Subscription(("t",))) for name in ("c0", "c1")}
    >>> {name: [at.partition for at in share] for name, share in RangeAssignor().assign({"t": 3}, members).items()}
    {'c0': [0, 1], 'c1': [2]}
    """

    name = "range"
    cooperative = False

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, AssignorMember],
        partition_racks: PartitionRacks = NO_RACKS,
    ) -> MemberAssignments:
        topics = [
            _TopicShares(topic, count, members, partition_racks)
            for topic, count in subscribed_counts(partition_counts, members).items()
        ]
        assignments: MemberAssignments = {member_id: [] for member_id in members}
        if any(topic.racks_matter for topic in topics):
            _assign_by_rack(topics, assignments)
        for topic in topics:
            topic.assign_ranges(assignments, lambda _member, _partition: True)
        for partitions in assignments.values():
            partitions.sort(key=partition_order)
        return assignments

    def user_data(self, _partitions: Sequence[TopicPartition], _generation_id: int) -> bytes | None:
        return None


class RoundRobinAssignor:
    """All partitions in order of topic and number, dealt in turn to the members that subscribe to their topic."""

    name = "roundrobin"
    cooperative = False

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, AssignorMember],
        _partition_racks: PartitionRacks = NO_RACKS,
    ) -> MemberAssignments:
        assignments: MemberAssignments = {member_id: [] for member_id in members}
        order = sorted(members, key=lambda member_id: member_order(members, member_id))
        subscribed = {member_id: frozenset(member.subscription.topics) for member_id, member in members.items()}
        counts = subscribed_counts(partition_counts, members)
        turn = 0
        for topic in sorted(counts, key=string_order):
            for number in range(counts[topic]):
                while topic not in subscribed[order[turn]]:
                    turn = (turn + 1) % len(order)
                assignments[order[turn]].append(TopicPartition(topic, number))
                turn = (turn + 1) % len(order)
        return assignments

    def user_data(self, _partitions: Sequence[TopicPartition], _generation_id: int) -> bytes | None:
        return None


class _TopicShares:
    """One topic during its assignment: the partitions left, and the number that each member may still get."""

    def __init__(
        self, topic: str, count: int, members: Mapping[str, AssignorMember], partition_racks: PartitionRacks
    ) -> None:
        subscribers = [member_id for member_id, member in members.items() if topic in member.subscription.topics]
        self.topic = topic
        self.count = count
        self.members = tuple(sorted(subscribers, key=lambda member_id: member_order(members, member_id)))
        self.racks = {member_id: members[member_id].subscription.rack_id or None for member_id in self.members}
        self._partition_racks = partition_racks
        self._left = {TopicPartition(topic, number): None for number in range(count)}
        self._taken = dict.fromkeys(self.members, 0)
        self._each, self._extra_left = divmod(count, len(self.members))
        known_racks = [rack for rack in self.racks.values() if rack]
        self.racks_matter = racks_matter(known_racks, partition_racks, self._left)

    def on_a_rack_of(self, member_id: str, partition: TopicPartition) -> bool:
        rack = self.racks[member_id]
        return rack is None or rack in self._partition_racks.get(partition, ())

    def room_of(self, member_id: str) -> int:
        return max(0, self._each + (self._extra_left > 0) - self._taken[member_id])

    def assign_ranges(self, assignments: MemberAssignments, fits: Callable[[str, TopicPartition], bool]) -> None:
        for member_id in self.members:
            fitting = (partition for partition in self._left if fits(member_id, partition))
            self.assign(member_id, list(islice(fitting, self.room_of(member_id))), assignments)

    def assign(self, member_id: str, partitions: Sequence[TopicPartition], assignments: MemberAssignments) -> None:
        if not partitions:
            return
        assignments[member_id].extend(partitions)
        self._taken[member_id] += len(partitions)
        if self._taken[member_id] > self._each:
            self._extra_left -= 1
        for partition in partitions:
            del self._left[partition]


def _assign_by_rack(topics: Sequence[_TopicShares], assignments: MemberAssignments) -> None:
    """Topics with the same members and as many partitions are assigned together, so that a member has the same
    partition numbers of each: joins by key rely on that, so it comes before racks."""
    together = defaultdict(list)
    for topic in topics:
        # Kafka uses the number of partitions whose racks it looked up: none when no member has a rack.
        placed_partitions = topic.count if any(topic.racks.values()) else 0
        together[(topic.members, placed_partitions)].append(topic)
    for (members, placed_partitions), same in together.items():
        if len(same) > 1:
            _assign_same_numbers(members, placed_partitions, same, assignments)
        elif same[0].racks_matter:
            same[0].assign_ranges(assignments, same[0].on_a_rack_of)


def _assign_same_numbers(
    members: Sequence[str], count: int, topics: Sequence[_TopicShares], assignments: MemberAssignments
) -> None:
    remaining = list(members)
    for number in range(count):
        for member_id in remaining:
            if all(
                topic.on_a_rack_of(member_id, TopicPartition(topic.topic, number)) and topic.room_of(member_id) > 0
                for topic in topics
            ):
                for topic in topics:
                    topic.assign(member_id, [TopicPartition(topic.topic, number)], assignments)
                if all(topic.room_of(member_id) == 0 for topic in topics):
                    remaining.remove(member_id)
                break
