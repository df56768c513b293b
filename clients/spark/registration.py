"""The format `stratalog` in sessions whose Python workers do not find it by themselves, and what sessions give it.

I/O: Spark's settings; starts the Python of Spark's workers to see what it can import.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from stratalog.clients.spark.option_names import STORAGE
from stratalog.clients.spark.source.source import source_of_session
from stratalog.replication.fast_start.environment import FAST_START, fast_python
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.extras import check_pyspark
from stratalog.storage.objects.store_settings import StoreSettings

_OF_SESSION = f"spark.{STORAGE}"


def register_data_source(spark: SparkSession) -> None:
    """Make `format("stratalog")` known to a session whose Python workers do not find it by themselves.

    They run PYSPARK_PYTHON, or else the `python3` of PATH, which in an environment that is not activated is another
    Python. Where nothing was set and Spark runs on this machine, the source's processes are started with this Python
    instead. They also start faster then, above all the planners of streaming queries, as where this Python was chosen;
    with `spark.stratalog.fast.start=false` they do not. Settings `spark.stratalog.storage.*` of the session become
    options of all its readers and writers, as they are at the time of the call: call it again when they have changed.

    InvalidConfigError: the workers' Python was chosen, or runs elsewhere, and cannot import stratalog here; or one of
    these settings is unknown or bad.
    """
    check_pyspark(pyspark.__version__)
    options = session_options(spark)
    if isinstance(spark, SparkSession):  # a session of Spark Connect has its workers at the server
        context = spark.sparkContext
        was_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python") is not None
        if not was_chosen and (context.master or "").startswith("local"):
            context.pythonExec = sys.executable
        elif not _imports_stratalog(context.pythonExec):
            raise InvalidConfigError(
                f"Spark's Python workers run {context.pythonExec}, which cannot import stratalog: set PYSPARK_PYTHON "
                f"to a Python that can, such as {sys.executable}, before the session starts"
            )
    with _fast_python(spark):
        spark.dataSource.register(source_of_session(options))


@contextmanager
def _fast_python(spark: SparkSession) -> Iterator[None]:
    """A block in which what is registered gets a Python that starts faster; the session's own functions keep theirs."""
    if not isinstance(spark, SparkSession):
        yield
        return
    context = spark.sparkContext
    chosen, is_local = context.pythonExec, (context.master or "").startswith("local")
    if is_local and context.getConf().get(FAST_START, "true") == "true" and shutil.which(chosen) == sys.executable:
        context.pythonExec = fast_python() or chosen
    try:
        yield
    finally:
        context.pythonExec = chosen


def session_options(spark: SparkSession) -> dict[str, str]:
    """The session's settings `spark.stratalog.storage.*` as options of source and sink. InvalidConfigError."""
    found = _of_stores(spark)
    storage_settings(found)
    return {name.removeprefix("spark."): text for name, text in found.items()}


def session_stores(spark: SparkSession) -> StoreSettings:
    """The same settings as those of stores. InvalidConfigError."""
    return storage_settings(_of_stores(spark))


def _of_stores(spark: SparkSession) -> dict[str, str]:
    return {name: spark.conf.get(name) or "" for name in _setting_names(spark) if name.startswith(_OF_SESSION)}


def _setting_names(spark: SparkSession) -> list[str]:
    """The names of all settings."""
    if not isinstance(spark, SparkSession):
        return list(spark.conf.getAll)
    return java_texts(spark, spark.conf._jconf.getAllAsJava().keySet())


def java_texts(spark: SparkSession, collection: Any) -> list[str]:
    """The texts of a Java collection, none of which is empty or has a line break, of a classic session's JVM.

    Reading it in Python takes several calls to the JVM for each text, and an exception at the end. Here the JVM joins
    the texts, and one call brings them.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    joined: str = jvm.java.lang.String.join("\n", collection)
    return joined.split("\n") if joined else []


def storage_settings(settings: Mapping[str, str]) -> StoreSettings:
    """The settings of stores among a session's. InvalidConfigError, with the session's name of a bad one."""
    given = {name.removeprefix(_OF_SESSION): text for name, text in settings.items() if name.startswith(_OF_SESSION)}
    try:
        return StoreSettings.of(given)
    except InvalidConfigError as reason:
        raise InvalidConfigError(f"{_OF_SESSION}*: {reason}") from None


def _imports_stratalog(python: str) -> bool:
    """Whether the Python does on this machine; True when this machine does not have it."""
    found = shutil.which(python)
    if found is None or Path(found) == Path(sys.executable):
        return True
    command = [found, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('stratalog') is None)"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
