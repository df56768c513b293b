"""The Delta table of past lags: a row for each group and partition, every so often. I/O: the metadata root.

Each broker appends the groups that it coordinates. After a day, one of them merges the day's files; days older than
the retention go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from stratalog.server.lag.dated_table import DatedTable, TableShape
from stratalog.server.lag.group_lag import NOTHING_COMMITTED, MeasuredGroup
from stratalog.storage.clock import Ids
from stratalog.storage.objects.port import ObjectStore

LAG_DIRECTORY = "__consumer_lag"
"""The table's directory below the metadata root."""
DAY_MS = 86_400_000
UPKEEP_MS = 600_000
"""Pause between two looks for days to merge or to drop."""
LAG_SCHEMA = pa.schema(
    [
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("consumergroup", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("current_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("members", pa.int32()),
    ]
)
"""The columns; the table has `date` as partition column besides. Null: no committed offset, or not known."""


class LagHistory:
    """Appends at its interval. One thread uses it."""

    def __init__(self, objects: ObjectStore, ids: Ids, interval_ms: int, retention_ms: int) -> None:
        """`objects`: the metadata root."""
        self._table = DatedTable(objects, TableShape(LAG_DIRECTORY, LAG_SCHEMA), ids)
        self._interval_ms = interval_ms
        self._retention_ms = retention_ms
        self._due_ms: int | None = None
        self._upkeep_due_ms = 0

    def step(self, groups: Sequence[MeasuredGroup], now_ms: int) -> None:
        """Append the lags of now if it is time, first an interval after the first call; `now_ms` is wall time. Raises
        StoreError."""
        if self._due_ms is None:
            self._due_ms = now_ms + self._interval_ms
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + self._interval_ms
        rows = lag_rows(groups, now_ms)
        if rows.num_rows:
            self._table.append({_date(now_ms): rows}, now_ms)
        if now_ms >= self._upkeep_due_ms:
            self._upkeep_due_ms = now_ms + UPKEEP_MS
            self._keep_up(now_ms)

    def _keep_up(self, now_ms: int) -> None:
        table = self._table
        table.refresh()
        if table.version < 0:
            return
        table.drop_before(_date(now_ms - self._retention_ms), now_ms)
        for date in sorted({each.date for each in table.files if each.date < _date(now_ms)}):
            table.merge_day(date, now_ms)
        table.sweep(now_ms)


def lag_rows(groups: Iterable[MeasuredGroup], now_ms: int) -> pa.Table:
    """The rows of one moment, as `LAG_SCHEMA`, ordered by group, topic and partition."""
    rows: list[dict[str, Any]] = []
    for group in sorted(groups, key=lambda each: each.group_id):
        for lag in group.partitions:
            has_offset = lag.committed != NOTHING_COMMITTED
            rows.append(
                {
                    "timestamp": now_ms * 1_000,
                    "consumergroup": group.group_id,
                    "topic": lag.topic_partition.topic,
                    "partition": lag.topic_partition.partition,
                    "current_offset": lag.committed if has_offset else None,
                    "end_offset": lag.end_offset,
                    "lag": lag.records if has_offset else None,
                    "lag_seconds": lag.seconds(now_ms),
                    "members": group.member_count,
                }
            )
    columns = {field.name: [row[field.name] for row in rows] for field in LAG_SCHEMA}
    return pa.table({name: pa.array(values, LAG_SCHEMA.field(name).type) for name, values in columns.items()})


def _date(now_ms: int) -> str:
    """The day in UTC: 2026-03-01."""
    return datetime.fromtimestamp(now_ms / 1_000, UTC).date().isoformat()
