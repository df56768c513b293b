"""Row groups of a data file: their size, which of them a reader needs, and reading only those. Pure.

Kafka's offset index leads to a position in a segment's log, from where it scans. Here a file's footer leads to a row
group: it has the smallest and largest `offset_delta` and timestamp of each, so one group is fetched and decoded.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.data_file import RowsWanted

ROWS_MAX = 1 << 16
"""Rows of the largest group: finding one record of a large file decodes no more."""
ROWS_MIN = 1 << 10
"""Rows of the smallest group: fewer are not worth a group of their own, however large they are."""
BYTES_MAX = 1 << 20
"""Arrow bytes of a group of more than `ROWS_MIN` rows, about: smaller groups make a look-up of one record cheaper,
larger ones the reading of whole files."""
TAIL_BYTES = 64 << 10
"""Bytes of the first read at a file's end: they hold nearly every footer."""
FOOTERS_KEPT = 32
"""Footers that a handle of a table keeps: that of a file of 32 MiB takes some 400 KiB of memory."""
SPAN_SHARE_MAX = 1.25
"""Bytes of one read in those wanted: columns are fetched at once when at most a quarter more lies between them."""
TRAILER_BYTES = 8
"""Bytes at a Parquet file's end: the footer's length (4 bytes, little endian) and the magic `PAR1`."""

TIME_COLUMN = 1
"""Number of the column of timestamps."""

ReadRange = Callable[[int, int], bytes]
"""`(start, length)` -> bytes of one object; fewer only at its end."""


def rows_per_group(table: pa.Table) -> int:
    """The number of rows of each group: 1 MiB of them, but 1,024 to 65,536; all when there are fewer.

    Rows of 100 bytes: 10,485; of 5 bytes: 65,536; of 100 KiB: 1,024.
    """
    if table.num_rows <= ROWS_MIN:
        return max(1, int(table.num_rows))
    return int(min(ROWS_MAX, max(ROWS_MIN, BYTES_MAX * table.num_rows // max(1, table.nbytes))))


class RangedFile:
    """A file whose bytes are read in ranges; some of them may be fetched ahead.

    Raises what `read_range` raises, CorruptMessageError when the file is shorter than it should be.
    """

    def __init__(self, read_range: ReadRange, size_bytes: int, name: str) -> None:
        self.closed = False
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._name = name
        self._position = 0
        self._held_start = size_bytes
        self._held = b""

    def footer(self) -> bytes:
        """The footer with its length and the magic behind it. CorruptMessageError when there is none."""
        if self._size_bytes < TRAILER_BYTES:
            raise CorruptMessageError(f"{self._name}: {self._size_bytes} bytes are no Parquet file")
        self.fetch(max(0, self._size_bytes - TAIL_BYTES), self._size_bytes)
        (footer_bytes,) = struct.unpack_from("<I", self._held, len(self._held) - TRAILER_BYTES)
        wanted = footer_bytes + TRAILER_BYTES
        if wanted > self._size_bytes:
            raise CorruptMessageError(f"{self._name}: its footer claims {footer_bytes} bytes of {self._size_bytes}")
        if wanted > len(self._held):
            self.fetch(self._size_bytes - wanted, self._size_bytes)
        return self._held[-wanted:]

    def fetch(self, start: int, end: int) -> None:
        """Fetch the bytes `[start, end)` ahead, of which parts will be read."""
        if start < self._held_start or end > self._held_start + len(self._held):
            self._held_start, self._held = start, self._fetched(start, end - start)

    def _fetched(self, start: int, length: int) -> bytes:
        data = self._read_range(start, length)
        if len(data) != length:
            raise CorruptMessageError(
                f"{self._name}: {len(data)} bytes at {start}, expected {length} of {self._size_bytes}"
            )
        return data

    # -- the calls of pyarrow.PythonFile -----------------------------------------------------------------

    def read(self, length: int = -1) -> bytes:
        start = self._position
        left = max(0, self._size_bytes - start)
        length = left if length < 0 else min(length, left)
        self._position = start + length
        first = start - self._held_start
        if first >= 0 and first + length <= len(self._held):
            return self._held[first : first + length]
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


class Footer:
    """A file's checked footer. It keeps the statistics that were read once, since pyarrow makes them again."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self._times_per_ms = 1_000 if metadata.schema.column(TIME_COLUMN).converted_type == "TIMESTAMP_MICROS" else 1
        self._largest: dict[tuple[int, int], int] = {}

    def largest(self, group: int, column: int) -> int:
        """The largest `offset_delta` (column 0) or timestamp in ms (column 1) of a group."""
        found = self._largest.get((group, column))
        if found is None:
            statistics = self.metadata.row_group(group).column(column).statistics
            is_known = statistics is not None and statistics.has_min_max
            # A column of nulls has none: no record has a timestamp.
            found = int(statistics.max_raw) if is_known else -(1 << 63)
            if is_known and column == TIME_COLUMN:
                found //= self._times_per_ms
            self._largest[group, column] = found
        return found

    def smallest_delta(self, group: int) -> int:
        return int(self.metadata.row_group(group).column(0).statistics.min_raw)

    def size_bytes(self, group: int) -> int:
        """Bytes on storage, of all columns."""
        return sum(end - start for start, end in self._chunks(group))

    def decoded_bytes(self, group: int) -> int:
        """Of a group's rows, about. A column that repeats its values states only what its dictionary takes, but all
        groups except the last were cut where their rows had `BYTES_MAX`."""
        cut_bytes = BYTES_MAX if group < self.metadata.num_row_groups - 1 else 0
        return max(cut_bytes, int(self.metadata.row_group(group).total_byte_size))

    def span(self, groups: Sequence[int], names: Collection[str] | None) -> tuple[int, int] | None:
        """The bytes `[start, end)` of the columns of these groups; None when too much else lies between."""
        chunks = [chunk for group in groups for chunk in self._chunks(group, names)]
        if not chunks:
            return None
        start, end = min(start for start, _ in chunks), max(end for _, end in chunks)
        return (start, end) if end - start <= SPAN_SHARE_MAX * sum(end - start for start, end in chunks) else None

    def _chunks(self, group: int, names: Collection[str] | None = None) -> list[tuple[int, int]]:
        """(first byte, end) of each column of a group, or of those with some names."""
        row_group = self.metadata.row_group(group)
        found = []
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if names is not None and column.path_in_schema.partition(".")[0] not in names:
                continue
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            found.append((start, start + column.total_compressed_size))
        return found


class Footers:
    """The footers of the files that were read last, by path: files never change. Kafka keeps its indexes mapped.

    Any thread may use it.
    """

    def __init__(self, count_max: int = FOOTERS_KEPT) -> None:
        self._count_max = count_max
        self._by_path: OrderedDict[str, Footer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> Footer | None:
        with self._lock:
            footer = self._by_path.get(path)
            if footer is not None:
                self._by_path.move_to_end(path)
        return footer

    def put(self, path: str, footer: Footer) -> None:
        with self._lock:
            self._by_path[path] = footer
            while len(self._by_path) > self._count_max:
                self._by_path.popitem(last=False)


def wanted_groups(footer: Footer, wanted: RowsWanted) -> list[int]:
    """The row groups that a reader needs, neighbours in order: see `RowsWanted`.

    Groups with deltas [0, 9] [10, 19] [20, 29]: `first_delta` 15 begins with the second, `end_delta` 20 ends there.
    """
    count = footer.metadata.num_row_groups
    first = bisect_left(range(count), wanted.first_delta, key=lambda group: footer.largest(group, 0))
    if wanted.from_timestamp_ms is not None:
        from_ms = wanted.from_timestamp_ms
        first = next((group for group in range(first, count) if footer.largest(group, TIME_COLUMN) >= from_ms), count)
    groups: list[int] = []
    size_bytes = decoded_bytes = 0
    for group in range(first, count):
        if wanted.end_delta is not None and footer.smallest_delta(group) >= wanted.end_delta:
            break
        if wanted.bytes_max is not None:
            size_bytes += footer.size_bytes(group)
            if groups and size_bytes > wanted.bytes_max:
                break
        if wanted.decoded_bytes_max is not None:
            if groups and decoded_bytes >= wanted.decoded_bytes_max:
                break
            decoded_bytes += footer.decoded_bytes(group)
        groups.append(group)
    return groups
