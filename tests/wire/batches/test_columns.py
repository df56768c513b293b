"""Records read as columns are what they are one by one, and any bytes are records or an error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.errors import InvalidRecordError
from stratalog.storage.records import HEADERS_TYPE, payload_table
from stratalog.wire.batches.columns import (
    RecordColumns,
    read_one_by_one,
    read_together,
    written_records,
)
from tests.clients.batch_tools import ONE_RECORD, Record, record_lists


def columns_of(rows: list[Record]) -> RecordColumns:
    """The records with deltas of all sizes."""
    _, keys, values, headers = (column.combine_chunks() for column in payload_table(rows).columns)
    timestamps = np.array([time or 0 for time, *_ in rows], np.int64)
    return RecordColumns(timestamps, np.arange(len(rows)) * 40, keys, values, headers)


def record_bytes(rows: list[Record]) -> bytes:
    return b"".join(written_records(columns_of(rows)).to_pylist())


def outcome(read: object, buffers: list[bytes], counts: list[int]) -> list[object] | str:
    """The columns as lists, or that they are none."""
    try:
        columns = read(buffers, counts)  # type: ignore[operator]
    except InvalidRecordError:
        return "refused"
    assert columns.keys.validate(full=True) is columns.values.validate(full=True) is None
    assert columns.headers.validate(full=True) is None
    assert columns.headers.type == HEADERS_TYPE
    return [column.tolist() for column in columns]


@given(record_lists)
def test_what_is_written_is_read(rows: list[Record]) -> None:
    written = [column.tolist() for column in columns_of(rows)]
    assert outcome(read_together, [record_bytes(rows)], [len(rows)]) == written


@given(st.lists(record_lists, min_size=1, max_size=4))
def test_buffers_are_read_together_as_one_by_one(batches: list[list[Record]]) -> None:
    buffers, counts = [record_bytes(rows) for rows in batches], [len(rows) for rows in batches]
    together = outcome(read_together, buffers, counts)
    assert together == outcome(read_one_by_one, buffers, counts)
    assert together[3] == [value for rows in batches for _, _, value, _ in rows]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3), st.data())
def test_any_bytes_are_records_or_refused_by_both(buffers: list[bytes], data: st.DataObject) -> None:
    counts = [data.draw(st.integers(-1, 9)) for _ in buffers]
    assert outcome(read_together, buffers, counts) == outcome(read_one_by_one, buffers, counts)


@given(record_lists, st.data())
def test_changed_bytes_are_records_or_refused_by_both(rows: list[Record], data: st.DataObject) -> None:
    buffer = bytearray(record_bytes(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    changed, counts = [bytes(buffer)], [len(rows)]
    assert outcome(read_together, changed, counts) == outcome(read_one_by_one, changed, counts)


@given(record_lists, st.integers(1, 100))
def test_records_that_are_cut_off_is_refused(rows: list[Record], missing: int) -> None:
    buffer = record_bytes(rows)[:-missing]
    assert outcome(read_together, [buffer], [len(rows)]) == outcome(read_one_by_one, [buffer], [len(rows)]) == "refused"


def test_records_of_alternating_sizes_are_read() -> None:
    """Runs of equal size that end soon, at once, and at the last record."""
    sizes = [5] * 100 + [6] + [5] * 4 + [70] * 9 + [5, 6] * 20 + [300] * 500 + [301] * 3
    rows: list[Record] = [(0, None, b"v" * size, None) for size in sizes]
    columns = read_together([record_bytes(rows)], [len(rows)])
    assert [len(value) for value in columns.values.to_pylist()] == sizes


def test_thousands_of_headers_in_one_record_among_many() -> None:
    pairs = [{"key": "k" * (i % 90), "value": None if i % 3 else b"v" * (i % 80)} for i in range(5_000)]
    headers = pa.array([pairs[count : 2 * count] for count in [1] * 100 + [2_500, 3]] + [None], HEADERS_TYPE)
    empty = pa.nulls(103, pa.binary())
    columns = RecordColumns(np.zeros(103, np.int64), np.arange(103), empty, empty, headers)
    read = read_together([b"".join(written_records(columns).to_pylist())], [103])
    assert read.headers.equals(headers)


@pytest.mark.parametrize(
    ("buffer", "count", "reason"),
    [
        (ONE_RECORD, 0, "0 records"),
        (ONE_RECORD, 2, "2 records of 7 bytes or more in a batch with 9 bytes"),
        (ONE_RECORD, 1 << 31, "2147483648 records"),
        (ONE_RECORD * 2, 1, "end at byte 9 of 18"),
        (b"\x0f" + ONE_RECORD[1:], 1, "size"),
        (b"\xff\xff\xff\xff\xff\x0f" + bytes(9), 1, "does not end within 5 bytes"),
        (b"\x10\0\0\0\xfe\xff\xff\xff\x0f", 1, "size"),
        (b"\x10\0\0\0\x01\x08ok\0", 1, "its size is 8, its fields take 10"),
        (b"\x10\0\0\0\x01\x02ok\0", 1, "its size is 8, its fields take 7|headers"),
        (b"\x10\0\0\0\x01\x04ok\x02", 1, "a record says 1 headers, 0 bytes are left"),
        (b"\x10\0\0\0\x01\x04ok\x01", 1, "a record says -1 headers"),
        (b"\x14\0\0\0\x01\x04ok\x02\x01\x01", 1, "key"),
        (b"\x16\0\0\0\x01\x04ok\x02\x02\xff\x01", 1, "UTF-8"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(buffer: bytes, count: int, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        read_together([buffer], [count])
    assert outcome(read_one_by_one, [buffer], [count]) == "refused"
