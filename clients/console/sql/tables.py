"""The tables that an asker may read in SQL: topics, their typed tables, and the cluster's state. Names and columns are
those in Spark.

I/O: as `clients.spark.sql.cluster_tables`, `committed_table` and `typed`. What the asker may not see is left out
here, so that no statement finds it.

brokers                            for those who may describe the cluster
partitions, partition_history, leader_epochs   rows of topics that the asker may describe
group_lag                          rows of groups and topics that the asker may describe
a topic's name                     its committed records, for those who may read it
typed.NAME, delta.`LOCATION`       typed tables and dead letters of a topic, for those who may read it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.sql.bounds import TableScan
from stratalog.clients.console.sql.typed import DELTA, TYPED, DeltaSources
from stratalog.clients.console.stored.storage import stored_view
from stratalog.clients.spark.sql.cluster_tables import (
    BROKERS_SCHEMA,
    GROUP_LAG_SCHEMA,
    LEADER_EPOCHS_SCHEMA,
    PARTITIONS_SCHEMA,
    cluster_table,
)
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.history.states import HISTORY_SCHEMA
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.committed_table import COMMITTED_SCHEMA, CommittedTable, table_of
from stratalog.server.view.read_committed import ReadCommittedView
from stratalog.storage.errors import OffsetOutOfRangeError, StratalogError

WAIT_MS = 5_000
"""Time to wait for a partition's leader."""
DECODED_BYTES = 32 << 20
"""Memory of the records of one read: a small file may hold large ones."""
SPARK_NAMES = {"timestamp_type": "timestampType", "leader_epoch": "leaderEpoch"}
"""Columns of a topic that Spark's source names otherwise than `committed_table`."""
TOPIC_COLUMNS = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "leader_epoch"),
)
TOPIC_SCHEMA = pa.schema(
    [COMMITTED_SCHEMA.field(name).with_name(SPARK_NAMES.get(name, name)) for name in TOPIC_COLUMNS]
)
"""The columns of a topic, as of a committed view in Spark."""
CLUSTER_SCHEMAS: Mapping[str, pa.Schema] = {
    "brokers": BROKERS_SCHEMA,
    "partitions": PARTITIONS_SCHEMA,
    "partition_history": HISTORY_SCHEMA,
    "leader_epochs": LEADER_EPOCHS_SCHEMA,
    "group_lag": GROUP_LAG_SCHEMA,
}
_VIEWS: WeakKeyDictionary[ClusterView, ReadCommittedView] = WeakKeyDictionary()
"""A view of committed transactions beside each view that asks: it folds the metadata once."""


class ReadableTables:
    """The tables of one asker as of now."""

    def __init__(self, asker: Asker) -> None:
        """StorageNotKnownError for a cluster that is known by its brokers' addresses."""
        self._asker = asker
        self._view = stored_view(asker, "the tables that SQL reads are")
        self._view.refresh()
        self._typed: DeltaSources | None = None

    def names(self) -> list[str]:
        """All but typed tables, those of the cluster first. A topic with the name of one of these is not among them."""
        return [name for name in self._there() if self._may_read(name)]

    def typed(self) -> dict[str, tuple[str, pa.Schema]]:
        """The typed tables that can be read: location -> how a statement names it, and its columns."""
        found: dict[str, tuple[str, pa.Schema]] = {}
        for each in self._sources().names.values():
            if each.location in found or self._is_topic(each.name):
                continue
            with suppress(StratalogError):
                schema = self._sources().schema(each.name)
                if schema is not None:
                    found[each.location] = each.written, schema
        return found

    def _sources(self) -> DeltaSources:
        if self._typed is None:
            self._typed = DeltaSources(self._asker)
        return self._typed

    def _is_topic(self, name: str) -> bool:
        """Whether a name with a dot is that of a topic that the asker may read: it is not that of a typed table."""
        return name in self._view.image.topic_ids and self._may_read(name)

    def _there(self) -> list[str]:
        """All that there are, whether the asker may read them or not."""
        return [*CLUSTER_SCHEMAS, *sorted(name for name in self._view.image.topic_ids if name not in CLUSTER_SCHEMAS)]

    def _may_read(self, name: str) -> bool:
        if name not in CLUSTER_SCHEMAS:
            return self._asker.may(Operation.READ, ResourceType.TOPIC, name)
        return name != "brokers" or self._asker.may(Operation.DESCRIBE, ResourceType.CLUSTER)

    def schema(self, name: str) -> pa.Schema:
        """The columns of a table of `names`."""
        return CLUSTER_SCHEMAS.get(name, TOPIC_SCHEMA)

    def named_in(self, sql: str) -> dict[str, pa.Schema]:
        """The tables whose names are anywhere in a statement: no other can be read by it."""
        found = {name: self.schema(name) for name in self._there() if name in sql and self._may_read(name)}
        if TYPED not in sql and DELTA not in sql:
            return found
        for name, each in self._sources().names.items():
            if each.is_in(sql) and not self._is_topic(name):
                schema = self._sources().schema(name)
                found |= {} if schema is None else {name: schema}
        return found

    def qualified(self, name: str) -> tuple[str, str] | None:
        """The two parts of the name of a typed table; None for every other table."""
        if self._typed is None or self._is_topic(name):
            return None
        known = self._typed.names.get(name)
        return None if known is None else known.parts

    def batches(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows that a statement needs of a table of `named_in`, with the columns of the scan."""
        if self.qualified(name) is not None:
            return self._sources().batches(name, scan)
        if name in CLUSTER_SCHEMAS:
            rows = self._visible(cluster_table(self._view, name)).select(list(scan.columns))
            return rows.schema, iter(rows.to_batches())
        schema = pa.schema([TOPIC_SCHEMA.field(column) for column in scan.columns])
        return schema, _limited(self._records(name, scan, schema), scan.limit)

    def _visible(self, rows: pa.Table) -> pa.Table:
        for column, kind in (("topic", ResourceType.TOPIC), ("group_id", ResourceType.GROUP)):
            if column in rows.column_names:
                names = pc.unique(rows[column])
                seen = self._asker.visible(kind, names.to_pylist())
                rows = rows.filter(pc.is_in(rows[column], value_set=pa.array(seen, pa.string())))
        return rows

    def _records(self, topic: str, scan: TableScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        view = _committed_view(self._view)
        names = {shown: name for name, shown in SPARK_NAMES.items()}
        columns = [names.get(column, column) for column in scan.columns] or ["offset"]
        table = table_of(view, topic, columns, _partitions(view, topic, scan))
        ranges = {place: _range(view, place, ends, scan) for place, ends in table.ranges.items()}
        for batch in CommittedTable(view, topic, ranges, columns, decoded_bytes_max=DECODED_BYTES).reader():
            if scan.columns:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            else:
                yield _without_columns(batch)


def _committed_view(view: ClusterView) -> ReadCommittedView:
    known = _VIEWS.get(view)
    if known is None:
        made = ReadCommittedView(view.root, timeout_ms=WAIT_MS, stores=view.stores, clock=view.clock, ids=view.ids)
        known = _VIEWS.setdefault(view, made)
    known.refresh()
    return known


def _partitions(view: ClusterView, topic: str, scan: TableScan) -> Iterable[int]:
    start, end = scan.start.get("partition", 0), scan.end.get("partition", 1 << 31)
    return [place.partition for place in view.partitions(topic) if start <= place.partition < end]


def _range(view: ReadCommittedView, place: Any, ends: tuple[int, int], scan: TableScan) -> tuple[int, int]:
    """The offsets of a partition that a statement may need: those between its conditions on offset and timestamp."""
    first, last = ends
    start, end = max(first, scan.start.get("offset", first)), min(last, scan.end.get("offset", last))
    if start < end and "timestamp" in scan.start:
        with suppress(OffsetOutOfRangeError):
            found = view.offsets.offset_for_timestamp(place, scan.start["timestamp"] // 1_000, WAIT_MS)
            start = last if found is None else max(start, found.offset)
    return min(start, last), max(min(start, last), end)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _without_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that has rows and no column, for `count(*)`."""
    table = pa.table({"offset": batch.column(0)}).select([])
    return next(iter(table.to_batches()), batch.select([]))
