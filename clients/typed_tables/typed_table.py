"""A topic as a typed Delta table: a streaming query, its dead letters, its upkeep.

I/O: Spark and Delta Lake, the cluster's storage, the registry.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from stratalog.clients.bootstrap import Cluster, root_of
from stratalog.clients.schemas.schema import SchemaRegistry
from stratalog.clients.spark.option_names import ROOT
from stratalog.clients.spark.options import stream_options
from stratalog.clients.spark.worker import view_of
from stratalog.clients.typed_tables.batches import NO_DELETION_VECTORS, TableWriter
from stratalog.clients.typed_tables.checkpoint import QueryProgress, planned_positions, query_progress
from stratalog.clients.typed_tables.config import (
    HEADERS,
    KEY,
    VALUE,
    TypedTableConfig,
    WriteMode,
    check_registry,
    dead_letter_table,
    split_source_options,
    write_mode,
)
from stratalog.clients.typed_tables.delta_table import Txn, TypedDelta, own_session
from stratalog.clients.typed_tables.erasure import TableErasure
from stratalog.clients.typed_tables.replay import ReplayOutcome, replay
from stratalog.clients.typed_tables.upkeep import Positions, TableUpkeep
from stratalog.clients.typed_tables.values import RECORD, ValueReader
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import InvalidRequestError

TOPIC, TOPIC_ID, MODE = "stratalog.topic", "stratalog.topic.id", "stratalog.write.mode"
"""Table properties: of which topic the table is, and how records become rows."""
IDLE_UPKEEP_S = 30
_CHECKPOINT_FOLDER = "_stratalog_checkpoint"
_RAW = {KEY: "_key BINARY", VALUE: "_value BINARY", HEADERS: "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>"}


@dataclass(frozen=True, slots=True)
class TypedTableState:
    """How a typed table stands.

    lag             records of the topic behind the newest batch that is done, by partition
    dead_letters    error -> number of dead letters
    row_count       rows of the table
    """

    table: str
    topic: str
    mode: WriteMode
    progress: QueryProgress
    version: int
    row_count: int
    lag: Mapping[int, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)

    @property
    def dead_letter_count(self) -> int:
        """All dead letters."""
        return sum(self.dead_letters.values())


class TypedTable:
    """Records of a topic as rows of a Delta table, exactly once; those that do not fit as dead letters.

    cluster   a running `Cluster`, or its metadata root
    table     a path or URL, or a name in the catalog; made if it is not there
    config    settings of `TypedTableConfig` by their dotted names, and options of the source behind `source.`
    registry  a `SchemaFolder` or `SchemaRegistryClient`; for Avro and Protobuf, and JSON in Confluent's wire format

    UnknownTopicOrPartitionError, InvalidConfigError, InvalidRequestError for a table of another topic or mode.
    """

    def __init__(
        self, spark: SparkSession, cluster: Cluster, topic: str, table: str, config: Mapping[str, object],
        registry: SchemaRegistry | None = None,
    ) -> None:  # fmt: skip
        own, self._source_options = split_source_options(config)
        self._config = TypedTableConfig.from_settings(own)
        check_registry(self._config, has_registry=registry is not None)
        self._streams, self._spark = spark, own_session(spark)
        """The user's session, in which queries are started and listened to, and the one for everything else."""
        self._root, self._topic = root_of(cluster), topic
        self._view = self._view_of_cluster()
        self._view.partitions(topic)
        mode = write_mode(self._config, self._view.topic_config(topic).cleanup_policy)
        self._target = TypedDelta(self._spark, table)
        reader = ValueReader(self._spark, self._config, mode, registry)
        letters = TypedDelta(self._spark, dead_letter_table(table, self._config))
        self.writer = TableWriter(topic, self._target, letters, reader, self._config, mode)
        self.writer.letter_properties = self._identity()
        self._turn = threading.Lock()
        """Held by what writes the tables in this process: a batch, or upkeep between batches."""
        if self._target.exists():
            self._check_tables()

    def _view_of_cluster(self) -> ClusterView:
        parsed = stream_options({**self._source_options, ROOT: self._root, "subscribe": self._topic})
        view = view_of(parsed.root, parsed.storage, self._config.isolation_level)
        view.refresh()
        return view

    def _identity(self) -> dict[str, str]:
        """Table properties that both tables have."""
        topic_id = self._view.image.topic_ids[self._topic]
        return {TOPIC: self._topic, TOPIC_ID: topic_id, MODE: self.writer.mode.value}

    def _check_tables(self) -> None:
        for table in (self._target, self.writer.dead_letters):
            known = table.properties() if table.exists() else self._identity()
            for name, value in self._identity().items():
                if known.get(name) != value:
                    raise InvalidRequestError(
                        f"{table.name} has {name}={known.get(name)}, not {value}: give a table of its own, with a "
                        "checkpoint of its own, to each topic and mode, and to a topic that was created again"
                    )

    def prepare(self) -> None:
        """Make the table if it is not there, and the columns that the settings name. Queries and replays do it."""
        kept = self._config.kept(self.writer.mode)
        columns = ["_partition INT", "_offset BIGINT", "_timestamp TIMESTAMP"]
        columns += [column for part, column in _RAW.items() if part in kept]
        if not self._target.exists():
            there = {column.split()[0] for column in columns}
            first = [name for name in self._config.cluster_by if name in there]
            self._target.create(", ".join(columns), {**self._identity(), **NO_DELETION_VECTORS}, first)
        self._check_tables()
        self.writer.reader.grow(self._target)

    def _require_table(self) -> None:
        if not self._target.exists():
            raise InvalidRequestError(f"there is no table {self._target.name}: run the query first, which makes it")

    @property
    def _checkpoint(self) -> str:
        return self._config.checkpoint_location or f"{self._target.location.rstrip('/')}/{_CHECKPOINT_FOLDER}"

    # -- the query -----------------------------------------------------------------------------------------

    def start(self, *, available_now: bool = False, clock: Clock | None = None) -> StreamingQuery:
        """Start the query. It goes on until it is stopped; with `available_now`, up to what the topic has now."""
        clock = clock or SystemClock()
        self.prepare()
        upkeep = TableUpkeep(self.writer, self._config)
        stream = self._stream(upkeep, clock)
        if available_now:
            return stream.trigger(availableNow=True).start()
        query = stream.trigger(processingTime=f"{self._config.trigger_interval_ms} milliseconds").start()
        threading.Thread(target=self._keep_up, args=(query, upkeep, clock), daemon=True).start()
        return query

    def run_available(self, *, clock: Clock | None = None) -> TypedTableState:
        """Bring all records that are there now into the table, do what upkeep is due, and end."""
        clock = clock or SystemClock()
        self.start(available_now=True, clock=clock).awaitTermination()
        upkeep = TableUpkeep(self.writer, self._config)
        self._run_upkeep(upkeep, clock, lambda: self.progress().positions)
        return self.describe()

    def _stream(self, upkeep: TableUpkeep, clock: Clock) -> DataStreamWriter:
        query_id: list[str] = []
        checkpoint = self._checkpoint

        def write(records: DataFrame, batch_id: int) -> None:
            is_first = not query_id
            if is_first:
                query_id.append(self.progress().query_id)
            with self._turn:
                self.writer.write(records, Txn(query_id[0], batch_id), may_have_begun=is_first)
            self._run_upkeep(
                upkeep, clock, lambda: planned_positions(self._spark, self._checkpoint, batch_id, self._topic)
            )

        stream = self._records().writeStream.foreachBatch(write)
        return stream.option("checkpointLocation", checkpoint).queryName(f"typed table {self._target.name}")

    def _run_upkeep(self, upkeep: TableUpkeep, clock: Clock, positions: Positions) -> None:
        self._view.refresh()
        with self._turn:
            upkeep.run(clock.wall_ms(), self._view.image.erases.get(self._topic, {}), positions)

    def _keep_up(self, query: StreamingQuery, upkeep: TableUpkeep, clock: Clock) -> None:
        """Upkeep while no records come: an erasure does not wait for the next one."""
        with suppress(StreamingQueryException):  # who started the query gets it from there
            while not query.awaitTermination(IDLE_UPKEEP_S):
                self._run_upkeep(upkeep, clock, lambda: self.progress().positions)

    def _records(self) -> DataFrame:
        config = self._config
        options = {
            ROOT: self._root,
            "subscribe": self._topic,
            "columns": ",".join(RECORD),
            "kafka.isolation.level": config.isolation_level,
            "maxOffsetsPerTrigger": str(config.max_offsets_per_trigger),
            "startingOffsets": config.auto_offset_reset,
        }
        if config.group_id:
            options |= {
                "kafka.group.id": config.group_id,
                "startingOffsets": "group",
                "stratalog.auto.offset.reset": config.auto_offset_reset,
            }
        return self._streams.readStream.format("stratalog").options(**(options | self._source_options)).load()

    # -- beside it -----------------------------------------------------------------------------------------

    def replay(self) -> ReplayOutcome:
        """Read the dead letters again: those that fit now go to the table and leave the dead letters, exactly once."""
        self.prepare()
        with self._turn:
            return replay(self.writer, self.progress())

    def progress(self) -> QueryProgress:
        """How far the query is, by its checkpoint. InvalidRequestError if there is no table yet."""
        self._require_table()
        return query_progress(self._spark, self._checkpoint, self._topic)

    def describe(self) -> TypedTableState:
        """The state of the table, its query and its dead letters now."""
        progress, letters = self.progress(), self.writer.dead_letters
        self._view.refresh()
        ends = self._view.end_offsets(self._view.partitions(self._topic))
        lag = {place.partition: end - progress.positions.get(place.partition, 0) for place, end in ends.items()}
        errors: dict[str, int] = {}
        if letters.exists():
            errors = {row[0]: row[1] for row in letters.frame().groupBy("error").count().collect()}
        rows = self._target.frame().count()
        return TypedTableState(
            self._target.name, self._topic, self.writer.mode, progress, self._target.version(), rows, lag, errors
        )

    def describe_erasure(self, erase_id: int) -> list[TableErasure]:
        """What the table and its dead letters hold of an erasure. InvalidRequestError if the topic has no such one."""
        self._require_table()
        self._view.refresh()
        requests = self._view.image.erases.get(self._topic, {})
        if erase_id not in requests:
            raise InvalidRequestError(f"topic '{self._topic}' has no erasure {erase_id}, only {sorted(requests)}")
        return TableUpkeep(self.writer, self._config).report(requests[erase_id])
