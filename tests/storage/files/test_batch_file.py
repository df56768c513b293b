"""A record batch file reads back as it was written, or is known to be corrupt."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.batch_file import (
    DATA_CRC_KEY,
    check,
    data_crc,
    decode,
    describe,
    encode,
    file_path,
    footer_crc,
    is_checked,
    is_large,
    write,
    written_crc,
)
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.records import (
    DATA_SCHEMA,
    TIMESTAMP_MS_LIMIT,
    Header,
    NewRecordBatch,
    OneRecord,
    data_rows,
    data_table,
    payload_table,
)


def rows(count: int) -> pa.Table:
    records = [
        (1_700_000_000_000 + i, None if i % 3 else b"key", b"value %d" % i, [Header("h", None)] if i % 2 else None)
        for i in range(count)
    ]
    return data_table([NewRecordBatch(payload_table(records), producer_id=9, producer_epoch=1, base_sequence=5)])


@pytest.mark.parametrize("codec", ["uncompressed", "zstd", "zstd:6", "lz4", "snappy", "gzip"])
@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_rows_read_back_with_their_schema(count: int, codec: str) -> None:
    data, crc = encode(rows(count), codec)
    read = decode(data, file_path(None, "f", crc))
    assert read.equals(rows(count))
    assert read.schema.equals(DATA_SCHEMA)
    assert decode(data, file_path(None, "f", crc), ["value"]).equals(rows(count).select(["value"]))


def of_an_older_release(table: pa.Table) -> tuple[bytes, str]:
    """A file whose timestamps are milliseconds, and the CRC32C of its footer."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, store_schema=False)
    data = sink.getvalue().to_pybytes()
    return data, footer_crc(data, "f")


@pytest.mark.parametrize("count", [1, 1_000])
@pytest.mark.parametrize("columns", [None, ["timestamp"], ["offset_delta", "value"]])
def test_files_hold_microseconds_and_those_of_older_releases_milliseconds(
    count: int, columns: list[str] | None
) -> None:
    """Delta's unit: Polars 1 converts no other. Whoever reads records gets milliseconds of either."""
    expected = rows(count) if columns is None else rows(count).select(columns)
    for (data, crc), unit in ((encode(rows(count), "uncompressed"), "us"), (of_an_older_release(rows(count)), "ms")):
        stored = pq.read_schema(pa.BufferReader(data))
        assert stored.field("timestamp").type == pa.timestamp(unit, tz="UTC")
        assert decode(data, file_path(None, "f", crc), columns).equals(expected)


@pytest.mark.parametrize("timestamp", [None, -TIMESTAMP_MS_LIMIT, TIMESTAMP_MS_LIMIT, 0])
def test_timestamps_at_the_edges_read_back(timestamp: int | None) -> None:
    table = data_table([NewRecordBatch(payload_table([(timestamp, None, None, None)]))])
    data, crc = encode(table)
    path = file_path(None, "f", crc)
    assert decode(data, path).equals(table)
    file = describe(table, path, len(data))
    assert (file.min_timestamp_ms, file.max_timestamp_ms) == (timestamp, timestamp)


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
@pytest.mark.parametrize("count", [2, 40])
def test_a_flipped_bit_is_corrupt_or_reads_right(count: int, codec: str) -> None:
    table = rows(count)
    data, crc = encode(table, codec)
    path = file_path(None, "f", crc)
    flips = random.Random(7)
    seen_corrupt = 0
    for _ in range(400):
        at, bit = flips.randrange(len(data)), flips.randrange(8)
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        try:
            assert decode(bytes(flipped), path).equals(table), f"byte {at} bit {bit} reads wrong"
        except CorruptMessageError:
            seen_corrupt += 1
    assert seen_corrupt > 300


@pytest.mark.parametrize("kept", [0, 3, 8, 100, -1, -8])
def test_a_short_file_is_corrupt(kept: int) -> None:
    data, crc = encode(rows(20))
    with pytest.raises(CorruptMessageError):
        decode(data[:kept], file_path(None, "f", crc))


def test_a_wrong_footer_names_file_and_both_checksums() -> None:
    data, crc = encode(rows(1))
    with pytest.raises(CorruptMessageError, match=rf"f\.00000000\.parquet.*{crc}.*00000000"):
        check(data, file_path(None, "f", "00000000"))


def test_a_name_without_checksum_is_refused() -> None:
    data, _ = encode(rows(1))
    with pytest.raises(CorruptMessageError, match="has no footer"):
        check(data, "segment=0/part-00000.parquet")


def test_another_schema_is_corrupt() -> None:
    table = rows(1).drop_columns(["attributes"])
    data, crc = encode(table)
    with pytest.raises(CorruptMessageError, match=r"attributes|columns"):
        decode(data, file_path(None, "f", crc))


def test_the_rows_of_many_batches_are_those_of_each_one_after_the_other() -> None:
    sizes = (1, 3, 70, 2, 200)
    batches = [
        NewRecordBatch(
            payload_table([(number, None, b"%d" % row, None) for row in range(size)]),
            *((number, 2, (1 << 31) - 2) if number % 2 else ()),
            attributes=16 * (number % 2),
        )
        for number, size in enumerate(sizes)
    ]
    rows, first = data_table(batches), 0
    assert rows.schema.equals(DATA_SCHEMA)
    for batch in batches:
        alone, count = data_table([batch]), batch.record_count
        found = rows.slice(first, count).to_pylist()
        shifts = ("offset_delta", "batch_base")
        assert [{**row, **{name: row[name] - first for name in shifts}} for row in found] == alone.to_pylist()
        first += count
    sequences = rows["sequence"].to_pylist()
    assert (sequences[0], sequences[1:4]) == (-1, [2_147_483_646, 2_147_483_647, 0])
    assert rows["offset_delta"].to_pylist() == list(range(sum(sizes)))


@pytest.mark.parametrize(
    ("record_count", "value_bytes", "large"),
    [
        pytest.param(1_024, 20_000, False, id="few large rows, of which a row group takes them all"),
        pytest.param(20_000, 100, False, id="2 MiB"),
        pytest.param(40_000, 100, True, id="5 MiB"),
        pytest.param(4_000, 1_024, True, id="row groups of 1 MiB"),
        pytest.param(4_000, 3_000, False, id="row groups of 3 MiB"),
    ],
)
def test_a_file_is_large_if_all_of_its_pieces_are_small(record_count: int, value_bytes: int, large: bool) -> None:
    records = [(0, None, bytes(value_bytes), None)] * record_count
    assert is_large(data_table([NewRecordBatch(payload_table(records))])) == large


def test_few_rows_are_never_large() -> None:
    assert not is_large(data_rows([NewRecordBatch(OneRecord(0, None, bytes(8 << 20)))]))


@pytest.mark.parametrize("codec", ["uncompressed", "zstd:6", "gzip"])
@pytest.mark.parametrize("count", [40, 9_000])
def test_rows_written_in_pieces_are_the_same_file(count: int, codec: str) -> None:
    data, crc = encode(rows(count), codec)
    sink = pa.BufferOutputStream()
    write(rows(count), sink, codec)
    written = bytes(sink.getvalue())
    assert written == bytes(data)
    assert written_crc(lambda start, length: written[start : start + length], len(written)) == crc


def with_checksum(path: Path, table: pa.Table, codec: str = "zstd") -> tuple[bytes, DataFile]:
    """A file that states the checksum of its data, written as one that grows on a disk."""
    with pa.OSFile(str(path), "wb") as opened, pa.BufferedOutputStream(opened, 1_000) as sink:
        write(table, sink, codec, lambda start, length: path.read_bytes()[start : start + length])
    data = path.read_bytes()
    crc = written_crc(lambda start, length: data[start : start + length], len(data))
    return data, describe(table, file_path(None, "f", crc), len(data))


def is_sound(data: bytes, file: DataFile) -> bool:
    return is_checked(lambda start, length: data[start : start + length], file, file.path)


@pytest.mark.parametrize("codec", ["uncompressed", "zstd", "gzip"])
@pytest.mark.parametrize("count", [1, 9_000])
def test_a_file_with_a_checksum_of_its_data_is_the_same_table(tmp_path: Path, count: int, codec: str) -> None:
    data, file = with_checksum(tmp_path / "f", rows(count), codec)
    assert decode(data, file.path).equals(rows(count))
    assert is_sound(data, file)
    footer_bytes = pq.read_metadata(pa.BufferReader(data)).serialized_size
    assert data[-8:-4] == footer_bytes.to_bytes(4, "little")
    stated = pq.read_metadata(pa.BufferReader(data)).metadata[DATA_CRC_KEY].decode()
    assert stated == data_crc(lambda start, length: data[start : start + length], len(data) - footer_bytes - 8)


def test_every_flipped_bit_is_found_by_the_checksums(tmp_path: Path) -> None:
    data, file = with_checksum(tmp_path / "f", rows(300))
    flips = random.Random(7)
    for at in [*range(4, 200), *(flips.randrange(len(data)) for _ in range(400)), *range(len(data) - 20, len(data))]:
        harmed = bytearray(data)
        harmed[at] ^= 1 << flips.randrange(8)
        with pytest.raises(CorruptMessageError, match=file.path):
            is_sound(bytes(harmed), file)


def test_a_file_without_a_checksum_has_to_be_decoded() -> None:
    data, crc = encode(rows(300))
    file = describe(rows(300), file_path(None, "f", crc), len(data))
    assert not is_sound(bytes(data), file)
    with pytest.raises(CorruptMessageError, match="footer CRC32C is"):
        is_sound(bytes(data[:-30]) + b"x" + bytes(data[-29:]), file)
