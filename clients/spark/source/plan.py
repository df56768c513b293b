"""What a micro-batch reads: offsets as JSON, rate limits, input ranges, and the checks between them. Pure.

The rules are those of the Kafka connector (KafkaMicroBatchStream, KafkaOffsetRangeCalculator, KafkaOffsetReaderAdmin):
an offset is the next one to read, a range is half-open and its size is an estimate, because offsets may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from stratalog.clients.spark.conditions import (
    added_partition_does_not_start_from_zero,
    end_offset_past_latest,
    end_offset_past_prefetched,
    initial_offset_not_found,
    lost_partitions_in_end_offset,
    mismatched_start_and_end,
    mismatched_with_prefetched,
    partition_offset_changed,
    partitions_deleted,
    resolved_start_past_end,
    start_offset_does_not_match_assigned,
    timestamp_offset_does_not_match_assigned,
    unresolved_start_past_end,
    unresolved_timestamp_start_past_end,
)
from stratalog.clients.spark.options import START_SUFFIX, OffsetRangeLimit, SpecificOffsets, SpecificTimestamps
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]
TOPIC_IDS = "@ids"
"""Name in the end of a batch under which the ids of its topics are: a topic that is created again has another one."""
Report = Callable[[StratalogError], None]
"""A function that raises a possible loss of data, or logs it when failOnDataLoss is false."""

LONG_MAX = 2**63 - 1
TASK_RECORDS_MIN = 5_000
"""Records after which a task gets no further partition."""
TASK_BYTES_MAX = 128 << 20
"""Size on storage of which a task reads about as much at most: Spark's own for files
(`spark.sql.files.maxPartitionBytes`)."""


class FileSpan(NamedTuple):
    """The part of a data file that covers offsets `[start, end)`, and its size in bytes on storage."""

    start: int
    end: int
    size_bytes: int


class PlannedRange(NamedTuple):
    """The records of one partition in `[start, end)`."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def offsets_to_json(offsets: Offsets) -> OffsetsJson:
    """The checkpoint's form `{"topic": {"0": 23}}`, always in the same key order: Spark compares its text."""
    result: OffsetsJson = {}
    for topic_partition in sorted(offsets):
        result.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return result


def assignment_to_json(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The form of the option `assign`: `{"topic": [0, 1]}`."""
    result: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        result.setdefault(topic, []).append(partition)
    return result


def with_topic_ids(end: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """The end of a batch with the ids of its topics: `{"web": {"0": 9}, "@ids": {"web": "5f…"}}`."""
    topics = sorted(topic for topic in end if "@" not in topic and ids.get(topic))
    return {**end, TOPIC_IDS: {topic: ids[topic] for topic in topics}} if topics else dict(end)


def topic_ids_within(offsets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
    """The topic ids that an end carries; earlier releases wrote none."""
    return offsets.get(TOPIC_IDS, {})


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that have another id now; one that is gone is none of them."""
    return [topic for topic, topic_id in sorted(before.items()) if now.get(topic, topic_id) != topic_id]


def without_topics(offsets: Offsets, topics: Container[str]) -> dict[TopicPartition, int]:
    """The offsets of the other topics."""
    return {tp: offset for tp, offset in offsets.items() if tp.topic not in topics}


def offsets_from_json(body: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The inverse of `offsets_to_json`; without what an end may carry under names with an `@`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in body.items()
        if "@" not in topic
        for partition, offset in offsets.items()
    }


def with_start(end: Offsets, start: Mapping[str, Mapping[str, Any]]) -> OffsetsJson:
    """The end of a query's first batch, and where that batch begins: `{"web": {"0": 9}, "web@start": {"0": 3}}`."""
    begun = {f"{topic}{START_SUFFIX}": dict(offsets) for topic, offsets in start.items() if "@" not in topic}
    return {**offsets_to_json(end), **(begun or {START_SUFFIX: {}})}


def start_within(end: Mapping[str, Mapping[str, Any]]) -> OffsetsJson | None:
    """The start that the end of a first batch carries, None when it carries none."""
    begun = {t.removesuffix(START_SUFFIX): dict(offsets) for t, offsets in end.items() if t.endswith(START_SUFFIX)}
    return {topic: offsets for topic, offsets in begun.items() if topic} if begun else None


def check_specified(limit: OffsetRangeLimit, assigned: Iterable[TopicPartition], *, starting: bool) -> None:
    """Offsets or times given per partition must name exactly the assigned partitions."""
    partitions = set(assigned)
    if isinstance(limit, SpecificOffsets) and set(limit.offsets) != partitions:
        raise start_offset_does_not_match_assigned(limit.offsets, partitions)
    if isinstance(limit, SpecificTimestamps) and set(limit.timestamps) != partitions:
        raise timestamp_offset_does_not_match_assigned(limit.timestamps, partitions, starting=starting)


def check_limits(starting: OffsetRangeLimit, ending: OffsetRangeLimit) -> None:
    """Batch: start and end given in the same way must name the same partitions, start not after end."""
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_pair(starting.offsets, ending.offsets, unresolved_start_past_end)
    if isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        _check_pair(starting.timestamps, ending.timestamps, unresolved_timestamp_start_past_end)


def _check_pair(start: Offsets, end: Offsets, past_end: Callable[[TopicPartition, int, int], StratalogError]) -> None:
    if set(start) != set(end):
        raise mismatched_start_and_end(start, end)
    for topic_partition, first in start.items():
        last = end[topic_partition]
        if first > last and first >= 0 and last >= 0:
            raise past_end(topic_partition, first, last)


def resolve(limits: Offsets, earliest: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Offsets with -2 and -1 replaced by the earliest and the latest of the partition."""
    named = {-2: earliest, -1: latest}
    return {tp: named[offset][tp] if offset in named else offset for tp, offset in limits.items()}


def batch_ranges(start: Offsets, end: Offsets) -> list[PlannedRange]:
    """The ranges of a batch query from resolved offsets; a start after its end is the user's error."""
    ranges = [PlannedRange(tp, start[tp], end[tp]) for tp in sorted(end)]
    for each in ranges:
        if each.start > each.end:
            raise resolved_start_past_end(each.topic_partition, each.start, each.end)
    return ranges


def stream_ranges(start: Offsets, end: Offsets, earliest_of_new: Offsets, report: Report) -> list[PlannedRange]:
    """The ranges of a micro-batch. A partition that `start` lacks is read from its earliest offset.

    `earliest_of_new` has the earliest offset of such partitions; what it lacks is gone. Everything that
    looks like lost data goes to `report`.
    """
    new = set(end) - set(start)
    vanished = new - set(earliest_of_new)
    if vanished:
        report(initial_offset_not_found(vanished))
    for topic_partition in sorted(new - vanished):
        if earliest_of_new[topic_partition] != 0:
            report(added_partition_does_not_start_from_zero(topic_partition, earliest_of_new[topic_partition]))
    deleted = set(start) - set(end)
    if deleted:
        report(partitions_deleted(deleted))
    first = {**earliest_of_new, **start}
    ranges = [PlannedRange(tp, first[tp], end[tp]) for tp in sorted(end) if tp not in vanished]
    for each in ranges:
        if each.end < each.start:
            report(partition_offset_changed(each.topic_partition, each.start, each.end))
    return ranges


def rate_limited(limit: int, start: Offsets, end: Offsets, earliest_of_new: Offsets) -> dict[TopicPartition, int]:
    """At most about `limit` records, shared among partitions in proportion to their backlog.

    A share below one record is rounded up, so that no small partition starves; others are rounded down.
    """
    begin = {**earliest_of_new, **start}
    sizes = {tp: last - begin[tp] for tp, last in end.items() if tp in begin and last > begin[tp]}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(end)
    limited = dict(end)
    for topic_partition, size in sizes.items():
        share = limit * (size / total)
        records = math.ceil(share) if share < 1 else math.floor(share)
        limited[topic_partition] = min(end[topic_partition], begin[topic_partition] + records)
    return limited


def span(entry: FileEntry, start: int, end: int) -> FileSpan:
    """A file cut to the offsets of a range that it overlaps."""
    first, last = max(entry.start_offset, start), min(entry.end_offset, end)
    size_bytes = entry.file.size_bytes * (last - first) // max(1, entry.end_offset - entry.start_offset)
    return FileSpan(first, last, size_bytes)


def bytes_limited(
    limit_bytes: int, end: Offsets, spans: Mapping[TopicPartition, Sequence[FileSpan]]
) -> dict[TopicPartition, int]:
    """At most about `limit_bytes` on storage, shared among partitions in proportion to theirs, at least a record each.

    spans  the files of the partitions that have a backlog, in order. Offsets without a file have no size: a limit that
           reaches them includes them.
    """
    sizes = {tp: sum(each.size_bytes for each in files) for tp, files in spans.items()}
    total = sum(sizes.values())
    if total <= limit_bytes:
        return dict(end)
    return {
        **end,
        **{
            tp: min(end[tp], _end_of_share(files, limit_bytes * sizes[tp] // total))
            for tp, files in spans.items()
            if files
        },
    }


def _end_of_share(files: Sequence[FileSpan], share_bytes: int) -> int:
    left_bytes = share_bytes
    for each in files:
        if each.size_bytes > left_bytes:
            records = (each.end - each.start) * left_bytes // each.size_bytes
            return max(each.start + records, files[0].start + 1)
        left_bytes -= each.size_bytes
    return files[-1].end


def backlog(start: Offsets, end: Offsets) -> int:
    """Records between two offsets, counted as the connector does: a new partition from 0."""
    return sum(last - start.get(tp, 0) for tp, last in end.items())


def must_wait(least: int, new_records: int, waited_ms: int, max_trigger_delay_ms: int) -> bool:
    """minOffsetsPerTrigger: whether the batch is delayed until more records are there or the delay is over."""
    return waited_ms < max_trigger_delay_ms and new_records < least


def split_ranges(
    ranges: Sequence[PlannedRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[PlannedRange]:
    """Ranges as Spark tasks: none longer than `max_records_per_partition`, about `min_partitions` of them.

    Empty ranges are dropped.
    """
    parts = [r for r in ranges if r.size > 0]
    if max_records_per_partition is not None:
        parts = [p for r in parts for p in _divided(r, math.ceil(r.size / max_records_per_partition))]
    if min_partitions is None or len(parts) >= min_partitions or not parts:
        return parts
    return _divided_to(parts, min_partitions)


def cut_by_bytes(
    ranges: Sequence[PlannedRange], spans: Mapping[TopicPartition, Sequence[FileSpan]], limit_bytes: int
) -> list[PlannedRange]:
    """The ranges in parts of about `limit_bytes` on storage each; what has no spans stays whole.

    >>> tp = TopicPartition("t", 0)
    >>> [(r.start, r.end) for r in cut_by_bytes([PlannedRange(tp, 0, 100)], {tp: [FileSpan(0, 100, 1_000)]}, 400)]
    [(0, 33), (33, 66), (66, 100)]
    """
    parts: list[PlannedRange] = []
    for each in ranges:
        files = [_cut(span, each) for span in spans.get(each.topic_partition, ())]
        files = [span for span in files if span.start < span.end]
        size_bytes = sum(span.size_bytes for span in files)
        count = min(math.ceil(size_bytes / limit_bytes), each.size)
        if count < 2:
            parts.append(each)
            continue
        ends = [_end_of_share(files, size_bytes * number // count) for number in range(1, count)]
        bounds = sorted({each.start, *(end for end in ends if each.start < end < each.end), each.end})
        parts += [PlannedRange(each.topic_partition, *pair) for pair in pairwise(bounds)]
    return parts


def _cut(file: FileSpan, wanted: PlannedRange) -> FileSpan:
    first, last = max(file.start, wanted.start), min(file.end, wanted.end)
    return FileSpan(first, last, file.size_bytes * max(0, last - first) // max(1, file.end - file.start))


def tasks_of(
    ranges: Sequence[PlannedRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[list[PlannedRange]]:
    """`split_ranges` as Spark tasks. Unless the user sets one of the limits, small ranges share a task: a task costs as
    much as reading some thousand records.
    """
    parts = split_ranges(ranges, min_partitions, max_records_per_partition)
    if min_partitions is not None or max_records_per_partition is not None:
        return [[part] for part in parts]
    tasks: list[list[PlannedRange]] = []
    records = TASK_RECORDS_MIN
    for part in parts:
        if records >= TASK_RECORDS_MIN:
            tasks.append([])
            records = 0
        tasks[-1].append(part)
        records += part.size
    return tasks


def _divided_to(ranges: Sequence[PlannedRange], min_partitions: int) -> list[PlannedRange]:
    """Split the large ranges; the small ones stay whole and out of the proportion."""
    total = sum(r.size for r in ranges)
    whole = {r for r in ranges if _part_count(r.size, total, min_partitions) == 1}
    rest_size = total - sum(r.size for r in whole)
    rest_parts = max(min_partitions - len(whole), 1)
    result: list[PlannedRange] = []
    for each in ranges:
        result += _divided(each, 1 if each in whole else _part_count(each.size, rest_size, rest_parts))
    return [r for r in result if r.size > 0]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _divided(each: PlannedRange, parts: int) -> list[PlannedRange]:
    """`parts` ranges of equal size; the remainder goes to the last ones."""
    result, start, remaining = [], each.start, each.size
    for part in range(parts):
        size = remaining // (parts - part)
        result.append(PlannedRange(each.topic_partition, start, start + size))
        start, remaining = start + size, remaining - size
    return result


def check_available_now(frozen: Offsets, end: Offsets, latest: Offsets) -> None:
    """Trigger.AvailableNow: the batch's end against the offsets frozen at the query's start and the live ones."""
    if set(frozen) != set(end):
        raise mismatched_with_prefetched(frozen, end)
    if any(end[tp] > frozen[tp] for tp in end):
        raise end_offset_past_prefetched(frozen, end)
    if not set(end) <= set(latest):
        raise lost_partitions_in_end_offset(latest, end)
    if any(end[tp] > latest[tp] for tp in end):
        raise end_offset_past_latest(latest, end)
