"""The time index of one log: which file holds the first record with a given timestamp or a later one. Pure.

Kafka's `.timeindex` keeps sparse entries (largest timestamp so far, offset). Here each data file is an entry, and a
look-up searches the largest timestamps so far. The index is folded from the files on demand: an appended file costs one
comparison, a swap of files (a merge) one for each file after them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.segments import end_of, start_of

NO_TIMESTAMP_MS = -(1 << 63)
"""The largest timestamp of files without any: below every timestamp that can be looked up."""


class TimeIndex:
    """Running maxima over a log's files. The caller passes the files to every call, and reports swaps to `forget_from`.

    Only files that begin at or above the log start count: in a file that straddles it, records below it are hidden, and
    a hidden timestamp must not count for the files after it. The caller searches such a file first.
    """

    def __init__(self) -> None:
        self._first = 0
        self._maxima: list[int] = []

    def forget_from(self, index: int) -> None:
        """The files from this position on have changed; an append is no change."""
        del self._maxima[max(0, index - self._first) :]
        if index < self._first:
            self._first = 0

    def first_file(self, files: Sequence[FileEntry], log_start_offset: int, timestamp_ms: int) -> FileEntry | None:
        """The first file with a record of `timestamp_ms` or later; None when there is none. O(log files).

        With largest timestamps 10, 30, 20, 40 the running maxima are 10, 30, 30, 40: 15 is in the second file, 35 in
        the fourth.
        """
        self._fold(files, log_start_offset)
        found = bisect_left(self._maxima, timestamp_ms)
        return files[self._first + found] if found < len(self._maxima) else None

    def max_timestamp_ms(self, files: Sequence[FileEntry], log_start_offset: int, end_offset: int) -> int | None:
        """The largest timestamp in the files that end at or below `end_offset`; None when they have none."""
        self._fold(files, log_start_offset)
        count = bisect_right(files, end_offset, lo=self._first, key=end_of) - self._first
        largest = self._maxima[count - 1] if count else NO_TIMESTAMP_MS
        return None if largest == NO_TIMESTAMP_MS else largest

    def _fold(self, files: Sequence[FileEntry], log_start_offset: int) -> None:
        first = 0
        if files and files[0].start_offset < log_start_offset:
            first = bisect_left(files, log_start_offset, key=start_of)
        if first != self._first:
            self._first, self._maxima = first, []
        maxima = self._maxima
        largest = maxima[-1] if maxima else NO_TIMESTAMP_MS
        for index in range(first + len(maxima), len(files)):
            own = files[index].file.max_timestamp_ms
            largest = largest if own is None else max(largest, own)
            maxima.append(largest)


def straddling_file(files: Sequence[FileEntry], offset: int) -> FileEntry | None:
    """The file that begins below `offset` and ends above it; None if there is none."""
    index = bisect_left(files, offset, key=start_of) - 1
    return files[index] if index >= 0 and files[index].end_offset > offset else None
