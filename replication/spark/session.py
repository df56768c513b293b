"""A quiet Spark session with Delta Lake and room for fetch sessions. I/O: starts Spark's JVM; reads conf/.

The settings are data: conf/spark-defaults.conf. Those of the caller or of spark-submit take precedence. The JVM's
output (Ivy, warnings, stack traces) goes to a log file instead of the user's terminal.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaClass, JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from stratalog.replication.config import CONF_DIR
from stratalog.replication.fast_start.environment import FAST_START, fast_environment, own_folder
from stratalog.replication.threads.long_wait import long_wait
from stratalog.storage.errors import UnknownServerError
from stratalog.storage.extras import check_pyspark

SPARK_DEFAULTS = CONF_DIR / "spark-defaults.conf"
LOG4J2_PROPERTIES = CONF_DIR / "log4j2.properties"

CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's own manager for file systems without FileContext; on a local disk both check and rename."""

EXECUTOR_TIMEOUT = "3650d"
"""Heartbeat timeout of a local session (Spark: 120 s of the wall clock)."""

_LOGGING_OPTION = f"-Dlog4j2.configurationFile={LOG4J2_PROPERTIES.as_uri()}"
_LOG_TAIL_LINES = 20


def stratalog_session(
    app_name: str, fetch_slots: int = 0, extra: Mapping[str, str] | None = None, log_dir: str | Path | None = None
) -> SparkSession:
    """The session that is running, as it is; else a new one with stratalog's settings.

    fetch_slots  Spark slots that fetch sessions hold for good; a local master becomes local[fetch_slots + cores]
    extra        Spark settings over those of conf/spark-defaults.conf
    log_dir      folder for the JVM's logs `spark-<pid>.log` and `.out`; None = one in the temporary folder
    raises       UnknownServerError when Java is missing or Spark does not start, with the end of its log
    """
    check_pyspark(pyspark.__version__)
    if is_remote() or SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    if is_submitted():
        SparkContext._ensure_initialized()  # before it, SparkConf knows nothing of spark-submit's master and settings
    conf = SparkConf(loadDefaults=is_submitted())
    given = dict(conf.getAll()) | dict(extra or {})
    conf.setAll(list(session_settings(app_name, fetch_slots, _core_count(), given).items()))
    atexit.register(shutil.rmtree, _warehouse(), ignore_errors=True)
    if is_submitted():
        _start(conf)
    else:
        _start_with_jvm(conf, _log_file(log_dir))
    return SparkSession.builder.getOrCreate()


def is_submitted() -> bool:
    """True when spark-submit started this process and the JVM with it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_connect(spark: SparkSession) -> bool:
    """True for a session of Spark Connect: an object of another class, without `sparkContext`."""
    return not isinstance(spark, SparkSession)


def session_settings(app_name: str, fetch_slots: int, core_count: int, given: Mapping[str, str]) -> dict[str, str]:
    """All settings of a new session, by precedence: those given, those of conf/spark-defaults.conf, and defaults for
    its kind of master."""
    settings = parse_spark_defaults(SPARK_DEFAULTS.read_text(encoding="utf-8")) | dict(given)
    settings["spark.app.name"] = app_name
    settings["spark.master"] = local_master(given.get("spark.master", "local[*]"), fetch_slots, core_count)
    if settings["spark.master"].startswith("local"):
        # a laptop's host name may resolve to nothing; driver and tasks are one process
        settings.setdefault("spark.driver.host", "localhost")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        # the catalog is in memory: a table of an earlier process would only block its name
        settings.setdefault("spark.sql.warehouse.dir", _warehouse().as_uri())
        # Hadoop's FileContext starts programs (chmod, readlink) for every file of a checkpoint
        settings.setdefault("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_FILES)
        # a driver whose machine slept drops its executor, which is itself, and minutes later the JVM exits for that
        settings.setdefault("spark.storage.blockManagerHeartbeatTimeoutMs", EXECUTOR_TIMEOUT)
    if _is_checkout():
        settings.setdefault("spark.executorEnv.PYTHONPATH", _python_path())
    return settings


def parse_spark_defaults(text: str) -> dict[str, str]:
    """Spark's properties format: a name, blanks, a value; # begins a comment line."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def local_master(master: str, fetch_slots: int, core_count: int) -> str:
    """`local[*]` with slots for fetch sessions; any other master stays as it is.

    >>> local_master("local[*]", fetch_slots=6, core_count=2)
    'local[8]'
    >>> local_master("spark://host:7077", fetch_slots=6, core_count=2)
    'spark://host:7077'
    """
    return f"local[{fetch_slots + core_count}]" if master == "local[*]" else master


def _start_with_jvm(conf: SparkConf, log_file: Path) -> None:
    _require_java()
    output_file = log_file.with_suffix(".out")
    environment = _jvm_environment(log_file)
    if conf.get("spark.master", "").startswith("local") and conf.get(FAST_START, "true") == "true":
        environment |= fast_environment(own_folder(), environment)
    with output_file.open("ab") as output, _environment(environment):
        java_options = conf.get("spark.driver.extraJavaOptions", "")
        conf.set("spark.driver.extraJavaOptions", f"{_LOGGING_OPTION} {java_options}".strip())
        try:
            # a process has one JVM: a Spark session after the first one runs in it
            launch: Callable[..., JavaGateway] = launch_gateway
            streams = {"stdout": output, "stderr": output}
            with long_wait(lambda: f"starting Spark; it may have to download Delta Lake at first. Log: {output_file}"):
                _start(conf, launch(conf, streams) if SparkContext._gateway is None else None)
        except PySparkRuntimeError as reason:
            raise UnknownServerError(_failure_message(output_file)) from reason


def _start(conf: SparkConf, gateway: JavaGateway | None = None) -> None:
    context = SparkContext(conf=conf, gateway=gateway)
    # Py4J takes an absent class for a package; Spark itself would start without Delta and fail at the first table
    if not isinstance(context._jvm.io.delta.sql.DeltaSparkSessionExtension, JavaClass):  # type: ignore[union-attr]
        packages = conf.get("spark.jars.packages", "")
        context.stop()
        raise UnknownServerError(
            f"Spark was started without Delta Lake: use SPARK_CONF_DIR={CONF_DIR} or spark-submit --packages {packages}"
        )


def _failure_message(output_file: Path) -> str:
    lines = output_file.read_text(encoding="utf-8", errors="replace").splitlines()
    tail = [line for line in lines if not line.startswith("\tat ")][-_LOG_TAIL_LINES:]
    return "\n".join([f"Spark did not start; the end of {output_file} without stack frames:", *tail])


def _require_java() -> None:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    if shutil.which(java) is None:
        raise UnknownServerError(f"Spark needs Java 17 or newer: {java} was not found (install a JDK or set JAVA_HOME)")


def _jvm_environment(log_file: Path) -> dict[str, str]:
    """Environment of the JVM, which passes it on to the Python workers of this machine."""
    environment = {"STRATALOG_SPARK_LOG": str(log_file), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable
    if _is_checkout():
        environment["PYTHONPATH"] = _python_path()
    return environment


def _is_checkout() -> bool:
    return (CONF_DIR.parent / "pyproject.toml").is_file()


def _python_path() -> str:
    """The checkout's folder before the present path, so that workers import from a checkout that is not installed."""
    return os.pathsep.join(filter(None, [str(CONF_DIR.parent), os.environ.get("PYTHONPATH")]))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _log_file(log_dir: str | Path | None) -> Path:
    folder = Path(log_dir).resolve() if log_dir is not None else own_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"spark-{os.getpid()}.log"


def _warehouse() -> Path:
    """The folder of tables saved by name; removed at the end of the process, as their names are."""
    return own_folder() / f"warehouse-{os.getpid()}"


def _core_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
