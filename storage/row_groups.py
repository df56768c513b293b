"""Row groups of a data file: how large they are made, which of them a reader needs, and reading only those. Pure.

Kafka's offset index leads to a position in a segment's log, from where it scans. Here a file's footer leads to a row
group: its smallest and largest `offset_delta` and timestamp stand there, so one group is fetched and decoded.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import CorruptMessageError
from storage.table import RowsWanted

ROWS_MAX = 1 << 16
"""No row group has more rows, so that finding one record of a large file decodes no more than these."""
ROWS_MIN = 1 << 10
"""Fewer rows are not worth a group of their own, however large they are."""
BYTES_MAX = 1 << 20
"""About so many Arrow bytes are in a group of more than `ROWS_MIN` rows. Of 200,000 rows of 140 bytes one group is read
in 1.1 ms, footer included; with groups of 2 MiB in 2.1 ms. Reading all takes 26 ms with either, 31 ms with groups of
512 KiB."""
TAIL_BYTES = 64 << 10
"""So much of a file's end is fetched at first: nearly every footer is in it."""
TRAILER_BYTES = 8
"""A Parquet file ends with the footer's length (4 bytes, little endian) and the magic `PAR1`."""

ReadRange = Callable[[int, int], bytes]
"""`(start, length)` -> bytes of one object; fewer only at its end."""


def rows_per_group(table: pa.Table) -> int:
    """How many rows a group of these rows gets: 1 MiB of them, but 1,024 to 65,536; all when there are but few.

    Rows of 100 bytes come 10,485 to a group, rows of 10 bytes 65,536, rows of 100 KiB 1,024.
    """
    if table.num_rows <= ROWS_MIN:
        return max(1, int(table.num_rows))
    return int(min(ROWS_MAX, max(ROWS_MIN, BYTES_MAX * table.num_rows // max(1, table.nbytes))))


class RangedFile:
    """A file to read from whose bytes come in ranges as they are asked for; its end is fetched at once.

    Raises what `read_range` raises, CorruptMessageError when the file is shorter than it should be.
    """

    def __init__(self, read_range: ReadRange, size_bytes: int, name: str) -> None:
        self.closed = False
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._name = name
        self._position = 0
        self._tail_start = size_bytes
        self._tail = b""
        self._fetch_tail(min(size_bytes, TAIL_BYTES))

    def footer(self) -> bytes:
        """The footer with its length and the magic behind it. CorruptMessageError when there is none."""
        if self._size_bytes < TRAILER_BYTES:
            raise CorruptMessageError(f"{self._name}: {self._size_bytes} bytes are no Parquet file")
        (footer_bytes,) = struct.unpack_from("<I", self._tail, len(self._tail) - TRAILER_BYTES)
        wanted = footer_bytes + TRAILER_BYTES
        if wanted > self._size_bytes:
            raise CorruptMessageError(f"{self._name}: its footer claims {footer_bytes} bytes of {self._size_bytes}")
        if wanted > len(self._tail):
            self._fetch_tail(wanted)
        return self._tail[-wanted:]

    def _fetch_tail(self, length: int) -> None:
        self._tail_start = self._size_bytes - length
        self._tail = self._fetched(self._tail_start, length)

    def _fetched(self, start: int, length: int) -> bytes:
        data = self._read_range(start, length)
        if len(data) != length:
            raise CorruptMessageError(
                f"{self._name}: {len(data)} bytes at {start}, expected {length} of {self._size_bytes}"
            )
        return data

    # -- what pyarrow.PythonFile asks for ------------------------------------------------------------------

    def read(self, length: int = -1) -> bytes:
        start = self._position
        left = max(0, self._size_bytes - start)
        length = left if length < 0 else min(length, left)
        self._position = start + length
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:length]
        return self._fetched(start, length)

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + {0: 0, 1: self._position, 2: self._size_bytes}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def wanted_groups(metadata: pq.FileMetaData, wanted: RowsWanted) -> list[int]:
    """The row groups that a reader needs, neighbours in order: see `RowsWanted`.

    Groups with deltas [0, 9] [10, 19] [20, 29]: `first_delta` 15 begins with the second, `end_delta` 20 ends there.
    """
    count = metadata.num_row_groups
    first = bisect_left(range(count), wanted.first_delta, key=lambda group: _largest(metadata, group, 0))
    if wanted.from_timestamp_ms is not None:
        from_ms = wanted.from_timestamp_ms
        first = next((group for group in range(first, count) if _largest(metadata, group, 1) >= from_ms), count)
    groups: list[int] = []
    size_bytes = 0
    for group in range(first, count):
        if wanted.end_delta is not None and _smallest_delta(metadata, group) >= wanted.end_delta:
            break
        if wanted.bytes_max is not None:
            size_bytes += _size_bytes(metadata.row_group(group))
            if groups and size_bytes > wanted.bytes_max:
                break
        groups.append(group)
    return groups


def _size_bytes(group: pq.RowGroupMetaData) -> int:
    """On storage, of all columns."""
    return sum(group.column(column).total_compressed_size for column in range(group.num_columns))


def _largest(metadata: pq.FileMetaData, group: int, column: int) -> int:
    """The largest `offset_delta` (column 0) or timestamp in ms (column 1) of a group."""
    statistics = metadata.row_group(group).column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return -(1 << 63)  # a column of nulls: no record has a timestamp
    return int(statistics.max_raw)


def _smallest_delta(metadata: pq.FileMetaData, group: int) -> int:
    return int(metadata.row_group(group).column(0).statistics.min_raw)
