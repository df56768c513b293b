"""The twin of `batch_file.encode` for a few small rows, put together from its bytes. Pure (rows in, bytes out).

Where many partitions get a record now and then, most files hold one row or a few, and Parquet's writer makes its
objects for each column again. Here only what differs from file to file is encoded: a few numbers and the rows' bytes.
The footer's schema is taken from a file of Parquet's writer, and the rest is laid out as it does: uncompressed, one
page with a checksum a column, statistics of timestamps and offsets. Thrift's compact protocol: each field is a byte of
its id (counted from the one before) and type, then its value; a struct ends with 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.storage.files.codecs import SMALL_FILE_BYTES
from stratalog.storage.records import DATA_SCHEMA, PAYLOAD_SCHEMA, DataRow, FewRows, NewRecordBatch, data_table

MAGIC = b"PAR1"
CREATED_BY = b"stratalog version 1.0"
TABLE_ROWS_MAX = 31
"""Rows of the largest such file: of more rows Parquet's writer makes the smaller file, with dictionaries."""
_NUMBERS_KEPT = 4_096
_FOOTERS_KEPT = 1_024
_INT32, _INT64, _BYTES = 1, 2, 6
"""Parquet's physical types."""
_LETTERS = {_INT32: "i", _INT64: "q"}
_LENGTH = struct.Struct("<I")


def encode_fast(rows: pa.Table | FewRows) -> bytes | None:
    """The file of these rows, uncompressed; None: use Parquet's writer."""
    few = rows if isinstance(rows, tuple) else few_rows(rows)
    return encode_few_rows(few) if few is not None and _fits_one_page(few) else None


def _fits_one_page(rows: FewRows) -> bool:
    """Whether the rows are few bytes, too: a reader of a large file reads at least one page of each column."""
    return len(rows) == 1 or sum([len(row.key or b"") + len(row.value or b"") for row in rows]) <= SMALL_FILE_BYTES


def few_rows(table: pa.Table) -> FewRows | None:
    """The rows of a table of `DATA_SCHEMA`; None when there are none or many, or one has headers."""
    count = table.num_rows
    if not 0 < count <= TABLE_ROWS_MAX:
        return None
    delta, timestamp, key, value, headers, kind, producer_id, epoch, sequence, base, attributes = table.columns
    if headers.null_count < count or (count > 1 and key.nbytes + value.nbytes > SMALL_FILE_BYTES):
        return None
    others = (key, value, kind, producer_id, epoch, sequence, attributes, delta, base)
    cells = [[column[0].as_py()] if count == 1 else column.to_pylist() for column in others]
    return tuple([DataRow(*row) for row in zip([cell.value for cell in timestamp], *cells, strict=True)])


def encode_few_rows(rows: FewRows) -> bytes:
    """Rows as an uncompressed Parquet file; one of 100 bytes becomes a file of 1.3 KB."""
    count = len(rows)
    times, keys, values, types, producer_ids, epochs, sequences, attributes, deltas, bases = zip(*rows, strict=True)
    here = [at_ms * 1_000 for at_ms in times if at_ms is not None]  # in files they are microseconds
    chunks = [
        _numbers(_INT32, deltas),
        _page(count, _levels(times) + _packed(_INT64, here)),
        _page(count, _bytes(keys)),
        _page(count, _bytes(values)),
        _no_headers(count),
        _no_headers(count),
        _numbers(_INT32, types),
        _numbers(_INT64, producer_ids),
        _numbers(_INT32, epochs),
        _page(count, _packed(_INT32, sequences)),
        _numbers(_INT32, bases),
        _numbers(_INT32, attributes),
    ]
    before, between, after = _footer_around_statistics(count, tuple(map(len, chunks)))
    of_deltas = _statistics_of_deltas(deltas[0], deltas[-1])
    of_times = _statistics(_INT64, here, count - len(here))
    footer = b"".join((before, of_deltas, between, of_times, after))
    return b"".join([MAGIC, *chunks, footer, _LENGTH.pack(len(footer)), MAGIC])


@lru_cache(maxsize=_FOOTERS_KEPT)
def _footer_around_statistics(count: int, chunk_bytes: tuple[int, ...]) -> tuple[bytes, bytes, bytes]:
    """The footer before the statistics of the first column, between these and those of the second, and after them."""
    rows = _zigzag(count)
    columns = bytes([len(chunk_bytes) << 4 | 0xC])
    pieces: list[list[bytes]] = [[_schema(), _rows_and_groups(count), columns], [], []]
    offset = len(MAGIC)
    for number, (before_count, length) in enumerate(zip(_before_count(), chunk_bytes, strict=True)):
        size = _zigzag(length)
        column = (before_count, rows, b"\x16", size, b"\x16", size, b"\x26", _zigzag(offset))
        pieces[min(number, 2)] += column if number < 2 else (*column, b"\0\0")
        offset += length
    size = _zigzag(offset - len(MAGIC))
    first = _zigzag(len(MAGIC))
    pieces[2] += (b"\x16", size, b"\x16", rows, b"\x26", first, b"\x16", size, b"\0", _end(len(chunk_bytes)))
    before, between, after = (b"".join(piece) for piece in pieces)
    return before, between, after


def _rows_and_groups(count: int) -> bytes:
    """The footer's fields behind the schema: the number of rows, and one row group, whose columns follow."""
    return b"\x16" + _zigzag(count) + b"\x19\x1c\x19"


def _page(count: int, content: bytes) -> bytes:
    """A column's only page with its header, which has the checksum as a signed number of 32 bits."""
    size, crc = _zigzag(len(content)), zlib.crc32(content)
    signed = _zigzag_of(crc - (crc >> 31 << 32))
    return b"".join((b"\x15\0\x15", size, b"\x15", size, b"\x15", signed, _after_crc(count), content))


@cache
def _after_crc(count: int) -> bytes:
    """The end of a page's header: a data page of `count` values, plain, levels run-length encoded."""
    return b"\x1c\x15" + _zigzag(count) + b"\x15\0\x15\x06\x15\x06\0\0"


@lru_cache(maxsize=_NUMBERS_KEPT)
def _numbers(parquet_type: int, values: tuple[int, ...]) -> bytes:
    return _page(len(values), _packed(parquet_type, values))


def _packed(parquet_type: int, values: Sequence[int]) -> bytes:
    return _packer(parquet_type, len(values))(*values)


@cache
def _packer(parquet_type: int, count: int) -> Callable[..., bytes]:
    return struct.Struct(f"<{count}{_LETTERS[parquet_type]}").pack


@cache
def _no_headers(count: int) -> bytes:
    return _page(count, _run(count, 0) + _run(count, 0))  # repetition and definition levels


def _bytes(values: Sequence[bytes | None]) -> bytes:
    parts = [_levels(values)]
    for value in values:
        if value is not None:
            parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def _levels(values: Sequence[object]) -> bytes:
    """The definition levels of an optional column: 1 where there is a value."""
    count, absent = len(values), values.count(None)
    if absent in (0, count):
        return _run(count, 0 if absent else 1)
    size = -(-count // 8)
    bits = sum([1 << number for number, value in enumerate(values) if value is not None])
    runs = _varint(size << 1 | 1) + bits.to_bytes(size, "little")
    return _LENGTH.pack(len(runs)) + runs


@cache
def _run(count: int, level: int) -> bytes:
    runs = _varint(count << 1) + bytes([level])
    return _LENGTH.pack(len(runs)) + runs


def _statistics(parquet_type: int, values: Sequence[int], absent: int) -> bytes:
    """Null count, largest and smallest value, both exact; then the ends of the column's metadata and of the column."""
    if not values:
        return b"\x3c\x36" + _zigzag(absent) + b"\0\0\0"
    most, least = _packed(parquet_type, [max(values)]), _packed(parquet_type, [min(values)])
    size = b"\x04" if parquet_type == _INT32 else b"\x08"
    return b"".join((b"\x3c\x36", _zigzag(absent), b"\x28", size, most, b"\x18", size, least, b"\x11\x11\0\0\0"))


@lru_cache(maxsize=_NUMBERS_KEPT)
def _statistics_of_deltas(first: int, last: int) -> bytes:
    """Of values that ascend."""
    return _statistics(_INT32, (first, last), 0)


def _zigzag(number: int) -> bytes:
    """A signed number as Thrift writes it.

    >>> _zigzag(-1), _zigzag(64)
    (b'\\x01', b'\\x80\\x01')
    """
    return _SMALL[number] if 0 <= number < _NUMBERS_KEPT else _zigzag_of(number)


def _zigzag_of(number: int) -> bytes:
    return _varint((number << 1) if number >= 0 else ((-number << 1) - 1))


def _varint(number: int) -> bytes:
    if 1 << 28 <= number < 1 << 32:  # nearly every checksum
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14 & 127 | 128,
                      number >> 21 & 127 | 128, number >> 28))  # fmt: skip
    left, out = number, bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


_SMALL = [_zigzag_of(number) for number in range(_NUMBERS_KEPT)]


@cache
def _schema() -> bytes:
    """The footer's first fields, version and schema, of a file with the same columns."""
    row = pa.Table.from_pylist([dict.fromkeys(PAYLOAD_SCHEMA.names)], PAYLOAD_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(
        data_table([NewRecordBatch(row)]), sink, compression="none", coerce_timestamps="us", store_schema=False
    )
    footer = bytes(sink.getvalue())
    (footer_bytes,) = _LENGTH.unpack_from(footer, len(footer) - len(MAGIC) - _LENGTH.size)
    footer = footer[-footer_bytes - len(MAGIC) - _LENGTH.size :]
    return footer[: footer.index(_rows_and_groups(1))]


@cache
def _before_count() -> tuple[bytes, ...]:
    """Each column's metadata in the footer up to the number of its values."""
    found: list[bytes] = []
    for field in DATA_SCHEMA:
        if pa.types.is_list(field.type):
            found += [_leaf(_BYTES, field.name, "list", "element", each.name) for each in field.type.value_type]
        else:
            found.append(_leaf(_type_of(field.type), field.name))
    return tuple(found)


def _leaf(parquet_type: int, *path: str) -> bytes:
    names = b"".join(bytes([len(name)]) + name.encode() for name in path)
    encodings = b"\x19\x25\x06\0"  # run-length, plain
    path_in_schema = b"\x19" + bytes([len(path) << 4 | 8]) + names
    return b"\x26\0\x1c\x15" + _zigzag(parquet_type) + encodings + path_in_schema + b"\x15\0\x16"


def _type_of(arrow: pa.DataType) -> int:
    if pa.types.is_binary(arrow):
        return _BYTES
    return _INT64 if arrow.bit_width == 64 else _INT32


@cache
def _end(column_count: int) -> bytes:
    """The name of the file's writer, and the order of each column's values: that of its type."""
    orders = b"\x1c\0\0" * column_count
    return b"\x28" + bytes([len(CREATED_BY)]) + CREATED_BY + b"\x19" + bytes([column_count << 4 | 0xC]) + orders + b"\0"
