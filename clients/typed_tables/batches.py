"""A batch of a query in the table and its dead letters, each exactly once. I/O: Spark and Delta Lake.

Dead letters are written first, the table last, both with the query's id and the batch's number as Delta's txn. A run
that was killed between the two begins the same batch again: then records that one of the tables has are left out, so
that each is in one of them, also when a schema was registered meanwhile and the batch is read differently.

In upsert the table has the newest record of each key, and the dead letters only what came after it: an older one would
lose against the row anyway, and could bring back a key that was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from stratalog.clients.typed_tables.config import HEADERS, KEY, VALUE, OnError, TypedTableConfig, WriteMode
from stratalog.clients.typed_tables.delta_table import Txn, TypedDelta
from stratalog.clients.typed_tables.rows.evolution import quoted
from stratalog.clients.typed_tables.rows.reading import ERROR_COLUMN, READ_COLUMN
from stratalog.clients.typed_tables.rows.values import RECORD, TOMBSTONE_COLUMN, ReadRows, ValueReader
from stratalog.storage.errors import SerializationError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.typed_tables")
_ROWS_VIEW, _NEWER_VIEW, _LETTERS_VIEW = "stratalog_rows", "stratalog_newer_rows", "stratalog_letters"
"""Temporary views in the session of a query, as SQL names frames."""
_SHOWN = 3
CONFLICTS_MAX = 5
CONFLICTS = (
    MetadataChangedException, ProtocolChangedException, ConcurrentAppendException, ConcurrentDeleteReadException,
    ConcurrentDeleteDeleteException,
)  # fmt: skip
"""Delta's errors of a commit that another writer came before. ConcurrentTransactionException, of the same txn, is not
among them."""
NO_DELETION_VECTORS = {"delta.enableDeletionVectors": "false"}
"""So that a deleted row is in no file of the newest version."""
DEAD_LETTER_COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, error STRING, query_id STRING, batch_id BIGINT, "
    "failed_at TIMESTAMP"
)
NEWER = (
    "coalesce(CASE WHEN s._partition = t._partition THEN s._offset > t._offset "
    "ELSE s._timestamp > t._timestamp END, false)"
)
"""Whether a record `s` is newer than a row `t` of the same key: by offset, or in another partition by time."""
OLDER = (
    "coalesce(CASE WHEN s._partition = t._partition THEN s._offset < t._offset "
    "ELSE s._timestamp < t._timestamp END, false)"
)
_PLACES = ("_partition", "_offset", "_timestamp", "_key")
LETTERS_OF_FILE = 100_000
"""Dead letters of a batch up to which they are one file, however many tasks have read them."""


class BatchOutcome(NamedTuple):
    """What became of a batch: rows read, and of these the ones that did not fit."""

    row_count: int
    error_count: int


class TableWriter:
    """Writes batches of one topic. The tables exist; that of dead letters may be made at its first row."""

    def __init__(
        self, topic: str, target: TypedDelta, dead_letters: TypedDelta, reader: ValueReader, config: TypedTableConfig,
        mode: WriteMode,
    ) -> None:  # fmt: skip
        self._topic, self.target, self.dead_letters = topic, target, dead_letters
        self.reader, self._config, self.mode = reader, config, mode
        self.letter_properties: Mapping[str, str] = {}
        """Properties of the table of dead letters, when it is made."""

    def write(self, records: DataFrame, batch: Txn, *, may_have_begun: bool) -> BatchOutcome:
        """Write a batch once. `may_have_begun`: an earlier run may have written a part of it.

        Begins again after a conflict with another writer of the tables, such as a replay that altered them; another run
        of the same query is none of these, and ends this one.
        """
        for _ in range(CONFLICTS_MAX):
            try:
                return self._write(records, batch, may_have_begun=may_have_begun)
            except CONFLICTS as reason:
                _LOG.warning("batch %d of %s begins again: %s", batch.version, self._topic, type(reason).__name__)
                may_have_begun = True
        return self._write(records, batch, may_have_begun=may_have_begun)

    def _write(self, records: DataFrame, batch: Txn, *, may_have_begun: bool) -> BatchOutcome:
        read = self.reader.read(records, self.target)
        try:
            if may_have_begun:
                read = self._without_written(read, batch)
            if read.error_count:
                self.write_errors(read, batch, may_have_begun=may_have_begun)
            if self.mode == WriteMode.UPSERT and read.row_count > read.error_count and self.dead_letters.exists():
                self._supersede(read)
            if read.row_count:
                self.write_rows(read, batch)
        finally:
            read.release()
        return BatchOutcome(read.row_count, read.error_count)

    # -- the table -----------------------------------------------------------------------------------------

    def write_rows(self, read: ReadRows, txn: Txn) -> None:
        """The rows that fit, into the table."""
        fitting = _fitting(read)
        if self.mode == WriteMode.APPEND:
            values = [sf.col(READ_COLUMN)[name].alias(name) for name in read.columns]
            self.target.append(fitting.select(*self._parts().values(), *values), txn)
            return
        newest = newest_of_keys(fitting).select(*self._parts().values(), READ_COLUMN, TOMBSTONE_COLUMN)
        newest.createOrReplaceTempView(_ROWS_VIEW)
        self.target.change(self._merge(read), txn, read.frame.sparkSession)

    def _parts(self) -> dict[str, Column]:
        """The columns of a record's place and of its raw parts, by the table's names."""
        kept = self._config.kept(self.mode)
        raw = [part for part in (KEY, VALUE, HEADERS) if part in kept]
        return {f"_{name}": sf.col(name).alias(f"_{name}") for name in ("partition", "offset", "timestamp", *raw)}

    def _merge(self, read: ReadRows) -> str:
        """The fields of values stay in a struct, as no column beside them may have a name that one of them may have."""
        source = {name: f"s.{name}" for name in self._parts()}
        source |= {quoted(name): f"s.{READ_COLUMN}.{quoted(name)}" for name in read.columns}
        assigned = [f"t.{name} = {each}" for name, each in source.items()]
        return (
            f"MERGE INTO {self.target.sql} t USING {_ROWS_VIEW} s ON t._key = s._key "
            f"WHEN MATCHED AND {NEWER} AND s.{TOMBSTONE_COLUMN} THEN DELETE "
            f"WHEN MATCHED AND {NEWER} THEN UPDATE SET {', '.join(assigned)} "
            f"WHEN NOT MATCHED AND NOT s.{TOMBSTONE_COLUMN} THEN INSERT ({', '.join(source)}) "
            f"VALUES ({', '.join(source.values())})"
        )

    # -- dead letters --------------------------------------------------------------------------------------

    def make_dead_letters(self) -> None:
        """Make the table of dead letters if it is not there."""
        if not self.dead_letters.exists():
            self.dead_letters.create(DEAD_LETTER_COLUMNS, {**self.letter_properties, **NO_DELETION_VECTORS})

    def write_errors(self, read: ReadRows, batch: Txn, *, may_have_begun: bool) -> None:
        """The rows that do not fit, as `on.error` has it. SerializationError with `suspend`."""
        bad = read.frame.where(sf.col(ERROR_COLUMN).isNotNull())
        if self.mode == WriteMode.UPSERT:
            bad = self._not_outdone(bad, read, may_have_begun=may_have_begun)
        if self._config.on_error == OnError.SUSPEND:
            self._suspend(bad, read.error_count)
            return
        if self._config.on_error == OnError.SKIP:
            _LOG.warning("batch %d of %s: %d records do not fit and are dropped", batch.version, self._topic,
                         read.error_count)  # fmt: skip
            return
        self.make_dead_letters()
        letters = bad.select(
            sf.lit(self._topic).alias("topic"), *RECORD, ERROR_COLUMN, sf.lit(batch.app_id).alias("query_id"),
            sf.lit(batch.version).cast("bigint").alias("batch_id"), sf.current_timestamp().alias("failed_at"),
        )  # fmt: skip
        txn = Txn(f"{batch.app_id}.dlq", batch.version)
        if may_have_begun:
            written = self._letters_of(batch).count()
            txn = Txn(f"{txn.app_id}.{batch.version}", written) if written else txn
        self.dead_letters.append(letters.repartition(1 + read.error_count // LETTERS_OF_FILE), txn)

    def _not_outdone(self, bad: DataFrame, read: ReadRows, *, may_have_begun: bool) -> DataFrame:
        """What does not fit and is newer than all of its key that does."""
        placed = with_places(bad).alias("t")
        newest = with_places(newest_of_keys(_fitting(read))).alias("s")
        left = placed.join(newest, sf.expr(f"s._key = t._key AND {NEWER}"), "left_anti")
        if may_have_begun:
            rows = self.target.frame().select(*_PLACES).alias("s")
            left = left.join(rows, sf.expr(f"s._key = t._key AND NOT {OLDER}"), "left_anti")
        return left.select(*read.frame.columns)

    def _supersede(self, read: ReadRows) -> None:
        """Remove dead letters that are older than a record of their key that fits."""
        newest = with_places(newest_of_keys(_fitting(read))).select(*_PLACES)
        self.remove_letters(newest, f"s._key = t._key AND {NEWER}")

    def remove_letters(self, rows: DataFrame, condition: str) -> None:
        """Delete the dead letters `t` with a row `s` by a condition on `_PLACES`, which may be done again."""
        places = ", ".join(f"{name[1:]} {name}" for name in _PLACES)
        session = rows.sparkSession
        rows.createOrReplaceTempView(_NEWER_VIEW)
        letters = session.sql(
            f"SELECT DISTINCT t._partition, t._offset FROM (SELECT {places} FROM {self.dead_letters.sql}) t "
            f"JOIN {_NEWER_VIEW} s ON {condition}"
        ).persist()
        try:
            if letters.count():
                letters.createOrReplaceTempView(_LETTERS_VIEW)
                session.sql(
                    f"MERGE INTO {self.dead_letters.sql} t USING {_LETTERS_VIEW} s "
                    "ON t.partition = s._partition AND t.offset = s._offset WHEN MATCHED THEN DELETE"
                ).collect()
        finally:
            letters.unpersist()

    def _suspend(self, bad: DataFrame, count: int) -> None:
        rows = bad.select("partition", "offset", ERROR_COLUMN).orderBy("partition", "offset").limit(_SHOWN).collect()
        shown = "; ".join(f"{self._topic}-{row[0]} offset {row[1]}: {row[2]}" for row in rows)
        if rows:
            raise SerializationError(
                f"{count} records do not fit, and on.error=suspend: {shown}. Nothing of the batch was written: correct "
                "schema or table and start again, or set on.error=dlq"
            )

    def _letters_of(self, batch: Txn) -> DataFrame:
        letters = self.dead_letters.frame()
        return letters.where((sf.col("query_id") == batch.app_id) & (sf.col("batch_id") == batch.version))

    # -- begun before --------------------------------------------------------------------------------------

    def _without_written(self, read: ReadRows, batch: Txn) -> ReadRows:
        """The batch without records that an earlier run has brought into one of the tables."""
        first, last = read.offsets
        frame = read.frame
        if self.mode == WriteMode.APPEND:
            rows = self.target.frame().where(sf.col("_offset").between(first, last))
            frame = frame.join(_places(rows, "_partition", "_offset"), ["partition", "offset"], "left_anti")
        if self.dead_letters.exists():
            letters = _places(self._letters_of(batch), "partition", "offset")
            frame = frame.join(letters, ["partition", "offset"], "left_anti")
        left = frame.select(*read.frame.columns).persist()
        counted = left.agg(sf.count(sf.lit(1)), sf.count(ERROR_COLUMN)).first()
        assert counted is not None
        read.release()
        return read._replace(frame=left, row_count=counted[0], error_count=counted[1])


def _places(rows: DataFrame, partition: str, offset: str) -> DataFrame:
    return rows.select(sf.col(partition).alias("partition"), sf.col(offset).alias("offset"))


def newest_of_keys(rows: DataFrame) -> DataFrame:
    """The newest row of each key of `RECORD`: by offset in each partition, then by time."""
    by_key = rows.repartition("key")
    in_partition = Window.partitionBy("key", "partition").orderBy(sf.col("offset").desc())
    over_partitions = Window.partitionBy("key").orderBy(
        sf.col("timestamp").desc_nulls_last(), sf.col("partition").desc()
    )
    ranked = by_key.withColumn("_rank", sf.row_number().over(in_partition)).where("_rank = 1")
    return ranked.withColumn("_rank", sf.row_number().over(over_partitions)).where("_rank = 1").drop("_rank")


def with_places(rows: DataFrame) -> DataFrame:
    """Rows of `RECORD` with the columns of their places as tables have them."""
    return rows.withColumns({name: sf.col(name[1:]) for name in _PLACES})


def _fitting(read: ReadRows) -> DataFrame:
    return read.frame.where(sf.col(ERROR_COLUMN).isNull())
