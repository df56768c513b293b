"""The records of a Kafka batch as columns: read and written many at once, without an object for each. Pure.

    Record => Length:varint Attributes:int8 TimestampDelta:varlong OffsetDelta:varint
              KeyLength:varint Key ValueLength:varint Value HeaderCount:varint [Header]
    Header => KeyLength:varint Key ValueLength:varint Value

Varints are zigzag, so -1, the length of a null, is one byte. A record's start follows from the size of the record
before it, so sizes are read one after the other, unless many in a row are equal. All else is done for a whole column:
numbers by NumPy, bytes by Arrow, which copies each key and value once. A few records are read one by one, which is
faster for them. Source: Kafka's `DefaultRecord`, `ByteUtils`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.errors import InvalidRecordError
from stratalog.storage.records import HEADERS_TYPE, Header

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

RECORD_BYTES_MIN = 7
"""A record without key, value and headers."""
VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
_FEW_RECORDS_MAX = 10
"""The number of records up to which they are read one by one."""
_FEW_BYTES_MAX = 64 * 1024
"""The number of bytes up to which records are read one by one: a record may hold many headers."""
_EQUAL_RECORDS_MIN = 4
"""The number of records of one size in a row after which the next ones are compared with it all at once. It doubles
when a comparison finds a short run, since comparing costs as much as reading 30 sizes."""
_COMPARED_RECORDS_MIN = 64
"""The first step of a comparison: a batch's first 64 records have a shorter offset than those after them."""
_LONG_RUN_MIN = 32
_ROUND_RECORDS_MIN = 32
"""The number of records with one more header from which these headers are read at once; below it, record by record."""
_LONG_MAX = (1 << 63) - 1
_SIGNED: Longs = np.array([(number >> 1) ^ -(number & 1) for number in range(1 << 14)], np.int64)
"""The numbers that varints of one or two bytes stand for."""
_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_JOIN = pc.JoinOptions("replace", "")
_NO_HEADERS = pa.scalar(b"\0", _BINARY)
_HEADER_FIELDS = list(HEADERS_TYPE.value_type)


class RecordColumns(NamedTuple):
    """Records, one a row. Deltas are relative to their batch; keys and values are binary, headers `HEADERS_TYPE`."""

    timestamp_deltas_ms: Longs
    offset_deltas: Longs
    keys: pa.Array
    values: pa.Array
    headers: pa.Array


def read_records(buffers: Sequence[bytes], counts: Sequence[int]) -> RecordColumns:
    """The records of some batches one after the other: `buffers[i]` holds `counts[i]` records and nothing else.

    Raises InvalidRecordError as Kafka does: a size, length or count that exceeds the bytes left, or surplus bytes.
    """
    is_few = sum(counts) <= _FEW_RECORDS_MAX and sum(map(len, buffers)) <= _FEW_BYTES_MAX
    return read_one_by_one(buffers, counts) if is_few else read_together(buffers, counts)


def read_together(buffers: Sequence[bytes], counts: Sequence[int]) -> RecordColumns:
    """As `read_records`, for many. Memory is allocated after a size was compared with the bytes left.

    The smallest records take 17 times their bytes, a record with nothing but empty headers 45 times.
    """
    _check_counts(buffers, counts)
    buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    data = np.frombuffer(buffer, np.uint8)
    starts, ends = _spans(buffer, sum(counts))
    if len(buffers) > 1 and not np.array_equal(ends[np.cumsum(counts) - 1], np.cumsum([*map(len, buffers)])):
        raise InvalidRecordError("the records of a batch end before or behind it")
    timestamp_deltas_ms, at = _read_numbers(data, starts + 1, VARLONG_BYTES_MAX)
    offset_deltas, at = _read_numbers(data, at, VARINT_BYTES_MAX)
    key_sizes, key_starts = _read_numbers(data, at, VARINT_BYTES_MAX)
    value_sizes, value_starts = _read_numbers(data, key_starts + np.maximum(key_sizes, 0), VARINT_BYTES_MAX)
    headers, at = _read_headers(buffer, data, value_starts + np.maximum(value_sizes, 0), starts, ends)
    _check_fields(at != ends, at, starts, ends)
    keys, values = _contents(buffer, key_starts, key_sizes), _contents(buffer, value_starts, value_sizes)
    return RecordColumns(timestamp_deltas_ms, offset_deltas, keys, values, headers)


def _check_counts(buffers: Sequence[bytes], counts: Sequence[int]) -> None:
    for buffer, count in zip(buffers, counts, strict=True):
        if not 0 < count * RECORD_BYTES_MIN <= len(buffer):
            raise InvalidRecordError(
                f"{count} records of {RECORD_BYTES_MIN} bytes or more in a batch with {len(buffer)} bytes of them"
            )


def read_one_by_one(buffers: Sequence[bytes], counts: Sequence[int]) -> RecordColumns:
    """As `read_together`, record by record."""
    _check_counts(buffers, counts)
    records = []
    for buffer, count in zip(buffers, counts, strict=True):
        reader = RecordReader(buffer)
        records += [reader.next() for _ in range(count)]
        if reader.at != len(buffer):
            raise InvalidRecordError(f"{count} records end at byte {reader.at} of {len(buffer)}")
    timestamp_deltas_ms, offset_deltas, keys, values, headers = zip(*records, strict=True)
    pairs = [None if of_one is None else [{"key": k, "value": v} for k, v in of_one] for of_one in headers]
    return RecordColumns(
        np.array(timestamp_deltas_ms, np.int64),
        np.array(offset_deltas, np.int64),
        pa.array(keys, _BINARY),
        pa.array(values, _BINARY),
        pa.array(pairs, HEADERS_TYPE),
    )


def written_records(columns: RecordColumns) -> pa.Array:
    """Each record as it stands in a batch, its size first: a binary array, whose data is the batch's records.

    Together they must stay below 2 GiB, as Arrow's offsets have 32 bits.
    """
    count = len(columns.offset_deltas)
    key_sizes, value_sizes = _sizes(columns.keys), _sizes(columns.values)
    timestamps, offsets = _varints(columns.timestamp_deltas_ms), _varints(columns.offset_deltas)
    key_lengths, value_lengths = _varints(key_sizes), _varints(value_sizes)
    tail, tail_sizes = _written_headers(columns.headers)
    body_sizes = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    for widths in (1, timestamps.widths, offsets.widths, key_lengths.widths, value_lengths.widths, tail_sizes):
        body_sizes += widths
    attributes = _Varints(np.zeros((count, 1), np.uint8), 1)
    head = [_varints(body_sizes), attributes, timestamps, offsets, key_lengths]
    if columns.keys.null_count == count:
        return _joined(_packed([*head, value_lengths]), columns.values, *tail)
    return _joined(_packed(head), columns.keys, _packed([value_lengths]), columns.values, *tail)


def _spans(buffer: bytes, count: int) -> tuple[Longs, Longs]:
    """Where each record begins behind its size, and where it ends; all within the buffer."""
    found: list[tuple[Longs, Longs]] = []
    starts: list[int] = []
    ends: list[int] = []
    at = equal = last_bytes = done = 0
    limit, enough = len(buffer), _EQUAL_RECORDS_MIN
    while done < count:
        size = buffer[at] if at + 1 < limit else 1
        if size & 0x81 == 0:
            start, size = at + 1, size >> 1
        elif size & 1 == 0 and (high := buffer[at + 1]) < 0x80:
            start, size = at + 2, (size & 0x7F | high << 7) >> 1
        else:  # more than two bytes, below 0, or missing
            start, size = _size_at(buffer, at)
        end = start + size
        if end > limit:
            raise InvalidRecordError(f"record at byte {at}: its size {size} is above the {limit - start} left")
        starts.append(start)
        ends.append(end)
        done += 1
        equal = equal + 1 if end - at == last_bytes else 0
        last_bytes = end - at
        if equal >= enough:
            run = _equal_run(buffer, at, start - at, last_bytes, count - done)
            first = np.arange(1, run + 1, dtype=np.int64) * last_bytes
            found += [(np.array(starts, np.int64), np.array(ends, np.int64)), (first + start, first + end)]
            starts, ends, equal = [], [], 0
            enough = _EQUAL_RECORDS_MIN if run >= _LONG_RUN_MIN else 2 * enough
            done, end = done + run, end + run * last_bytes
        at = end
    if at != limit:
        raise InvalidRecordError(f"{count} records end at byte {at} of {limit}")
    found.append((np.array(starts, np.int64), np.array(ends, np.int64)))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _size_at(buffer: bytes, at: int) -> tuple[int, int]:
    """Where a record begins behind its size, and the size."""
    number = shift = 0
    start = at
    for byte in buffer[at : at + VARINT_BYTES_MAX]:
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number & 1:
                raise InvalidRecordError(f"record at byte {at}: its size {-(number >> 1) - 1} is below 0")
            return start, number >> 1
        shift += 7
    raise InvalidRecordError(f"record at byte {at}: its size does not end within {start - at} bytes")


def _equal_run(buffer: bytes, at: int, width: int, record_bytes: int, count: int) -> int:
    """The number of records after the one at `at` with the same `width` bytes of size; at most `count`."""
    count = min(count, (len(buffer) - at) // record_bytes - 1)
    done, step = 0, _COMPARED_RECORDS_MIN
    while done < count:
        step = min(step, count - done)
        begin = at + (done + 1) * record_bytes
        same = step
        for index in range(width):
            bytes_there = buffer[begin + index : begin + step * record_bytes : record_bytes]
            other = bytes_there.lstrip(buffer[at + index : at + index + 1])
            same = min(same, step - len(other))
        done += same
        if same < step:
            break
        step *= 4
    return done


def _read_numbers(data: Bytes, at: Longs, bytes_max: int) -> tuple[Longs, Longs]:
    """The varints that begin at these bytes, and where each ends.

    Beyond the data its last byte is read again: the caller compares the ends with the record's end.
    """
    low = data.take(at, mode="clip")
    if int(low.max(initial=0)) < 0x80:
        return _SIGNED.take(low), at + 1
    end = at + 1
    continues = low >> 7
    high = data.take(end, mode="clip") * continues
    number = (low & 0x7F) + (high.astype(np.int64) << 7)
    end += continues
    if int(high.max()) < 0x80:
        return _SIGNED.take(number), end
    number &= 0x3FFF
    for index in range(2, bytes_max):
        continues &= high >> 7
        high = data.take(at + index, mode="clip") * continues
        number += (high & 0x7F).astype(np.int64) << (7 * index)
        end += continues
        if int(high.max()) < 0x80:
            if index == VARINT_BYTES_MAX - 1 and bytes_max == VARINT_BYTES_MAX:
                number &= 0xFFFFFFFF
            # Zigzag: 0, 1, 2, 3 are 0, -1, 1, -2. All of the 64 bits may be in use.
            return ((number >> 1) & _LONG_MAX) ^ -(number & 1), end
    continues &= high >> 7
    raise InvalidRecordError(f"number at byte {at[continues.argmax()]}: it does not end within {bytes_max} bytes")


def _check_fields(wrong: Mask, at: Longs, starts: Longs, ends: Longs) -> None:
    """Raise for the first wrong row. Fields follow each other, so all lie within a record whose last field does."""
    if wrong.any():
        row = int(wrong.argmax())
        size, fields_bytes = ends[row] - starts[row], at[row] - starts[row]
        raise InvalidRecordError(f"record at byte {starts[row]}: its size is {size}, its fields take {fields_bytes}")


def _contents(buffer: bytes, starts: Longs, sizes: Longs) -> pa.Array:
    """A column of bytes that lie in `buffer`, in that order and within it; a size below 0 is null.

    The buffer is read as an array of twice as many cells: contents and gaps in turn.
    """
    count = len(starts)
    absent = sizes < 0
    any_absent = bool(absent.any())
    if any_absent and absent.all():
        return pa.nulls(count, _BINARY)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + np.maximum(sizes, 0) if any_absent else starts + sizes
    offsets[-1] = len(buffer)
    cells = pa.Array.from_buffers(_BINARY, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    rows = np.arange(0, 2 * count, 2)
    return cells.take(pa.array(rows, mask=absent) if any_absent else pa.array(rows))


def _read_headers(buffer: bytes, data: Bytes, value_ends: Longs, starts: Longs, ends: Longs) -> tuple[pa.Array, Longs]:
    """The headers of each record, null for none, and where they end."""
    counts, at = _read_numbers(data, value_ends, VARINT_BYTES_MAX)
    if not counts.any():
        return pa.nulls(len(counts), HEADERS_TYPE), at
    _check_fields(value_ends > ends, value_ends, starts, ends)
    impossible = (counts < 0) | (2 * counts > ends - at)
    if impossible.any():
        row = int(impossible.argmax())
        check_header_count(int(counts[row]), int(ends[row] - at[row]))
    list_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    spans = np.zeros((4, list_offsets[-1]), np.int64)
    rows, number = np.flatnonzero(counts), 0
    while len(rows) >= _ROUND_RECORDS_MIN:
        key_sizes, key_starts = _read_numbers(data, at[rows], VARINT_BYTES_MAX)
        value_sizes, value_starts = _read_numbers(data, key_starts + np.maximum(key_sizes, 0), VARINT_BYTES_MAX)
        spans[:, list_offsets[rows] + number] = key_starts, key_sizes, value_starts, value_sizes
        at[rows] = value_starts + np.maximum(value_sizes, 0)
        number += 1
        rows = rows[counts[rows] > number]
    for row in rows.tolist():
        found, at[row] = _headers_one_by_one(buffer, int(at[row]), int(ends[row]), int(counts[row]) - number)
        spans[:, list_offsets[row] + number : list_offsets[row + 1]] = found
    if (at > ends).any() or (spans[1] < 0).any():
        raise InvalidRecordError("headers: one has no key, or a size above what is left of its record")
    keys, values = _contents(buffer, *spans[:2]), _contents(buffer, *spans[2:])
    return _header_lists(keys, values, list_offsets, counts), at


def _headers_one_by_one(buffer: bytes, at: int, end: int, count: int) -> tuple[Longs, int]:
    """`count` headers of one record that ends at `end`: starts and sizes of keys and values, and where they end."""
    found = array("q")
    for _ in range(count):
        key_size = buffer[at] if at < end else 1
        value_at = at + 1 + (key_size >> 1)
        value_size = buffer[value_at] if value_at < end else 3
        if key_size & 0x81 == 0 and (value_size & 0x81 == 0 or value_size == 1):
            value_size = -1 if value_size == 1 else value_size >> 1
            found.extend((at + 1, key_size >> 1, value_at + 1, value_size))
            at = value_at + 1 + max(value_size, 0)
        else:  # a size of more bytes, a wrong one, or nothing left
            reader = RecordReader(buffer, at)
            found.extend(reader.next_header(end))
            at = reader.at
    return np.frombuffer(found, np.int64).reshape(count, 4).T, at


def _header_lists(keys: pa.Array, values: pa.Array, list_offsets: Longs, counts: Longs) -> pa.Array:
    try:
        pairs = pa.StructArray.from_arrays([keys.cast(pa.string()), values], fields=_HEADER_FIELDS)
    except pa.ArrowInvalid as reason:
        raise InvalidRecordError(f"a header's key is not UTF-8: {reason}") from reason
    offsets = pa.array(list_offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS_TYPE, mask=pa.array(counts == 0))


class _Varints(NamedTuple):
    """Varints in rows of bytes: of row i the first `widths[i]`, or the first `widths` of every row."""

    rows: Bytes
    widths: Longs | int

    @property
    def used(self) -> Mask:
        """Which of the bytes count."""
        if isinstance(self.widths, int):
            return np.ones(self.rows.shape, np.bool_)
        counts: Mask = np.arange(self.rows.shape[1]) < self.widths[:, None]
        return counts


def _varints(numbers: Longs) -> _Varints:
    zigzag = (numbers << 1) ^ (numbers >> 63)
    least, most = int(zigzag.min(initial=0)), int(zigzag.max(initial=0))
    if least >= 0 and most < 0x80:
        return _Varints(zigzag.astype(np.uint8)[:, None], 1)
    unsigned = zigzag.view(np.uint64)
    width = 10 if least < 0 else -(-most.bit_length() // 7)
    rows = np.empty((len(numbers), width), np.uint8)
    widths = np.ones(len(numbers), np.int64)
    for index in range(width - 1):
        rest = unsigned >> np.uint64(7 * index)
        continues = rest >= 0x80
        rows[:, index] = (rest & np.uint64(0x7F)) | (continues * np.uint64(0x80))
        widths += continues
    rows[:, -1] = unsigned >> np.uint64(7 * (width - 1))
    return _Varints(rows, width if int(widths.min()) == width else widths)


def _packed(fields: list[_Varints]) -> pa.Array:
    """The bytes of some varints in each row one after the other, as a binary array."""
    rows = np.concatenate([field.rows for field in fields], axis=1)
    count, width = rows.shape
    sizes = sum(field.widths for field in fields)
    if isinstance(sizes, int):
        offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    else:
        rows = rows[np.concatenate([field.used for field in fields], axis=1)]
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row joined; a null is empty."""
    return pc.binary_join_element_wise(*parts, _EMPTY, options=_JOIN)


def _sizes(contents: pa.Array) -> Longs:
    """Lengths in bytes, -1 for null."""
    if contents.null_count == len(contents):
        return np.full(len(contents), -1)
    lengths = pc.binary_length(contents)
    if contents.null_count:
        lengths = lengths.fill_null(-1)
    as_long: Longs = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return as_long


def _written_headers(headers: pa.Array) -> tuple[list[pa.Array | pa.Scalar], Longs | int]:
    """What follows the value of each record, header count and headers, and how many bytes that is."""
    if headers.null_count == len(headers) or not len(pairs := headers.flatten()):
        return [_NO_HEADERS], 1
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    keys, values = pairs.field("key").cast(_BINARY), pairs.field("value")
    written = _joined(_packed([_varints(_sizes(keys))]), keys, _packed([_varints(_sizes(values))]), values)
    _, offsets_buffer, data = written.buffers()
    header_offsets = np.frombuffer(offsets_buffer, np.int32)[written.offset :]
    offsets = header_offsets[np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])]
    of_records = pa.Array.from_buffers(_BINARY, len(counts), [None, pa.py_buffer(offsets), data])
    numbers = _varints(counts)
    return [_packed([numbers]), of_records], numbers.widths + np.diff(offsets)


_Record = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...] | None]
"""Timestamp and offset relative to the batch, key, value, headers."""


class RecordReader:
    """Reads records from byte `at` of `buffer` on; every length is compared with the bytes left before it is used."""

    def __init__(self, buffer: bytes, at: int = 0) -> None:
        self._buffer = buffer
        self.at = at

    def next(self) -> _Record:
        """The next record. InvalidRecordError, with what was compared."""
        begin = self.at
        size = self._number(VARINT_BYTES_MAX, len(self._buffer))
        end = self.at + size
        if size < 0 or end > len(self._buffer):
            left = len(self._buffer) - self.at
            raise InvalidRecordError(f"record at byte {begin}: its size {size} is not within 0 and the {left} left")
        self.at += 1  # attributes: no bit is in use
        timestamp_delta_ms = self._number(VARLONG_BYTES_MAX, end)
        offset_delta = self._number(VARINT_BYTES_MAX, end)
        key, value = self._content(end), self._content(end)
        headers = self._headers(end)
        if self.at != end:
            raise InvalidRecordError(
                f"record at byte {begin}: its size is {size}, its fields take {size + self.at - end}"
            )
        return timestamp_delta_ms, offset_delta, key, value, headers

    def next_header(self, end: int) -> tuple[int, int, int, int]:
        """The next header of a record that ends at `end`: key start, key size, value start, value size (-1: null)."""
        key_size, key_start = self._skipped(end), self.at
        value_size, value_start = self._skipped(end), self.at
        return key_start - max(key_size, 0), key_size, value_start - max(value_size, 0), value_size

    def _headers(self, end: int) -> tuple[Header, ...] | None:
        count = self._number(VARINT_BYTES_MAX, end)
        if count == 0:
            return None
        check_header_count(count, end - self.at)
        return tuple(self._header(end) for _ in range(count))

    def _header(self, end: int) -> Header:
        key = self._content(end)
        if key is None:
            raise InvalidRecordError(f"header before byte {self.at}: it has no key")
        try:
            return Header(key.decode(), self._content(end))
        except UnicodeDecodeError as reason:
            raise InvalidRecordError(f"header key {key!r} is not UTF-8") from reason

    def _content(self, end: int) -> bytes | None:
        size = self._skipped(end)
        return None if size < 0 else self._buffer[self.at - size : self.at]

    def _skipped(self, end: int) -> int:
        """Skip a length and that many bytes; returns the length, below 0 for null."""
        size = self._number(VARINT_BYTES_MAX, end)
        if size > end - self.at:
            raise InvalidRecordError(f"field at byte {self.at}: its size {size} is above the {end - self.at} left")
        self.at += max(size, 0)
        return size

    def _number(self, bytes_max: int, end: int) -> int:
        """A varint that ends before `end`: of 32 bits if `bytes_max` is 5, of 64 if it is 10."""
        number = shift = 0
        begin = self.at
        for byte in self._buffer[begin : min(begin + bytes_max, end)]:
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.at = begin + shift // 7
                number &= 0xFFFFFFFF if bytes_max == VARINT_BYTES_MAX else 0xFFFFFFFFFFFFFFFF
                return (number >> 1) ^ -(number & 1)
        raise InvalidRecordError(
            f"number at byte {begin}: it does not end within {bytes_max} bytes, {end - begin} left"
        )


def check_header_count(count: int, bytes_left: int) -> None:
    """InvalidRecordError unless `count` headers, of two bytes at least, fit into the bytes left of a record."""
    if not 0 <= 2 * count <= bytes_left:
        raise InvalidRecordError(f"a record says {count} headers, {bytes_left} bytes are left of it")
