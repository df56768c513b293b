"""A file of few rows that was put together by hand is what Parquet's own writer would have made of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files import batch_file
from stratalog.storage.files.batch_file import STATISTICS_COLUMNS
from stratalog.storage.files.batch_file_fast import TABLE_ROWS_MAX, encode_few_rows, few_rows
from stratalog.storage.files.codecs import SMALL_FILE_BYTES, UNCOMPRESSED, ZSTD
from stratalog.storage.records import (
    DATA_SCHEMA,
    SMALL_BATCH_RECORDS,
    TIMESTAMP_MS_LIMIT,
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
SMALL_ROWS = [row_of(*given) for given in itertools.product(TIMES, CONTENTS[:3], CONTENTS[:3], PRODUCERS)]
COUNTS = (2, 3, 7, 8, 9, 16, 17, TABLE_ROWS_MAX)


def together(rows: list[pa.Table]) -> pa.Table:
    """Rows as one file's, with gaps between their offsets as a compaction leaves them."""
    table = pa.concat_tables(rows)
    return table.set_column(0, DATA_SCHEMA.field(0), pa.array([3 * n + 1 for n in range(len(rows))], pa.int32()))


FILES = [
    *ROWS,
    *(together(SMALL_ROWS[first : first + count]) for count in COUNTS for first in range(0, 135 - count, 5)),
    *(together([row_of(None, None, None, PRODUCERS[0])] * count) for count in COUNTS),
    *(together([row_of(5, b"k", b"v", PRODUCERS[1])] * count) for count in COUNTS),
]
"""Of one row each, then of some: with and without nothing in a column, in all of its rows and in a few."""


def in_order(table: pa.Table) -> list[str]:
    """The rows as text, times as numbers, whatever the order and the types in which a foreign reader gives them."""
    table = table.select(DATA_SCHEMA.names).cast(DATA_SCHEMA)
    return sorted(map(repr, table.set_column(1, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()))


def by_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    how = {"compression": "none", "store_schema": False, "coerce_timestamps": "us"}
    pq.write_table(table, sink, write_statistics=STATISTICS_COLUMNS, **how)
    return bytes(sink.getvalue())


def made(table: pa.Table) -> bytes:
    rows = few_rows(table)
    assert rows is not None
    return encode_few_rows(rows)


def test_every_row_is_read_back_as_it_was() -> None:
    for table in FILES:
        data, crc = batch_file.encode(table, UNCOMPRESSED)
        assert bytes(data) == made(table)
        assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(table)
        by_others = pq.read_table(pa.BufferReader(data))
        times = by_others["timestamp"].cast(pa.timestamp("ms", tz="UTC"))
        assert by_others.set_column(1, table.schema.field(1), times).equals(table)


def test_the_parquet_reader_of_deltalake_finds_the_same_rows(tmp_path: Path) -> None:
    for number, table in enumerate(FILES[-60:]):
        (tmp_path / f"{number}.parquet").write_bytes(made(table))
    convert_to_deltalake(str(tmp_path))
    found = QueryBuilder().register("t", DeltaTable(str(tmp_path))).execute("select * from t").read_all()
    assert in_order(pa.table(found)) == in_order(pa.concat_tables(FILES[-60:]))


def test_rows_of_more_levels_than_one_byte_counts_are_read_back() -> None:
    singles = [NewRecordBatch(OneRecord(7, b"k", b"v"), 1, 0, number) for number in range(SMALL_BATCH_RECORDS)]
    rows = data_rows(singles)
    assert isinstance(rows, tuple)
    data, crc = batch_file.encode(rows, UNCOMPRESSED)
    assert bytes(data) == encode_few_rows(rows)
    assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(table_of_rows(rows))


@pytest.mark.parametrize("lacks", ["key", "value"])
def test_few_rows_of_many_bytes_are_left_to_parquets_writer(lacks: str) -> None:
    wide = bytes(SMALL_FILE_BYTES // 2 + 1)
    record = OneRecord(7, None, wide) if lacks == "key" else OneRecord(7, wide, None)
    rows = data_rows([NewRecordBatch(record)] * 2)
    assert isinstance(rows, tuple)
    assert few_rows(table_of_rows(rows)) is None
    data, crc = batch_file.encode(rows, UNCOMPRESSED)
    assert pq.read_metadata(pa.BufferReader(data)).created_by.startswith("parquet-cpp")
    assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(table_of_rows(rows))


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
        assert isinstance(row, tuple)
        assert table_of_rows(row).equals(rows)
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
        rows = data_rows(singles[:count])
        assert isinstance(rows, tuple) == (count <= SMALL_BATCH_RECORDS)
        assert (table_of_rows(rows) if isinstance(rows, tuple) else rows).equals(expected)
        assert data_rows([*tables[:1], *singles[1:count]]).equals(expected)
        assert batch_file.describe(rows, "p", 5) == batch_file.describe(expected, "p", 5)


def test_its_footer_says_what_that_of_parquets_writer_says() -> None:
    for table in FILES:
        ours, theirs = (pq.read_metadata(pa.BufferReader(data)) for data in (made(table), by_parquet(table)))
        assert ours.schema.equals(theirs.schema)
        assert (ours.num_rows, ours.num_row_groups) == (table.num_rows, 1)
        assert ours.row_group(0).num_rows == table.num_rows
        for number in range(ours.num_columns):
            column, other = (each.row_group(0).column(number) for each in (ours, theirs))
            assert (column.path_in_schema, column.physical_type) == (other.path_in_schema, other.physical_type)
            assert column.num_values == other.num_values
            stated, expected = column.statistics, other.statistics
            assert (stated is None) == (expected is None)
            if stated is not None:
                assert stated.null_count == expected.null_count
                assert stated.has_min_max == expected.has_min_max
                assert not stated.has_min_max or (stated.min_raw, stated.max_raw) == (
                    expected.min_raw,
                    expected.max_raw,
                )


@pytest.mark.parametrize("count", [1, 3])
def test_no_flipped_bit_changes_what_is_read(count: int) -> None:
    row = together([row_of(1_700_000_000_123, b"key", b"value", PRODUCERS[1])] * count)
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
    assert few_rows(row) is None
    data, crc = batch_file.encode(row, UNCOMPRESSED)
    assert batch_file.decode(data, f"segment=0/a.{crc}.parquet").equals(row)
