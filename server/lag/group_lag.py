"""How far groups are behind: in records, and in the age of the first record that they have not read. Pure.

Names and labels are kafka_exporter's; seconds are ours. A partition without a committed offset has -1, as there. A
group that has read everything has 0 seconds, however long nothing was written: an age is of a record that waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stratalog.replication.coordinator.shard.shard import HeldGroup
from stratalog.replication.metrics import GAUGE, Labels, Metric
from stratalog.storage.records import TopicPartition

NOTHING_COMMITTED = -1


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The readable offsets `[start_offset, end_offset)` of a partition, for the topic of this id."""

    start_offset: int
    end_offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """How far a group is behind in a partition.

    committed        NOTHING_COMMITTED without a commit
    end_offset       the high watermark; None while nobody leads
    unread_offset    where the group reads on; None when it has read everything, or nothing is known
    first_unread_ms  the timestamp of the first record from there on; None when there is none, or it is not known yet
    """

    topic_partition: TopicPartition
    committed: int
    end_offset: int | None
    unread_offset: int | None = None
    first_unread_ms: int | None = None

    @property
    def records(self) -> int | None:
        """Offsets that the group has not read; never below 0, -1 without a commit, None while nobody leads.

        >>> MeasuredPartition(TopicPartition("t", 0), committed=12, end_offset=10).records
        0
        """
        if self.committed == NOTHING_COMMITTED:
            return NOTHING_COMMITTED
        return None if self.end_offset is None else max(0, self.end_offset - self.committed)

    def seconds(self, now_ms: int) -> float | None:
        """The age of the first unread record; 0 when everything was read, None when it is not known.

        >>> MeasuredPartition(TopicPartition("t", 0), 4, 10, 4, first_unread_ms=1_000).seconds(now_ms=3_500)
        2.5
        """
        if self.committed == NOTHING_COMMITTED or self.end_offset is None:
            return None
        if self.unread_offset is None:
            return 0.0
        return None if self.first_unread_ms is None else max(0, now_ms - self.first_unread_ms) / 1_000


@dataclass(frozen=True, slots=True)
class MeasuredGroup:
    """A group's lag in each partition of the topics that it has committed offsets of, or whose records members read."""

    group_id: str
    member_count: int
    partitions: tuple[MeasuredPartition, ...]


def topics_of(group: HeldGroup, topics: Collection[str]) -> set[str]:
    """Of these topics those that a group has committed offsets of, or whose records its members read."""
    found = {each.topic for each in group.committed if each.topic in topics}
    if group.member_count:
        found.update(topic for topic in topics if topic not in found and group.subscribed(topic))
    return found


def group_lag(
    group: HeldGroup, ends: Mapping[TopicPartition, PartitionEnds], by_topic: Mapping[str, Iterable[TopicPartition]]
) -> MeasuredGroup:
    """A group's lag in the partitions of its topics, without timestamps; partitions without `ends` have no leader.

    An offset of an earlier topic of the same name is none. One below the log's start was overtaken by retention: the
    group reads on at the start.
    """
    lags = []
    for topic in sorted(by_topic):
        for named in by_topic[topic]:
            known, held = ends.get(named), group.committed.get(named)
            if held is None or (known is not None and held.topic_id not in ("", known.topic_id)):
                lags.append(MeasuredPartition(named, NOTHING_COMMITTED, None if known is None else known.end_offset))
                continue
            if known is None:
                lags.append(MeasuredPartition(named, held.offset, None))
                continue
            unread = max(held.offset, known.start_offset) if held.offset < known.end_offset else None
            lags.append(MeasuredPartition(named, held.offset, known.end_offset, unread))
    return MeasuredGroup(group.group_id, group.member_count, tuple(lags))


def lag_metrics(groups: Iterable[MeasuredGroup], now_ms: int) -> list[Metric]:
    """The gauges of groups; `now_ms` is wall time."""
    offsets: dict[Labels, float] = {}
    records: dict[Labels, float] = {}
    seconds: dict[Labels, float] = {}
    members: dict[Labels, float] = {}
    sums: dict[Labels, tuple[float, float]] = {}
    for group in groups:
        named: Labels = (("consumergroup", group.group_id),)
        members[named] = group.member_count
        for lag in group.partitions:
            topic = ("topic", lag.topic_partition.topic)
            labels: Labels = (*named, topic, ("partition", str(lag.topic_partition.partition)))
            offsets[labels] = lag.committed
            if lag.records is not None:
                records[labels] = lag.records
                at, behind = sums.get((*named, topic), (0.0, 0.0))
                sums[(*named, topic)] = at + max(0, lag.committed), behind + max(0, lag.records)
            age_s = lag.seconds(now_ms)
            if age_s is not None:
                seconds[labels] = age_s
    rows: tuple[tuple[str, str, Mapping[Labels, float]], ...] = (
        ("members", "Members of a group.", members),
        ("current_offset", "Committed offset of a group; -1: none.", offsets),
        ("lag", "Offsets that a group has not read; -1 without a committed offset.", records),
        ("lag_seconds", "Age of the first record that a group has not read; 0 when it has read everything.", seconds),
        ("current_offset_sum", "Committed offsets of a topic's partitions.", {k: at for k, (at, _) in sums.items()}),
        ("lag_sum", "Offsets of a topic that a group has not read.", {k: behind for k, (_, behind) in sums.items()}),
    )
    return [Metric(f"kafka_consumergroup_{name}", GAUGE, doc, values) for name, doc, values in rows]
