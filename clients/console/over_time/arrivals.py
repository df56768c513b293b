"""When the records of a partition came, by the timestamps in its data files. I/O: reads columns of data files.

A commit names the least and the largest timestamp of each file. A file within one interval needs no reading; of one
that covers several, its timestamps are read, and counted by minute. Files never change, so these counts are kept.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.console.over_time.intervals import MINUTE_MS, Intervals
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.data_file import FileEntry, RowsWanted
from stratalog.storage.log.rows import TIME_COLUMNS

KEPT_FILES = 2_000
"""Number of files whose counts are kept."""
PART_OFFSETS = 1_000_000
Minutes = Mapping[int, int]
"""Minute since 1970 -> records of a file with a timestamp in it."""


@dataclass(slots=True)
class Arrivals:
    """What came in each interval.

    offsets  appended, markers among them; those of files that are in the table still
    size     bytes of data files on storage
    spread   offsets of files whose timestamps were not read: they count as if they had come evenly
    undated  offsets without a timestamp, which are in no interval
    """

    offsets: list[float]
    size: list[float]
    spread: int = 0
    undated: int = 0

    @classmethod
    def nothing(cls, count: int) -> Arrivals:
        return cls([0.0] * count, [0.0] * count)

    def add(self, other: Arrivals) -> None:
        """Add what came elsewhere in the same intervals."""
        self.offsets = [mine + its for mine, its in zip(self.offsets, other.offsets, strict=True)]
        self.size = [mine + its for mine, its in zip(self.size, other.size, strict=True)]
        self.spread += other.spread
        self.undated += other.undated


def arrivals_of(
    files: Iterable[FileEntry], intervals: Intervals, minutes_of: Callable[[FileEntry], Minutes | None]
) -> Arrivals:
    """What came by these files. `minutes_of` reads a file's timestamps; None: there is no time for it."""
    found = Arrivals.nothing(intervals.count)
    for entry in files:
        least, largest = entry.file.min_timestamp_ms, entry.file.max_timestamp_ms
        offsets = entry.end_offset - entry.start_offset
        if least is None or largest is None:
            found.undated += offsets
            continue
        if largest < intervals.from_ms or least > intervals.now_ms:
            continue
        for index, share in _shares(entry, least, largest, intervals, minutes_of, found):
            found.offsets[index] += share * offsets
            found.size[index] += share * entry.file.size_bytes
    return found


def _shares(
    entry: FileEntry,
    least: int,
    largest: int,
    intervals: Intervals,
    minutes_of: Callable[[FileEntry], Minutes | None],
    found: Arrivals,
) -> list[tuple[int, float]]:
    """The share of a file in each interval."""
    first, last = intervals.index(least), intervals.index(largest)
    if first is not None and first == last:
        return [(first, 1.0)]
    minutes = minutes_of(entry)
    if minutes is None:
        found.spread += entry.end_offset - entry.start_offset
        return intervals.spread(1.0, least, largest)
    total = max(1, sum(minutes.values()))
    places = ((intervals.index(minute * MINUTE_MS), count) for minute, count in minutes.items())
    return [(index, count / total) for index, count in places if index is not None]


class CountedFiles:
    """Timestamps of files by minute, of the last files that were read. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Minutes] = {}
        self._lock = threading.Lock()

    def minutes(self, table: LogTable, owner: str, entry: FileEntry, *, may_read: bool) -> Minutes | None:
        """The counts of a file; None when they are not known and not to be read, or the file is gone.

        owner  what tells the table from all others
        """
        key = owner, entry.path
        with self._lock:
            known = self._kept.get(key)
        if known is not None or not may_read:
            return known
        found: Counter[int] = Counter()
        try:
            for rows in _parts(table, entry):
                found.update(minutes_of_times(rows["timestamp"]))
        except ObjectNotFoundError:  # merged meanwhile
            return None
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > KEPT_FILES:
                del self._kept[next(iter(self._kept))]
        return found


def _parts(table: LogTable, entry: FileEntry) -> Iterator[pa.Table]:
    """The times of a file, in parts of `PART_OFFSETS`, so that a large one takes little memory."""
    file = entry.file
    for first in range(file.first_delta, file.last_delta + 1, PART_OFFSETS):
        rows = table.read_file(file, TIME_COLUMNS, RowsWanted(first, first + PART_OFFSETS))
        deltas = rows["offset_delta"]  # whole row groups are returned
        yield rows.filter(pc.and_(pc.greater_equal(deltas, first), pc.less(deltas, first + PART_OFFSETS)))


def minutes_of_times(times: pa.ChunkedArray) -> Minutes:
    """A column of timestamps, counted by minute.

    >>> minutes_of_times(pa.chunked_array([pa.array([0, 59_999, 60_000], pa.timestamp("ms", tz="UTC"))]))
    {0: 2, 1: 1}
    """
    known = times.drop_null().cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    counted = pc.value_counts(pc.divide(known, MINUTE_MS))
    return {row["values"]: row["counts"] for row in counted.to_pylist()}
