"""The rules of retention: which segments at the start of a log expire, by log start offset, size or time. Pure.

Kafka's `UnifiedLog.deleteOldSegments`: whole segments, oldest first, up to the first that stays, and none that reaches
above the high watermark. When all expire, the log continues in a new segment at its end: the active one is rolled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from stratalog.storage.errors import OffsetOutOfRangeError, PolicyViolationError
from stratalog.storage.log.segments import LogSegment
from stratalog.storage.topic_config import LogConfig

HIGH_WATERMARK = -1
"""The high watermark as the offset of a request to delete records (Kafka's DeleteRecordsRequest.HIGH_WATERMARK)."""


@dataclass(frozen=True, slots=True)
class ExpiredSegments:
    """The first `count` segments of a log, up to `end_offset`, which is the new log start."""

    count: int
    end_offset: int


def expired_segments(
    segments: Sequence[LogSegment],
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    config: LogConfig,
    written_ms: Mapping[int, int] = MappingProxyType({}),
) -> ExpiredSegments | None:
    """The segments that expire now; None if there are none.

    segments        the log's, oldest first; the last one is active
    high_watermark  a segment expires only if all of it lies below; -1 = not known, then none does
    now_ms          the end of `retention.ms`, on the clock of the records' timestamps
    written_ms      when the files of segments without timestamps were last written, by base offset. One that is not
                    there stays
    By log start offset always, by size and time only with `cleanup.policy` delete. With segments of 10 bytes each and
    `retention.bytes` 25, two of five expire: 30 bytes stay, since one segment less would be below the limit.
    """
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]

    def run_of(first: int, expires: Callable[[int], bool]) -> int:
        """The end of the run of segments from `first` on that expire."""
        index = first
        while index < len(segments) and ends[index] <= high_watermark and expires(index):
            index += 1
        return index

    count = run_of(0, lambda i: i + 1 < len(segments) and ends[i] <= log_start_offset)
    if config.is_deleted and config.retention_bytes >= 0:
        bytes_from = list(accumulate(segment.size_bytes for segment in reversed(segments)))[::-1]
        count = run_of(count, lambda i: bytes_from[i] - segments[i].size_bytes >= config.retention_bytes)
    if config.is_deleted_by_time:
        count = run_of(count, lambda i: now_ms - _newest_ms(segments[i], written_ms) > config.retention_ms)
    return ExpiredSegments(count, ends[count - 1]) if count else None


def has_times(segment: LogSegment) -> bool:
    """Whether a segment has a timestamp. A time before 1970 is none, as in Kafka."""
    return segment.max_timestamp_ms is not None and segment.max_timestamp_ms >= 0


def _newest_ms(segment: LogSegment, written_ms: Mapping[int, int]) -> float:
    """The time from which `retention.ms` counts: the largest timestamp, or the last write of a segment without any.

    Source: `LogSegment.largestTimestamp`, with the time of the segment's file.
    """
    if has_times(segment) and segment.max_timestamp_ms is not None:
        return segment.max_timestamp_ms
    return written_ms.get(segment.base_offset, math.inf)


def offset_to_delete_before(offset: int, high_watermark: int, config: LogConfig) -> int:
    """The log start offset after a request to delete the records before `offset` (Kafka's deleteRecordsOnLeader).

    `HIGH_WATERMARK` (-1) is the high watermark. Raises PolicyViolationError if `cleanup.policy` is compact alone,
    OffsetOutOfRangeError for another negative offset or one above the high watermark.
    """
    if config.is_compacted and not config.is_deleted:
        raise PolicyViolationError("records cannot be deleted: cleanup.policy is compact, without delete")
    wanted = high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise OffsetOutOfRangeError(f"the offset {wanted} is not valid")
    if wanted > high_watermark:
        raise OffsetOutOfRangeError(f"cannot move the log start offset to {wanted} > high watermark {high_watermark}")
    return wanted
