"""Look-ups by offset and by time read a part of one file, however long the log is, and find what a scan finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.files import batch_file, row_groups
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.local import LocalStore
from tests.storage.log.test_replication import merge
from tests.storage.logs import MIB, Replicas, append, batch, delete_records, write
from tests.storage.memory_table import MemoryDisk


class CountingStore(LocalStore):
    """A local disk that records which objects, and which parts of them, are read."""

    def __init__(self, root: str) -> None:
        self.reads: list[tuple[str, int | None]] = []
        super().__init__(root, create=True)

    def get_optional(self, path: str) -> bytes | None:
        self.reads.append((path, None))
        return super().get_optional(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        self.reads.append((path, length))
        return super().get_range(path, start, length)

    def data_reads(self) -> list[tuple[str, int | None]]:
        """Reads of data files since the last call."""
        found = [(path, length) for path, length in self.reads if path.endswith(".parquet")]
        self.reads.clear()
        return found


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Row groups of ten rows, and every file read by its row groups."""
    monkeypatch.setattr(row_groups, "ROWS_MIN", 10)
    monkeypatch.setattr(row_groups, "ROWS_MAX", 10)
    monkeypatch.setattr(batch_file, "RANGED_BYTES", 0)
    return iter([None])


def delta_log(tmp_path: Path) -> tuple[PartitionLog, CountingStore]:
    """A log with epoch 0 started, on a store that counts."""
    replicas, store = Replicas.new(tmp_path), CountingStore(str(tmp_path / "counted"))
    log = PartitionLog(DeltaLogTable(store, "t-0", replicas.ids), replicas.log().config, replicas.clock, replicas.ids)
    log.exists_or_create("topic-id")
    log.start_epoch(0, as_leader=True)
    return log, store


def one_large_file(log: PartitionLog, rows: int = 1_000) -> None:
    """One data file of so many records, a millisecond apart from 5,000 ms on."""
    append(log, batch([f"v{i}" for i in range(rows)], timestamps=[5_000 + i for i in range(rows)]))


@pytest.mark.usefixtures("small_groups")
def test_a_read_inside_a_large_file_takes_one_row_group(tmp_path: Path) -> None:
    log, store = delta_log(tmp_path)
    one_large_file(log)
    size = log.files[0].file.size_bytes
    store.data_reads()
    assert log.read(555, 1)["offset"].to_pylist() == [555, 556, 557, 558, 559]
    assert sum(length or size for _, length in store.data_reads()) < size * 0.9
    assert log.read(555, 1, 557)["offset"].to_pylist() == [555, 556]
    assert log.read(990, 1)["offset"].to_pylist() == list(range(990, 1_000))
    assert log.read(0, MIB)["offset"].to_pylist() == list(range(1_000))


@pytest.mark.usefixtures("small_groups")
def test_reading_on_after_a_part_of_a_file_misses_nothing(tmp_path: Path) -> None:
    log, _ = delta_log(tmp_path)
    write(log, "a b")
    one_large_file(log, 95)
    write(log, "c", "d e")
    group_bytes = log.files[1].file.size_bytes // 10
    for max_bytes in (1, 3 * group_bytes, MIB):
        read = [offset for table in log.read_range(0, 100, max_bytes) for offset in table["offset"].to_pylist()]
        assert read == list(range(100))
    assert len(list(log.read_range(0, 100, 1))) == 13
    assert len(list(log.read_range(0, 100, MIB))) == 1


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("decoded_bytes_max", [1, 2 * row_groups.BYTES_MAX, 1 << 40])
def test_records_that_take_little_on_storage_are_decoded_piece_by_piece(tmp_path: Path, decoded_bytes_max: int) -> None:
    log, _ = delta_log(tmp_path)
    write(log, "a b")
    one_large_file(log, 95)
    write(log, "c", "d e")
    offsets: list[int] = []
    pieces = 0
    while len(offsets) < 100:
        found = replace(log.plan_read(len(offsets), MIB), decoded_bytes_max=decoded_bytes_max).read()
        offsets += found["offset"].to_pylist()
        pieces += 1
    assert offsets == list(range(100))
    # Three small files and ten groups one by one; two groups at a time, with what lies beside them; all at once.
    assert pieces == {1: 13, 2 * row_groups.BYTES_MAX: 5, 1 << 40: 1}[decoded_bytes_max]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize(
    ("log_start", "timestamp_ms", "found"),
    [
        (0, 0, (0, 5_000)),
        (0, 5_555, (555, 5_555)),
        (0, 5_999, (999, 5_999)),
        (0, 6_000, None),
        (557, 5_555, (557, 5_557)),
        (557, 5_990, (990, 5_990)),
    ],
)
def test_a_time_inside_a_large_file(
    tmp_path: Path, log_start: int, timestamp_ms: int, found: tuple[int, int] | None
) -> None:
    log, store = delta_log(tmp_path)
    one_large_file(log)
    if log_start:
        delete_records(log, log_start)
    store.data_reads()
    assert log.offset_for_timestamp(timestamp_ms) == found
    assert len(store.data_reads()) in ((0, 3) if log_start == 0 else (3, 4))


def test_a_time_that_is_hidden_below_the_log_start_is_found_after_it(tmp_path: Path) -> None:
    log = Replicas.new().leader()
    append(log, batch("ab", timestamps=[900, 10]))
    append(log, batch("cd", timestamps=[20, 30]))
    append(log, batch("e", timestamps=[500]))
    delete_records(log, 1)
    assert log.offset_for_timestamp(15) == (2, 20)
    assert log.offset_for_timestamp(10) == (1, 10)
    assert log.offset_for_timestamp(100) == (4, 500)
    assert log.offset_of_max_timestamp(5) == (4, 500)
    assert log.offset_of_max_timestamp(2) == (1, 10)


@pytest.mark.parametrize(
    ("end_offset", "found"),
    [(99, (2, 30)), (4, (2, 30)), (3, (2, 30)), (2, (0, 10)), (1, (0, 10)), (0, None)],
)
def test_the_largest_timestamp_below_an_offset_and_its_first_record(
    end_offset: int, found: tuple[int, int] | None
) -> None:
    """KIP-734; 30 is at offsets 2 and 3."""
    log = Replicas.new().leader()
    append(log, batch("ab", timestamps=[10, 5]))
    append(log, batch("cde", timestamps=[30, 30, 7]))
    append(log, batch("f", timestamps=[None]))
    assert log.offset_of_max_timestamp(end_offset) == found


def test_without_timestamps_the_first_record_has_the_largest_one() -> None:
    """Kafka's largest timestamp begins with -1, which a record without one has."""
    log = Replicas.new().leader()
    assert log.offset_of_max_timestamp(9) is None
    append(log, batch("ab", timestamps=[-7, -5]))
    assert log.offset_of_max_timestamp(9) is None
    append(log, batch("cd", timestamps=[-3, None]))
    append(log, batch("ef", timestamps=[None, None]))
    assert log.offset_of_max_timestamp(9) == (3, -1)
    assert log.offset_of_max_timestamp(3) is None
    assert log.offset_for_timestamp(0) is None
    delete_records(log, 5)
    assert log.offset_of_max_timestamp(9) == (5, -1)
    append(log, batch("g", timestamps=[0]))
    assert log.offset_of_max_timestamp(9) == (6, 0)


@pytest.mark.parametrize("seed", range(3))
def test_look_ups_find_what_a_scan_of_all_records_finds(seed: int) -> None:
    """Over appends with times in any order, merges, deleted records and truncations."""
    chance = random.Random(seed)
    log = Replicas.new().leader()
    epoch = 0
    for _ in range(120):
        change = chance.random()
        if change < 0.7 or len(log.files) < 4:
            times = [chance.choice([None, chance.randrange(100)]) for _ in range(chance.randrange(1, 5))]
            append(log, batch(["v"] * len(times), timestamps=times), epoch=epoch)
        elif change < 0.85:
            at = chance.randrange(len(log.files) - 1)
            if log.files[at].leader_epoch == log.files[at + 1].leader_epoch:
                merge(log, at, at + 1, epoch)
        elif change < 0.93:
            log_start = chance.randrange(log.log_start_offset, log.log_end_offset)
            log.replace_files(
                [e for e in log.files if e.end_offset <= log_start] if chance.random() < 0.5 else [],
                [], leader_epoch=epoch, operation="DELETE", now_ms=1, data_change=True, log_start=log_start,
            )  # fmt: skip
        else:
            epoch += 1
            cut = chance.randrange(max(log.log_start_offset, log.log_end_offset - 4), log.log_end_offset + 1)
            log.start_epoch(epoch, as_leader=True, truncate_to=cut)
        every = list(records_of(log))
        rows = [row for row in every if row[1] >= 0]
        for wanted_ms in (0, 50, 97, chance.randrange(100)):
            assert log.offset_for_timestamp(wanted_ms) == next((row for row in rows if row[1] >= wanted_ms), None)
        end = chance.randrange(log.log_start_offset, log.log_end_offset + 2)
        below = [row for row in every if row[0] < end]
        assert log.offset_of_max_timestamp(end) == max(below, key=lambda row: (row[1], -row[0]), default=None)


def records_of(log: PartitionLog) -> Iterator[tuple[int, int]]:
    """Every readable record as (offset, ms); -1 for no timestamp."""
    for table in log.read_range(log.log_start_offset, log.log_end_offset):
        for offset, at in zip(table["offset"].to_pylist(), table["timestamp"].cast("int64").to_pylist(), strict=True):
            yield offset, -1 if at is None else at


def gets_of(disk: MemoryDisk) -> list[str]:
    """The reads of a disk from now on."""
    reads: list[str] = []
    disk.access = lambda operation, table, detail: reads.append(detail) if operation == "get" else None
    return reads


def test_a_log_a_hundred_times_longer_opens_no_more_files(tmp_path: Path) -> None:
    opened: dict[int, int] = {}
    for count in (20, 2_000):
        replicas = Replicas.new()
        log = replicas.leader()
        for i in range(count):
            append(log, batch("a", timestamps=[i * 10]))
        reads = gets_of(replicas.disks["1"])
        middle = count // 2
        assert log.offset_for_timestamp(middle * 10 - 5) == (middle, middle * 10)
        assert log.read(middle, 1)["offset"].to_pylist() == [middle]
        assert log.offset_of_max_timestamp(count) == (count - 1, (count - 1) * 10)
        opened[count] = len(reads)
    assert opened == {20: 3, 2_000: 3}
