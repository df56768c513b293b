"""What a Spark task of the source does: reads a range of one partition from a replica's table, as Arrow batches.

I/O: the metadata log and data files; no broker is called. The range lies below a high watermark that the planner saw,
so any replica that has followed (or led) that leader epoch and reaches the range's end holds the same records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.spark.conditions import (
    WITHOUT_FAIL_ON_DATA_LOSS,
    DataLossError,
    TopicRecreatedError,
    could_not_read_offset_range,
)
from stratalog.clients.spark.option_names import SOURCE_COLUMNS
from stratalog.clients.spark.source.gaps import Gap, explained_end, first_gap
from stratalog.clients.spark.source.planned_files import PlannedFiles
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import without_aborted
from stratalog.storage import errors
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.log.reader import LogReader, PlannedRead
from stratalog.storage.log.segments import files_between
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import HEADERS_TYPE, TopicPartition
from stratalog.storage.transactions import NO_TRANSACTIONS

BATCH_ROWS_MAX = 10_000
CHUNK_ROWS_MIN = 2_000
"""Average rows of a chunk, below which chunks are combined into batches."""
READERS_KEPT, READERS_OF_MANY_FILES, FILES_KEPT = 1_000, 64, 100_000
"""Number of cached logs, as the connector caches consumers (`spark.kafka.consumer.cache.capacity`): one task may read
many small partitions. From the second on logs are dropped while they name more files than that."""
READ_BYTES = 1 << 24
"""Size on storage of the files that are read at once."""
RETRY_MS = 50
CONTROL_ATTRIBUTE = 0x20
NO_TIMESTAMP_TYPE = -1

_ARROW_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

_OFFSET_BYTES = 4
"""Size of an offset of a list in Arrow's format."""

_LOG = line_logger("stratalog.source")

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _ARROW_HEADERS,
    "leaderEpoch": pa.int32(),
}
_NEEDS = {
    "key": ("key",),
    "value": ("value",),
    "timestamp": ("timestamp",),
    "timestampType": ("timestamp", "timestamp_type"),
    "headers": ("headers",),
    "leaderEpoch": ("leader_epoch",),
}
"""Which of a log's columns a column of the source is made of."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Columns of the source, the Kafka connector's, as Spark's Arrow schema."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def columns_read(columns: Sequence[str], has_aborted: bool) -> list[str]:
    """The columns of a log that the source needs: decoding all of them costs CPU.

    has_aborted  whether the range has an aborted transaction: its records are found by producer id, and left out
    """
    needed = [each for name in columns for each in _NEEDS.get(name, ())]
    return list(dict.fromkeys(["offset", "attributes", *needed, *(["producer_id"] * has_aborted)]))


@dataclass(frozen=True, slots=True)
class RangeToRead:
    """Records `[start, end)`; `leader_epoch` is the newest that the planner saw, of the topic with this id.

    `read_committed`: the outcome of every transaction below `end` is certain, and what was aborted is left out.
    `planned`: its files, if the planner found them; where they are gone the task folds the log.
    `end_seen`: what could be read when it was planned, if `end`, which a user gave, is beyond that.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    leader_epoch: int
    read_committed: bool = False
    topic_id: str = ""
    planned: PlannedFiles | None = None
    end_seen: int | None = None


@dataclass(frozen=True, slots=True)
class ReadManner:
    """How a query's ranges are read.

    columns     of the source, in order
    timeout_ms  how long a task waits for a replica that has its range
    rack        the `broker.rack` whose replicas are near; "": none is
    """

    columns: tuple[str, ...] = SOURCE_COLUMNS
    fail_on_data_loss: bool = True
    timeout_ms: int = 120_000
    rack: str = ""


class RangeReaders:
    """Reads ranges for one Python worker; keeps the folded logs of the partitions it read last.

    A kept fold may name files whose records compaction or an erasure has removed since: each task calls `begin`, and
    refreshes a log before it reads it for the first time.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._readers: OrderedDict[tuple[TopicPartition, str, str], LogReader] = OrderedDict()
        self._refreshed: WeakSet[LogReader] = WeakSet()

    def begin(self, wanted: Sequence[RangeToRead], manner: ReadManner) -> None:
        """Begin a task that reads these ranges: it reads the tables as they are now, or later."""
        self._refreshed.clear()
        if len(wanted) > 1:
            self._fold_ahead(wanted, manner)

    def record_batches(self, wanted: RangeToRead, manner: ReadManner) -> Iterator[pa.RecordBatch]:
        """The range's records as `arrow_schema`, at most `BATCH_ROWS_MAX` rows each.

        Records that are gone, and a topic that was created again, raise DataLossError, or are skipped with a warning.
        ForeignCommitError: a foreign writer committed to the table. LeaderNotAvailableError: no replica had the range
        within the time-out.
        """
        schema = arrow_schema(manner.columns)
        try:
            for table in self._tables(wanted, manner):
                rows = as_source_rows(table, wanted.topic_partition, schema)
                if rows.num_rows < CHUNK_ROWS_MIN * _chunk_count(rows):
                    rows = rows.combine_chunks()  # a batch costs Spark more than copying so few rows
                yield from rows.to_batches(max_chunksize=BATCH_ROWS_MAX)
        except TopicRecreatedError as loss:
            _report(loss, manner)

    def _fold_ahead(self, wanted: Sequence[RangeToRead], manner: ReadManner) -> None:
        """Where a fold makes requests: fold the logs of several ranges at once. What fails is tried again when read."""
        if not self._view.changes.distance.is_far:
            return
        logs: dict[TopicPartition, tuple[LogReader, RangeToRead]] = {}
        for each in [each for each in wanted if each.planned is None][:READERS_KEPT]:
            with suppress(StratalogError):
                root, _ = next(iter(self._replicas(each, manner.rack)), ("", False))
                logs[each.topic_partition] = self._reader(each.topic_partition, root), each

        def fold(topic_partition: TopicPartition) -> None:
            log, its_range = logs[topic_partition]
            with suppress(StratalogError):
                self._holds(log, its_range, any_epoch=False)

        self._view.records.at_once(fold, logs)

    def _tables(self, wanted: RangeToRead, manner: ReadManner) -> Iterator[pa.Table]:
        if wanted.end_seen is None:
            yield from self._tables_of_known(wanted, manner)
            return
        end = self._reached_end(wanted, wanted.end_seen, manner)
        if wanted.start < end:
            yield from self._tables_of_known(replace(wanted, end=end), manner)
        if end < wanted.end:
            why = f"the log ends at {end} after {manner.timeout_ms} ms"
            _report(
                could_not_read_offset_range(wanted.topic_partition, max(wanted.start, end), wanted.end, why), manner
            )

    def _reached_end(self, wanted: RangeToRead, end_seen: int, manner: ReadManner) -> int:
        """The end of a range that was beyond its log, or the log's end when that has not come there in time. Source:
        `KafkaDataConsumer.get` of Spark's connector, which polls for its time-out first."""
        clock, named = self._view.clock, wanted.topic_partition
        deadline_ms = clock.monotonic_ms() + manner.timeout_ms
        end = end_seen
        while end < wanted.end:
            try:
                self._check_topic_id(wanted)
                marks = self._view.watermarks.published(named)
                end = end if marks is None else max(end, self._view.offsets.readable_end(named, marks))
            except TopicRecreatedError:
                raise
            except StratalogError as reason:  # a leader that is away has no less than was seen
                _LOG.info("%s: waiting for offset %d: %s", named, wanted.end, reason)
            if end >= wanted.end or clock.monotonic_ms() >= deadline_ms:
                break
            clock.sleep_ms(RETRY_MS)
            self._view.refresh()
        return min(end, wanted.end)

    def _tables_of_known(self, wanted: RangeToRead, manner: ReadManner) -> Iterator[pa.Table]:
        start = wanted.start
        if wanted.planned is not None:
            columns = columns_read(manner.columns, bool(wanted.planned.aborted))
            try:
                for table in self._planned_tables(wanted, wanted.planned, columns):
                    start = table["offset"][-1].as_py() + 1
                    yield without_aborted(table, wanted.planned.aborted)
                return
            except (StoreError, errors.CorruptMessageError, errors.LogDirNotFoundError) as reason:
                _LOG.info("%s: folding the log from offset %d on: %s", wanted.topic_partition, start, reason)
        broken: set[str] = set()
        while start < wanted.end:
            root, log = self._log_with(wanted, broken, manner)
            start = self._first_available(log, wanted, start, manner)
            try:
                # before the records: once compaction has removed them, the log does not know what was aborted
                transactions = log.producers.transactions if wanted.read_committed else NO_TRANSACTIONS
                aborted = transactions.aborted_between(start, wanted.end)
                columns = columns_read(manner.columns, bool(aborted))
                explained = self._explained_end(log, wanted.topic_partition)
                for table in log.read_range(start, wanted.end, columns=columns):
                    self._check_gap(first_gap(table, start, explained), log, wanted, manner, is_last=root in broken)
                    next_offset = table["offset"][-1].as_py() + 1
                    yield without_aborted(table, aborted)
                    start = next_offset
                rest = Gap(max(start, explained), wanted.end) if max(start, explained) < wanted.end else None
                self._check_gap(rest, log, wanted, manner, is_last=root in broken)
            except DataLossError:
                raise
            except (errors.OffsetOutOfRangeError, errors.UnknownTopicOrPartitionError):
                continue  # retention moved the log start, or the topic was created again: look for the log again
            except (StoreError, errors.CorruptMessageError) as reason:
                if root in broken:
                    raise
                _LOG.warning("%s: trying another replica: %s", wanted.topic_partition, reason)
                broken.add(root)
                self._view.refresh()  # the log may be newer than the metadata that explains its gaps
                continue
            return

    def _planned_tables(self, wanted: RangeToRead, planned: PlannedFiles, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The records of the planner's files. CorruptMessageError at a gap that nothing explains, as in `_tables`."""
        log = self._view.stores.table(planned.root, wanted.topic_partition)
        start, end = wanted.start, wanted.end
        while start < end:
            entries = tuple(files_between(planned.entries, start, end))
            table = PlannedRead(log, entries, start, end, READ_BYTES, columns).read()
            if table.num_rows == 0:
                break
            if (gap := first_gap(table, start, planned.explained_end)) is not None:
                raise errors.CorruptMessageError(f"the planned files lack offsets [{gap.start}, {gap.end})")
            yield table
            start = table["offset"][-1].as_py() + 1
        if max(start, planned.explained_end) < end:
            raise errors.CorruptMessageError(f"the planned files lack offsets [{start}, {end})")

    def _explained_end(self, log: LogReader, topic_partition: TopicPartition) -> int:
        image, topic = self._view.image, topic_partition.topic
        erases = image.erases.get(topic, {})
        return explained_end(topic_partition, image.topic_config(topic), log.state.cleaner, erases)

    def _check_gap(
        self, gap: Gap | None, log: LogReader, wanted: RangeToRead, manner: ReadManner, *, is_last: bool
    ) -> None:
        """A replica with an unexplained gap is as good as damaged; in the last one to be tried it is a loss."""
        if gap is None:
            return
        why = f"{log.name} lacks offsets [{gap.start}, {gap.end}), which no retention, compaction or erasure explains"
        if not is_last:
            raise errors.CorruptMessageError(why)
        advice = "strata replica-verification compares the replicas"
        _report(could_not_read_offset_range(wanted.topic_partition, *gap, f"{why}; {advice}"), manner)

    def _first_available(self, log: LogReader, wanted: RangeToRead, start: int, manner: ReadManner) -> int:
        if log.log_start_offset <= start:
            return start
        why = f"the log starts at {log.log_start_offset}"
        _report(could_not_read_offset_range(wanted.topic_partition, start, wanted.end, why), manner)
        return min(log.log_start_offset, wanted.end)

    def _log_with(self, wanted: RangeToRead, broken: set[str], manner: ReadManner) -> tuple[str, LogReader]:
        """A replica's root and its log that holds the range, waiting for one if need be; `broken` ones last."""
        clock, timeout_ms = self._view.clock, manner.timeout_ms
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            found, reason = self._find_log(wanted, broken, manner.rack)
            if found is not None:
                return found
            if clock.monotonic_ms() >= deadline_ms:
                raise errors.LeaderNotAvailableError(
                    f"{wanted.topic_partition}: no replica has offsets [{wanted.start}, {wanted.end}) of leader epoch "
                    f"{wanted.leader_epoch} after {timeout_ms} ms: {reason}. Start a broker that has it, or raise "
                    "kafkaConsumer.pollTimeoutMs."
                ) from reason
            clock.sleep_ms(RETRY_MS)
            self._view.refresh()

    def _find_log(
        self, wanted: RangeToRead, broken: set[str], rack: str
    ) -> tuple[tuple[str, LogReader] | None, StratalogError | None]:
        reason: StratalogError | None = None
        try:
            replicas = self._replicas(wanted, rack)
            for root, has_it_all in sorted(replicas, key=lambda replica: replica[0] in broken):
                try:
                    log = self._reader(wanted.topic_partition, root)
                    if self._holds(log, wanted, any_epoch=has_it_all):
                        return (root, log), None
                except (errors.LogDirNotFoundError, StoreError, errors.UnknownTopicOrPartitionError) as failure:
                    reason = reason or failure
        except errors.UnknownTopicOrPartitionError as unknown:
            reason = unknown
        return None, reason

    def _replicas(self, wanted: RangeToRead, rack: str) -> list[tuple[str, bool]]:
        """Roots of the replicas, in the order in which they are tried; and whether one has all committed records
        although it shows an older epoch: the one table of all, or that of a member of the ISR without a leader."""
        self._view.refresh(max_age_ms=1_000)
        self._check_topic_id(wanted)
        state = self._view.partition_state(wanted.topic_partition)
        brokers = self._view.image.brokers
        racks = {broker_id: broker.registration.rack for broker_id, broker in brokers.items()}
        has_no_leader = state.leader == NO_LEADER
        return [
            (root, state.has_one_table or (has_no_leader and state.is_held_in_sync(r)))
            for r in nearest_first(state, racks, rack)
            if (root := self._view.replica_root(wanted.topic_partition, r)) is not None
        ]

    def _check_topic_id(self, wanted: RangeToRead) -> None:
        """Raises when the topic was created again since the range was planned. The planner's view may be the newer."""
        for refresh in (self._view.refresh, None):
            topic_id = self._view.image.topic_ids.get(wanted.topic_partition.topic, wanted.topic_id)
            if not wanted.topic_id or topic_id == wanted.topic_id:
                return
            if refresh is not None:
                refresh()
        raise TopicRecreatedError(wanted.topic_partition.topic, wanted.topic_id, topic_id)

    def _holds(self, log: LogReader, wanted: RangeToRead, *, any_epoch: bool) -> bool:
        """True when the log has the range, refreshed once in this task. ForeignCommitError with the table's name."""
        try:
            if log in self._refreshed and _has_range(log, wanted, any_epoch):
                return True
            log.refresh()
            self._refreshed.add(log)
        except errors.ForeignCommitError as reason:
            raise errors.ForeignCommitError(
                f"{log.name} cannot be read as a log: {reason}. Let its broker repair it: only stratalog writes "
                "to this table."
            ) from reason
        return _has_range(log, wanted, any_epoch)

    def _reader(self, topic_partition: TopicPartition, root: str) -> LogReader:
        key = (topic_partition, self._view.image.topic_ids.get(topic_partition.topic, ""), root)
        if key not in self._readers:
            self._readers[key] = LogReader(self._view.stores.table(root, topic_partition), self._view.clock)
            self._drop_readers()
        self._readers.move_to_end(key)
        return self._readers[key]

    def _drop_readers(self) -> None:
        while len(self._readers) > READERS_KEPT:
            self._readers.popitem(last=False)
        if len(self._readers) % READERS_OF_MANY_FILES == 0:  # counting for each new one would take its time
            files = sum(len(log.files) for log in self._readers.values() if log.is_folded)
            while files > FILES_KEPT and len(self._readers) > 1:
                _, dropped = self._readers.popitem(last=False)
                files -= len(dropped.files) if dropped.is_folded else 0


def nearest_first(state: PartitionRecord, racks: Mapping[int, str | None], rack: str) -> list[int]:
    """Replicas in the order in which a reader in `rack` tries them: in-sync ones of its rack, the leader among them
    first, the leader, the others in sync, the rest (KIP-392, `RackAwareReplicaSelector`)."""

    def rank(replica: int) -> tuple[bool, bool, bool]:
        is_near = bool(rack) and racks.get(replica) == rack and replica in state.isr
        return not is_near, replica != state.leader, replica not in state.isr

    return sorted(state.replicas, key=rank)


def _report(loss: DataLossError, manner: ReadManner) -> None:
    if manner.fail_on_data_loss:
        raise loss
    _LOG.warning("%s %s", loss.reason, WITHOUT_FAIL_ON_DATA_LOSS)


def _chunk_count(rows: pa.Table) -> int:
    return max((column.num_chunks for column in rows.columns), default=1)


def _has_range(log: LogReader, wanted: RangeToRead, any_epoch: bool) -> bool:
    """Whether the log has the range as of its fold."""
    end = log.log_end_offset
    if wanted.topic_id and log.topic_id != wanted.topic_id:
        return False  # of a topic of this name before or after
    if not (any_epoch or log.has_started(wanted.leader_epoch)) or end < wanted.end:
        return False
    # a replica that lags a little may not know yet how a transaction ended
    return not wanted.read_committed or log.last_stable_offset(end) >= wanted.end


def as_source_rows(table: pa.Table, topic_partition: TopicPartition, schema: pa.Schema) -> pa.Table:
    """Rows with `columns_read`, without control records, as the source's `schema`."""
    attributes = table["attributes"]
    if table.num_rows and pc.max(attributes).as_py() >= CONTROL_ATTRIBUTE:
        table = table.filter(pc.equal(pc.bit_wise_and(attributes, pa.scalar(CONTROL_ATTRIBUTE, pa.int16())), 0))
    return pa.table([_COLUMNS[name](table, topic_partition) for name in schema.names], schema=schema)


def _timestamp_types(table: pa.Table) -> pa.ChunkedArray:
    types, times = table["timestamp_type"].cast(pa.int32()), table["timestamp"]
    return pc.if_else(times.is_null(), pa.scalar(NO_TIMESTAMP_TYPE, pa.int32()), types) if times.null_count else types


def no_headers(count: int) -> pa.ListArray:
    """A headers column of `count` nulls.

    `pa.nulls` also makes `count` keys and `count` values below the lists, which nothing refers to. Arrow writes all of
    them again for each slice of the column that is sent to Spark. This column has no keys and no values.
    """
    zeros = pa.py_buffer(bytes(_OFFSET_BYTES * (count + 1)))
    no_elements = pa.array([], _ARROW_HEADERS.value_type)
    return pa.Array.from_buffers(_ARROW_HEADERS, count, [zeros, zeros], count, children=[no_elements])


def _headers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Headers as Spark has them: null, not empty, when a record has none."""
    if column.null_count == len(column):
        return pa.chunked_array([no_headers(len(column))])
    assert column.type == HEADERS_TYPE
    is_empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(is_empty, pa.scalar(None, HEADERS_TYPE), column).cast(_ARROW_HEADERS)


_COLUMNS: Mapping[str, Callable[[pa.Table, TopicPartition], pa.Array | pa.ChunkedArray]] = {
    "key": lambda table, _: table["key"],
    "value": lambda table, _: table["value"],
    "topic": lambda table, tp: pa.repeat(pa.scalar(tp.topic, pa.string()), table.num_rows),
    "partition": lambda table, tp: pa.repeat(pa.scalar(tp.partition, pa.int32()), table.num_rows),
    "offset": lambda table, _: table["offset"],
    "timestamp": lambda table, _: table["timestamp"].cast(pa.timestamp("us", tz="UTC")),
    "timestampType": lambda table, _: _timestamp_types(table),
    "headers": lambda table, _: _headers(table["headers"]),
    "leaderEpoch": lambda table, _: table["leader_epoch"],
}
