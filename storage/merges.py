"""Which files of a log to merge into one, so that few are left and no record is rewritten often. Pure.

Files are merged within a run: neighbours of one segment and one leader epoch, wholly below the high watermark.
A window of a run is merged when no file in it holds more than an eighth of its records, so each merge makes
the file that a record lies in at least eight times larger: a record is rewritten O(log n) times, and of n
appended files O(log n) stay. A run that can grow no more (another follows it) is merged to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storage.config import INT_MAX
from storage.table import FileEntry

FILES_MIN = 16
"""Fewer files than this are not worth a commit while the run still grows."""
FILES_MAX = 256
"""A merge reads no more files than this: it is the bound of one piece of work."""
GROWTH = 8
"""The smallest factor by which a merge enlarges the largest of its files."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Neighbouring files to be rewritten as one, with the first one's labels and base offset."""

    files: tuple[FileEntry, ...]


def plan_merges(files: Sequence[FileEntry], high_watermark: int, bytes_max: int) -> list[MergePlan]:
    """One merge for each run that needs one, oldest first.

    files           a log's live files, ordered by offset
    high_watermark  files that reach above it are left alone: they may be truncated
    bytes_max       size of the largest file to be made, by the sum of its parts; 0 = merge nothing
    """
    plans = []
    for run, is_closed in _runs(files, high_watermark):
        window = _growing_window(run, bytes_max)
        if not window and is_closed:
            window = _last_window(run, bytes_max)
        if window:
            plans.append(MergePlan(tuple(window)))
    return plans


def _runs(files: Sequence[FileEntry], high_watermark: int) -> Iterator[tuple[list[FileEntry], bool]]:
    """Runs below the high watermark that could be merged, and whether each of them is closed by a follower."""
    run: list[FileEntry] = []
    for entry in files:
        if run and (entry.segment, entry.leader_epoch) != (run[0].segment, run[0].leader_epoch):
            if len(run) > 1:
                yield run, True
            run = []
        if entry.end_offset > high_watermark:
            break
        run.append(entry)
    if len(run) > 1:
        yield run, False


def _growing_window(run: Sequence[FileEntry], bytes_max: int) -> Sequence[FileEntry]:
    for first in range(len(run) - FILES_MIN + 1):
        last = _window_end(run, first, bytes_max)
        if last:
            return run[first:last]
    return ()


def _window_end(run: Sequence[FileEntry], first: int, bytes_max: int) -> int:
    """The end of the longest window from `first` on that grows enough; 0 when there is none."""
    end = size_bytes = records = largest = 0
    for last in range(first, min(first + FILES_MAX, len(run))):
        file = run[last].file
        size_bytes += file.size_bytes
        if size_bytes > bytes_max or not _spans_int32(run[first], run[last]):
            break
        records += file.record_count
        largest = max(largest, file.record_count)
        if last - first + 1 >= FILES_MIN and largest * GROWTH <= records:
            end = last + 1
    return end


def _last_window(run: Sequence[FileEntry], bytes_max: int) -> Sequence[FileEntry]:
    """The first neighbours that fit into one file, half-full ones left out so that this comes to an end."""
    window: list[FileEntry] = []
    size_bytes = 0
    for entry in run:
        size_bytes += entry.file.size_bytes
        is_full = entry.file.size_bytes * 2 > bytes_max
        if window and (
            is_full or size_bytes > bytes_max or len(window) == FILES_MAX or not _spans_int32(window[0], entry)
        ):
            if len(window) > 1:
                return window
            window, size_bytes = [], entry.file.size_bytes
        if is_full:
            window, size_bytes = [], 0
        else:
            window.append(entry)
    return window if len(window) > 1 else ()


def _spans_int32(first: FileEntry, last: FileEntry) -> bool:
    """Whether the deltas of both, relative to the first one's base offset, fit into 32 bits."""
    return last.end_offset - 1 - first.base_offset <= INT_MAX
