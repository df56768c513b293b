"""The cluster's past as storage keeps it: states of partitions, the metadata log's records, lags of groups.

I/O: the metadata log, its history table, the table of past lags, leaders' tables. No broker is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.clients.console.stored.timeline import StateInTime
from stratalog.clients.console.times import iso_time
from stratalog.replication.metadata.history.states import PastState, past_states
from stratalog.replication.metadata.history.table import all_history_rows, history_rows, metadata_rows
from stratalog.replication.metadata.records import MetadataRecord
from stratalog.server.lag.dated_table import DatedTable, TableShape
from stratalog.server.lag.history import LAG_DIRECTORY, LAG_SCHEMA
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import ObjectNotFoundError, StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition

WAIT_MS = 1_000
"""Time to wait for the leader of the one partition that is asked about."""
MetadataRow = tuple[int, int, MetadataRecord]
"""A record of the metadata log: its offset, its time in ms, the record."""


@dataclass(frozen=True, slots=True)
class RecordedMetadata:
    """The records of the metadata log, oldest first.

    exact_from_ms  the log has everything that was in force from this time on; before it compaction may have removed
                   records that a later one of their key replaced. 0: nothing was removed yet
    """

    rows: tuple[MetadataRow, ...]
    exact_from_ms: int


def recorded_metadata(view: ClusterView) -> RecordedMetadata:
    """All records that the metadata log has now."""
    view.refresh()
    log = view.metadata.log
    cleaned_end = log.state.cleaner.cleaned_end
    rows = tuple(metadata_rows(log, log.log_end_offset))
    return RecordedMetadata(rows, exact_from_ms(rows, cleaned_end))


def exact_from_ms(rows: Sequence[MetadataRow], cleaned_end: int) -> int:
    """Since when a compacted log has every record that was in force.

    cleaned_end  below this offset the log was compacted

    >>> exact_from_ms([(3, 100, None), (8, 200, None), (9, 300, None)], cleaned_end=9), exact_from_ms([], 0)
    (200, 0)
    """
    compacted = [time for offset, time, _ in rows if offset < cleaned_end]
    return max(compacted, default=0)


def states_of_topic(
    view: ClusterView, topic: str, partition: int | None = None, rows: Iterable[MetadataRow] | None = None
) -> list[StateInTime]:
    """Every state that partitions of topics of this name had, oldest first: of the history and of the metadata log.

    partition  only of this one
    rows       the metadata log, if it was read before; None: it is read
    """
    if rows is None:
        rows = recorded_metadata(view).rows
    # the log first: compaction removes from it only what the history has
    recent = past_states(rows, 0)
    found = {each.metadata_offset: of_past(each) for each in recent if _is_of(each, topic, partition)}
    for kept in _kept_rows(view, topic, partition):
        found.update((state.metadata_offset, state) for state in states_of_rows(kept))
    return [found[offset] for offset in sorted(found)]


def states_by_topic(view: ClusterView) -> dict[str, list[StateInTime]]:
    """Topic -> every state in the history that partitions of topics of the name had."""
    found: dict[str, list[StateInTime]] = {}
    for rows in all_history_rows(view.stores.objects(view.root)):
        for topic, state in zip(rows["topic"].to_pylist(), states_of_rows(rows), strict=True):
            found.setdefault(topic, []).append(state)
    return found


def _is_of(past: PastState, topic: str, partition: int | None) -> bool:
    return past.state.topic == topic and partition in (None, past.state.partition)


def of_past(past: PastState) -> StateInTime:
    """A state of the metadata log."""
    state = past.state
    return StateInTime(
        past.metadata_offset,
        past.timestamp_ms,
        past.topic_id,
        state.partition,
        state.leader,
        state.leader_epoch,
        None,
        state.isr,
        state.replicas,
        state.partition_epoch,
    )


def _kept_rows(view: ClusterView, topic: str, partition: int | None) -> Iterator[pa.Table]:
    objects = view.stores.objects(view.root)
    if partition is not None:
        yield from history_rows(objects, topic, partition)
        return
    for rows in all_history_rows(objects):
        yield rows.filter(pc.equal(rows["topic"], topic))


def states_of_rows(rows: pa.Table) -> Iterator[StateInTime]:
    """The states of rows of the history table."""
    columns = {name: rows[name].to_pylist() for name in StateInTime._fields if name != "timestamp_ms"}
    columns["timestamp_ms"] = [time // 1_000 for time in rows["timestamp"].cast(pa.int64()).to_pylist()]
    for state in map(StateInTime._make, zip(*(columns[name] for name in StateInTime._fields), strict=True)):
        yield state._replace(isr=tuple(state.isr), replicas=tuple(state.replicas))


def epoch_starts(view: ClusterView, topic: str, partitions: Sequence[int]) -> dict[tuple[int, int], int]:
    """Start offsets by (partition, leader epoch), as the leaders' logs have them now."""

    def look(log: LogReader) -> list[tuple[int, int]]:
        log.refresh()
        return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]

    wait_ms = WAIT_MS if len(partitions) == 1 else 0
    starts: dict[tuple[int, int], int] = {}
    for partition in partitions:
        with suppress(StratalogError):
            found = view.records.read_from_log(TopicPartition(topic, partition), look, wait_ms)
            starts |= {(partition, epoch): start for epoch, start in found}
    return starts


def past_lags(view: ClusterView, group_id: str, from_ms: int, to_ms: int) -> pa.Table:
    """The rows of a group in the table of past lags with times in `[from_ms, to_ms]`, as `LAG_SCHEMA`, oldest first.

    Only the days that it takes are read. Empty where no lags are kept.
    """
    objects = view.stores.objects(view.root)
    table = DatedTable(objects, TableShape(LAG_DIRECTORY, LAG_SCHEMA), view.ids)
    table.refresh()
    first, last = (_date(time) for time in (from_ms, to_ms))
    found = [LAG_SCHEMA.empty_table()]
    for file in table.files:
        if not first <= file.date <= last:
            continue
        with suppress(ObjectNotFoundError):  # merged meanwhile; the next question finds it
            data = objects.get(f"{LAG_DIRECTORY}/{file.path}")
            rows = pq.read_table(pa.BufferReader(data)).select(LAG_SCHEMA.names).cast(LAG_SCHEMA)
            found.append(rows.filter(pc.equal(rows["consumergroup"], group_id)))
    rows = pa.concat_tables(found)
    times = rows["timestamp"].cast(pa.int64())
    is_inside = pc.and_(pc.greater_equal(times, from_ms * 1_000), pc.less_equal(times, to_ms * 1_000 + 999))
    return rows.filter(is_inside).sort_by([("timestamp", "ascending"), ("topic", "ascending")])


def _date(wall_ms: int) -> str:
    """The day in UTC."""
    return iso_time(max(0, wall_ms))[:10]
