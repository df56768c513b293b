"""Segments and their offset index: when a new segment begins, and which files hold an offset. Pure.

A segment is named by the base offset of its first record. Its data files are the entries of its offset index: a look-up
is a binary search over the files that the commits name, and opens none. Times are in `storage.log.time_index`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.topic_config import INT_MAX, LogConfig

NEAR_END_FILES = 8
"""Files at the log's end that are searched one by one: most look-ups are for what was appended last."""
start_of, end_of = attrgetter("start_offset"), attrgetter("end_offset")
"""Sort keys of files."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The sum of a segment's files; it covers offsets `[base_offset, end_offset)`.

    `first_timestamp_ms` is the smallest timestamp in its first file that has any: `segment.ms` counts from there.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    file_count: int
    record_count: int
    first_timestamp_ms: int | None
    max_timestamp_ms: int | None
    epochs: tuple[int, ...]

    def with_file(self, entry: FileEntry) -> LogSegment:
        """The segment with one more file at its end."""
        epoch = entry.leader_epoch
        first = self.first_timestamp_ms
        return LogSegment(
            self.base_offset,
            max(self.end_offset, entry.end_offset),
            self.size_bytes + entry.file.size_bytes,
            self.file_count + 1,
            self.record_count + entry.file.record_count,
            entry.file.min_timestamp_ms if first is None else first,
            _larger(self.max_timestamp_ms, entry.file.max_timestamp_ms),
            self.epochs if epoch in self.epochs else (*self.epochs, epoch),
        )


def empty_segment(base_offset: int) -> LogSegment:
    """A segment before its first file."""
    return LogSegment(base_offset, base_offset, 0, 0, 0, None, None, ())


def segments_of(files: Iterable[FileEntry]) -> list[LogSegment]:
    """The segments of files that are ordered by offset."""
    segments: list[LogSegment] = []
    for entry in files:
        if not segments or segments[-1].base_offset != entry.segment:
            segments.append(empty_segment(entry.segment))
        segments[-1] = segments[-1].with_file(entry)
    return segments


def should_roll(
    active: LogSegment | None,
    incoming_bytes: int,
    incoming_records: int,
    incoming_timestamp_ms: int | None,
    next_offset: int,
    config: LogConfig,
    jitter_ms: int = 0,
) -> bool:
    """Whether records that get `next_offset` begin a new segment.

    incoming_timestamp_ms  largest timestamp of the records; None = none, then `segment.ms` does not apply
    An empty segment accepts records of any size.
    """
    if active is None or active.file_count == 0:
        return active is None
    return (
        next_offset + incoming_records - 1 - active.base_offset > INT_MAX
        or active.size_bytes + incoming_bytes > config.segment_bytes
        or active.file_count >= config.segment_file_count_max
        or _is_too_old(active, incoming_timestamp_ms, config.segment_ms_max - jitter_ms)
    )


def segment_jitter_ms(config: LogConfig, log_name: str, base_offset: int) -> int:
    """The time by which `segment.ms` is shortened for a segment: spread over logs and segments, and always the same."""
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{log_name}:{base_offset}".encode()) % limit_ms if limit_ms else 0


def files_between(files: Sequence[FileEntry], start_offset: int, end_offset: int) -> Sequence[FileEntry]:
    """The files that cover any offset in `[start_offset, end_offset)`; `files` are ordered by offset."""
    if start_offset >= end_offset:
        return ()
    first = len(files)
    near_end = max(0, first - NEAR_END_FILES)
    while first > near_end and files[first - 1].end_offset > start_offset:
        first -= 1
    if first == near_end:
        first = bisect_right(files, start_offset, hi=near_end, key=end_of)
    if not files or files[-1].start_offset < end_offset:
        return files[first:]
    last = bisect_left(files, end_offset, lo=first, key=start_of)
    return files[first:last]


def _is_too_old(active: LogSegment, incoming_timestamp_ms: int | None, limit_ms: int) -> bool:
    if active.first_timestamp_ms is None or incoming_timestamp_ms is None:
        return False
    return incoming_timestamp_ms - active.first_timestamp_ms > limit_ms


def _larger(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)
