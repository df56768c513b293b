"""The segments at the start of a log to remove: by log start offset, by size, by time. Pure.

Kafka's `UnifiedLog.deleteOldSegments`: whole segments, oldest first, up to the first that stays, and none that reaches
above the high watermark. When all of them go, the log goes on in a new segment at its end: the active one is rolled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.storage.errors import OffsetOutOfRangeError, PolicyViolationError
from stratalog.storage.log.segments import LogSegment
from stratalog.storage.topic_config import LogConfig

HIGH_WATERMARK = -1
"""In a request to delete records: all up to the high watermark (Kafka's DeleteRecordsRequest.HIGH_WATERMARK)."""


@dataclass(frozen=True, slots=True)
class ExpiredSegments:
    """The first `count` segments of a log go; what stays begins at `end_offset`, which is the new log start."""

    count: int
    end_offset: int


def expired_segments(
    segments: Sequence[LogSegment],
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    config: LogConfig,
) -> ExpiredSegments | None:
    """What retention takes out now, as one cut; None when nothing goes.

    segments        the log's, oldest first; the last one is active
    high_watermark  a segment goes only if all of it lies below; -1 = not known, then none does
    now_ms          what `retention.ms` counts back from, on the clock of the records' timestamps
    By log start offset always, by size and time only with `cleanup.policy` delete. With segments of 10 bytes each and
    `retention.bytes` 25, two of five go: the log stays at 30, since without a third one it would be below the limit.
    """
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]

    def run_of(first: int, goes: Callable[[int], bool]) -> int:
        """The end of the run of segments from `first` on that go."""
        index = first
        while index < len(segments) and ends[index] <= high_watermark and goes(index):
            index += 1
        return index

    count = run_of(0, lambda i: i + 1 < len(segments) and ends[i] <= log_start_offset)
    if config.is_deleted and config.retention_bytes >= 0:
        spare_bytes = _spare_bytes(segments, count, config.retention_bytes)
        count = run_of(count, lambda i: spare_bytes[i] >= segments[i].size_bytes)
    if config.is_deleted and config.retention_ms >= 0:
        newest_ms = _newest_timestamps(segments)
        count = run_of(count, lambda i: now_ms - newest_ms[i] > config.retention_ms)
    return ExpiredSegments(count, ends[count - 1]) if count else None


def _spare_bytes(segments: Sequence[LogSegment], first: int, retention_bytes: int) -> list[int]:
    """By how much the log is above the limit once the segments before each one have gone, from `first` on."""
    spare = []
    left = sum(segment.size_bytes for segment in segments[first:])
    for index, segment in enumerate(segments):
        spare.append(left - retention_bytes)
        left -= segment.size_bytes if index >= first else 0
    return spare


def _newest_timestamps(segments: Sequence[LogSegment]) -> list[float]:
    """The largest timestamp of each segment, in ms. One whose records have none is as old as the next one that has
    any, since it was written before; with no such one it never expires."""
    newest: list[float] = []
    known = math.inf
    for segment in reversed(segments):
        known = known if segment.max_timestamp_ms is None else segment.max_timestamp_ms
        newest.append(known)
    return newest[::-1]


def offset_to_delete_before(offset: int, high_watermark: int, config: LogConfig) -> int:
    """Where a log is to start at the least after records before `offset` were deleted (Kafka's deleteRecordsOnLeader).

    `HIGH_WATERMARK` (-1) is the high watermark. Raises PolicyViolationError unless `cleanup.policy` has delete,
    OffsetOutOfRangeError for another negative offset or one above the high watermark.
    """
    if not config.is_deleted:
        raise PolicyViolationError("records cannot be deleted: cleanup.policy is compact, without delete")
    wanted = high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise OffsetOutOfRangeError(f"the offset {wanted} is not valid")
    if wanted > high_watermark:
        raise OffsetOutOfRangeError(f"cannot move the log start offset to {wanted} > high watermark {high_watermark}")
    return wanted
