"""A topic as a typed Delta table: a streaming query, its dead letters, its upkeep.

I/O: Spark and Delta Lake, the cluster's storage, the registry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import cast

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from stratalog.clients.schemas.schema import SchemaRegistry
from stratalog.clients.schemas.schema_folder import SchemaFolder
from stratalog.clients.spark.option_names import ROOT
from stratalog.clients.spark.options import stream_options
from stratalog.clients.spark.sql.registry_columns import RegistryGiven, RegistryPlace
from stratalog.clients.spark.worker import view_of
from stratalog.clients.typed_tables.batches import NO_DELETION_VECTORS, TableWriter
from stratalog.clients.typed_tables.checkpoint import planned_positions, query_progress
from stratalog.clients.typed_tables.config import (
    HEADERS,
    KEY,
    VALUE,
    TypedTableConfig,
    WriteMode,
    check_registry,
    dead_letter_table,
    is_path,
    split_source_options,
    write_mode,
)
from stratalog.clients.typed_tables.delta_table import Txn, TypedDelta
from stratalog.clients.typed_tables.erasure import TableErasure
from stratalog.clients.typed_tables.layout import CHECKPOINT_FOLDER, MODE, TOPIC, TOPIC_ID, QueryProgress
from stratalog.clients.typed_tables.notes import TypedTableNote, leave_note
from stratalog.clients.typed_tables.replay import ReplayOutcome, replay
from stratalog.clients.typed_tables.rows.values import RECORD, ValueReader
from stratalog.clients.typed_tables.sessions import is_classic, own_session, settle
from stratalog.clients.typed_tables.upkeep import Positions, TableUpkeep, of_new_table
from stratalog.server.admin.erasure import ends_left
from stratalog.server.bootstrap import Cluster, root_of
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidRequestError

IDLE_UPKEEP_S = 30
Batches = Callable[[DataFrame, int], None]
"""What Spark calls with the records of each batch and its number."""
_RAW = {KEY: "_key BINARY", VALUE: "_value BINARY", HEADERS: "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>"}


@dataclass(frozen=True, slots=True)
class TypedTableState:
    """How a typed table stands.

    lag             records of the topic behind the newest batch that is done, by partition
    dead_letters    error -> number of dead letters
    count_rows      counts the rows of the version, once
    """

    table: str
    topic: str
    mode: WriteMode
    progress: QueryProgress
    version: int
    count_rows: Callable[[], int] = field(repr=False, compare=False)
    lag: Mapping[int, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """All rows of the version. They are counted when this is asked for first: Delta folds the table's log for it,
        which a run that nobody asks need not wait for."""
        return self.count_rows()

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
        self._spark = own_session(spark)
        self._streams = spark if is_classic(spark) else self._spark
        """The session in which queries are started and listened to, the user's in a classic one, and the one for
        everything else."""
        self._root, self._topic = root_of(cluster), topic
        self._given, self._registry = config, registry
        self._view = self._view_of_cluster()
        self._view.partitions(topic)
        mode = write_mode(self._config, self._view.topic_config(topic).cleanup_policy)
        self._target = TypedDelta(self._spark, table)
        reader = ValueReader(self._spark, self._config, mode, registry)
        letters = TypedDelta(self._spark, dead_letter_table(table, self._config))
        self.writer = TableWriter(topic, self._target, letters, reader, self._config, mode)
        self.writer.letter_properties = self._identity()
        self._properties: dict[str, str] | None = None
        """Of the table, once it was made or checked for the next run; None before."""
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

    def _check_tables(self, made: Mapping[str, str] | None = None) -> None:
        """InvalidRequestError for tables of another topic or mode. `made`: the table's properties if just made."""
        self._properties = dict(made or self._target.properties())
        letters = self.writer.dead_letters
        for table in (self._target, letters):
            known = self._properties
            if table is letters:
                known = letters.properties() if letters.exists() else self._identity()
            for name, value in self._identity().items():
                if known.get(name) != value:
                    raise InvalidRequestError(
                        f"{table.name} has {name}={known.get(name)}, not {value}: give a table of its own, with a "
                        "checkpoint of its own, to each topic and mode, and to a topic that was created again"
                    )

    def prepare(self, clock: Clock | None = None) -> None:
        """Make the table if it is not there, with the columns that the settings name, in one commit; give an older one
        those that it lacks. Queries and replays do it."""
        if not self._target.exists():
            self._make((clock or SystemClock()).wall_ms())
        elif self._properties is None:
            self._check_tables()
        self.writer.reader.grow(self._target)
        leave_note(self._view.stores.objects(self._root), self._note())

    def _note(self) -> TypedTableNote:
        """What others who know the cluster may know of the table. Passwords of a registry are not in it."""
        letters, topic_id = self.writer.dead_letters, self._view.image.topic_ids[self._topic]
        is_known = is_path(letters.name) or letters.exists()
        registry: dict[str, str] = {}
        if isinstance(self._registry, SchemaFolder):
            registry = {"topic": self._registry.topic}
        elif isinstance(self._registry, SchemaRegistryClient):
            registry = {"url": ",".join(self._registry.config.url)}
        own, _ = split_source_options(self._given)
        return TypedTableNote(
            self._target.location,
            self._target.name,
            letters.location if is_known else "",
            self._checkpoint,
            self._topic,
            topic_id,
            self.writer.mode.value,
            {name: spelled(value) for name, value in own.items()},
            registry,
        )

    def _make(self, now_ms: int) -> None:
        kept = self._config.kept(self.writer.mode)
        columns = ["_partition INT", "_offset BIGINT", "_timestamp TIMESTAMP"]
        columns += [column for part, column in _RAW.items() if part in kept]
        there = {column.split()[0] for column in columns}
        first = [name for name in self._config.cluster_by if name in there]
        properties = {**self._identity(), **NO_DELETION_VECTORS, **of_new_table(now_ms)}
        is_made = self._target.create(", ".join([*columns, *self.writer.reader.first_columns()]), properties, first)
        self._check_tables(properties if is_made else None)

    def _prepared(self, clock: Clock) -> TableUpkeep:
        """The upkeep of a new run. The properties that it begins with are not those of a later run.

        While Spark starts the query, Delta folds the table's log, for which the first batch would wait.
        """
        self.prepare(clock)
        threading.Thread(target=self._target.fold, daemon=True).start()
        known, self._properties = self._properties, None
        return TableUpkeep(self.writer, self._config, known)

    def _require_table(self) -> None:
        if not self._target.exists():
            raise InvalidRequestError(f"there is no table {self._target.name}: run the query first, which makes it")

    @property
    def _checkpoint(self) -> str:
        return self._config.checkpoint_location or f"{self._target.location.rstrip('/')}/{CHECKPOINT_FOLDER}"

    # -- the query -----------------------------------------------------------------------------------------

    def start(self, *, available_now: bool = False, clock: Clock | None = None) -> StreamingQuery:
        """Start the query. It goes on until it is stopped; with `available_now`, up to what the topic has now."""
        clock = clock or SystemClock()
        upkeep = self._prepared(clock)
        if available_now:
            return self._start_available(upkeep, clock)
        stream = self._stream(upkeep, clock)
        query = stream.trigger(processingTime=f"{self._config.trigger_interval_ms} milliseconds").start()
        if not is_classic(self._streams):  # its batches are written in another process, beside which nothing is to run
            return query
        threading.Thread(target=self._keep_up, args=(query, upkeep, clock), daemon=True).start()
        return query

    def _start_available(self, upkeep: TableUpkeep, clock: Clock) -> StreamingQuery:
        return self._stream(upkeep, clock).trigger(availableNow=True).start()

    def run_available(self, *, clock: Clock | None = None) -> TypedTableState:
        """Bring all records that are there now into the table, do what upkeep is due, and end."""
        clock = clock or SystemClock()
        upkeep = self._prepared(clock)
        self._start_available(upkeep, clock).awaitTermination()
        self._run_upkeep(upkeep, clock, lambda: self.progress().positions)
        return self.describe()

    def _stream(self, upkeep: TableUpkeep, clock: Clock) -> DataStreamWriter:
        checkpoint = self._checkpoint
        earlier = query_progress(self._spark, checkpoint, self._topic)
        if is_classic(self._streams):
            write = self.batches(upkeep, clock, earlier.planned_batch)
        else:
            place = None if self._registry is None else RegistryPlace.of(cast(RegistryGiven, self._registry))
            write = _BatchesOfConnect(
                self._root, self._topic, self._target.name, dict(self._given), place, clock, earlier.planned_batch
            )
        stream = self._records().writeStream.foreachBatch(write)
        return stream.option("checkpointLocation", checkpoint).queryName(f"typed table {self._target.name}")

    def batches(self, upkeep: TableUpkeep, clock: Clock, planned_batch: int) -> Batches:
        """What writes each batch of a new run of the query, and does upkeep after it.

        planned_batch  the newest batch that an earlier run has planned: it may have written a part of it
        """
        query_id: list[str] = []

        def write(records: DataFrame, batch_id: int) -> None:
            if not query_id:
                settle(records.sparkSession)
                query_id.append(self.progress().query_id)
            with self._turn:
                self.writer.write(records, Txn(query_id[0], batch_id), may_have_begun=batch_id <= planned_batch)
            self._run_upkeep(
                upkeep, clock, lambda: planned_positions(self._spark, self._checkpoint, batch_id, self._topic)
            )

        return write

    def _run_upkeep(self, upkeep: TableUpkeep, clock: Clock, positions: Positions) -> None:
        self._view.refresh()
        with self._turn:
            requests = self._view.image.erases.get(self._topic, {})
            upkeep.run(clock.wall_ms(), requests, positions, partial(ends_left, self._view))

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
        ends = self._view.offsets.end_offsets(self._view.partitions(self._topic))
        lag = {place.partition: end - progress.positions.get(place.partition, 0) for place, end in ends.items()}
        errors: dict[str, int] = {}
        if letters.exists():
            errors = {row[0]: row[1] for row in letters.frame().groupBy("error").count().collect()}
        target = self._target
        version = target.version()
        count_rows = cache(lambda: target.frame(version).count())
        return TypedTableState(target.name, self._topic, self.writer.mode, progress, version, count_rows, lag, errors)

    def describe_erasure(self, erase_id: int) -> list[TableErasure]:
        """What the table and its dead letters hold of an erasure. InvalidRequestError if the topic has no such one."""
        self._require_table()
        self._view.refresh()
        requests = self._view.image.erases.get(self._topic, {})
        if erase_id not in requests:
            raise InvalidRequestError(f"topic '{self._topic}' has no erasure {erase_id}, only {sorted(requests)}")
        request = replace(requests[erase_id], end_offsets=ends_left(self._view, requests[erase_id]))
        return TableUpkeep(self.writer, self._config).report(request)


@dataclass(slots=True)
class _BatchesOfConnect:
    """The batches of a query over Spark Connect, whose server calls this in a process of its own: it has no part of the
    client's process, and makes the table's parts again with the session that it gets."""

    root: str
    topic: str
    table: str
    config: Mapping[str, object]
    registry: RegistryPlace | None
    clock: Clock
    planned_batch: int
    _write: Batches | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        if self._write is None:
            registry = None if self.registry is None else self.registry.opened()
            table = TypedTable(records.sparkSession, self.root, self.topic, self.table, self.config, registry)
            table.writer.reader.grow(table.writer.target)
            upkeep = TableUpkeep(table.writer, TypedTableConfig.from_settings(split_source_options(self.config)[0]))
            self._write = table.batches(upkeep, self.clock, self.planned_batch)
        self._write(records, batch_id)
