"""The uniform assignor's targets for members that subscribe to different topics. Pure.

Source: `UniformHeterogeneousAssignmentBuilder` of Kafka 4.3.1. Topics with the most partitions per subscriber come
first. What nobody has goes to the least loaded subscribers of its topic; then single partitions move from the most to
the least loaded subscribers, topic by topic and at most sixteen times through all topics, until nothing improves.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from stratalog.replication.coordinator.groups.target_shares import MemberSpec, Shares, TopicIdPartition
from stratalog.replication.java_strings import string_order

_ROUNDS_MAX = 16
_NOBODY = -1


class UnevenTargets:
    """One computation. Members are numbered in the order of their ids; of equally loaded ones the lower comes first."""

    def __init__(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> None:
        self._member_ids = sorted(members, key=string_order)
        specs = [members[member_id] for member_id in self._member_ids]
        topic_ids = {topic_id for spec in specs for topic_id in spec.topic_ids}
        self._subscribers = {
            topic_id: [at for at, spec in enumerate(specs) if topic_id in spec.topic_ids] for topic_id in topic_ids
        }
        self._owners = {topic_id: [_NOBODY] * partition_counts[topic_id] for topic_id in topic_ids}
        self._loads = [0] * len(specs)
        for at, spec in enumerate(specs):
            for topic_id, partition in spec.target:
                if topic_id in spec.topic_ids and partition < len(self._owners[topic_id]):
                    self._owners[topic_id][partition] = at
                    self._loads[at] += 1
        self._topics = sorted(topic_ids, key=self._order_of_topic)

    def share(self) -> Shares:
        for topic_id in self._topics:
            self._give_unowned(topic_id)
        self._balance([topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1])
        shares: list[set[TopicIdPartition]] = [set() for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, at in enumerate(owners):
                shares[at].add(TopicIdPartition(topic_id, partition))
        return {member_id: frozenset(share) for member_id, share in zip(self._member_ids, shares, strict=True)}

    def _order_of_topic(self, topic_id: str) -> tuple[float, int, tuple[int, int]]:
        """Kafka compares ids as two signed halves."""
        subscribers = len(self._subscribers[topic_id])
        high, low = struct.unpack(">qq", bytes.fromhex(topic_id.zfill(32)))
        return (-len(self._owners[topic_id]) / subscribers, subscribers, (high, low))

    def _give_unowned(self, topic_id: str) -> None:
        unowned = [partition for partition, at in enumerate(self._owners[topic_id]) if at == _NOBODY]
        if unowned:
            loads = _LoadRanges(self._loads, self._subscribers[topic_id])
            for partition in unowned:
                self._give(topic_id, partition, loads.next_least_loaded())

    def _give(self, topic_id: str, partition: int, at: int) -> None:
        before = self._owners[topic_id][partition]
        if before != _NOBODY:
            self._loads[before] -= 1
        self._owners[topic_id][partition] = at
        self._loads[at] += 1

    def _balance(self, topic_ids: Sequence[str]) -> None:
        """Ends when a whole round since the last topic that changed anything has changed nothing."""
        last_changed = None
        for _ in range(_ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: str) -> bool:
        """Moves partitions from the most to the least loaded subscribers; whether any moved."""
        loads = _LoadRanges(self._loads, self._subscribers[topic_id])
        if loads.imbalance <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, at in enumerate(self._owners[topic_id]):
            owned.setdefault(at, []).append(partition)
        moved = False
        while not loads.balanced:
            giver = self._next_giver(loads, owned)
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = loads.next_least_loaded()
            if loads.balanced:
                break
            self._give(topic_id, partition, taker)
            moved = True
        return moved

    @staticmethod
    def _next_giver(loads: _LoadRanges, owned: Mapping[int, Sequence[int]]) -> int | None:
        """The next of the most loaded members that has partitions of the topic to give."""
        while (at := loads.next_most_loaded()) is not None:
            if owned.get(at):
                return at
            loads.exclude_most_loaded()
        return None


class _LoadRanges:
    """The subscribers of one topic sorted by load as it was at first, with the range of least loaded ones growing from
    the left and that of most loaded ones from the right, each walked through level by level."""

    def __init__(self, loads: Sequence[int], members: Sequence[int]) -> None:
        self._loads = loads
        self._sorted = sorted(members, key=lambda at: (loads[at], at))
        first, last = loads[self._sorted[0]], loads[self._sorted[-1]]
        self.imbalance = last - first
        self._least_end = 0
        self._least_level = first - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_level = last + 1
        self._next_most = len(self._sorted) - 1

    @property
    def balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(self._sorted) and self._load_at(self._least_end) == self._least_level:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._sorted[self._next_least - 1]

    def next_most_loaded(self) -> int | None:
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_level = self._load_at(self._most_start - 1)
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._load_at(self._most_start - 1) == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._sorted[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """Leaves out the member that was given last: it has nothing to give."""
        here, end = self._next_most + 1, self._most_end - 1
        self._sorted[here], self._sorted[end] = self._sorted[end], self._sorted[here]
        self._most_end -= 1

    def _load_at(self, position: int) -> int:
        return self._loads[self._sorted[position]]
