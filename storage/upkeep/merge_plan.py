"""Which files of a log to merge into one, so that few are left and no record is rewritten often. Pure.

Files are merged within a run: neighbours of one segment and one leader epoch, wholly below the high watermark. A window
of a run is merged when no file in it holds more than an eighth of its records. So each merge makes the file of a record
at least eight times larger: a record is rewritten O(log n) times, and of n appended files O(log n) stay. A run that
cannot grow (another follows it) is merged to its end. Large files are spared until a log has very many; then they are
merged once, into the largest file allowed.

A follower copies its leader's merged files instead of rewriting its own (`plan_copied_merges`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.topic_config import INT_MAX

FILES_MIN = 64
"""Default of the files that are worth a commit while their run still grows, unless they make a full file."""
FILES_MAX = 256
"""Files that a merge reads at most: the bound of one piece of work."""
GROWTH = 8
"""The smallest factor by which a merge enlarges the largest of its files."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Neighbouring files to be rewritten as one, with the first one's labels and base offset.

    `copied` is the leader's merged file of the very same records, if there is one.
    """

    files: tuple[FileEntry, ...]
    copied: FileEntry | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the files before the merge."""
        return sum(entry.file.size_bytes for entry in self.files)

    @property
    def end_offset(self) -> int:
        return self.files[-1].end_offset


def plan_merges(
    files: Sequence[FileEntry],
    high_watermark: int,
    bytes_max: int,
    files_min: int = FILES_MIN,
    spared_bytes: int | None = None,
) -> list[MergePlan]:
    """One merge for each run that needs one, oldest first.

    files           a log's live files, ordered by offset
    high_watermark  files that reach above it are not merged: they may be truncated
    bytes_max       size of the largest file to be made, by the sum of its parts; 0 = merge nothing
    files_min       fewer files are not worth a commit while their run still grows
    spared_bytes    files of so many bytes are large enough and not merged; None: no limit
    """
    plans = []
    for run, is_closed in _runs(files, high_watermark, spared_bytes):
        window = _growing_window(run, bytes_max, files_min)
        if not window and is_closed:
            window = _last_window(run, bytes_max)
        if window:
            plans.append(MergePlan(tuple(window)))
    return plans


def plan_copied_merges(own: Sequence[FileEntry], leader: Sequence[FileEntry]) -> list[MergePlan]:
    """The leader's files that a follower can copy in place of two or more of its own, oldest first.

    own, leader  live files, ordered by offset, of two logs under one leader epoch that agree up to the follower's end

    Such a file covers exactly the offsets of own neighbours with its segment and its leader epoch. Neither it nor they
    lack a record: then they hold the same ones (promise 16). Logs that were compacted separately may lack different
    records, and a record without its tombstone must not come back.
    """
    by_start = {entry.start_offset: i for i, entry in enumerate(own)}
    held = {entry.path for entry in own}
    plans = []
    for merged in leader:
        first = by_start.get(merged.start_offset)
        if first is None or merged.path in held:
            continue
        run = _neighbours_within(own, first, merged)
        records = sum(entry.file.record_count for entry in run)
        is_whole = records == merged.file.record_count == merged.end_offset - merged.start_offset
        if len(run) > 1 and run[-1].end_offset == merged.end_offset and is_whole:
            plans.append(MergePlan(tuple(run), merged))
    return plans


def _neighbours_within(files: Sequence[FileEntry], first: int, merged: FileEntry) -> list[FileEntry]:
    def fits(entry: FileEntry) -> bool:
        has_labels = (entry.segment, entry.leader_epoch) == (merged.segment, merged.leader_epoch)
        return has_labels and entry.end_offset <= merged.end_offset

    return list(takewhile(fits, islice(files, first, None)))


def _runs(
    files: Sequence[FileEntry], high_watermark: int, spared_bytes: int | None
) -> Iterator[tuple[list[FileEntry], bool]]:
    """Runs of two or more files below the high watermark, and whether each is closed: another run follows."""
    run: list[FileEntry] = []
    for entry in files:
        is_spared = spared_bytes is not None and entry.file.size_bytes >= spared_bytes
        if run and (is_spared or (entry.segment, entry.leader_epoch) != (run[0].segment, run[0].leader_epoch)):
            if len(run) > 1:
                yield run, True
            run = []
        if entry.end_offset > high_watermark:
            break
        if not is_spared:
            run.append(entry)
    if len(run) > 1:
        yield run, False


def _growing_window(run: Sequence[FileEntry], bytes_max: int, files_min: int) -> Sequence[FileEntry]:
    """The first window that grows enough. Only windows after a larger file are tried: with a smaller file before it a
    window would grow more."""
    before = 0
    for first in range(len(run) - GROWTH + 1):
        records = run[first].file.record_count
        last = _window_end(run, first, bytes_max, files_min) if first == 0 or records < before else 0
        if last:
            return run[first:last]
        before = records
    return ()


def _window_end(run: Sequence[FileEntry], first: int, bytes_max: int, files_min: int) -> int:
    """The end of the longest window from `first` on that grows enough; 0 when there is none."""
    end = size_bytes = records = largest = 0
    for last in range(first, min(first + FILES_MAX, len(run))):
        file = run[last].file
        size_bytes += file.size_bytes
        if size_bytes > bytes_max or not _spans_int32(run[first], run[last]):
            break
        records += file.record_count
        largest = max(largest, file.record_count)
        is_worth = last - first + 1 >= files_min or size_bytes * 2 > bytes_max
        if is_worth and largest * GROWTH <= records:
            end = last + 1
    return end


def _last_window(run: Sequence[FileEntry], bytes_max: int) -> Sequence[FileEntry]:
    """The first neighbours that fit into one file, without half-full ones, so that merging ends."""
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
