"""The demo: three brokers, a real web log, a broker killed in the middle, and a verdict; in short, or in full.

I/O: one folder, which holds the brokers' directories, the queries' tables, the chart and the logs; progress on a
terminal's standard error, the verdict on standard output.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog import Cluster
from stratalog.jobs.command.flags import Flag, switch
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.jobs.demo.log import BROKERS, TOPIC

if TYPE_CHECKING:  # Spark and the terminal's pictures come with an extra
    from stratalog.jobs.demo.run import Judged
    from stratalog.jobs.demo.screen import Screen

MARKER = ".stratalog-demo"
FETCH_SLOTS = 2 * BROKERS
"""Slots for two overlapping fetch sessions of each broker (`stratalog.fetch.sessions`)."""

CONFIG = {"offsets.topic.num.partitions": 6}
"""There is one group, and the listing of the folder stays short."""

PURPOSE = """Starts three brokers on three directories, sends 10,000 lines of a real web log into a replicated topic,
kills the broker that leads most partitions, brings it back, and checks that nothing was lost, doubled or reordered. It
needs neither Spark nor Java, and takes half a minute."""

EPILOG = """--full feeds the log with Structured Streaming, reads it with two queries that share a group, measures
latency and draws a chart. It needs Java and stratalog[demo], and takes about two minutes.

exit code: 0 when every claim of the verdict holds, 1 when one fails or the demo cannot run"""

_LINE = "%(asctime)s %(levelname)s %(name)s %(message)s"


DEFAULT_PATH = Path("data/demo")
# fmt: off
FLAGS = {"": (
    Flag("path", "FOLDER", "where the data goes and stays; emptied at the start if an earlier demo made it, refused if "
         f"something else is in it (default: {DEFAULT_PATH})", Path, DEFAULT_PATH),
    switch("full", "with Spark: Structured Streaming queries, latency, a chart"),
)}
# fmt: on


def short_demo(path: Path) -> int:
    """Run the short demo below `path`; the exit code. Raises UsageError, StratalogError."""
    from stratalog.jobs.demo.quick import quick_demo, verdict_lines

    with fresh_folder(path):
        checks = quick_demo(path)
        print("\n".join(verdict_lines(checks, path)))
    return DONE if all(check.holds for check in checks) else FAILED


def full_demo(path: Path) -> int:
    """Run the demo with Spark below `path`; the exit code. Raises UsageError, StratalogError, Spark's errors."""
    lacking = [name for name in ("pyspark", "matplotlib", "rich") if find_spec(name) is None]
    if lacking:
        raise UsageError(f"strata demo --full needs the package {lacking[0]}: pip install 'stratalog[demo]'")
    from stratalog.jobs.demo.screen import Screen, next_steps, print_verdict

    path = path.absolute()  # Delta's SQL needs an absolute path
    with fresh_folder(path):
        try:
            with Screen() as screen:
                judged = _on_cluster(path, screen)
        except Exception:
            complain(f"The demo could not be finished; its logs are in {path / 'logs'}.")
            raise
        print_verdict(judged.checks, judged.before, judged.after, TOPIC)
        print("\n".join(judged.latency))
        print("The verdict holds." if judged.holds else "THE VERDICT FAILS.")
        print()
        print("\n".join(next_steps(path, TOPIC, judged.chart, judged.failover_version)))
    return DONE if judged.holds else FAILED


def _on_cluster(path: Path, screen: Screen) -> Judged:
    from pyspark.logger import PySparkLogger

    from stratalog import stratalog_session
    from stratalog.jobs.demo.run import DemoRun

    logs = path / "logs"
    # The warnings about the killed broker belong into a file, not between verdict and progress.
    logging.basicConfig(filename=logs / "demo.log", level=logging.INFO, format=_LINE, force=True)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # They print the Java stack of an error that is raised as well.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    spark = stratalog_session("stratalog demo", fetch_slots=FETCH_SLOTS, log_dir=logs)
    try:
        with Cluster.start(path, BROKERS, spark=spark, config=CONFIG) as cluster:
            this_run = DemoRun(path, cluster, spark, screen)
            try:
                return this_run.run()
            finally:
                this_run.stop_queries()
    finally:
        spark.stop()


@contextmanager
def fresh_folder(path: Path) -> Iterator[None]:
    """The folder, emptied, for this process alone. UsageError if its content is not a demo's, or one runs."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise UsageError(f"--path {path} cannot be used: {reason}") from reason
    marker = path / MARKER
    if not marker.exists() and any(path.iterdir()):
        raise UsageError(f"--path {path} is not empty and was not made by the demo: name another folder")
    with marker.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"--path {path}: another demo runs there") from None
        _empty(path, marker)
        (path / "logs").mkdir()
        yield


def _empty(path: Path, marker: Path) -> None:
    for child in path.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child != marker:
            child.unlink()


def demo(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    return full_demo(given.path) if given.full else short_demo(given.path)


main = Command("demo", PURPOSE, EPILOG, FLAGS, demo)

if __name__ == "__main__":
    sys.exit(main())
