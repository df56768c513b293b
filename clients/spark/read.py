"""What a Spark task of the source does: reads a range of one partition from a replica's table, as Arrow batches.

I/O: the metadata log and data files; no broker is called. The range lies below a high watermark that the planner saw,
so any replica that has followed (or led) that leader epoch and reaches the range's end holds the same records.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.spark.conditions import WITHOUT_FAIL_ON_DATA_LOSS, could_not_read_offset_range
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.clients.view.read_committed import without_aborted
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import (
    CorruptMessageError,
    ForeignCommitError,
    LeaderNotAvailableError,
    LogDirNotFoundError,
    OffsetOutOfRangeError,
    StoreError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import HEADERS_TYPE, TopicPartition
from stratalog.storage.transactions import NO_TRANSACTIONS

BATCH_ROWS_MAX = 10_000
CHUNK_ROWS_MIN = 2_000
"""Average rows of a chunk, below which chunks are combined into batches."""
READERS_KEPT = 64
"""Number of cached logs, as the connector caches consumers (`spark.kafka.consumer.cache.capacity`)."""
RETRY_MS = 50
CONTROL_ATTRIBUTE = 0x20
NO_TIMESTAMP_TYPE = -1

_ARROW_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

_LOG = logging.getLogger("stratalog.source")


def arrow_schema(include_headers: bool) -> pa.Schema:
    """The source's columns, the Kafka connector's, as Spark's Arrow schema."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, ("headers", _ARROW_HEADERS)] if include_headers else fields)


def columns_read(include_headers: bool, read_committed: bool) -> list[str]:
    """Which of a log's columns the source needs: decoding all of them costs CPU."""
    more = ["headers"] * include_headers + ["producer_id"] * read_committed
    return ["offset", "timestamp", "timestamp_type", "key", "value", "attributes", *more]


@dataclass(frozen=True, slots=True)
class RangeToRead:
    """Records `[start, end)`; `leader_epoch` is the newest that the planner saw.

    `read_committed`: the outcome of every transaction below `end` is certain, and what was aborted is left out.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    leader_epoch: int
    read_committed: bool = False


class RangeReaders:
    """Reads ranges for one Python worker; keeps the folded logs of the partitions it read last."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._readers: OrderedDict[tuple[TopicPartition, str, str], LogReader] = OrderedDict()

    def record_batches(
        self, wanted: RangeToRead, *, include_headers: bool, fail_on_data_loss: bool, timeout_ms: int
    ) -> Iterator[pa.RecordBatch]:
        """The range's records as `arrow_schema`, at most `BATCH_ROWS_MAX` rows each.

        Records that are gone raise DataLossError, or are skipped with a warning. ForeignCommitError: a foreign writer
        committed to the table. LeaderNotAvailableError: no replica had the range within `timeout_ms`.
        """
        schema = arrow_schema(include_headers)
        columns = columns_read(include_headers, wanted.read_committed)
        for table in self._tables(wanted, columns, fail_on_data_loss, timeout_ms):
            rows = as_source_rows(table, wanted.topic_partition, schema)
            if rows.num_rows < CHUNK_ROWS_MIN * rows["value"].num_chunks:
                rows = rows.combine_chunks()  # a batch costs Spark more than copying so few rows
            yield from rows.to_batches(max_chunksize=BATCH_ROWS_MAX)

    def _tables(
        self, wanted: RangeToRead, columns: list[str], fail_on_data_loss: bool, timeout_ms: int
    ) -> Iterator[pa.Table]:
        start = wanted.start
        broken: set[str] = set()
        while start < wanted.end:
            root, log = self._log_with(wanted, broken, timeout_ms)
            start = self._first_available(log, wanted, start, fail_on_data_loss)
            try:
                # before the records: once compaction has removed them, the log does not know what was aborted
                transactions = log.producers.transactions if wanted.read_committed else NO_TRANSACTIONS
                for table in log.read_range(start, wanted.end, columns=columns):
                    next_offset = table["offset"][-1].as_py() + 1
                    yield without_aborted(table, transactions.aborted_between(start, next_offset))
                    start = next_offset
            except OffsetOutOfRangeError:
                continue  # retention moved the log start: read it again
            except (StoreError, CorruptMessageError) as reason:
                if root in broken:
                    raise
                _LOG.warning("%s: trying another replica: %s", wanted.topic_partition, reason)
                broken.add(root)
                continue
            return

    def _first_available(self, log: LogReader, wanted: RangeToRead, start: int, fail_on_data_loss: bool) -> int:
        if log.log_start_offset <= start:
            return start
        why = f"the log starts at {log.log_start_offset}"
        loss = could_not_read_offset_range(wanted.topic_partition, start, wanted.end, why)
        if fail_on_data_loss:
            raise loss
        _LOG.warning("%s %s", loss.reason, WITHOUT_FAIL_ON_DATA_LOSS)
        return min(log.log_start_offset, wanted.end)

    def _log_with(self, wanted: RangeToRead, broken: set[str], timeout_ms: int) -> tuple[str, LogReader]:
        """A replica's root and its log that holds the range, waiting for one if need be; `broken` ones last."""
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            found, reason = self._find_log(wanted, broken)
            if found is not None:
                return found
            if clock.monotonic_ms() >= deadline_ms:
                raise LeaderNotAvailableError(
                    f"{wanted.topic_partition}: no replica has offsets [{wanted.start}, {wanted.end}) of leader epoch "
                    f"{wanted.leader_epoch} after {timeout_ms} ms: {reason}"
                ) from reason
            clock.sleep_ms(RETRY_MS)
            self._view.refresh()

    def _find_log(
        self, wanted: RangeToRead, broken: set[str]
    ) -> tuple[tuple[str, LogReader] | None, StratalogError | None]:
        reason: StratalogError | None = None
        try:
            replicas = self._replicas(wanted.topic_partition)
            for root, has_it_all in sorted(replicas, key=lambda replica: replica[0] in broken):
                try:
                    log = self._reader(wanted.topic_partition, root)
                    if _holds(log, wanted, any_epoch=has_it_all):
                        return (root, log), None
                except (LogDirNotFoundError, StoreError, UnknownTopicOrPartitionError) as failure:
                    reason = reason or failure
        except UnknownTopicOrPartitionError as unknown:
            reason = unknown
        return None, reason

    def _replicas(self, topic_partition: TopicPartition) -> list[tuple[str, bool]]:
        """Roots of the replicas: the leader's, those in sync, the others; and whether one has all committed records
        although it shows an older epoch: a member of the ISR while there is no leader."""
        self._view.refresh(max_age_ms=1_000)
        state = self._view.partition_state(topic_partition)
        brokers = self._view.image.brokers
        replicas = sorted(state.replicas, key=lambda r: (r != state.leader, r not in state.isr))
        has_no_leader = state.leader == NO_LEADER
        return [(brokers[r].registration.root, has_no_leader and r in state.isr) for r in replicas if r in brokers]

    def _reader(self, topic_partition: TopicPartition, root: str) -> LogReader:
        key = (topic_partition, self._view.image.topic_ids.get(topic_partition.topic, ""), root)
        if key not in self._readers:
            self._readers[key] = LogReader(self._view.stores.table(root, topic_partition), self._view.clock)
        self._readers.move_to_end(key)
        while len(self._readers) > READERS_KEPT:
            self._readers.popitem(last=False)
        return self._readers[key]


def _holds(log: LogReader, wanted: RangeToRead, *, any_epoch: bool) -> bool:
    """True when the log, folded as far as needed, has the range. Raises ForeignCommitError with the table's name."""

    def has_range() -> bool:
        end = log.log_end_offset
        if not (any_epoch or log.has_started(wanted.leader_epoch)) or end < wanted.end:
            return False
        # a replica that lags a little may not know yet how a transaction ended
        return not wanted.read_committed or log.last_stable_offset(end) >= wanted.end

    try:
        if has_range():
            return True
        log.refresh()
    except ForeignCommitError as reason:
        raise ForeignCommitError(f"{log.name} cannot be read as a log: {reason}") from reason
    return has_range()


def as_source_rows(table: pa.Table, topic_partition: TopicPartition, schema: pa.Schema) -> pa.Table:
    """Rows with `columns_read`, without control records, as the source's `schema`."""
    attributes = table["attributes"]
    if table.num_rows and pc.max(attributes).as_py() >= CONTROL_ATTRIBUTE:
        table = table.filter(pc.equal(pc.bit_wise_and(attributes, pa.scalar(CONTROL_ATTRIBUTE, pa.int16())), 0))
    count = table.num_rows
    times = table["timestamp"]
    types = table["timestamp_type"].cast(pa.int32())
    if times.null_count:
        types = pc.if_else(times.is_null(), pa.scalar(NO_TIMESTAMP_TYPE, pa.int32()), types)
    columns = {
        "key": table["key"],
        "value": table["value"],
        "topic": pa.repeat(pa.scalar(topic_partition.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(topic_partition.partition, pa.int32()), count),
        "offset": table["offset"],
        "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
        "timestampType": types,
    }
    if "headers" in schema.names:
        columns["headers"] = _headers(table["headers"])
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _headers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Headers as Spark has them: null, not empty, when a record has none."""
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), _ARROW_HEADERS)])
    assert column.type == HEADERS_TYPE
    is_empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(is_empty, pa.scalar(None, HEADERS_TYPE), column).cast(_ARROW_HEADERS)
