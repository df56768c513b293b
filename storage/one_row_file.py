"""A record batch file of one row, put together from its bytes. Pure (a row in, bytes out).

Where many partitions get a record here and there, most files hold one. Parquet's writer makes its objects for each
column anew, 160 µs for 100 bytes; what differs from file to file are a few numbers and the row's own bytes. The
footer's schema is taken from a file that Parquet's writer made, and the rest is laid out as it does: uncompressed, one
page with a checksum a column, statistics of timestamps and offsets. Thrift's compact protocol: each field is a byte of
its id (counted from the one before) and type, then its value; a struct ends with 0.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from storage.records import DATA_SCHEMA, PAYLOAD_SCHEMA, DataRow, NewRecordBatch, data_table

MAGIC = b"PAR1"
CREATED_BY = b"stratalog version 1.0"
_NUMBERS_KEPT = 4_096
_FOOTERS_KEPT = 1_024
_INT32, _INT64, _BYTES = 1, 2, 6
"""Parquet's physical types."""
_FORMATS = {_INT32: struct.Struct("<i"), _INT64: struct.Struct("<q")}
_LENGTH = struct.Struct("<I")
_HERE, _ABSENT = b"\x02\0\0\0\x02\x01", b"\x02\0\0\0\x02\0"
"""The definition level of one value of an optional column: one run of one."""
_AFTER_CRC = b"\x1c\x15\x02\x15\0\x15\x06\x15\x06\0\0"
"""The end of a page's header: a data page of one value, plain, levels run-length encoded."""
_NUM_ROWS_AND_GROUPS = b"\x16\x02\x19\x1c\x19"
"""In the footer behind the schema: one row, one row group, whose columns follow."""


def only_row(table: pa.Table) -> DataRow | None:
    """The row of a table of `DATA_SCHEMA`; None when there is another number of rows, or it has headers."""
    if table.num_rows != 1:
        return None
    delta, timestamp, key, value, headers, kind, producer_id, epoch, sequence, base, attributes = [
        column[0] for column in table.columns
    ]
    if headers.is_valid:
        return None
    numbers = [cell.as_py() for cell in (kind, producer_id, epoch, sequence, attributes, delta, base)]
    return DataRow(timestamp.value, key.as_py(), value.as_py(), *numbers)


def encode_one_row(row: DataRow) -> bytes:
    """A row as an uncompressed Parquet file; one of 100 bytes becomes a file of 1.3 KB."""
    at_ms = row.timestamp_ms
    chunks = [
        _number(_INT32, row.offset_delta),
        _page(_ABSENT if at_ms is None else _HERE + _FORMATS[_INT64].pack(at_ms)),
        _page(_bytes(row.key)),
        _page(_bytes(row.value)),
        _no_header(),
        _no_header(),
        _number(_INT32, row.timestamp_type),
        _number(_INT64, row.producer_id),
        _number(_INT32, row.producer_epoch),
        _page(_FORMATS[_INT32].pack(row.sequence)),
        _number(_INT32, row.batch_base),
        _number(_INT32, row.attributes),
    ]
    before, between, after = _footer_around_statistics(tuple(map(len, chunks)))
    footer = b"".join((before, _statistics(_INT32, row.offset_delta), between, _statistics(_INT64, at_ms), after))
    return b"".join([MAGIC, *chunks, footer, _LENGTH.pack(len(footer)), MAGIC])


@lru_cache(maxsize=_FOOTERS_KEPT)
def _footer_around_statistics(chunk_bytes: tuple[int, ...]) -> tuple[bytes, bytes, bytes]:
    """The footer before the statistics of the first column, between these and those of the second, and after them."""
    pieces: list[list[bytes]] = [[_schema(), _NUM_ROWS_AND_GROUPS, bytes([len(chunk_bytes) << 4 | 0xC])], [], []]
    offset = len(MAGIC)
    for number, (before_sizes, length) in enumerate(zip(_before_sizes(), chunk_bytes, strict=True)):
        size = _zigzag(length)
        column = (before_sizes, size, b"\x16", size, b"\x26", _zigzag(offset))
        pieces[min(number, 2)] += column if number < 2 else (*column, b"\0\0")
        offset += length
    size = _zigzag(offset - len(MAGIC))
    pieces[2] += (b"\x16", size, b"\x16\x02\x26", _zigzag(len(MAGIC)), b"\x16", size, b"\0", _end(len(chunk_bytes)))
    before, between, after = (b"".join(piece) for piece in pieces)
    return before, between, after


def _page(content: bytes) -> bytes:
    """A column's only page with its header; the checksum is a signed number of 32 bits."""
    size, crc = _zigzag(len(content)), zlib.crc32(content)
    signed = _zigzag(crc - (crc >> 31 << 32))
    return b"".join([b"\x15\0\x15", size, b"\x15", size, b"\x15", signed, _AFTER_CRC, content])


@lru_cache(maxsize=_NUMBERS_KEPT)
def _number(parquet_type: int, value: int) -> bytes:
    return _page(_FORMATS[parquet_type].pack(value))


@cache
def _no_header() -> bytes:
    return _page(b"\x02\0\0\0\x02\0" + _ABSENT)  # repetition and definition level


def _bytes(value: bytes | None) -> bytes:
    return _ABSENT if value is None else b"".join((_HERE, _LENGTH.pack(len(value)), value))


def _statistics(parquet_type: int, value: int | None) -> bytes:
    """Null count, largest and smallest value, both exact; then the ends of the column's metadata and of the column."""
    if value is None:
        return b"\x3c\x36\x02\0\0\0"
    packed = _FORMATS[parquet_type].pack(value)
    size = b"\x04" if parquet_type == _INT32 else b"\x08"
    return b"".join((b"\x3c\x36\0\x28", size, packed, b"\x18", size, packed, b"\x11\x11\0\0\0"))


def _zigzag(number: int) -> bytes:
    """A signed number as Thrift writes it.

    >>> _zigzag(-1), _zigzag(64)
    (b'\\x01', b'\\x80\\x01')
    """
    return _SMALL[number] if 0 <= number < _NUMBERS_KEPT else _zigzag_of(number)


def _zigzag_of(number: int) -> bytes:
    left, out = (number << 1) if number >= 0 else ((-number << 1) - 1), bytearray()
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
    pq.write_table(data_table([NewRecordBatch(row)]), sink, compression="none", store_schema=False)
    footer = bytes(sink.getvalue())
    (footer_bytes,) = _LENGTH.unpack_from(footer, len(footer) - len(MAGIC) - _LENGTH.size)
    footer = footer[-footer_bytes - len(MAGIC) - _LENGTH.size :]
    return footer[: footer.index(_NUM_ROWS_AND_GROUPS)]


@cache
def _before_sizes() -> tuple[bytes, ...]:
    """Each column's metadata in the footer up to its sizes."""
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
    return b"\x26\0\x1c\x15" + _zigzag(parquet_type) + encodings + path_in_schema + b"\x15\0\x16\x02\x16"


def _type_of(arrow: pa.DataType) -> int:
    if pa.types.is_binary(arrow):
        return _BYTES
    return _INT64 if arrow.bit_width == 64 else _INT32


@cache
def _end(column_count: int) -> bytes:
    """Who made the file; and that each column's values are ordered as its type is."""
    orders = b"\x1c\0\0" * column_count
    return b"\x28" + bytes([len(CREATED_BY)]) + CREATED_BY + b"\x19" + bytes([column_count << 4 | 0xC]) + orders + b"\0"
