"""Rows of the newest data files that this process wrote, so that who reads near the log's end decodes no Parquet.

Pure. A data file is immutable and its name is used once, so what is here is what a read would find.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, count, groupby

import pyarrow as pa

from storage.records import FewRows, table_of_rows

CAPACITY_BYTES = 64 << 20
ROWS_BYTES_MAX = 2 << 20
"""Larger ones are not kept: reading such a file costs little for each of its records."""
ENTRY_BYTES = 4_096
"""What the smallest table of rows takes, with its eleven columns."""
BLOCK_FILES = 16
"""So many small files of one table are kept as one table of rows: a log of single records then takes a tenth."""
BLOCK_ENTRY_BYTES = 512
"""What a file takes besides its rows once it lies in a block, and each of few rows besides its bytes."""


@dataclass(slots=True)
class _Block:
    """Rows of one file or of several of one table: of those at `position` from `starts[position]` to the next start.

    file_bytes, row_bytes  what each file takes, and besides that each of its rows
    left                   how many of the files are still kept
    """

    rows: pa.Table | FewRows
    starts: tuple[int, ...]
    file_bytes: int
    row_bytes: int
    left: int

    def size_bytes(self, position: int) -> int:
        """What a file takes."""
        return self.file_bytes + self.row_bytes * (self.starts[position + 1] - self.starts[position])

    def rows_of(self, position: int) -> pa.Table:
        """A file's rows."""
        if isinstance(self.rows, tuple):
            return table_of_rows(self.rows)
        start, end = self.starts[position : position + 2]
        return self.rows if end - start == self.rows.num_rows else self.rows.slice(start, end - start)


class FileCache:
    """Rows by (table, path): at most `capacity_bytes`, those not used for longest go first. Any thread may use it.

    A process that leads many partitions keeps tens of thousands of files. A file is therefore a text and a number here,
    which Python's garbage collector need not look at, and only blocks are objects: `BLOCK_FILES` times the number of
    the file's block, and its position in there.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._places: OrderedDict[str, int] = OrderedDict()
        self._blocks: dict[int, _Block] = {}
        self._numbers = count()
        self._loose: dict[str, list[str]] = {}

    @property
    def size_bytes(self) -> int:
        """What the rows take that are kept."""
        return self._size_bytes

    def resize(self, capacity_bytes: int) -> None:
        """Keep at most so much from now on; 0 = nothing."""
        with self._lock:
            self._capacity_bytes = capacity_bytes
            self._shrink()

    def put(self, table: str, path: str, rows: pa.Table | FewRows) -> None:
        """Keep the rows of a file of the table named so, unless they are too large."""
        if self._capacity_bytes == 0:
            return
        if isinstance(rows, tuple):
            size_bytes = sum([BLOCK_ENTRY_BYTES + len(row.key or b"") + len(row.value or b"") for row in rows])
            row_count = len(rows)
        else:
            rows, size_bytes = _alone(rows)
            row_count = rows.num_rows
        if size_bytes > ROWS_BYTES_MAX:
            return
        key = _key(table, path)
        with self._lock:
            self._forget(key)
            self._place([key], _Block(rows, (0, row_count), size_bytes, 0, 1))
            if size_bytes <= 2 * ENTRY_BYTES:
                self._gather(table, key)
            self._shrink()

    def _place(self, keys: Sequence[str], block: _Block) -> None:
        number = next(self._numbers)
        self._blocks[number] = block
        for position, key in enumerate(keys):
            self._places[key] = BLOCK_FILES * number + position  # where it is in the order of use, if it was there
            self._size_bytes += block.size_bytes(position)

    def _gather(self, table: str, key: str) -> None:
        """Put small files of a table together, once there are enough of them."""
        loose = self._loose.setdefault(table, [])
        loose.append(key)
        if len(loose) < BLOCK_FILES:
            return
        del self._loose[table]
        keys = [each for each in dict.fromkeys(loose) if each in self._places]
        found = [self._let_go(self._places[each]) for each in keys]
        rows = pa.concat_tables(list(_joined(block.rows for block in found))).combine_chunks()
        starts = tuple(accumulate((block.starts[-1] for block in found), initial=0))
        row_bytes = rows.get_total_buffer_size() // max(1, rows.num_rows)
        self._place(keys, _Block(rows, starts, BLOCK_ENTRY_BYTES, row_bytes, len(keys)))

    def get(self, table: str, path: str) -> pa.Table | None:
        """The rows of a file, None when they are not here."""
        key = _key(table, path)
        with self._lock:
            place = self._places.get(key)
            if place is None:
                return None
            self._places.move_to_end(key)
            number, position = divmod(place, BLOCK_FILES)
            block = self._blocks[number]
        return block.rows_of(position)

    def discard(self, table: str, paths: Iterable[str]) -> None:
        """These files left their log."""
        with self._lock:
            for path in paths:
                self._forget(_key(table, path))

    def _forget(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            self._let_go(place)

    def _let_go(self, place: int) -> _Block:
        """The file at this place is not in its block any more."""
        number, position = divmod(place, BLOCK_FILES)
        block = self._blocks[number]
        block.left -= 1
        if not block.left:
            del self._blocks[number]
        self._size_bytes -= block.size_bytes(position)
        return block

    def _shrink(self) -> None:
        while self._size_bytes > self._capacity_bytes:
            self._let_go(self._places.popitem(last=False)[1])


def _key(table: str, path: str) -> str:
    """The object's own path: below a table's there is no other table."""
    return f"{table}/{path}"


def _alone(rows: pa.Table) -> tuple[pa.Table, int]:
    """These rows and what they take. A small slice of a large table would hold on to all of it: it is copied."""
    size_bytes = ENTRY_BYTES + rows.get_total_buffer_size()
    if size_bytes <= ROWS_BYTES_MAX or ENTRY_BYTES + rows.nbytes > ROWS_BYTES_MAX:
        return rows, size_bytes
    rows = pa.concat_tables([rows, rows.slice(0, 0)]).combine_chunks()
    return rows, ENTRY_BYTES + rows.get_total_buffer_size()


def _joined(parts: Iterable[pa.Table | FewRows]) -> Iterator[pa.Table]:
    """The same rows in order, few ones that follow each other as one table."""
    for are_few, run in groupby(parts, key=lambda rows: isinstance(rows, tuple)):
        if are_few:
            yield table_of_rows(list(chain.from_iterable(run)))
        else:
            yield from run


SHARED_FILE_CACHE = FileCache()
"""The one of this process: a leader fills it, consumers in the same process and merges read from it."""
