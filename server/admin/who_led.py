"""The search for the broker that led a partition when an offset was written, over all of the cluster's past.

I/O: the metadata log, then its history table, newest files first, and the leader's table. No broker is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from stratalog.replication.metadata.history.leaders import LeaderOfOffset, LeaderSearch, LedState, LiveLog
from stratalog.replication.metadata.history.states import past_states
from stratalog.replication.metadata.history.table import history_rows, metadata_rows
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import LeaderNotAvailableError, StoreError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition

LOG_WAIT_MS = 1_000
"""How long to wait for the leader's log: without it the history answers alone."""


def who_led(
    view: ClusterView, topic_partition: TopicPartition, offset: int, topic_id: str | None = None
) -> LeaderOfOffset:
    """The leader under which the record at `offset` was written, and since which leader epoch it is acknowledged.

    topic_id  of a topic that is gone; None: the newest topic of that name

    Raises OffsetOutOfRangeError beyond the log or before the history, UnknownTopicOrPartitionError.
    """
    view.refresh()
    search = LeaderSearch(topic_partition, offset, topic_id, _live_log(view, topic_partition))
    for states in _states(view, topic_partition):
        search.add(states)
        if search.is_complete:
            break
    return search.answer()


def _live_log(view: ClusterView, topic_partition: TopicPartition) -> LiveLog | None:
    """None when no leader's log can be read."""

    def look(log: LogReader) -> LiveLog:
        log.refresh()
        return LiveLog(log.topic_id, log.log_start_offset, log.log_end_offset, log.epochs)

    try:
        found = view.records.read_from_log(topic_partition, look, LOG_WAIT_MS)
    except (LeaderNotAvailableError, UnknownTopicOrPartitionError, StoreError):
        return None
    with suppress(LeaderNotAvailableError, UnknownTopicOrPartitionError, StoreError):
        marks = view.watermarks.of(topic_partition, LOG_WAIT_MS)
        found = found._replace(high_watermark=marks.high_watermark, high_watermark_epoch=marks.leader_epoch)
    return found


def _states(view: ClusterView, topic_partition: TopicPartition) -> Iterator[list[LedState]]:
    """The states in the metadata log, then those of each file of the history. In this order, since compaction removes
    from the log only what the history has."""
    log = view.metadata.log
    yield [
        LedState.of(past)
        for past in past_states(metadata_rows(log, log.log_end_offset), 0)
        if past.state.topic_partition == topic_partition
    ]
    for rows in history_rows(view.stores.objects(view.root), *topic_partition):
        yield _led_states(rows)


def _led_states(rows: pa.Table) -> list[LedState]:
    times_ms = [time // 1_000 for time in rows["timestamp"].cast(pa.int64()).to_pylist()]
    columns = [rows[name].to_pylist() for name in LedState._fields[2:-1]]
    isrs = [tuple(isr) for isr in rows["isr"].to_pylist()]
    return [LedState(*row) for row in zip(rows["metadata_offset"].to_pylist(), times_ms, *columns, isrs, strict=True)]
