"""Sticky assignment of members that all subscribe to the same topics: no member has two more than another. Pure.

Source: `AbstractStickyAssignor.ConstrainedAssignmentBuilder` of Kafka 4.3.1. With 7 partitions and 3 members each
gets at least 2 (the smaller quota) and one of them 3 (the larger): first each member keeps what it owns up to its
quota, then the rest is assigned in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set

from stratalog.clients.consumer.assignors.assignor import MemberAssignments, StickyRacks
from stratalog.storage.errors import IllegalStateError
from stratalog.storage.records import TopicPartition
from stratalog.wire.java_strings import string_order


def share_evenly(
    counts: Mapping[str, int],
    owned: Mapping[str, list[TopicPartition]],
    contested: Set[TopicPartition],
    racks: StickyRacks,
) -> tuple[MemberAssignments, dict[TopicPartition, str]]:
    """Assignments by member, and the partitions that an owner has to revoke first, with their new owners.

    counts     partitions of each topic
    owned      partitions of each member, in the order in which members are visited
    contested  partitions that two members of one generation claim; they have no owner
    """
    sharing = _EvenSharing(counts, owned, contested, racks)
    sharing.keep_owned(owned)
    unassigned = racks.scarcest_first(sharing.unassigned(counts))
    if racks.matter:
        unassigned = sharing.assign_near(unassigned)
    sharing.assign_rest(unassigned)
    sharing.check()
    return sharing.assignments, sharing.moving


class _EvenSharing:
    """Members `below` the smaller quota get up to it; those `level` with it get one more, while `larger_left` members
    may have the larger quota. With equal quotas `larger_left` is 0 from the start."""

    def __init__(
        self,
        counts: Mapping[str, int],
        owned: Mapping[str, list[TopicPartition]],
        contested: Set[TopicPartition],
        racks: StickyRacks,
    ) -> None:
        self.quota, self.larger_left = divmod(sum(counts.values()), len(owned))
        self.quota_max = self.quota + (self.larger_left > 0)
        self.assignments: MemberAssignments = {member_id: [] for member_id in owned}
        self.moving: dict[TopicPartition, str] = {}
        self._contested = contested
        self._racks = racks
        self._revoked: dict[TopicPartition, str] = {}
        self._below: list[str] = []
        self._level: list[str] = []

    def keep_owned(self, owned: Mapping[str, list[TopicPartition]]) -> None:
        for member_id, partitions in owned.items():
            near = [partition for partition in partitions if not self._racks.mismatch(member_id, partition)]
            self._revoked.update((far, member_id) for far in partitions if self._racks.mismatch(member_id, far))
            near.sort(key=lambda partition: (partition.partition, string_order(partition.topic)))
            self._keep(member_id, [partition for partition in near if partition not in self._contested])
        self._below.sort(key=string_order)
        self._level.sort(key=string_order)

    def _keep(self, member_id: str, mine: list[TopicPartition]) -> None:
        kept = self.quota
        if len(mine) < self.quota:
            self._below.append(member_id)
        elif len(mine) >= self.quota_max and self.larger_left:
            kept = self.quota_max
            self._one_more_has_the_larger_quota()
        elif self.larger_left:
            self._level.append(member_id)
        self.assignments[member_id] += mine[:kept]
        self._revoked.update((partition, member_id) for partition in mine[kept:])

    def _one_more_has_the_larger_quota(self) -> None:
        self.larger_left -= 1
        if self.larger_left == 0:
            self._level.clear()

    def unassigned(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """Partitions that no member keeps, by topic and number."""
        kept = {partition for partitions in self.assignments.values() for partition in partitions}
        ordered = (
            TopicPartition(topic, number)
            for topic in sorted(counts, key=string_order)
            for number in range(counts[topic])
        )
        return [partition for partition in ordered if partition not in kept]

    def assign_near(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members on a rack of theirs, in turn and within their quotas; returns the others."""
        turn = 0
        left = []
        for partition in partitions:
            at = self._racks.next_near(partition, self._below, turn)
            if at >= 0:
                turn = self._assign_below(partition, at)
                continue
            at = self._racks.next_near(partition, self._level, 0)
            if at < 0:
                left.append(partition)
                continue
            member_id = self._level[at]
            self._assign(partition, member_id)
            del self._level[at]
            self._one_more_has_the_larger_quota()
        return left

    def _assign_below(self, partition: TopicPartition, at: int) -> int:
        """Position of the next member among those below their quota."""
        member_id = self._below[at]
        if self._assign(partition, member_id) < self.quota:
            return (at + 1) % len(self._below)
        del self._below[at]
        if self.larger_left:
            self._level.append(member_id)
        return at % len(self._below) if self._below else 0

    def assign_rest(self, partitions: list[TopicPartition]) -> None:
        """Assign the rest in turn: first to members below the smaller quota, then one more to those that have it."""
        turn = 0
        level = deque(self._level)
        for partition in partitions:
            if not self._below:
                if not level:
                    raise IllegalStateError(f"{partition} is left, and no member may get one more")
                self._assign(partition, level.popleft())
                self.larger_left -= 1
                continue
            turn = turn if turn < len(self._below) else 0
            member_id = self._below[turn]
            if self._assign(partition, member_id) == self.quota:
                del self._below[turn]
                level.append(member_id)
            else:
                turn += 1

    def _assign(self, partition: TopicPartition, member_id: str) -> int:
        self.assignments[member_id].append(partition)
        if partition in self._contested or self._revoked.get(partition, member_id) != member_id:
            self.moving[partition] = member_id
        return len(self.assignments[member_id])

    def check(self) -> None:
        short = [member_id for member_id in self._below if len(self.assignments[member_id]) != self.quota]
        if short or self.larger_left:
            raise IllegalStateError(f"{short} have less than {self.quota}, {self.larger_left} lack the larger share")
