"""The Spark sessions in which the tests of source and sink run.

`STRATALOG_TESTS_SESSION` chooses: `ours` is that of `stratalog_session`, `plain` one without a single setting,
`connect` one of Spark Connect, with a server in a process of its own, `connect-delta` one of a server in this process,
`SparkSession.builder.remote("local[2]")`, with Delta Lake and no other setting. A process of tests has one kind.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.conftest import FIRST_COMPILER_ONLY
from tests.waiting import wait_until

VARIABLE = "STRATALOG_TESTS_SESSION"
FETCH_SLOTS = 8
"""The slots for three brokers with two overlapping fetch sessions each, and two more."""
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def kind() -> str:
    return os.environ.get(VARIABLE, "ours")


@contextmanager
def running(folder: Path) -> Iterator[SparkSession]:
    """A new session of the kind; `folder` is for its logs, or its working directory."""
    if kind() == "ours":
        from stratalog.replication.spark.session import stratalog_session

        extra = {"spark.driver.extraJavaOptions": FIRST_COMPILER_ONLY}
        yield (session := stratalog_session("stratalog-tests", FETCH_SLOTS, extra, folder))
        session.stop()
        return
    # as in an activated environment into which the package is installed
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    os.environ["JDK_JAVA_OPTIONS"] = FIRST_COMPILER_ONLY
    os.chdir(folder)
    if kind() == "plain":
        yield (session := SparkSession.builder.getOrCreate())
        session.stop()
        return
    if kind() == "connect-delta":
        builder = SparkSession.builder.remote("local[2]")
        for name, value in delta_settings().items():
            builder = builder.config(name, value)
        yield (session := builder.getOrCreate())
        session.stop()
        return
    with connect_server(folder) as url:
        yield (session := SparkSession.builder.remote(url).getOrCreate())
        session.stop()


def delta_settings() -> dict[str, str]:
    """The settings without which a session has no Delta Lake, of the versions in `conf/spark-defaults.conf`."""
    lines = (Path(__file__).parents[2] / "conf" / "spark-defaults.conf").read_text().splitlines()
    given = dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    needed = ("jars.packages", "jars.excludes", "sql.extensions", "sql.catalog.spark_catalog")
    return {f"spark.{name}": given[f"spark.{name}"].strip() for name in needed}


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The URL of a Spark Connect server, as `sbin/start-connect-server.sh` starts it, with its log in the folder."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", CONNECT_SERVER]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}"]
    with (folder / "connect.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        try:
            wait_until(lambda: server.poll() is not None or _accepts(port), "a Spark Connect server")
            yield f"sc://localhost:{port}"
        finally:
            server.kill()
            server.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("localhost", port)) == 0
