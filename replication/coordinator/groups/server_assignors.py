"""The assignors that a coordinator runs for groups of KIP-848: uniform and range. Pure.

Source: `UniformAssignor`, `UniformHomogeneousAssignmentBuilder` and `RangeAssignor` of Kafka 4.3.1's group coordinator.
Neither looks at racks, as in Kafka: 4.3.1 offers assignors the racks of members and replicas
(`MemberSubscription.rackId`, `SubscribedTopicDescriber.racksForPartition`), and none of its own asks for them, though
`UniformAssignor` says "potentially rack aware" of itself. The classic assignors do look.

Where Kafka's choice among equals is the order of a hash map, members and topics are taken in order of their ids here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from stratalog.replication.coordinator.groups.target_shares import MemberSpec, Shares, TopicIdPartition
from stratalog.replication.coordinator.groups.uneven_targets import UnevenTargets
from stratalog.replication.java_strings import string_order
from stratalog.storage.errors import IllegalStateError


class ServerAssignor(Protocol):
    """A strategy of the coordinator; `name` is what members may ask for as `group.remote.assignor`."""

    @property
    def name(self) -> str: ...

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
        """Shares of the partitions of each subscribed topic id. `partition_counts` has every id in `members`."""
        ...


class UniformAssignor:
    """As even as subscriptions allow, and as little moved as that allows; the default.

    >>> members = {"a": MemberSpec(frozenset("t")), "b": MemberSpec(frozenset("t"))}
    >>> {name: len(share) for name, share in UniformAssignor().assign({"t": 5}, members).items()}
    {'a': 3, 'b': 2}
    """

    name = "uniform"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSpec]) -> Shares:
        if len({spec.topic_ids for spec in members.values()}) > 1:
            return UnevenTargets(partition_counts, members).share()
        return _even_targets(partition_counts, members)


class ServerRangeAssignor:
    """Each topic cut into one range per subscribed member, static members first: as the classic range assignor."""

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
    """Each member may have `each` partitions, and the next `extra_left` of them that want it one more."""

    each: int
    extra_left: int
    members_left: int
    open: list[tuple[str, int]] = field(default_factory=list)

    def keep(self, member_id: str, owned: list[TopicIdPartition]) -> list[TopicIdPartition]:
        """What a member keeps of `owned`; if it may take more, it is noted in `open`."""
        has_extra = self.extra_left > 0
        quota = self.each + has_extra
        room = max(0, quota - len(owned))
        if room and has_extra and self.members_left > self.extra_left:
            # Others may have the extra partition already; only the last ones must take it.
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
