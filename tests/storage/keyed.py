"""Common parts of the compaction tests: records by key, the content of a log, and a cleaner run step by step."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NewRecordBatch,
    payload_table,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.cleaner import Cleaner, CleanerTurn

Rows = list[tuple[int, str, str | None]]
"""(offset, key, value)"""


def compacted(**properties: object) -> LogConfig:
    """A compacted topic with three files to a segment; `delete_retention_ms=5` sets `delete.retention.ms`."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return LogConfig.from_properties(
        {"cleanup.policy": "compact", "segment.files.max": 3, "stratalog.snapshot.retention.ms": 0, **named}
    )


def keyed(
    records: str, *, producer_id: int = NO_PRODUCER_ID, sequence: int = NO_SEQUENCE, attributes: int = 0
) -> NewRecordBatch:
    """A batch: "a=1 b=2 a" is a with 1, b with 2, and a tombstone for a; "=3" has no key."""
    rows: list[tuple[int | None, bytes | None, bytes | None, None]] = []
    for word in records.split():
        key, is_set, value = word.partition("=")
        rows.append((1_000, key.encode() if key else None, value.encode() if is_set else None, None))
    epoch = NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else 0
    return NewRecordBatch(payload_table(rows), producer_id, epoch, sequence, attributes=attributes)


def shown(log: LogReader, start_offset: int | None = None, max_bytes: int = 1 << 24) -> Rows:
    """Every record that a consumer receives, from the log start on."""
    start = log.log_start_offset if start_offset is None else start_offset
    found: Rows = []
    for table in log.read_range(start, log.log_end_offset, max_bytes):
        columns = (table[name].to_pylist() for name in ("offset", "key", "value", "attributes"))
        for offset, key, value, attributes in zip(*columns, strict=True):
            if not attributes & CONTROL_ATTRIBUTE:
                found.append((offset, (key or b"").decode(), None if value is None else value.decode()))
    return found


def words(rows: Iterable[tuple[int, str, str | None]]) -> str:
    """E.g. "0:a=1 3:b"."""
    return " ".join(f"{offset}:{key}" + ("" if value is None else f"={value}") for offset, key, value in rows)


def cleaner_of(log: PartitionLog, **options: int) -> Cleaner:
    return Cleaner(log, CleanerTurn(), **options)


def view_of(log: PartitionLog, now_ms: int, high_watermark: int | None = None) -> UpkeepView:
    bound = log.log_end_offset if high_watermark is None else high_watermark
    return UpkeepView(log, now_ms, bound, log.leader_epoch)


def step(chore: Chore, view: UpkeepView) -> UpkeepDone | None:
    """One piece of work with all that follows from it, as in an upkeep without an executor."""
    begun = chore.begin(view)
    while isinstance(begun, Work):
        begun = begun.finish(begun.run())
    return begun


def clean(log: PartitionLog, now_ms: int = 10_000, high_watermark: int | None = None, **options: int) -> int:
    """Clean a log while it is dirty enough; the number of replaced files."""
    cleaner, count = cleaner_of(log, **options), 0
    while (done := step(cleaner, view_of(log, now_ms, high_watermark))) is not None:
        assert done.work == UpkeepWork.COMPACTION
        count += done.count
    return count
