"""The records of a Kafka batch as columns: many records read and written at once, without an object for each. Pure.

Where a record begins follows from the size of the one before, so sizes are read one after the other, unless many in a
row are equal. All else is done for a whole column: numbers by NumPy, bytes by Arrow, which copies each key and value
once, into or out of its column. `single_records` has the layout, and does the same one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.kafka.batches.single_records import (
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    RecordReader,
    check_header_count,
)
from stratalog.storage.errors import InvalidRecordError
from stratalog.storage.records import HEADERS_TYPE

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

RECORD_BYTES_MIN = 7
"""A record without key, value and headers."""
_EQUAL_RECORDS = 4
"""After so many records of one size in a row the next ones are compared with it all at once; after twice as many the
next time when that found little, since comparing costs as much as reading 30 sizes."""
_COMPARED_AT_FIRST = 64
_MANY_EQUAL = 32
"""A batch's first 64 records have one byte less than those after them, which have a longer offset."""
_ROUND_RECORDS_MIN = 32
"""As long as so many records have one more header, these are read at once; then record by record."""
_LONG_MAX = (1 << 63) - 1
_SIGNED: Longs = np.array([(number >> 1) ^ -(number & 1) for number in range(1 << 14)], np.int64)
"""What varints of one or two bytes say."""
_BINARY = pa.binary()
_NOTHING = pa.scalar(b"", _BINARY)
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


def read_records(sections: Sequence[bytes], counts: Sequence[int]) -> RecordColumns:
    """The records of some batches one after the other: `counts[i]` stand in `sections[i]`, and nothing else.

    Raises InvalidRecordError as Kafka does: a size, length or count that does not fit into what is there, bytes that
    are left. Nothing is made before its size was compared: of the smallest records it takes 17 times their bytes, of
    a record with nothing but empty headers 45 times.
    """
    section_ends = _section_ends(sections, counts)
    section = sections[0] if len(sections) == 1 else b"".join(sections)
    data = np.frombuffer(section, np.uint8)
    starts, ends = _spans(section, sum(counts))
    if len(sections) > 1 and not np.array_equal(ends[np.cumsum(counts) - 1], section_ends):
        raise InvalidRecordError("the records of a batch end before or behind it")
    timestamp_deltas_ms, at = _read_numbers(data, starts + 1, VARLONG_BYTES_MAX)
    offset_deltas, at = _read_numbers(data, at, VARINT_BYTES_MAX)
    key_sizes, key_starts = _read_numbers(data, at, VARINT_BYTES_MAX)
    value_sizes, value_starts = _read_numbers(data, key_starts + np.maximum(key_sizes, 0), VARINT_BYTES_MAX)
    headers, at = _read_headers(section, data, value_starts + np.maximum(value_sizes, 0), starts, ends)
    _refuse(at != ends, at, starts, ends)
    keys, values = _contents(section, key_starts, key_sizes), _contents(section, value_starts, value_sizes)
    return RecordColumns(timestamp_deltas_ms, offset_deltas, keys, values, headers)


def _section_ends(sections: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    """Where each section ends when they are put together; each has room for as many records as it says."""
    for section, count in zip(sections, counts, strict=True):
        if not 0 < count * RECORD_BYTES_MIN <= len(section):
            raise InvalidRecordError(
                f"{count} records of {RECORD_BYTES_MIN} bytes or more in a batch with {len(section)} bytes of them"
            )
    return list(accumulate(map(len, sections)))


def single_columns(sections: Sequence[bytes], counts: Sequence[int]) -> RecordColumns:
    """The same as `read_records`, record by record: for few."""
    _section_ends(sections, counts)
    records = []
    for section, count in zip(sections, counts, strict=True):
        reader = RecordReader(section)
        records += [reader.next() for _ in range(count)]
        if reader.position != len(section):
            raise InvalidRecordError(f"{count} records end at byte {reader.position} of {len(section)}")
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
    """Each record as it stands in a batch, its size first: a binary array, whose data is the batch's section.

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


def _spans(section: bytes, count: int) -> tuple[Longs, Longs]:
    """Where each record begins behind its size, and where it ends. All lie in the section."""
    found: list[tuple[Longs, Longs]] = []
    starts: list[int] = []
    ends: list[int] = []
    at = equal = last_bytes = done = 0
    limit, enough = len(section), _EQUAL_RECORDS
    while done < count:
        size = section[at] if at + 1 < limit else 1
        if size & 0x81 == 0:
            start, size = at + 1, size >> 1
        elif size & 1 == 0 and (high := section[at + 1]) < 0x80:
            start, size = at + 2, (size & 0x7F | high << 7) >> 1
        else:  # more than two bytes, below 0, or not there
            start, size = _size_at(section, at)
        end = start + size
        if end > limit:
            raise InvalidRecordError(f"record at byte {at}: its size {size} is above the {limit - start} left")
        starts.append(start)
        ends.append(end)
        done += 1
        equal = equal + 1 if end - at == last_bytes else 0
        last_bytes = end - at
        if equal >= enough:
            run = _equal_run(section, at, start - at, last_bytes, count - done)
            first = np.arange(1, run + 1, dtype=np.int64) * last_bytes
            found += [(np.array(starts, np.int64), np.array(ends, np.int64)), (first + start, first + end)]
            starts, ends, equal = [], [], 0
            enough = _EQUAL_RECORDS if run >= _MANY_EQUAL else 2 * enough
            done, end = done + run, end + run * last_bytes
        at = end
    if at != limit:
        raise InvalidRecordError(f"{count} records end at byte {at} of {limit}")
    found.append((np.array(starts, np.int64), np.array(ends, np.int64)))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _size_at(section: bytes, at: int) -> tuple[int, int]:
    """Where a record begins behind its size, and the size."""
    number = shift = 0
    start = at
    for byte in section[at : at + VARINT_BYTES_MAX]:
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number & 1:
                raise InvalidRecordError(f"record at byte {at}: its size {-(number >> 1) - 1} is below 0")
            return start, number >> 1
        shift += 7
    raise InvalidRecordError(f"record at byte {at}: its size does not end within {start - at} bytes")


def _equal_run(section: bytes, at: int, width: int, record_bytes: int, count: int) -> int:
    """How many records after the one at `at` have the same size, so the same `width` bytes; at most `count`."""
    count = min(count, (len(section) - at) // record_bytes - 1)
    done, step = 0, _COMPARED_AT_FIRST
    while done < count:
        step = min(step, count - done)
        begin = at + (done + 1) * record_bytes
        same = step
        for place in range(width):
            bytes_there = section[begin + place : begin + step * record_bytes : record_bytes]
            other = bytes_there.lstrip(section[at + place : at + place + 1])
            same = min(same, step - len(other))
        done += same
        if same < step:
            break
        step *= 4
    return done


def _read_numbers(data: Bytes, at: Longs, bytes_max: int) -> tuple[Longs, Longs]:
    """The varints that begin at these bytes, and where each ends. Beyond the data its last byte is read again: who
    calls compares the ends with where the record ends."""
    low = data.take(at, mode="clip")
    if int(low.max(initial=0)) < 0x80:
        return _SIGNED.take(low), at + 1
    end = at + 1
    goes_on = low >> 7
    high = data.take(end, mode="clip") * goes_on
    number = (low & 0x7F) + (high.astype(np.int64) << 7)
    end += goes_on
    if int(high.max()) < 0x80:
        return _SIGNED.take(number), end
    number &= 0x3FFF
    for place in range(2, bytes_max):
        goes_on &= high >> 7
        high = data.take(at + place, mode="clip") * goes_on
        number += (high & 0x7F).astype(np.int64) << (7 * place)
        end += goes_on
        if int(high.max()) < 0x80:
            if place == VARINT_BYTES_MAX - 1 and bytes_max == VARINT_BYTES_MAX:
                number &= 0xFFFFFFFF
            # Zigzag: 0, 1, 2, 3 are 0, -1, 1, -2. All of the 64 bits may be in use.
            return ((number >> 1) & _LONG_MAX) ^ -(number & 1), end
    goes_on &= high >> 7
    raise InvalidRecordError(f"number at byte {at[goes_on.argmax()]}: it does not end within {bytes_max} bytes")


def _refuse(wrong: Mask, at: Longs, starts: Longs, ends: Longs) -> None:
    """Since fields only go forward, none lies outside its record when the last one ends where the record does."""
    if wrong.any():
        row = int(wrong.argmax())
        size, fields_bytes = ends[row] - starts[row], at[row] - starts[row]
        raise InvalidRecordError(f"record at byte {starts[row]}: its size is {size}, its fields take {fields_bytes}")


def _contents(section: bytes, starts: Longs, sizes: Longs) -> pa.Array:
    """A column of bytes that lie in `section`, in that order; a size below 0 is null. To be checked before.

    The section is taken for an array of twice as many cells: a content, what is between, a content …
    """
    count = len(starts)
    absent = sizes < 0
    any_absent = bool(absent.any())
    if any_absent and absent.all():
        return pa.nulls(count, _BINARY)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + np.maximum(sizes, 0) if any_absent else starts + sizes
    offsets[-1] = len(section)
    cells = pa.Array.from_buffers(_BINARY, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(section)])
    rows = np.arange(0, 2 * count, 2)
    return cells.take(pa.array(rows, mask=absent) if any_absent else pa.array(rows))


def _read_headers(section: bytes, data: Bytes, value_ends: Longs, starts: Longs, ends: Longs) -> tuple[pa.Array, Longs]:
    """The headers of all records, null where there are none, and where they end."""
    counts, at = _read_numbers(data, value_ends, VARINT_BYTES_MAX)
    if not counts.any():
        return pa.nulls(len(counts), HEADERS_TYPE), at
    _refuse(value_ends > ends, value_ends, starts, ends)
    impossible = (counts < 0) | (2 * counts > ends - at)
    if impossible.any():
        row = int(impossible.argmax())
        check_header_count(int(counts[row]), int(ends[row] - at[row]))
    list_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    places = np.zeros((4, list_offsets[-1]), np.int64)
    rows, number = np.flatnonzero(counts), 0
    while len(rows) >= _ROUND_RECORDS_MIN:
        key_sizes, key_starts = _read_numbers(data, at[rows], VARINT_BYTES_MAX)
        value_sizes, value_starts = _read_numbers(data, key_starts + np.maximum(key_sizes, 0), VARINT_BYTES_MAX)
        places[:, list_offsets[rows] + number] = key_starts, key_sizes, value_starts, value_sizes
        at[rows] = value_starts + np.maximum(value_sizes, 0)
        number += 1
        rows = rows[counts[rows] > number]
    for row in rows.tolist():
        found, at[row] = _walked_headers(section, int(at[row]), int(ends[row]), int(counts[row]) - number)
        places[:, list_offsets[row] + number : list_offsets[row + 1]] = found
    if (at > ends).any() or (places[1] < 0).any():
        raise InvalidRecordError("headers: one has no key, or a size above what is left of its record")
    keys, values = _contents(section, *places[:2]), _contents(section, *places[2:])
    return _header_lists(keys, values, list_offsets, counts), at


def _walked_headers(section: bytes, at: int, end: int, count: int) -> tuple[Longs, int]:
    """`count` headers of one record that ends at `end`: starts and sizes of keys and values, and where they end."""
    found = array("q")
    for _ in range(count):
        key_size = section[at] if at < end else 1
        value_at = at + 1 + (key_size >> 1)
        value_size = section[value_at] if value_at < end else 3
        if key_size & 0x81 == 0 and (value_size & 0x81 == 0 or value_size == 1):
            value_size = -1 if value_size == 1 else value_size >> 1
            found.extend((at + 1, key_size >> 1, value_at + 1, value_size))
            at = value_at + 1 + max(value_size, 0)
        else:  # a size of more bytes, one that cannot be, or nothing is left
            reader = RecordReader(section, at)
            found.extend(reader.next_header(end))
            at = reader.position
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
    for place in range(width - 1):
        rest = unsigned >> np.uint64(7 * place)
        goes_on = rest >= 0x80
        rows[:, place] = (rest & np.uint64(0x7F)) | (goes_on * np.uint64(0x80))
        widths += goes_on
    rows[:, -1] = unsigned >> np.uint64(7 * (width - 1))
    is_even = int(widths.min()) == width
    return _Varints(rows, width if is_even else widths)


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
    """Row by row one after the other; null is nothing."""
    return pc.binary_join_element_wise(*parts, _NOTHING, options=_JOIN)


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
