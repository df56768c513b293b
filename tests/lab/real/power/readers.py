"""The records of a replica as three readers see them: stratalog's own, deltalake, delta-spark.

I/O: the replica's table.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.leader_epochs import NO_LOG, LogEnd
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.local import LocalStore
from tests.lab.real.harness.parties import table_rows
from tests.lab.real.power.judge import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES, PAUSE_S = 20, 0.05
"""A reader may meet a file that a merge has just deleted: it lists again."""


class UnreadableError(Exception):
    """A reader cannot read a table, however often it tries."""


def rows_by_deltalake(table: Path) -> list[Row]:
    """By offset. UnreadableError."""
    for _ in range(TRIES):
        try:
            rows = table_rows(table)
        except Exception as reason:  # noqa: BLE001 - whatever deltalake raises
            failure = reason
            time.sleep(PAUSE_S)
        else:
            return [Row(o, e, v.decode()) for o, e, v in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
    raise UnreadableError(f"deltalake cannot read {table}: {failure!r}")


def rows_by_stratalog(table: Path) -> list[Row]:
    """By offset. UnreadableError."""
    try:
        log = LogReader(DeltaLogTable(LocalStore(str(table.parent)), table.name, RandomIds()), SystemClock())
        log.refresh()
        found = [
            Row(offset, epoch, (value or b"").decode())
            for rows in log.read_range(log.log_start_offset, log.log_end_offset)
            for offset, epoch, value in zip(
                *(rows[name].to_pylist() for name in ("offset", "leader_epoch", "value")), strict=True
            )
        ]
    except StratalogError as reason:
        raise UnreadableError(f"stratalog cannot read {table}: {reason}") from reason
    return found


def rows_by_spark(session: SparkSession, table: Path) -> list[Row]:
    """By offset. UnreadableError."""
    query = "SELECT base_offset + offset_delta AS offset, leader_epoch, value FROM delta.`{}` ORDER BY offset"
    try:
        found = session.sql(query.format(table)).collect()
    except Exception as reason:
        raise UnreadableError(f"delta-spark cannot read {table}: {reason}") from reason
    return [Row(offset, epoch, bytes(value).decode()) for offset, epoch, value in found]


def recovered_end(root: str, table: str) -> LogEnd:
    """The end of a copied replica's log after its recovery."""
    found = DeltaLogTable(LocalStore(root), table, RandomIds())
    if found.recover_tail() < 0:
        return NO_LOG
    log = LogReader(found, SystemClock())
    log.refresh()
    return log.epochs.log_end(log.log_end_offset)
