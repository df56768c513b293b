"""Sticky assignment of members that subscribe to different topics: as even as their subscriptions allow. Pure.

Source: `AbstractStickyAssignor.GeneralAssignmentBuilder` and `PartitionMovements` of Kafka 4.3.1: keep what is owned
and still subscribed to, assign the rest to the member with the fewest, then move single partitions to members with at
least two fewer until none can be moved, and undo the moves if the whole is not more even. Kafka checks the balance at
each partition, over all partitions of all members; here it is checked once after each move, by topic, with the same
result.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from stratalog.clients.consumer.assignors.assignor import MemberAssignments, StickyRacks, balance_score
from stratalog.storage.records import TopicPartition
from stratalog.wire.java_strings import bucket_order, string_hash, string_order


class UnevenShares:
    """One computation.

    counts    partitions of each topic with subscribers
    topics    of each member, those of `counts` that it subscribes to, in the order in which members are visited
    owned     partitions of each member
    previous  owners of an older generation, preferred when a partition moves
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        topics: Mapping[str, Set[str]],
        owned: Mapping[str, Sequence[TopicPartition]],
        previous: Mapping[TopicPartition, str],
        racks: StickyRacks,
    ) -> None:
        self._counts = counts
        self._topics = topics
        self._previous = previous
        self._racks = racks
        self._subscribers = Counter(topic for member_topics in topics.values() for topic in member_topics)
        self._assignments = {member_id: list(owned[member_id]) for member_id in topics}
        self._owner = {tp: member_id for member_id, partitions in self._assignments.items() for tp in partitions}
        self._moves = PartitionMoves()
        self._smallest_first: list[tuple[int, bytes, str]] = []
        self._balanced: bool | None = None

    def share(self) -> MemberAssignments:
        revoked = self._drop_unwanted()
        everything = self._by_scarcity()
        kept = {partition for partitions in self._assignments.values() for partition in partitions}
        unassigned = [partition for partition in everything if partition not in kept]
        self._smallest_first = sorted(self._rank(member_id) for member_id in self._assignments)
        initializing = not self._assignments[self._smallest_first[-1][2]]
        self._assign_all(unassigned)
        fixed = self._set_fixed_aside()
        unassigned = [partition for partition in unassigned if self._subscribers[partition.topic] > 1]
        everything = [partition for partition in everything if self._subscribers[partition.topic] > 1]
        before = {member_id: list(partitions) for member_id, partitions in self._assignments.items()}
        if not revoked:
            self._even_out(unassigned)
        moved = self._even_out(everything)
        if moved and not initializing and balance_score(self._assignments) >= balance_score(before):
            self._assignments = before
        return self._assignments | fixed

    def _drop_unwanted(self) -> bool:
        """Remove partitions of topics without subscription or not on the member's rack; True if there were any."""
        dropped = False
        for member_id, partitions in self._assignments.items():
            wanted = [
                partition
                for partition in partitions
                if partition.topic in self._topics[member_id] and not self._racks.mismatch(member_id, partition)
            ]
            dropped |= len(wanted) < len(partitions)
            partitions[:] = wanted
        return dropped

    def _by_scarcity(self) -> list[TopicPartition]:
        """All partitions, those with the fewest subscribers first."""
        topics = sorted(self._counts, key=lambda topic: (self._subscribers[topic], string_order(topic)))
        return [TopicPartition(topic, number) for topic in topics for number in range(self._counts[topic])]

    def _assign_all(self, unassigned: Sequence[TopicPartition]) -> None:
        left = list(unassigned)
        if self._racks.matter:
            left = [partition for partition in left if not self._assign(partition, by_rack=True)]
        for partition in left:
            self._assign(partition, by_rack=False)

    def _assign(self, partition: TopicPartition, *, by_rack: bool) -> bool:
        for _, _, member_id in self._smallest_first:
            if partition.topic not in self._topics[member_id]:
                continue
            if by_rack and self._racks.mismatch(member_id, partition):
                continue
            self._unrank(member_id)
            self._assignments[member_id].append(partition)
            self._owner[partition] = member_id
            insort(self._smallest_first, self._rank(member_id))
            return True
        return False

    def _set_fixed_aside(self) -> MemberAssignments:
        """Remove members with all partitions that they can get and no topic with other subscribers: none moves."""
        fixed = {}
        for member_id in list(self._assignments):
            most = sum(self._counts[topic] for topic in self._topics[member_id])
            has = self._assignments[member_id]
            if len(has) == most and all(self._subscribers[partition.topic] < 2 for partition in has):
                self._unrank(member_id)
                fixed[member_id] = self._assignments.pop(member_id)
        return fixed

    def _even_out(self, movable: Sequence[TopicPartition]) -> bool:
        """Move partitions until a pass over `movable` moves none; True if any was moved."""
        ever = False
        again = True
        while again:
            again = False
            for partition in movable:
                if self._is_balanced():
                    break
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    again = ever = True
        return ever

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """A member with at least two fewer than the owner: the previous owner, else the one with the fewest."""
        size = len(self._assignments[self._owner[partition]])
        previous = self._previous.get(partition)
        if (
            previous in self._assignments
            and partition.topic in self._topics[previous]
            and size > len(self._assignments[previous]) + 1
        ):
            return previous
        for target_size, _, member_id in self._smallest_first:
            if size <= target_size + 1:
                return None
            if partition.topic in self._topics[member_id]:
                return member_id
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        partition = self._moves.better_moved(partition, self._owner[partition], target)
        source = self._owner[partition]
        self._unrank(source)
        if target != source:
            self._unrank(target)
        self._moves.moved(partition, source, target)
        self._assignments[source].remove(partition)
        self._assignments[target].append(partition)
        self._owner[partition] = target
        insort(self._smallest_first, self._rank(target))
        if target != source:
            insort(self._smallest_first, self._rank(source))
        self._balanced = None

    def _is_balanced(self) -> bool:
        """Whether no member could get a partition of one that has at least two more."""
        if self._balanced is None:
            self._balanced = self._find_balanced()
        return self._balanced

    def _find_balanced(self) -> bool:
        if self._smallest_first[0][0] >= self._smallest_first[-1][0] - 1:
            return True
        largest_owner = dict.fromkeys(self._counts, 0)
        for size, _, member_id in self._smallest_first:
            for topic in {partition.topic for partition in self._assignments[member_id]}:
                largest_owner[topic] = size
        return all(
            size + 1 >= largest_owner[topic]
            for size, _, member_id in self._smallest_first
            for topic in self._topics[member_id]
        )

    def _rank(self, member_id: str) -> tuple[int, bytes, str]:
        return (len(self._assignments[member_id]), string_order(member_id), member_id)

    def _unrank(self, member_id: str) -> None:
        del self._smallest_first[bisect_left(self._smallest_first, self._rank(member_id))]


_Way = tuple[str, str]
"""A partition's first owner and its last."""


class PartitionMoves:
    """The moves so far, so that no two members swap partitions of one topic."""

    def __init__(self) -> None:
        self._way: dict[TopicPartition, _Way] = {}
        self._moved: dict[tuple[str, _Way], dict[TopicPartition, None]] = {}

    def better_moved(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move from `source` to `target` instead of this one: one of the same topic that moved in the
        opposite direction before, if there is one."""
        origin = self._way[partition][0] if partition in self._way else source
        came = self._moved.get((partition.topic, (target, origin)))
        if not came:
            return partition
        candidates = list(came)
        return candidates[bucket_order([_hash(candidate) for candidate in candidates])[0]]

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record a move; a partition that is back at its first owner has not moved."""
        origin = source
        if partition in self._way:
            before = self._way.pop(partition)
            del self._moved[(partition.topic, before)][partition]
            origin = before[0]
        if origin != target:
            self._way[partition] = (origin, target)
            self._moved.setdefault((partition.topic, (origin, target)), {})[partition] = None


def _hash(partition: TopicPartition) -> int:
    """Java's `TopicPartition.hashCode`."""
    return 31 * (31 + partition.partition) + string_hash(partition.topic)
