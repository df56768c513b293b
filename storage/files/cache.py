"""Rows of the newest data files that this process wrote: a reader near the log's end then decodes no Parquet.

Pure. A data file is immutable and its name is used once, so the cache never differs from storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import pyarrow as pa

from stratalog.storage.records import FewRows, table_of_rows

CAPACITY_BYTES = 64 << 20
ROWS_BYTES_MAX = 2 << 20
"""Size of the largest rows that are kept: reading a larger file costs little for each of its records."""
ENTRY_BYTES = 4_096
"""Memory of the smallest table of rows, with its eleven columns."""
CACHED_FILES_MIN = 16
"""Number of small files of one log that become one table of rows: a log of single records then takes a tenth."""
ROW_OVERHEAD_BYTES = 512
"""Memory of a file besides its rows once these are in a shared table, and of each of few rows besides its bytes."""


class CachedRows(NamedTuple):
    """A file's rows: `record_count` of them from `start` on; or all of few."""

    rows: pa.Table | FewRows
    start: int
    record_count: int
    size_bytes: int


class FileCache:
    """Rows by (table, path): at most `capacity_bytes`, those not used for longest go first. Any thread may use it."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._entries: OrderedDict[tuple[str, str], CachedRows] = OrderedDict()
        self._loose: dict[str, list[str]] = {}

    @property
    def size_bytes(self) -> int:
        """Memory of the cached rows."""
        return self._size_bytes

    def resize(self, capacity_bytes: int) -> None:
        """Keep at most `capacity_bytes` from now on; 0 = nothing."""
        with self._lock:
            self._capacity_bytes = capacity_bytes
            self._shrink()

    def put(self, table: str, path: str, rows: pa.Table | FewRows) -> None:
        """Keep the rows of a file of `table`, unless they are too large."""
        if self._capacity_bytes == 0:
            return
        if isinstance(rows, tuple):
            size_bytes = sum([ROW_OVERHEAD_BYTES + len(row.key or b"") + len(row.value or b"") for row in rows])
            count = len(rows)
        else:
            rows, size_bytes = _alone(rows)
            count = rows.num_rows
        if size_bytes > ROWS_BYTES_MAX:
            return
        with self._lock:
            self._forget((table, path))
            self._entries[table, path] = CachedRows(rows, 0, count, size_bytes)
            self._size_bytes += size_bytes
            if size_bytes <= 2 * ENTRY_BYTES:
                self._gather(table, path)
            self._shrink()

    def _gather(self, table: str, path: str) -> None:
        """Join the rows of a log's small files into one table, once there are enough of them."""
        loose = self._loose.setdefault(table, [])
        loose.append(path)
        if len(loose) < CACHED_FILES_MIN:
            return
        del self._loose[table]
        found = {(table, name): self._entries[table, name] for name in loose if (table, name) in self._entries}
        shared = joined(found.values()).combine_chunks()
        rows_bytes = shared.get_total_buffer_size() // max(1, shared.num_rows)
        start = 0
        for key, entry in found.items():
            size_bytes = ROW_OVERHEAD_BYTES + rows_bytes * entry.record_count
            self._entries[key] = CachedRows(shared, start, entry.record_count, size_bytes)
            self._size_bytes += size_bytes - entry.size_bytes
            start += entry.record_count

    def get(self, table: str, path: str) -> pa.Table | None:
        """The rows of a file, None when they are not cached."""
        key = (table, path)
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
        rows = found.rows
        if isinstance(rows, tuple):
            return table_of_rows(rows)
        return rows if found.record_count == rows.num_rows else rows.slice(found.start, found.record_count)

    def find(self, table: str, paths: Sequence[str]) -> list[CachedRows | None]:
        """The cached rows of several files, to be `joined`; None for each that has none. This counts as no use: the
        files are about to leave their log."""
        with self._lock:
            return [self._entries.get((table, path)) for path in paths]

    def discard(self, table: str, paths: Iterable[str]) -> None:
        """These files left their log."""
        with self._lock:
            for path in paths:
                self._forget((table, path))

    def _forget(self, key: tuple[str, str]) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._size_bytes -= found.size_bytes

    def _shrink(self) -> None:
        while self._size_bytes > self._capacity_bytes:
            _, entry = self._entries.popitem(last=False)
            self._size_bytes -= entry.size_bytes


def _alone(rows: pa.Table) -> tuple[pa.Table, int]:
    """These rows and their memory. A small slice of a large table is copied, since it would keep all of it alive."""
    size_bytes = ENTRY_BYTES + rows.get_total_buffer_size()
    if size_bytes <= ROWS_BYTES_MAX or ENTRY_BYTES + rows.nbytes > ROWS_BYTES_MAX:
        return rows, size_bytes
    rows = pa.concat_tables([rows, rows.slice(0, 0)]).combine_chunks()
    return rows, ENTRY_BYTES + rows.get_total_buffer_size()


def joined(parts: Iterable[CachedRows]) -> pa.Table:
    """The same rows in order as one table. Runs of few rows are converted at once; neighbours in a shared table become
    one slice."""
    tables: list[pa.Table] = []
    for _, run in groupby(parts, key=lambda part: 0 if isinstance(part.rows, tuple) else id(part.rows)):
        files = list(run)
        rows, first = files[0].rows, files[0].start
        if isinstance(rows, tuple):
            tables.append(table_of_rows(list(chain.from_iterable(part.rows for part in files))))
        elif all(left.start + left.record_count == right.start for left, right in pairwise(files)):
            tables.append(rows.slice(first, files[-1].start + files[-1].record_count - first))
        else:
            tables += [rows.slice(part.start, part.record_count) for part in files]
    return pa.concat_tables(tables)


SHARED_FILE_CACHE = FileCache()
"""The cache of this process: a leader fills it, consumers in the same process and merges read from it."""
