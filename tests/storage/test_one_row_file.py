"""A file of one row that was put together by hand is what Parquet's own writer would have made of it."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import batch_file
from storage.batch_file import STATISTICS_COLUMNS
from storage.codecs import UNCOMPRESSED, ZSTD
from storage.errors import CorruptMessageError
from storage.one_row_file import encode_one_row, only_row
from storage.records import (
    SMALL_BATCH_RECORDS,
    TIMESTAMP_MS_LIMIT,
    DataRow,
    Header,
    NewRecordBatch,
    OneRecord,
    data_rows,
    data_table,
    payload_table,
    table_of_rows,
)

TIMES = (None, 0, -1, 1_700_000_000_123, TIMESTAMP_MS_LIMIT)
CONTENTS = (None, b"", b"k", bytes(range(256)) * 40)
PRODUCERS = ((-1, -1, -1, 0), (77, 0, 5, 0x10), ((1 << 63) - 1, (1 << 15) - 1, (1 << 31) - 1, 0x30))


def row_of(
    timestamp_ms: int | None, key: bytes | None, value: bytes | None, producer: tuple[int, int, int, int]
) -> pa.Table:
    producer_id, epoch, sequence, attributes = producer
    payload = payload_table([(timestamp_ms, key, value, None)])
    return data_table([NewRecordBatch(payload, producer_id, epoch, sequence, attributes=attributes)])


ROWS = [row_of(*given) for given in itertools.product(TIMES, CONTENTS, CONTENTS, PRODUCERS)]


def by_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", store_schema=False, write_statistics=STATISTICS_COLUMNS)
    return bytes(sink.getvalue())


def made(table: pa.Table) -> bytes:
    row = only_row(table)
    assert row is not None
    return encode_one_row(row)


def test_every_row_is_read_back_as_it_was() -> None:
    for row in ROWS:
        data, crc = batch_file.encode(row, UNCOMPRESSED)
        assert bytes(data) == made(row)
        assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(row)


def test_a_record_alone_makes_the_file_that_its_payload_makes() -> None:
    for timestamp_ms, key, value, (producer_id, epoch, sequence, attributes) in itertools.product(
        TIMES, CONTENTS, CONTENTS, PRODUCERS
    ):
        one, payload = OneRecord(timestamp_ms, key, value), payload_table([(timestamp_ms, key, value, None)])
        single, table = (
            NewRecordBatch(content, producer_id, epoch, sequence, attributes=attributes) for content in (one, payload)
        )
        assert single.payload.equals(payload)
        assert (single.record_count, single.lacks_a_key) == (1, key is None)
        assert single.timestamp_range == table.timestamp_range
        assert abs(single.size_bytes - table.size_bytes) <= 12  # validity bits and empty buffers are counted or not
        row, rows = data_rows([single]), data_rows([table])
        assert isinstance(row, DataRow)
        assert table_of_rows([row]).equals(rows)
        assert batch_file.describe(row, "p", 5) == batch_file.describe(rows, "p", 5)
        for codec in (UNCOMPRESSED, ZSTD):
            assert batch_file.encode(row, codec) == batch_file.encode(rows, codec)


def test_records_alone_that_are_appended_together_make_the_rows_that_their_payloads_make() -> None:
    given = list(itertools.product(TIMES, CONTENTS[:3], CONTENTS[:3], PRODUCERS))[: SMALL_BATCH_RECORDS + 1]
    singles, tables = [], []
    for timestamp_ms, key, value, (producer_id, epoch, sequence, attributes) in given:
        for found, content in (
            (singles, OneRecord(timestamp_ms, key, value)),
            (tables, payload_table([(timestamp_ms, key, value, None)])),
        ):
            found.append(NewRecordBatch(content, producer_id, epoch, sequence, attributes=attributes))
    for count in (2, SMALL_BATCH_RECORDS, SMALL_BATCH_RECORDS + 1):
        expected = data_table(tables[:count])
        assert data_rows(singles[:count]).equals(expected)
        assert data_rows([*tables[:1], *singles[1:count]]).equals(expected)


def test_its_footer_says_what_that_of_parquets_writer_says() -> None:
    for row in ROWS:
        ours, theirs = (pq.read_metadata(pa.BufferReader(data)) for data in (made(row), by_parquet(row)))
        assert ours.schema.equals(theirs.schema)
        assert (ours.num_rows, ours.num_row_groups) == (1, 1)
        for number in range(ours.num_columns):
            column, other = (each.row_group(0).column(number) for each in (ours, theirs))
            assert (column.path_in_schema, column.physical_type) == (other.path_in_schema, other.physical_type)
            stated, expected = column.statistics, other.statistics
            assert (stated is None) == (expected is None)
            if stated is not None:
                assert stated.null_count == expected.null_count
                assert stated.has_min_max == expected.has_min_max
                assert not stated.has_min_max or (stated.min_raw, stated.max_raw) == (
                    expected.min_raw,
                    expected.max_raw,
                )


def test_no_flipped_bit_changes_what_is_read() -> None:
    row = row_of(1_700_000_000_123, b"key", b"value", PRODUCERS[1])
    data = made(row)
    path = f"segment=0/a.{batch_file.footer_crc(data, 'a')}.parquet"
    unnoticed = 0
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 4
        try:
            assert batch_file.decode(bytes(flipped), path).equals(row)
            unnoticed += 1
        except CorruptMessageError:
            pass
    assert unnoticed < len(data) // 4  # of pages' headers, which say things twice


@pytest.mark.parametrize("headers", [[], [Header("h", b"1")]])
def test_a_row_with_headers_is_left_to_parquets_writer(headers: list[Header]) -> None:
    row = data_table([NewRecordBatch(payload_table([(0, None, b"v", headers)]))])
    assert only_row(row) is None
    data, crc = batch_file.encode(row, UNCOMPRESSED)
    assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(row)
