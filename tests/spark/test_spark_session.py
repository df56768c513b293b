"""The Spark session: sized for fetch sessions, quiet, with Delta Lake; its conf as the packages need it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession as Session

from stratalog.replication.spark.session import (
    CHECKPOINT_FILES,
    EXECUTOR_TIMEOUT,
    SPARK_DEFAULTS,
    local_master,
    parse_spark_defaults,
    session_settings,
    stratalog_session,
)
from stratalog.storage.errors import UnknownServerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
EXECUTOR_TIMEOUT_MS = "spark.storage.blockManagerHeartbeatTimeoutMs"
TRIMMER = "Native Heap Tri"
"""The kernel's name of the thread that returns freed memory to the system."""


@pytest.mark.parametrize(
    ("master", "slots", "cores", "expected"),
    [
        ("local[*]", 6, 2, "local[8]"),
        ("local[*]", 0, 2, "local[2]"),
        ("local[4]", 6, 2, "local[4]"),
        ("spark://host:7077", 6, 2, "spark://host:7077"),
    ],
)
def test_only_an_open_local_master_grows_by_the_fetch_slots(master: str, slots: int, cores: int, expected: str) -> None:
    assert local_master(master, slots, cores) == expected


def test_given_settings_take_precedence_over_the_file() -> None:
    given = {"spark.driver.memory": "9g", "spark.master": "yarn"}
    settings = session_settings("job", 6, 2, given)
    assert (settings["spark.driver.memory"], settings["spark.master"]) == ("9g", "yarn")
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert "spark.driver.host" not in settings
    assert CHECKPOINT_MANAGER not in settings
    assert EXECUTOR_TIMEOUT_MS not in settings


def test_a_local_driver_does_not_drop_itself_after_its_machine_slept() -> None:
    assert session_settings("job", 6, 2, {})[EXECUTOR_TIMEOUT_MS] == EXECUTOR_TIMEOUT
    assert session_settings("job", 6, 2, {EXECUTOR_TIMEOUT_MS: "9s"})[EXECUTOR_TIMEOUT_MS] == "9s"


def test_a_local_session_writes_checkpoints_without_starting_programs(spark: SparkSession, tmp_path: Path) -> None:
    assert session_settings("job", 6, 2, {})[CHECKPOINT_MANAGER] == CHECKPOINT_FILES
    assert session_settings("job", 6, 2, {CHECKPOINT_MANAGER: "own"})[CHECKPOINT_MANAGER] == "own"
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager = managers.create(folder, spark._jsparkSession.sessionState().newHadoopConf())
    assert manager.getClass().getName() == CHECKPOINT_FILES


def test_the_delta_jar_of_the_file_is_the_one_that_the_installed_delta_asks_for() -> None:
    asked = configure_spark_with_delta_pip(Session.builder)._options["spark.jars.packages"]
    assert parse_spark_defaults(SPARK_DEFAULTS.read_text(encoding="utf-8"))["spark.jars.packages"] == asked


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from stratalog.replication.spark import session as spark_session

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnknownServerError, match="Spark needs Java 17 or newer"):
        spark_session._require_java()


def test_a_delta_table_is_written_read_and_changed(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.range(3).write.format("delta").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    assert sorted(row.id for row in spark.read.format("delta").load(table).collect()) == [0, 2]
    assert spark.read.format("delta").option("versionAsOf", 0).load(table).count() == 3


def test_a_running_session_is_returned_as_it_is(spark: SparkSession) -> None:
    assert stratalog_session("another", fetch_slots=99).sparkContext.appName == "stratalog-tests"


def test_a_worker_imports_the_packages(spark: SparkSession) -> None:
    def codes(batches):  # type: ignore[no-untyped-def]
        from stratalog.storage.errors import NAME_OF_CODE

        assert NAME_OF_CODE[3] == "UNKNOWN_TOPIC_OR_PARTITION"
        yield from batches

    assert spark.range(4).mapInArrow(codes, "id long").count() == 4


def test_the_jvm_returns_what_it_freed_outside_its_heap(spark: SparkSession) -> None:
    options = ("-XX:+UnlockExperimentalVMOptions", "-XX:TrimNativeHeapInterval=10000", "-Xlog:trimnative")
    asked = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=False)
    if "Periodic native trim enabled" not in asked.stdout:
        pytest.skip("this Java, or this machine's C library, cannot")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    tasks = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/task")
    names = subprocess.run(["cat", *map(str, tasks.glob("*/comm"))], capture_output=True, text=True, check=False).stdout
    assert TRIMMER in names.splitlines()


def test_a_failed_task_prints_nothing_on_the_terminal(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="boom"):
        spark.sql("SELECT raise_error('boom')").collect()
    assert capfd.readouterr() == ("", "")
