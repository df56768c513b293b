"""The assignors that a coordinator runs for modern groups (KIP-848): uniform and range. Pure.

Neither considers racks, as in Kafka 4.3.1, which offers assignors the racks of members and replicas
(`MemberSubscription.rackId`, `SubscribedTopicDescriber.racksForPartition`) but uses them in the classic assignors only.
Where Kafka's choice among equals is the order of a hash map, here it is the order of the ids of members and topics.

The uniform assignor for members that subscribe to different topics (`UnevenTargets`): topics with the most partitions
per subscriber come first. Partitions without an owner go to the least loaded subscribers of their topic; then single
partitions move from the most to the least loaded subscribers, topic by topic and at most sixteen times through all
topics, until nothing improves.

Source: `UniformAssignor`, `UniformHomogeneousAssignmentBuilder`, `UniformHeterogeneousAssignmentBuilder`,
`RangeAssignor`, `GroupSpec`, `MemberSubscription` and `MemberAssignment` of Kafka 4.3.1's group coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from stratalog.storage.errors import IllegalStateError
from stratalog.wire.java_strings import string_order


class ServerAssignor(Protocol):
    """A strategy of the coordinator. Members select it by `name` with `group.remote.assignor`."""

    @property
    def name(self) -> str: ...

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
        """The targets of all members. `partition_counts` has every topic id in `members`."""


class UniformAssignor:
    """The most even targets that subscriptions allow, with the fewest moves among these; the default.

    >>> members = {"a": MemberSpec(frozenset("t")), "b": MemberSpec(frozenset("t"))}
    >>> {name: len(share) for name, share in UniformAssignor().assign({"t": 5}, members).items()}
    {'a': 2, 'b': 3}
    """

    name = "uniform"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
        if len({spec.topic_ids for spec in members.values()}) > 1:
            return UnevenTargets(partition_counts, members).share()
        return _even_targets(partition_counts, members)


class ServerRangeAssignor:
    """One range of each topic per subscribed member, static members first, as the classic range assignor."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
        order = sorted(members, key=lambda member_id: _range_order(members, member_id))
        shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
        for topic_id in {topic_id for spec in members.values() for topic_id in spec.topic_ids}:
            subscribers = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
            each, extra = divmod(partition_counts[topic_id], len(subscribers))
            start = 0
            for rank, member_id in enumerate(subscribers):
                end = start + each + (rank < extra)
                shares[member_id].update(TopicIdPartition(topic_id, number) for number in range(start, end))
                start = end
        return {member_id: frozenset(share) for member_id, share in shares.items()}


SERVER_ASSIGNORS: Mapping[str, ServerAssignor] = {
    assignor.name: assignor for assignor in (UniformAssignor(), ServerRangeAssignor())
}
"""In the order of Kafka's `group.consumer.assignors`: the first one is the default."""


def _range_order(members: Mapping[str, MemberSpec], member_id: str) -> tuple[bool, bytes]:
    instance_id = members[member_id].instance_id
    return (instance_id is None, string_order(member_id if instance_id is None else instance_id))


@dataclass(slots=True)
class _Quotas:
    """Each member may have `each` partitions, and `extra_left` of the next ones one more."""

    each: int
    extra_left: int
    members_left: int
    open: list[tuple[str, int]] = field(default_factory=list)

    def keep(self, member_id: str, owned: list[TopicIdPartition]) -> list[TopicIdPartition]:
        """The partitions of `owned` that a member keeps; if it may have more, it is added to `open`."""
        has_extra = self.extra_left > 0
        quota = self.each + has_extra
        room = max(0, quota - len(owned))
        if room and has_extra and self.members_left > self.extra_left:
            # Others may have the extra partition already; only the last members have to take it.
            has_extra = False
            room -= 1
        if room:
            self.open.append((member_id, room))
        self.extra_left -= has_extra
        self.members_left -= 1
        return owned[:quota]


def _even_targets(partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
    topic_ids = sorted(next(iter(members.values())).topic_ids) if members else []
    everything = [TopicIdPartition(topic_id, at) for topic_id in topic_ids for at in range(partition_counts[topic_id])]
    existing = set(everything)
    each, extra = divmod(len(everything), max(1, len(members)))
    quotas = _Quotas(each, extra, len(members))
    kept = {
        member_id: quotas.keep(member_id, sorted(members[member_id].target & existing))
        for member_id in sorted(members, key=string_order)
    }
    left = iter(_without(everything, kept.values()))
    for member_id, room in quotas.open:
        kept[member_id] += islice(left, room)
    remaining = list(left)
    if remaining:
        raise IllegalStateError(f"partitions were left unassigned: {remaining}")
    return {member_id: frozenset(partitions) for member_id, partitions in kept.items()}


def _without(
    everything: Iterable[TopicIdPartition], taken: Iterable[Iterable[TopicIdPartition]]
) -> list[TopicIdPartition]:
    gone = {partition for partitions in taken for partition in partitions}
    return [partition for partition in everything if partition not in gone]


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is named by its id (32 hexadecimal digits)."""

    topic_id: str
    partition: int


Shares = dict[str, frozenset[TopicIdPartition]]
"""Target partitions of each member id; every member has an entry."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member's existing topics, and its target so far."""

    topic_ids: frozenset[str]
    target: frozenset[TopicIdPartition] = frozenset()
    instance_id: str | None = None


_ROUNDS_MAX = 16
_NO_OWNER = -1


class UnevenTargets:
    """One computation. Members are numbered in the order of their ids; of equally loaded ones the lower is first."""

    def __init__(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> None:
        self._member_ids = sorted(members, key=string_order)
        specs = [members[member_id] for member_id in self._member_ids]
        topic_ids = {topic_id for spec in specs for topic_id in spec.topic_ids}
        self._subscribers = {
            topic_id: [at for at, spec in enumerate(specs) if topic_id in spec.topic_ids] for topic_id in topic_ids
        }
        self._owners = {topic_id: [_NO_OWNER] * partition_counts[topic_id] for topic_id in topic_ids}
        self._loads = [0] * len(specs)
        for at, spec in enumerate(specs):
            for topic_id, partition in spec.target:
                if topic_id in spec.topic_ids and partition < len(self._owners[topic_id]):
                    self._owners[topic_id][partition] = at
                    self._loads[at] += 1
        self._topics = sorted(topic_ids, key=self._order_of_topic)

    def share(self) -> Shares:
        for topic_id in self._topics:
            self._assign_unowned(topic_id)
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

    def _assign_unowned(self, topic_id: str) -> None:
        unowned = [partition for partition, at in enumerate(self._owners[topic_id]) if at == _NO_OWNER]
        if unowned:
            loads = _LoadRanges(self._loads, self._subscribers[topic_id])
            for partition in unowned:
                self._assign(topic_id, partition, loads.next_least_loaded())

    def _assign(self, topic_id: str, partition: int, at: int) -> None:
        before = self._owners[topic_id][partition]
        if before != _NO_OWNER:
            self._loads[before] -= 1
        self._owners[topic_id][partition] = at
        self._loads[at] += 1

    def _balance(self, topic_ids: Sequence[str]) -> None:
        """Ends when a whole round after the last topic with a move had none."""
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
            loaded_most = self._next_most_loaded_owner(loads, owned)
            if loaded_most is None:
                break
            partition = owned[loaded_most].pop()
            least_loaded = loads.next_least_loaded()
            if loads.balanced:
                break
            self._assign(topic_id, partition, least_loaded)
            moved = True
        return moved

    @staticmethod
    def _next_most_loaded_owner(loads: _LoadRanges, owned: Mapping[int, Sequence[int]]) -> int | None:
        """The next of the most loaded members that owns partitions of the topic."""
        while (at := loads.next_most_loaded()) is not None:
            if owned.get(at):
                return at
            loads.exclude_most_loaded()
        return None


class _LoadRanges:
    """The subscribers of one topic sorted by their load at the beginning. The range of the least loaded ones grows from
    the left and that of the most loaded ones from the right, level by level."""

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
        """Leaves out the member that was returned last: it owns no partition of the topic."""
        here, end = self._next_most + 1, self._most_end - 1
        self._sorted[here], self._sorted[end] = self._sorted[end], self._sorted[here]
        self._most_end -= 1

    def _load_at(self, position: int) -> int:
        return self._loads[self._sorted[position]]
