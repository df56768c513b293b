"""The batches of a query that shares its topics' partitions with other members of a group. Pure.

A batch has the partitions that the member owned when it was planned. Its end in Spark's checkpoint also carries where
each one begins, and the member:

    {"web": {"0": 9, "2": 4}, "web@start": {"0": 3, "2": 4}, "@member": {"id": "consumer-…", "generation": 5}}

So a batch is the same when Spark plans it again, whatever the group has assigned since. `"shared": "web-1"` beside the
member's id names a partition that another member has, or had (`stateful`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stratalog.clients.records import NO_GENERATION_ID, OffsetAndMetadata
from stratalog.clients.spark.options import MEMBER
from stratalog.clients.spark.source.plan import Offsets, PlannedRange, offsets_from_json, start_within, with_start
from stratalog.clients.spark.source.plan import offsets_to_json as _named
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """Where a batch begins and ends in each partition, and which member of which generation planned it.

    not_covered  a partition of which others have read what is not in the query's state, as of the planning; "": none
    """

    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    member_id: str = ""
    generation_id: int = NO_GENERATION_ID
    not_covered: str = ""

    @classmethod
    def from_json(cls, end: Mapping[str, Mapping[str, Any]]) -> SharedBatch:
        """A batch from its end; one that carries no start, as of a query without a group, begins at its end."""
        member = end.get(MEMBER, {})
        ends = offsets_from_json(end)
        starts = ends | offsets_from_json(start_within(end) or {})
        generation_id = int(member.get("generation", NO_GENERATION_ID))
        return cls(starts, ends, str(member.get("id", "")), generation_id, str(member.get("shared", "")))

    def to_json(self) -> dict[str, Any]:
        """Always in the same order: Spark compares texts."""
        member = {"id": self.member_id, "generation": self.generation_id}
        if self.not_covered:
            member["shared"] = self.not_covered
        return {**with_start(self.ends, _named(self.starts)), MEMBER: member}

    def has_committed(self, committed: OffsetAndMetadata | None) -> bool:
        """Whether the group's offset of a partition is one that this batch's member committed."""
        return committed is not None and bool(self.member_id) and committed.metadata == self.member_id

    def ranges(self) -> dict[TopicPartition, PlannedRange]:
        return {tp: PlannedRange(tp, self.starts[tp], end) for tp, end in self.ends.items()}


@dataclass(frozen=True, slots=True)
class Owner:
    """A member of a group that has a partition."""

    member_id: str
    group_instance_id: str | None = None

    def is_member(self, member_id: str, group_instance_id: str | None) -> bool:
        """Whether it is this member: a static one has another member id after it came back."""
        is_same_instance = group_instance_id is not None and self.group_instance_id == group_instance_id
        return is_same_instance or self.member_id == member_id


def resumed(
    topic_partition: TopicPartition, batch: SharedBatch, committed: OffsetAndMetadata | None, done: PlannedRange | None
) -> int | None:
    """Where a member goes on with a partition that it was assigned; None where `auto.offset.reset` decides.

    batch      the query's last one that Spark has stored
    committed  the group's offset
    done       what this process read of that batch in the partition; None: nothing, or another process planned it

    The group decides, since another member may have been farther, or somebody has reset its offsets. Only what the
    query has stored itself is not read again: then `committed` lies within the batch, because the query was stopped,
    or failed to commit, after it. In a process that did not plan the batch this holds if the group's offset is still
    the one that the batch's own member committed: nobody had the partition since, so no replay left it out.
    """
    if done is None and batch.has_committed(committed):
        done = batch.ranges().get(topic_partition)
    if done is not None and (committed is None or done.start <= committed.offset <= done.end):
        return done.end
    return batch.ends.get(topic_partition) if committed is None else committed.offset


def undecided(
    batch: SharedBatch,
    owners: Mapping[TopicPartition, Owner],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    group_instance_id: str | None,
) -> frozenset[TopicPartition]:
    """The batch's partitions that have a new owner which has not committed yet: it may be about to read them."""
    return frozenset(
        tp
        for tp in batch.ranges()
        if _is_others(batch, owners.get(tp), group_instance_id) and not _is_taken_over(batch, committed.get(tp))
    )


def _is_others(batch: SharedBatch, owner: Owner | None, group_instance_id: str | None) -> bool:
    return owner is not None and not owner.is_member(batch.member_id, group_instance_id)


def _is_taken_over(batch: SharedBatch, offset: OffsetAndMetadata | None) -> bool:
    return offset is not None and not batch.has_committed(offset)


def replayed(
    batch: SharedBatch,
    owners: Mapping[TopicPartition, Owner],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    group_instance_id: str | None,
) -> list[PlannedRange]:
    """What of a batch is read when Spark plans it again after a failure.

    A partition that another member took over is left out: it has another owner, which committed its offset before it
    read anything. The owner began at the group's offset, which is not behind the batch's start. A new owner that has
    not committed yet may not live to read; `resumed` could not tell then that the partition was left out. Of the other
    partitions, what the group has committed meanwhile is left out: somebody has stored it.
    """
    ranges = []
    for topic_partition, each in sorted(batch.ranges().items()):
        owner, offset = owners.get(topic_partition), committed.get(topic_partition)
        if _is_others(batch, owner, group_instance_id) and _is_taken_over(batch, offset):
            continue
        start = each.start if offset is None else min(max(each.start, offset.offset), each.end)
        ranges.append(PlannedRange(topic_partition, start, each.end))
    return ranges
