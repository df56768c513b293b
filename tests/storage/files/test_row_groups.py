"""A reader gets its rows by their row groups: few bytes of a large file, every bit of them checked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.storage.errors import CorruptMessageError, ObjectNotFoundError
from stratalog.storage.files import batch_file, row_groups
from stratalog.storage.files.batch_file import decode, decode_part, describe, encode, file_path
from stratalog.storage.files.data_file import DataFile, RowsWanted
from stratalog.storage.files.row_groups import (
    BYTES_MAX,
    ROWS_MAX,
    ROWS_MIN,
    Footer,
    Footers,
    rows_per_group,
    wanted_groups,
)
from stratalog.storage.records import NewRecordBatch, data_table, payload_table

COLUMNS = ("offset_delta", "timestamp")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a hundred rows, and no more than a footer fetched at first."""
    monkeypatch.setattr(row_groups, "ROWS_MIN", 100)
    monkeypatch.setattr(row_groups, "ROWS_MAX", 100)
    monkeypatch.setattr(row_groups, "TAIL_BYTES", 500)


class Stored:
    """A file of rows a millisecond apart from 1,000 ms on, in row groups of a hundred; counts what is read of it."""

    def __init__(self, table: pa.Table, codec: str, unit: str = "us") -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_file, "TIME_UNIT", unit)
            encoded, crc = encode(table, codec)
        self.table = table
        self.data = bytes(encoded)
        self.path = file_path(None, "f", crc)
        self.file: DataFile = describe(table, self.path, len(self.data))
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        return self.data[start : start + length]

    def read(self, wanted: RowsWanted, columns: tuple[str, ...] | None = None) -> pa.Table:
        return decode_part(self.read_range, self.file, self.path, wanted, columns)

    @property
    def metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(pa.BufferReader(self.data))


def stored(
    times: list[int | None] | None = None, value_bytes: int = 50, codec: str = "zstd", unit: str = "us"
) -> Stored:
    rows = [
        (at, b"key", bytes([i % 251]) * value_bytes, None)
        for i, at in enumerate(times if times is not None else range(1_000, 2_000))
    ]
    return Stored(data_table([NewRecordBatch(payload_table(rows))]), codec, unit)


def deltas(table: pa.Table) -> tuple[int, int] | None:
    """The first and the last delta of a run of rows, which must be without gaps."""
    found = table["offset_delta"].to_pylist()
    assert found == list(range(found[0], found[-1] + 1)) if found else True
    return (found[0], found[-1]) if found else None


@pytest.mark.parametrize(
    ("wanted", "first_and_last"),
    [
        (RowsWanted(), (0, 999)),
        (RowsWanted(bytes_max=0), (0, 99)),
        (RowsWanted(250, bytes_max=0), (200, 299)),
        (RowsWanted(299, 300), (200, 299)),
        (RowsWanted(299, 301), (200, 399)),
        (RowsWanted(-7, 1), (0, 99)),
        (RowsWanted(1_000), None),
        (RowsWanted(50, 50), (0, 99)),
        (RowsWanted(from_timestamp_ms=1_950), (900, 999)),
        (RowsWanted(from_timestamp_ms=1_099, bytes_max=0), (0, 99)),
        (RowsWanted(from_timestamp_ms=1_100, bytes_max=0), (100, 199)),
        (RowsWanted(700, from_timestamp_ms=1_100, bytes_max=0), (700, 799)),
        (RowsWanted(from_timestamp_ms=2_000), None),
    ],
)
@pytest.mark.parametrize("unit", ["us", "ms"])
def test_a_run_of_row_groups_holds_what_is_wanted(
    wanted: RowsWanted, first_and_last: tuple[int, int] | None, unit: str
) -> None:
    read = stored(unit=unit).read(wanted)
    assert deltas(read) == first_and_last
    if first_and_last is not None:
        first, last = first_and_last
        assert read.equals(stored().table.slice(first, last - first + 1))


def test_as_many_row_groups_as_the_bytes_allow() -> None:
    file = stored()
    three = sum(
        file.metadata.row_group(group).column(i).total_compressed_size for group in (3, 4, 5) for i in range(12)
    )
    assert wanted_groups(Footer(file.metadata), RowsWanted(300, bytes_max=three)) == [3, 4, 5]
    assert wanted_groups(Footer(file.metadata), RowsWanted(300, bytes_max=three - 1)) == [3, 4]
    assert wanted_groups(Footer(file.metadata), RowsWanted(300, bytes_max=1)) == [3]


@pytest.mark.parametrize(
    ("decoded_bytes_max", "found"),
    [(1, [6]), (BYTES_MAX, [6]), (BYTES_MAX + 1, [6, 7]), (3 * BYTES_MAX, [6, 7, 8]), (None, [6, 7, 8, 9])],
)
def test_as_many_row_groups_as_are_wanted_decoded(decoded_bytes_max: int | None, found: list[int]) -> None:
    """Values of one byte a thousand times take little on storage, and few bytes in the column's dictionary."""
    wanted = RowsWanted(600, decoded_bytes_max=decoded_bytes_max)
    assert wanted_groups(Footer(stored(value_bytes=1_000).metadata), wanted) == found


def test_the_last_row_group_counts_its_own_bytes() -> None:
    footer = Footer(stored(value_bytes=20_000, codec="uncompressed").metadata)
    assert footer.decoded_bytes(0) > BYTES_MAX
    assert footer.decoded_bytes(9) == footer.metadata.row_group(9).total_byte_size > BYTES_MAX
    assert Footer(stored().metadata).decoded_bytes(8) == BYTES_MAX
    assert Footer(stored().metadata).decoded_bytes(9) < BYTES_MAX


@pytest.mark.parametrize(("more_bytes", "requests"), [(0, 1), (-1, 3)])
def test_a_file_that_is_wanted_whole_takes_one_request(more_bytes: int, requests: int) -> None:
    file = stored()
    wanted = RowsWanted(bytes_max=len(file.data) + more_bytes, decoded_bytes_max=1)
    assert deltas(file.read(wanted)) == (0, 99)
    assert len(file.ranges) == requests
    assert (file.ranges[0] == (0, len(file.data))) == (requests == 1)


def test_times_that_go_back_and_groups_without_any() -> None:
    times: list[int | None] = [*([5] * 100), *([None] * 100), *([9] * 100), *([2] * 100)]
    file = stored(times)
    assert deltas(file.read(RowsWanted(from_timestamp_ms=6, bytes_max=0), COLUMNS)) == (200, 299)
    assert deltas(file.read(RowsWanted(100, from_timestamp_ms=1), COLUMNS)) == (200, 399)


def test_one_record_takes_the_footer_and_one_row_group() -> None:
    file = stored(value_bytes=2_000, codec="uncompressed")
    file.read(RowsWanted(250, bytes_max=0))
    (tail, _), (footer, footer_bytes), (group, group_bytes) = file.ranges
    assert group < footer < tail
    assert footer + footer_bytes == len(file.data)
    assert 200_000 < group_bytes < 220_000
    file.ranges.clear()
    file.read(RowsWanted(250, bytes_max=0), COLUMNS)
    assert file.ranges[2][1] < 3_000


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_what_the_store_raises_arrives_as_it_is(failing: int) -> None:
    file = stored()
    calls = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise ObjectNotFoundError("it is gone")
        return file.read_range(start, length)

    with pytest.raises(ObjectNotFoundError, match="it is gone"):
        decode_part(read_range, file.file, file.path, RowsWanted(250, bytes_max=0))


def test_a_flipped_bit_in_what_is_read_is_found() -> None:
    """Elsewhere it is not looked at; the footer always is."""
    file = stored()
    sound = file.data
    wanted = RowsWanted(500, bytes_max=0)
    expected = file.read(wanted)
    found = 0
    for at in range(0, len(sound), 97):
        file.data = sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :]
        try:
            assert file.read(wanted).equals(expected), f"byte {at} reads wrong"
        except CorruptMessageError:
            found += 1
    assert found > 10
    file.data = sound[:-20] + bytes([sound[-20] ^ 4]) + sound[-19:]
    with pytest.raises(CorruptMessageError, match="footer CRC32C"):
        file.read(wanted)


@pytest.mark.parametrize("cut", [1, 9, 5_000])
def test_a_short_file_is_corrupt(cut: int) -> None:
    file = stored()
    file.data = file.data[:-cut]
    with pytest.raises(CorruptMessageError):
        file.read(RowsWanted(250))


def test_another_number_of_records_is_corrupt() -> None:
    file = stored()
    file.file = DataFile(file.path, len(file.data), 999, 0, 998, 1_000, 1_998)
    with pytest.raises(CorruptMessageError, match="1000 records, expected 999"):
        file.read(RowsWanted(250))


def test_a_file_of_many_row_groups_reads_whole_as_before() -> None:
    file = stored()
    assert file.metadata.num_row_groups == 10
    assert decode(file.data, file.path).equals(file.table)


@pytest.mark.parametrize(
    ("rows", "value_bytes", "least", "most"),
    [
        (1, 10, 1, 1),
        (1_000, 1_000, 1_000, 1_000),
        (5_000, 10_000, ROWS_MIN, ROWS_MIN),
        (200_000, 0, ROWS_MAX, ROWS_MAX),
        (200_000, 150, BYTES_MAX // 250, BYTES_MAX // 150),
    ],
)
def test_the_size_of_row_groups(
    monkeypatch: pytest.MonkeyPatch, rows: int, value_bytes: int, least: int, most: int
) -> None:
    monkeypatch.setattr(row_groups, "ROWS_MIN", ROWS_MIN)
    monkeypatch.setattr(row_groups, "ROWS_MAX", ROWS_MAX)
    table = pa.table({"value": pa.repeat(pa.scalar(b"x" * value_bytes, pa.binary()), rows)})
    assert least <= rows_per_group(table) <= most


def test_a_footer_is_fetched_once_and_a_group_at_once() -> None:
    file, footers = stored(), Footers(1)
    for first, ranges in ((250, 3), (650, 1), (50, 1)):  # the footer takes two here
        file.ranges.clear()
        found = decode_part(file.read_range, file.file, file.path, RowsWanted(first, bytes_max=0), None, footers)
        assert (deltas(found), len(file.ranges)) == ((first // 100 * 100, first // 100 * 100 + 99), ranges)
    footers.put("another", Footer(file.metadata))
    assert footers.get(file.path) is None


def test_two_columns_of_many_groups_are_not_fetched_with_all_that_lies_between() -> None:
    file = stored(value_bytes=500, codec="uncompressed")
    file.read(RowsWanted(0, 1_000), COLUMNS)
    assert sum(length for _, length in file.ranges) < len(file.data) // 4
