"""The time index of one log: which file holds the first record of a time or later. Pure.

Kafka's `.timeindex` keeps, sparsely, (largest timestamp so far, offset); here each data file is an entry, and the
largest timestamp so far is what a look-up searches. It is folded from the files when it is needed: a file appended
costs one comparison, files swapped (a merge) cost those behind them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from stratalog.storage.files.data_file import FileEntry

NO_TIMESTAMP_MS = -(1 << 63)
"""The largest timestamp of files none of whose records has one: below every time that can be asked for."""


class TimeIndex:
    """Running maxima over a log's files, which the caller passes to every call and tells about changes of.

    Only files that begin at or above the log start count: records below it, in a file that straddles it, are hidden,
    and one of them must not stand for those behind. Who looks up looks at such a file first.
    """

    def __init__(self) -> None:
        self._first = 0
        self._maxima: list[int] = []

    def forget_from(self, index: int) -> None:
        """The files from this position on are other ones now; appending is no change."""
        del self._maxima[max(0, index - self._first) :]
        if index < self._first:
            self._first = 0

    def first_file(self, files: Sequence[FileEntry], log_start_offset: int, timestamp_ms: int) -> FileEntry | None:
        """The first file with a record of `timestamp_ms` or later; None when there is none. O(log files).

        Largest timestamps 10, 30, 20, 40 are 10, 30, 30, 40 so far: 15 is in the second file, 35 in the fourth.
        """
        self._fold(files, log_start_offset)
        found = bisect_left(self._maxima, timestamp_ms)
        return files[self._first + found] if found < len(self._maxima) else None

    def max_timestamp_ms(self, files: Sequence[FileEntry], log_start_offset: int, end_offset: int) -> int | None:
        """The largest timestamp in the files that end at or below `end_offset`; None when they have none."""
        self._fold(files, log_start_offset)
        count = bisect_right(files, end_offset, lo=self._first, key=_end_of) - self._first
        if count == 0 or self._maxima[count - 1] == NO_TIMESTAMP_MS:
            return None
        return self._maxima[count - 1]

    def _fold(self, files: Sequence[FileEntry], log_start_offset: int) -> None:
        first = 0
        if files and files[0].start_offset < log_start_offset:
            first = bisect_left(files, log_start_offset, key=_start_of)
        if first != self._first:
            self._first, self._maxima = first, []
        maxima = self._maxima
        largest = maxima[-1] if maxima else NO_TIMESTAMP_MS
        for index in range(first + len(maxima), len(files)):
            own = files[index].file.max_timestamp_ms
            largest = largest if own is None else max(largest, own)
            maxima.append(largest)


def straddling_file(files: Sequence[FileEntry], offset: int) -> FileEntry | None:
    """The file that begins below `offset` and ends above it; None when there is none."""
    index = bisect_left(files, offset, key=_start_of) - 1
    return files[index] if index >= 0 and files[index].end_offset > offset else None


def _start_of(entry: FileEntry) -> int:
    return entry.start_offset


def _end_of(entry: FileEntry) -> int:
    return entry.end_offset
