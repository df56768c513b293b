"""What a Spark task of the sink does: writes rows to data files in the leaders' roots, named by no commit yet.

I/O: reads the metadata log, writes data files. Memory is bounded by `buffer.memory`: usually a task ends with one file
per partition; past the bound the largest partition's rows are written early. A task with few rows sends them to the
driver instead, which writes one file per partition for all such tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.rows import (
    NO_PRODUCER,
    ProducerIdAndEpoch,
    StickyPartitions,
    few_rows_of,
    record_batches,
    rows_by_topic,
    split_by_partition,
)
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.batch_file_fast import TABLE_ROWS_MAX
from stratalog.storage.files.codecs import SMALL_FILE_BYTES, UNCOMPRESSED, codec_of_append
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import check_records, check_time
from stratalog.storage.records import PAYLOAD_SCHEMA, FewRows, TopicPartition, data_table, record_sizes
from stratalog.storage.topic_config import LogConfig

RETRY_MS = 50
METADATA_MAX_AGE_MS = 20
"""Age of metadata that is recent enough: if the leader has moved, the hand-over copies the file to the new one."""
SENT_BYTES_MAX = 65_536
"""Bytes of rows up to which a task sends them to the driver: a file per task and partition costs every replica more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file in a partition's directory below `root`, not committed."""

    topic_partition: TopicPartition
    root: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class SentRows:
    """A task's few rows for the driver.

    counts  partition, rows and bytes, in the order of `stream`
    stream  an Arrow stream of payloads
    """

    counts: tuple[tuple[TopicPartition, int, int], ...]
    stream: bytes


class SinkTask:
    """Collects a task's rows. `first_partition` is where its null keys start (see `StickyPartitions`); `producer` that
    of the transaction of which the rows become a part."""

    def __init__(
        self, view: ClusterView, options: SinkOptions, first_partition: int, producer: ProducerIdAndEpoch = NO_PRODUCER
    ) -> None:
        self._view = view
        self._options = options
        self._producer = producer
        self._sticky = StickyPartitions(options.batch_size, first_partition)
        self._partition_counts: dict[str, int] = {}
        self._configs: dict[tuple[str, int], LogConfig] = {}
        """By topic and leader: some of what brokers have for all topics may be one broker's own."""
        self._buffered: dict[TopicPartition, list[pa.Table]] = {}
        self._buffered_bytes: dict[TopicPartition, int] = {}
        self._written: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer rows of the query. Raises InvalidRecordError, in Kafka's words."""
        options = self._options
        for rows in rows_by_topic(batch, options.topic, options.timestamp_column, self._view.clock.wall_ms()):
            if rows.payload.num_rows == 0:
                continue
            sizes = record_sizes(rows.payload)
            partitions = self._sticky.choose(rows, sizes, self._partition_count(rows.topic))
            bytes_by_partition = np.bincount(partitions, weights=sizes)
            for partition, payload in split_by_partition(rows.payload, partitions):
                self._buffer(TopicPartition(rows.topic, partition), payload, int(bytes_by_partition[partition]))
        while sum(self._buffered_bytes.values()) > options.buffer_memory:
            self._flush(max(self._buffered_bytes, key=lambda tp: self._buffered_bytes[tp]))

    def add_sent(self, sent: SentRows) -> None:
        """On the driver: buffer the few rows of a task."""
        payload, start = pa.ipc.open_stream(sent.stream).read_all(), 0
        for topic_partition, count, size_bytes in sent.counts:
            self._buffer(topic_partition, payload.slice(start, count), size_bytes)
            start += count

    def send(self) -> SentRows | None:
        """Instead of `finish`: the task's rows when they are few; None when there are many or none."""
        if self._written or not 0 < sum(self._buffered_bytes.values()) <= SENT_BYTES_MAX:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, PAYLOAD_SCHEMA) as stream:
            stream.write_table(_joined(self._buffered.values()))
        counts = tuple(
            (tp, sum(table.num_rows for table in tables), self._buffered_bytes[tp])
            for tp, tables in self._buffered.items()
        )
        self._buffered, self._buffered_bytes = {}, {}
        return SentRows(counts, sink.getvalue().to_pybytes())

    def finish(self) -> tuple[WrittenFile, ...]:
        """Write what is left; all files of the task, each partition's in order."""
        few = self._few_rows()
        for topic_partition in sorted(self._buffered):
            rows = few.get(topic_partition)
            if rows is None:
                self._flush(topic_partition)
            else:
                del self._buffered[topic_partition], self._buffered_bytes[topic_partition]
                self._put(topic_partition, rows, UNCOMPRESSED)
        return tuple(self._written)

    def _few_rows(self) -> dict[TopicPartition, FewRows | None]:
        """Rows, as their files store them, of partitions with few rows that need no check. Converted for all partitions
        at once, since a conversion costs as much as a hundred rows."""
        counts = {tp: sum(table.num_rows for table in tables) for tp, tables in self._buffered.items()}
        few = {tp: count for tp, count in counts.items() if count <= TABLE_ROWS_MAX and self._is_small(tp)}
        if not few:
            return {}
        rows = few_rows_of(_joined(self._buffered[tp] for tp in few), list(few.values()), self._producer)
        return dict(zip(few, rows, strict=True))

    def _is_small(self, topic_partition: TopicPartition) -> bool:
        config = self._config(topic_partition)
        return self._buffered_bytes[topic_partition] <= few_rows_limit(config, self._options.compression_type)

    def _buffer(self, topic_partition: TopicPartition, payload: pa.Table, size_bytes: int) -> None:
        self._buffered.setdefault(topic_partition, []).append(payload)
        self._buffered_bytes[topic_partition] = self._buffered_bytes.get(topic_partition, 0) + size_bytes

    def _flush(self, topic_partition: TopicPartition) -> None:
        del self._buffered_bytes[topic_partition]
        payload = _joined([self._buffered.pop(topic_partition)])
        config = self._config(topic_partition)
        batches = record_batches(payload, config.max_message_bytes, self._producer)
        now_ms = self._view.clock.wall_ms()
        for batch in batches:
            check_records(batch, config)
            check_time(batch, config, now_ms)
        codec = codec_of_append(config.compression_type, [self._options.compression_type], payload.nbytes)
        self._put(topic_partition, data_table(batches), codec)

    def _put(self, topic_partition: TopicPartition, rows: pa.Table | FewRows, codec: str) -> None:
        self._written.append(self._retried(lambda: self._write(topic_partition, rows, codec)))

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            try:
                self._partition_counts[topic] = self._retried(lambda: self._count_partitions(topic))
            except errors.UnknownTopicOrPartitionError as reason:
                raise errors.RequestTimedOutError(
                    f"Topic {topic} not present in metadata after {self._options.max_block_ms} ms. Create it "
                    "first: naming a topic does not create it."
                ) from reason
        return self._partition_counts[topic]

    def _config(self, topic_partition: TopicPartition) -> LogConfig:
        self._partition_count(topic_partition.topic)
        key = topic_partition.topic, self._view.leader(topic_partition)
        if key not in self._configs:
            self._configs[key] = self._view.topic_config(*key)
        return self._configs[key]

    def _count_partitions(self, topic: str) -> int:
        self._view.refresh()
        return len(self._view.partitions(topic))

    def _write(self, topic_partition: TopicPartition, rows: pa.Table | FewRows, codec: str) -> WrittenFile:
        self._view.refresh(METADATA_MAX_AGE_MS)
        state = self._view.partition_state(topic_partition)
        root = self._view.leader_root(topic_partition)
        if root is None:
            raise errors.LeaderNotAvailableError(f"{topic_partition} has no leader; its ISR is {list(state.isr)}")
        table = self._view.stores.table(root, topic_partition)
        return WrittenFile(topic_partition, root, table.write_file(rows, None, codec))

    def _retried(self, call: Callable[[], T]) -> T:
        """Call again for up to `max.block.ms` while a leader, a root or a topic is not there."""
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + self._options.max_block_ms
        while True:
            try:
                return call()
            except (
                errors.LeaderNotAvailableError,
                errors.LogDirNotFoundError,
                errors.StoreUnavailableError,
                errors.UnknownTopicOrPartitionError,
            ) as reason:
                if clock.monotonic_ms() >= deadline_ms:
                    raise reason_with_wait(reason, self._options.max_block_ms) from reason
            clock.sleep_ms(RETRY_MS)


def _joined(parts: Iterable[Sequence[pa.Table]]) -> pa.Table:
    return pa.concat_tables([table for tables in parts for table in tables]).combine_chunks()


def few_rows_limit(config: LogConfig, compression_type: str) -> int:
    """Bytes of records up to which a file of few rows is written without a check; -1: never.

    A batch within it exceeds no limit, and its file is uncompressed.
    """
    codec = codec_of_append(config.compression_type, [compression_type], 0)
    if codec != UNCOMPRESSED or config.is_compacted or config.limits_times:
        return -1
    return min(SMALL_FILE_BYTES - 1, config.max_message_bytes, config.segment_bytes)


def reason_with_wait(reason: StratalogError, waited_ms: int) -> StratalogError:
    """The same error, with the time that was waited."""
    return type(reason)(f"{reason} (after {waited_ms} ms)")
