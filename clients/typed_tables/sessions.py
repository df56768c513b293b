"""The sessions of typed tables of both kinds: their own settings, and the files that Spark sees. I/O: Spark.

A classic session has a JVM, whose file systems are asked. A session of Spark Connect has none: there Spark's readers
list and read files, and nothing of ours deletes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog.clients.spark.registration import java_texts
from stratalog.storage.errors import InvalidRequestError

_SNAPSHOT_TASKS, SNAPSHOT_TASKS_MAX = "spark.databricks.delta.snapshotPartitions", 50
"""Into so many tasks Delta divides the fold of a table's log, however short it is; its default, which is the most here,
costs a small cluster more than the fold."""
_SNAPSHOT_TASKS_UNSEEN = 4
"""The same over Spark Connect, which does not say how many slots there are."""
_OWN = "spark.stratalog.typed.tables.session"
"""Marks a session of Spark Connect as a typed table's own: the process in which a query writes its batches gets it."""


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has a JVM, and is not one of Spark Connect."""
    return isinstance(spark, SparkSession)


def own_session(spark: SparkSession) -> SparkSession:
    """A session beside another one, with the settings, the catalog and the database that the other one has now.

    Its own settings may change. Temporary views and functions of the other one are not in it; over Spark Connect they
    are, as it is a clone.
    """
    if not is_classic(spark):
        return _own_of_connect(spark)
    own = spark.newSession()
    surplus, others = _differences(own, spark)
    for name in surplus:
        own.conf.unset(name)
    for name, value in others.items():
        with suppress(AnalysisException):  # a static setting, which sessions share
            own.conf.set(name, value)
    own.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
    own.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    settle(own)
    return own


def _own_of_connect(spark: Any) -> SparkSession:
    import delta.connect  # noqa: F401 - makes Delta's errors of conflicts those of `delta.exceptions`

    if spark.conf.get(_OWN, None) is not None:
        return spark  # type: ignore[no-any-return]
    own: SparkSession = spark.cloneSession()
    own.conf.set(_OWN, "true")
    settle(own)
    return own


def settle(own: SparkSession) -> None:
    """Give a session of typed tables the settings that the user's own has not chosen.

    A fold of a table's log has a task for each slot.
    """
    if own.conf.get(_SNAPSHOT_TASKS, None) is None:
        slots = own.sparkContext.defaultParallelism if is_classic(own) else _SNAPSHOT_TASKS_UNSEEN
        own.conf.set(_SNAPSHOT_TASKS, str(min(SNAPSHOT_TASKS_MAX, max(1, slots))))


def _differences(own: SparkSession, wanted: SparkSession) -> tuple[list[str], dict[str, str]]:
    """The names of settings that `wanted` lacks, and its settings that `own` lacks or has otherwise.

    The JVM compares, so that the settings which are the same are not read.
    """
    jvm = own.sparkContext._jvm
    assert jvm is not None
    new_map = jvm.java.util.HashMap
    made_with, others = (new_map(each.conf._jconf.getAllAsJava()) for each in (own, wanted))
    others.entrySet().removeAll(made_with.entrySet())
    made_with.keySet().removeAll(wanted.conf._jconf.getAllAsJava().keySet())
    changed = {name: wanted.conf.get(name) or "" for name in java_texts(wanted, others.keySet())}
    return java_texts(own, made_with.keySet()), changed


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with settings, which has those of before again afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name in settings:
        spark.conf.set(name, settings[name])
    try:
        yield spark
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


# -- files -------------------------------------------------------------------------------------------------


class StoredFile(NamedTuple):
    """A file in a table's folder."""

    name: str
    modified_ms: int


class SessionFiles(Protocol):
    """The files of the file systems that a session sees, by URLs."""

    def qualified(self, path: str) -> str:
        """The URL of a path. InvalidRequestError where only an absolute one is known."""

    def text(self, url: str) -> str | None:
        """The text of a file; None if there is none."""

    def files(self, url: str) -> list[StoredFile]:
        """The files of a folder; none if there is no folder."""

    def data_files(self, url: str) -> list[StoredFile]:
        """The data files below a folder; Delta's log and hidden folders have none."""

    def delete(self, url: str) -> bool:
        """Delete a file. False where the session cannot."""


def files_of(spark: SparkSession) -> SessionFiles:
    """The files that a session sees."""
    return _ClassicFiles(spark) if is_classic(spark) else _ConnectFiles(spark)


class _ClassicFiles:
    """By Hadoop's file systems, in the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()

    def qualified(self, path: str) -> str:
        found, files = self._path(path)
        return str(files.makeQualified(found).toString())

    def text(self, url: str) -> str | None:
        path, files = self._path(url)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def files(self, url: str) -> list[StoredFile]:
        path, files = self._path(url)
        if not files.exists(path):
            return []
        return [_stored(status) for status in files.listStatus(path) if not status.isDirectory()]

    def data_files(self, url: str) -> list[StoredFile]:
        folder, files = self._path(url)
        found, open_folders = [], [folder]
        while open_folders:
            for status in files.listStatus(open_folders.pop()):
                path = status.getPath()
                if str(path.getName()).startswith(("_", ".")):
                    continue
                if status.isDirectory():
                    open_folders.append(path)
                elif str(path.getName()).endswith(".parquet"):
                    found.append(_stored(status))
        return found

    def delete(self, url: str) -> bool:
        path, files = self._path(url)
        return bool(files.delete(path, False))

    def _path(self, url: str) -> tuple[Any, Any]:
        """A path, and its file system."""
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return path, path.getFileSystem(self._conf)


def _stored(status: Any) -> StoredFile:
    return StoredFile(str(status.getPath().getName()), int(status.getModificationTime()))


class _ConnectFiles:
    """By Spark's readers, at the server. Source: `org.apache.spark.sql.execution.datasources.binaryfile`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def qualified(self, path: str) -> str:
        if not path.startswith("/") and not urlsplit(path).scheme:
            raise InvalidRequestError(
                f"'{path}' is relative, and over Spark Connect nothing says to which folder: give an absolute path, a "
                "URL or a name in the catalog"
            )
        return path

    def text(self, url: str) -> str | None:
        with suppress(AnalysisException):  # there is no such path
            row = self._spark.read.text(url, wholetext=True).first()
            return "" if row is None else str(row[0])
        return None

    def files(self, url: str) -> list[StoredFile]:
        return self._listed(self._spark.read.format("binaryFile"), url)

    def data_files(self, url: str) -> list[StoredFile]:
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        return self._listed(reader.option("pathGlobFilter", "*.parquet"), url)

    def delete(self, url: str) -> bool:
        del url
        return False

    def _listed(self, reader: Any, url: str) -> list[StoredFile]:
        with suppress(AnalysisException):  # there is no such path
            frame: DataFrame = reader.load(url).select("path", sf.unix_millis("modificationTime"))
            return [StoredFile(file_name(path), modified_ms) for path, modified_ms in frame.collect()]
        return []


def file_name(url: str) -> str:
    """The last part of a URL."""
    return url.rsplit("/", 1)[-1]
