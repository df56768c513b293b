"""Common parts of the tests of a partition log: a manual clock, counted ids, batches, logs on both tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Committed, LogTable
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NewRecordBatch, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.storage.memory_table import MemoryDisk, MemoryLogTable

MIB = 1 << 20
NO_SNAPSHOTS = LogConfig.from_properties({"stratalog.snapshot.retention.ms": 0})
"""The default configs, but for removed files: they stay for `file.delete.delay.ms` alone."""


@dataclass
class FakeClock:
    """A clock that only a test moves."""

    now_ms: int = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += int(duration_ms)


class CountingIds:
    """Ids 1, 2, 3 … as 32 hexadecimal digits."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def new_id(self) -> str:
        self._next += 1
        return f"{self._next - 1:032x}"


def batch(
    values: Iterable[str],
    *,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_PRODUCER_EPOCH,
    sequence: int = NO_SEQUENCE,
    timestamps: Sequence[int | None] | None = None,
) -> NewRecordBatch:
    """A batch of one record per value, with the value as key too."""
    words = list(values)
    times = timestamps or [1_000 + i for i in range(len(words))]
    rows = [(t, w.encode(), w.encode(), None) for t, w in zip(times, words, strict=True)]
    return NewRecordBatch(payload_table(rows), producer_id, epoch, sequence)


def idempotent(values: Iterable[str], sequence: int, producer_id: int = 7, epoch: int = 0) -> NewRecordBatch:
    return batch(values, producer_id=producer_id, epoch=epoch, sequence=sequence)


@dataclass
class Replicas:
    """Replicas of one partition on separate disks, with one clock and one source of ids."""

    clock: FakeClock
    ids: CountingIds
    disks: dict[str, MemoryDisk]
    root: Path | None

    @staticmethod
    def new(root: Path | None = None) -> Replicas:
        """In memory, or as Delta tables below `root`."""
        return Replicas(FakeClock(), CountingIds(), {}, root)

    def table(self, broker: str) -> LogTable:
        if self.root is not None:
            return DeltaLogTable(open_store(str(self.root / broker), create=True), "t-0", self.ids)
        disk = self.disks.get(broker)
        if disk is None:
            disk = self.disks[broker] = MemoryDisk(now_ms=self.clock.wall_ms)
        return MemoryLogTable(disk, "t-0", self.ids)

    def log(self, broker: str = "1", config: LogConfig | None = None) -> PartitionLog:
        """Another instance on a replica; creates the table if it is missing."""
        log = PartitionLog(self.table(broker), config or NO_SNAPSHOTS, self.clock, self.ids)
        log.exists_or_create("topic-id")
        return log

    def leader(self, broker: str = "1", epoch: int = 0, config: LogConfig | None = None) -> PartitionLog:
        log = self.log(broker, config)
        started(log, epoch)
        return log

    def follower(self, broker: str, epoch: int, config: LogConfig | None = None) -> PartitionLog:
        log = self.log(broker, config)
        assert isinstance(log.start_epoch(epoch, as_leader=False), Committed)
        return log


def started(log: PartitionLog, epoch: int) -> None:
    """Begin an epoch as leader."""
    assert isinstance(log.start_epoch(epoch, as_leader=True), Committed)


def delete_records(log: PartitionLog, log_start: int) -> None:
    """Move the log start, as DeleteRecords does."""
    log.replace_files(
        [], [], leader_epoch=0, operation="DELETE RECORDS", now_ms=1, data_change=True, log_start=log_start
    )


def append(log: PartitionLog, *batches: NewRecordBatch, epoch: int = 0, now_ms: int = 5_000) -> Appended:
    """Append, without a lost race."""
    appended = log.append(batches, epoch, now_ms)
    assert isinstance(appended, Appended)
    return appended


def write(log: PartitionLog, *words: str, epoch: int = 0) -> None:
    """Append each word as a batch and a commit of its own; "a b" is a batch of two records."""
    for word in words:
        (result,) = append(log, batch(word.split()), epoch=epoch).results
        assert isinstance(result, BatchAppended)


def contents(log: PartitionLog) -> list[tuple[int, str]]:
    """Every record as (offset, value)."""
    found: list[tuple[int, str]] = []
    for table in log.read_range(log.log_start_offset, log.log_end_offset):
        values = [value.decode() for value in table["value"].to_pylist()]
        found.extend(zip(table["offset"].to_pylist(), values, strict=True))
    return found


def list_files(log: PartitionLog) -> int:
    """The number of data files on storage."""
    return len(log.table.list_objects("segment="))


def values(log: PartitionLog) -> str:
    """Every value in order, e.g. "a b c"."""
    return " ".join(value for _, value in contents(log))
