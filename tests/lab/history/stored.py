"""The records of a topic's replicas as the last events of a history, so that the checker finds lost ones.

I/O: reads the tables of every in-sync replica up to the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.replication.stores import Stores, client_stores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.files.cache import FileCache
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition
from tests.lab.history.history import HOLDS, STORED, HistoryEvent
from tests.lab.history.recorder import ValueId, as_text


def stored_events(
    view: ClusterView, topic: str, value_id: ValueId = as_text, stores: Stores | None = None
) -> Iterator[HistoryEvent]:
    """A `holds` for each in-sync replica of the topic, named `broker-<id>`, and a `stored` for each record.

    Replicas outside the ISR may rightly lack records. UnknownTopicOrPartitionError, LeaderNotAvailableError, and what
    reading a table raises.
    """
    stores = stores or client_stores(view.ids, cache=FileCache(0))
    for topic_partition in view.partitions(topic):
        high_watermark = view.watermarks.of(topic_partition).high_watermark
        for broker_id in sorted(view.partition_state(topic_partition).isr):
            root = view.image.brokers[broker_id].registration.root
            log = LogReader(stores.table(root, topic_partition), view.clock)
            now_ms = view.clock.monotonic_ms()
            yield from _stored(now_ms, f"broker-{broker_id}", topic_partition, log, high_watermark, value_id)


def _stored(
    now_ms: int, client: str, topic_partition: TopicPartition, log: LogReader, high_watermark: int, value_id: ValueId
) -> Iterator[HistoryEvent]:
    topic, partition = topic_partition
    log.refresh()
    start = log.log_start_offset
    yield HistoryEvent(now_ms, client, HOLDS, partition, start, topic=topic)
    for rows in log.read_range(start, min(high_watermark, log.log_end_offset)):
        columns = (rows[name].to_pylist() for name in ("offset", "leader_epoch", "value"))
        for offset, epoch, value in zip(*columns, strict=True):
            yield HistoryEvent(now_ms, client, STORED, partition, offset, epoch, value_id(value or b""), topic)
