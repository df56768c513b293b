"""The table of past lags, summed by group and topic. I/O: the table's files below the metadata root.

Each file is read once and its sums are kept: files never change. A question reads for a limited time, the newest files
first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.clients.console.over_time.intervals import Intervals
from stratalog.clients.console.times import iso_time
from stratalog.server.lag.dated_table import DatedTable, DayFile, TableShape
from stratalog.server.lag.history import DAY_MS, LAG_DIRECTORY, LAG_SCHEMA
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.objects.port import ObjectStore

READ_MS_MAX = 3_000
"""Time in which one question reads files."""
READ_AT_ONCE = 8
KEPT_ROWS = 300_000
GAP_MS_MAX = 3_600_000
"""Two measurements with more time between them say nothing about the time between them."""
_COLUMNS = ("timestamp", "consumergroup", "topic", "current_offset", "lag", "lag_seconds")


class PastLag(NamedTuple):
    """A group in one topic at a time, over all partitions: committed offsets and lag summed, the largest age."""

    at_ms: int
    group: str
    topic: str
    committed: int
    lag: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class FoundLags:
    """Rows, oldest first. `unread` counts files for which there was no time."""

    rows: Sequence[PastLag]
    unread: int


class SummedFiles:
    """The sums of files that were read, up to `KEPT_ROWS` rows. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[str, Sequence[PastLag]] = {}
        self._rows = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> Sequence[PastLag] | None:
        """The rows of a file."""
        with self._lock:
            return self._kept.get(path)

    def put(self, path: str, rows: Sequence[PastLag]) -> None:
        """Keep a file's rows; the oldest of too many are dropped."""
        with self._lock:
            self._rows += len(rows) - len(self._kept.get(path, ()))
            self._kept[path] = rows
            while self._rows > KEPT_ROWS and len(self._kept) > 1:
                self._rows -= len(self._kept.pop(next(iter(self._kept))))


_SUMS = SummedFiles()


def past_lags_of(view: ClusterView, intervals: Intervals) -> FoundLags:
    """The rows in a window, of all groups. Empty where no lags are kept."""
    objects = view.stores.objects(view.root)
    table = DatedTable(objects, TableShape(LAG_DIRECTORY, LAG_SCHEMA), view.ids)
    table.refresh()
    wanted = sorted(files_of(table.files, intervals), key=lambda each: (each.date, _modified_ms(each)), reverse=True)
    deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX

    def read(file: DayFile) -> Sequence[PastLag] | None:
        known = _SUMS.get(file.path)
        if known is None and view.clock.monotonic_ms() < deadline_ms:
            known = _read(objects, file.path)
            _SUMS.put(file.path, known)
        return known

    with ThreadPoolExecutor(READ_AT_ONCE) as threads:
        parts = list(threads.map(read, wanted))
    rows = [row for part in parts if part is not None for row in part]
    inside = [row for row in rows if intervals.from_ms <= row.at_ms <= intervals.now_ms]
    return FoundLags(sorted(inside, key=lambda row: row[:3]), sum(part is None for part in parts))


def files_of(files: Iterable[DayFile], intervals: Intervals) -> Iterator[DayFile]:
    """The files that may have rows of a window: of its days, and written since it began."""
    first, last = iso_time(max(0, intervals.from_ms))[:10], iso_time(intervals.now_ms)[:10]
    for file in files:
        if first <= file.date <= last and _modified_ms(file) >= intervals.from_ms:
            yield file


def _modified_ms(file: DayFile) -> int:
    """When it was written, which no row of it is younger than; a merge of a day comes after the day."""
    return int(file.add["add"].get("modificationTime", DAY_MS << 20))


def _read(objects: ObjectStore, path: str) -> list[PastLag]:
    try:
        data = objects.get(f"{LAG_DIRECTORY}/{path}")
    except ObjectNotFoundError:  # merged meanwhile; the next question finds it
        return []
    return summed(pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS)))


def summed(rows: pa.Table) -> list[PastLag]:
    """Rows of `LAG_SCHEMA`, summed over the partitions of each group, topic and time."""
    keys = ["timestamp", "consumergroup", "topic"]
    sums = rows.group_by(keys).aggregate([("current_offset", "sum"), ("lag", "sum"), ("lag_seconds", "max")])
    times = [time // 1_000 for time in sums["timestamp"].cast(pa.int64()).to_pylist()]
    names = ("consumergroup", "topic", "current_offset_sum", "lag_sum", "lag_seconds_max")
    columns = (sums[name].to_pylist() for name in names)
    return [
        PastLag(at_ms, intern(group), intern(topic), committed or 0, lag or 0, seconds)
        for at_ms, group, topic, committed, lag, seconds in zip(times, *columns, strict=True)
    ]


def consumed(rows: Iterable[PastLag], intervals: Intervals) -> list[float | None]:
    """Offsets a second that groups committed in each interval; None where nothing was measured.

    Between two measurements of a group in a topic they came evenly. An offset that was set back counts as nothing read.
    """
    came: dict[tuple[str, str, int], list[float]] = {}
    before: dict[tuple[str, str], PastLag] = {}
    for row in rows:
        earlier = before.get((row.group, row.topic))
        before[row.group, row.topic] = row
        if earlier is None or not 0 < row.at_ms - earlier.at_ms <= GAP_MS_MAX:
            continue
        grown, length_ms = max(0, row.committed - earlier.committed), row.at_ms - earlier.at_ms
        for index, share in intervals.spread(1.0, earlier.at_ms, row.at_ms - 1):
            sums = came.setdefault((row.group, row.topic, index), [0.0, 0.0])
            sums[0], sums[1] = sums[0] + share * grown, sums[1] + share * length_ms
    found: list[float | None] = [None] * intervals.count
    for (_, _, index), (offsets, measured_ms) in came.items():
        found[index] = (found[index] or 0.0) + 1_000 * offsets / measured_ms
    return found
