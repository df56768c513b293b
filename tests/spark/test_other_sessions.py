"""The source and the sink behave in a session without any setting, and over Spark Connect, as they do in ours.

`make test-sessions` runs all of their tests in these sessions; here are those that are marked for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from stratalog.server.cluster import Cluster
from stratalog.storage.errors import InvalidConfigError
from tests.spark import sessions

ROOT = Path(__file__).parents[2]
FILES = tuple(f"tests/spark/test_{name}.py" for name in ("spark_source", "spark_sink", "storage_options"))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["plain", "connect"])
def test_source_and_sink_behave_alike_in_a_session_that_is(kind: str, tmp_path: Path) -> None:
    run_tests(kind, FILES, tmp_path)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_typed_tables_work_over_spark_connect(tmp_path: Path) -> None:
    run_tests("connect-delta", ("tests/spark/test_typed_tables_over_connect.py",), tmp_path)


def run_tests(kind: str, files: tuple[str, ...], tmp_path: Path) -> None:
    """Run the tests of some files that are marked for it in a session of a kind, none of which is skipped."""
    ours = ("PYTHON", "SPARK", "PYSPARK", "PYTEST")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    options = ["-q", "-p", "no:cacheprovider", "-m", "any_session", "--basetemp", str(tmp_path / "tests")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=ROOT,
        env={**inherited, sessions.VARIABLE: kind},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_a_cluster_fetches_in_threads_over_spark_connect_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = ConnectSession("sc://localhost:1")  # it would connect with its first query
    with Cluster.start(tmp_path / "cluster", brokers=1, spark=session) as cluster:  # type: ignore[arg-type]
        assert cluster.fetcher == "thread"
    (warning,) = [message for message in caplog.messages if "Spark Connect" in message]
    assert "followers fetch in threads instead" in warning
    with pytest.raises(InvalidConfigError, match="use fetcher='thread'"):
        Cluster.start(tmp_path / "other", brokers=1, spark=session, fetcher="spark")  # type: ignore[arg-type]
