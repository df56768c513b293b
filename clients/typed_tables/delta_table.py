"""A Delta table by path or catalog name: its columns, idempotent writes, upkeep. I/O: Spark and Delta Lake.

Every write has an application's id and a version, Delta's `txnAppId` and `txnVersion`: with a version that the table
has already it changes nothing. `MERGE` takes the pair from its session's settings, and `VACUUM` its retention check:
they change in sessions of typed tables alone (`sessions`), and in the one that Spark makes for each streaming query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from stratalog.clients.typed_tables.config import HOUR_MS, is_path
from stratalog.clients.typed_tables.layout import LOG_FILE
from stratalog.clients.typed_tables.rows.evolution import (
    RECORD_COLUMNS,
    SchemaChange,
    alterations,
    as_here,
    folded,
    quoted,
)
from stratalog.clients.typed_tables.sessions import StoredFile, file_name, files_of, is_classic, with_settings

_TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Into so many tasks VACUUM shares the names of files, however few there are; Spark's default is 10000."""
_TASKS_OF_SLOT = 4
_LOG_FOLDER = "_delta_log"
_WHOLE_CHECKPOINT = "checkpoint.parquet"


class Txn(NamedTuple):
    """The name of one write: an application and its number, which grows."""

    app_id: str
    version: int


class LogFile(NamedTuple):
    """A file of Delta's log: a commit, its checksum or a checkpoint, of a version."""

    name: str
    version: int
    modified_ms: int

    @classmethod
    def of(cls, file: StoredFile) -> LogFile | None:
        """None for a file without a version.

        >>> LogFile.of(StoredFile("00000000000000000007.json", 1))
        LogFile(name='00000000000000000007.json', version=7, modified_ms=1)
        """
        named = LOG_FILE.fullmatch(file.name)
        return None if named is None else cls(file.name, int(named[1]), file.modified_ms)


def outdated(files: Iterable[LogFile], before_ms: int) -> list[LogFile]:
    """The files of a log that a table does without: older than its newest checkpoint, and than a time.

    >>> files = [LogFile("0.json", 0, 10), LogFile("1.json", 1, 20), LogFile("1.checkpoint.parquet", 1, 30)]
    >>> [file.name for file in outdated(files, 100)], outdated(files, 10)
    (['0.json'], [])
    """
    there = list(files)
    newest = max((each.version for each in there if each.name.endswith(_WHOLE_CHECKPOINT)), default=0)
    return [each for each in there if each.version < newest and each.modified_ms < before_ms]


class TypedDelta:
    """One table, in a session whose settings may change. A query's session is passed to the calls that write for it."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark, self.name, self._files = spark, table, files_of(spark)
        self._location = self._files.qualified(table) if is_path(table) else None
        names = ["delta", self._absolute] if is_path(table) else table.split(".")
        self.sql = ".".join(map(quoted, names))
        """How SQL names it."""

    @property
    def _absolute(self) -> str:
        """The path as SQL needs it: below the working directory of Spark's file system if it is relative."""
        return self.name if self.name.startswith("/") or urlsplit(self.name).scheme else self.location

    def exists(self) -> bool:
        """Whether there is a Delta table."""
        if is_path(self.name) and not is_classic(self._spark):
            return bool(self.log_files())
        if is_path(self.name):
            from delta.tables import DeltaTable

            return bool(DeltaTable.isDeltaTable(self._spark, self.name))
        return bool(self._spark.catalog.tableExists(self.name))

    def create(self, columns: str, properties: Mapping[str, str], cluster_by: Sequence[str] = ()) -> bool:
        """Make the table; `columns` in SQL. False if it is there already."""
        clustering = f" CLUSTER BY ({', '.join(map(quoted, cluster_by))})" if cluster_by else ""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        try:
            self._spark.sql(f"CREATE TABLE {self.sql} ({columns}) USING delta{clustering} TBLPROPERTIES ({listed})")
        except (AnalysisException, DeltaConcurrentModificationException):
            if not self.exists():
                raise
            return False
        return True

    # -- what it is ----------------------------------------------------------------------------------------

    def frame(self, version: int | None = None) -> DataFrame:
        """Its rows, of the newest version if None."""
        return self._spark.sql(f"SELECT * FROM {self.sql}{'' if version is None else f' VERSION AS OF {version}'}")

    def columns(self) -> pa.DataType:
        """Its columns but those of a record's place, a struct."""
        fields = self.frame().schema.fields
        return arrow_columns(StructType([each for each in fields if folded(each.name) not in RECORD_COLUMNS]))

    def column_names(self) -> list[str]:
        """The names of all columns."""
        return list(self.frame().columns)

    def properties(self) -> dict[str, str]:
        """Table properties. Delta folds the table's log for them."""
        return {row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self.sql}").collect()}

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Change table properties."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({listed})")

    def detail(self, column: str) -> object:
        """A column of DESCRIBE DETAIL."""
        value: object = self._spark.sql(f"DESCRIBE DETAIL {self.sql}").select(column).first()[0]  # type: ignore[index]
        return value

    @property
    def location(self) -> str:
        """The URL of its folder. That of a name in the catalog is asked for once."""
        if self._location is None:
            self._location = str(self.detail("location"))
        return self._location

    def version(self) -> int:
        """Its newest version: that of the newest file of its log, or for a name in the catalog of its history."""
        if is_path(self.name):
            return max((each.version for each in self.log_files()), default=0)
        newest = self._spark.sql(f"DESCRIBE HISTORY {self.sql} LIMIT 1").first()
        assert newest is not None
        return int(newest["version"])

    def fold(self) -> None:
        """Have Delta fold the log of the newest version, and keep it for the next write, which looks up its txn there.

        An error is left to that write.
        """
        with suppress(Exception):
            self._spark.sql(f"DESCRIBE DETAIL {self.sql}").collect()

    # -- writes --------------------------------------------------------------------------------------------

    def alter(self, change: SchemaChange) -> None:
        """Grow into a change: after a failure between two statements, the rest of it is a change again."""
        for statement in alterations(self.sql, change):
            self._spark.sql(statement)

    def append(self, rows: DataFrame, txn: Txn) -> None:
        """Add rows, by the names of their columns."""
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", txn.app_id).option("txnVersion", txn.version)
        if is_path(self.name):
            writer.save(self.name)
        else:
            writer.saveAsTable(self.name)

    def change(self, statement: str, txn: Txn, session: SparkSession | None = None) -> None:
        """Run a MERGE, an UPDATE or a DELETE."""
        with with_settings(session or self._spark, {_TXN_APP_ID: txn.app_id, _TXN_VERSION: str(txn.version)}) as spark:
            spark.sql(statement).collect()

    def delete(self, condition: str) -> int:
        """Delete the rows for which the condition is true, which may be done again; how many."""
        deleted = self._spark.sql(f"DELETE FROM {self.sql} WHERE {condition}").first()
        return int(deleted["num_affected_rows"]) if deleted is not None else 0

    # -- upkeep --------------------------------------------------------------------------------------------

    def cluster(self, columns: Sequence[str]) -> None:
        """Cluster by those of the columns that exist, if it is not so already."""
        there = {folded(name): name for name in self.column_names()}
        wanted = [there[folded(name)] for name in columns if folded(name) in there]
        if wanted and wanted != self.detail("clusteringColumns"):
            self._spark.sql(f"ALTER TABLE {self.sql} CLUSTER BY ({', '.join(map(quoted, wanted))})")

    def optimize(self) -> None:
        """Rewrite small files as larger ones, clustered if the table is."""
        self._spark.sql(f"OPTIMIZE {self.sql}").collect()

    def purge(self) -> None:
        """Rewrite files with rows that are only marked as deleted, which a table of another maker may have."""
        if self.properties().get("delta.enableDeletionVectors") == "true":
            self._spark.sql(f"REORG TABLE {self.sql} APPLY (PURGE)").collect()

    def vacuum(self, retention_ms: int) -> None:
        """Delete files that left the table more than `retention_ms` ago."""
        tasks = _TASKS_OF_SLOT * (self._spark.sparkContext.defaultParallelism if is_classic(self._spark) else 1)
        with with_settings(self._spark, {_RETENTION_CHECK: "false", _LISTING_TASKS: str(tasks)}) as spark:
            spark.sql(f"VACUUM {self.sql} RETAIN {retention_ms / HOUR_MS:.6f} HOURS").collect()

    def left_files(self, before_ms: int) -> int:
        """How many data files on storage are not of the newest version and were written before a time."""
        live = {file_name(each) for each in self.frame().inputFiles()}
        stored = self._files.data_files(self.location)
        return sum(each.name not in live and each.modified_ms < before_ms for each in stored)

    # -- its log -------------------------------------------------------------------------------------------

    def log_files(self, before_ms: int | None = None) -> list[LogFile]:
        """The files of Delta's log with a version; with a time those that were written before it."""
        found = [each for each in map(LogFile.of, self._files.files(self._log_folder)) if each is not None]
        return [each for each in found if before_ms is None or each.modified_ms < before_ms]

    def forget_log(self, before_ms: int) -> None:
        """Delete what Delta's log has from before a time: its statistics have the least and the largest value of
        columns in files that are gone, and its history the conditions of deletions.

        Delta itself does it after `delta.logRetentionDuration`, in whole days. A session of Spark Connect deletes no
        file, and leaves it to Delta.
        """
        if not self.log_files(before_ms) or not is_classic(self._spark):
            return
        self._checkpoint()
        for each in outdated(self.log_files(), before_ms):
            self._files.delete(f"{self._log_folder}/{each.name}")

    @property
    def _log_folder(self) -> str:
        return f"{self.location.rstrip('/')}/{_LOG_FOLDER}"

    def _checkpoint(self) -> None:
        """Have Delta write a checkpoint of the newest version."""
        session, jvm = self._spark._jsparkSession, cast(Any, self._spark.sparkContext._jvm)
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self.location).checkpoint()


def arrow_columns(schema: StructType) -> pa.DataType:
    """The columns of a schema of Spark's as a struct."""
    return as_here(pa.struct(list(to_arrow_schema(schema, timezone="UTC"))))
