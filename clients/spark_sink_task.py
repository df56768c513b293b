"""What a Spark task of the sink does: puts rows into data files in the leaders' roots, named by no commit yet.

I/O: reads the metadata log, writes data files. Memory is bounded by `buffer.memory`: usually a task ends with
one file per partition; past the bound the largest partition's rows go to a file early. A task with few rows
sends them to the driver instead, which writes one file per partition for all such tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from clients.cluster_view import ClusterView
from clients.spark_options import SinkOptions
from clients.spark_sink_rows import StickyPartitions, record_batches, record_sizes, rows_by_topic, split_by_partition
from replication.state import NO_LEADER
from storage.codecs import codec_of_append
from storage.config import LogConfig
from storage.errors import (
    LeaderNotAvailableError,
    LogDirNotFoundError,
    RequestTimedOutError,
    StoreUnavailableError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from storage.log_append import check_records
from storage.records import PAYLOAD_SCHEMA, TopicPartition, data_table
from storage.table import DataFile

RETRY_MS = 50
SENT_BYTES_MAX = 65_536
"""Up to so many bytes of rows a task sends to the driver: a file per task and partition costs every replica more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file in a partition's directory below `root`, not committed."""

    topic_partition: TopicPartition
    root: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class SentRows:
    """A task's few rows on their way to the driver: an Arrow stream of payloads, so many rows for each partition."""

    counts: tuple[tuple[TopicPartition, int], ...]
    stream: bytes


class SinkTask:
    """Collects a task's rows. `first_partition` is where its null keys start (see `StickyPartitions`)."""

    def __init__(self, view: ClusterView, options: SinkOptions, first_partition: int) -> None:
        self._view = view
        self._options = options
        self._sticky = StickyPartitions(options.batch_size, first_partition)
        self._partition_counts: dict[str, int] = {}
        self._configs: dict[str, LogConfig] = {}
        self._buffered: dict[TopicPartition, list[pa.Table]] = {}
        self._buffered_bytes: dict[TopicPartition, int] = {}
        self._written: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of the query. Raises what is wrong with them, in Kafka's words."""
        options = self._options
        for rows in rows_by_topic(batch, options.topic, options.timestamp_column, self._view.clock.wall_ms()):
            if rows.payload.num_rows == 0:
                continue
            sizes = record_sizes(rows.payload)
            partitions = self._sticky.choose(rows, sizes, self._partition_count(rows.topic))
            for partition, payload in split_by_partition(rows.payload, partitions):
                self._buffer(TopicPartition(rows.topic, partition), payload)
        while sum(self._buffered_bytes.values()) > options.buffer_memory:
            self._flush(max(self._buffered_bytes, key=lambda tp: self._buffered_bytes[tp]))

    def take_sent(self, sent: SentRows) -> None:
        """The driver's part: take the few rows of another task."""
        payload, start = pa.ipc.open_stream(sent.stream).read_all(), 0
        for topic_partition, count in sent.counts:
            self._partition_count(topic_partition.topic)
            self._buffer(topic_partition, payload.slice(start, count))
            start += count

    def send(self) -> SentRows | None:
        """Instead of `finish`: the task's rows when they are few; None when there are many or none."""
        if self._written or not 0 < sum(self._buffered_bytes.values()) <= SENT_BYTES_MAX:
            return None
        parts = [pa.concat_tables(tables) for tables in self._buffered.values()]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, PAYLOAD_SCHEMA) as stream:
            stream.write_table(pa.concat_tables(parts).combine_chunks())
        counts = tuple((tp, part.num_rows) for tp, part in zip(self._buffered, parts, strict=True))
        self._buffered, self._buffered_bytes = {}, {}
        return SentRows(counts, sink.getvalue().to_pybytes())

    def finish(self) -> tuple[WrittenFile, ...]:
        """Write what is left; all files of the task, each partition's in order."""
        for topic_partition in sorted(self._buffered):
            self._flush(topic_partition)
        return tuple(self._written)

    def _buffer(self, topic_partition: TopicPartition, payload: pa.Table) -> None:
        self._buffered.setdefault(topic_partition, []).append(payload)
        size = self._buffered_bytes.get(topic_partition, 0)
        self._buffered_bytes[topic_partition] = size + payload.nbytes

    def _flush(self, topic_partition: TopicPartition) -> None:
        del self._buffered_bytes[topic_partition]
        payload = pa.concat_tables(self._buffered.pop(topic_partition)).combine_chunks()
        config = self._configs[topic_partition.topic]
        batches = record_batches(payload, config.max_message_bytes)
        for batch in batches:
            check_records(batch, config)
        rows = data_table(batches)
        codec = codec_of_append(config.compression_type, [self._options.compression_type], payload.nbytes)
        self._written.append(self._retried(lambda: self._write(topic_partition, rows, codec)))

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            try:
                self._partition_counts[topic] = self._retried(lambda: self._count_partitions(topic))
            except UnknownTopicOrPartitionError as reason:
                raise RequestTimedOutError(
                    f"Topic {topic} not present in metadata after {self._options.max_block_ms} ms."
                ) from reason
            self._configs[topic] = LogConfig.from_properties(self._view.image.topic_config(topic))
        return self._partition_counts[topic]

    def _count_partitions(self, topic: str) -> int:
        self._view.refresh()
        return len(self._view.partitions(topic))

    def _write(self, topic_partition: TopicPartition, rows: pa.Table, codec: str) -> WrittenFile:
        self._view.refresh()
        state = self._view.partition_state(topic_partition)
        broker = self._view.image.brokers.get(state.leader)
        if state.leader == NO_LEADER or broker is None:
            raise LeaderNotAvailableError(f"{topic_partition} has no leader; its ISR is {list(state.isr)}")
        root = broker.registration.root
        table = self._view.stores.table(root, topic_partition)
        return WrittenFile(topic_partition, root, table.write_file(rows, 0, codec))

    def _retried(self, call: Callable[[], T]) -> T:
        """Call again for up to `max.block.ms` while a leader, a root or a topic is not there."""
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + self._options.max_block_ms
        while True:
            try:
                return call()
            except (
                LeaderNotAvailableError,
                LogDirNotFoundError,
                StoreUnavailableError,
                UnknownTopicOrPartitionError,
            ) as reason:
                if clock.monotonic_ms() >= deadline_ms:
                    raise reason_with_wait(reason, self._options.max_block_ms) from reason
            clock.sleep_ms(RETRY_MS)


def reason_with_wait(reason: StratalogError, waited_ms: int) -> StratalogError:
    """The same error, saying how long it was waited out."""
    return type(reason)(f"{reason} (after {waited_ms} ms)")
