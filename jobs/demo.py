"""The demo: three brokers, a real web log, a broker killed in the middle, and a verdict (`python -m jobs.demo`).

Everything it makes lies below one folder: the brokers' directories, the queries' tables, the chart, the logs.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException

from clients import Cluster, StratalogError
from jobs.demo_run import BROKERS, TOPIC, DemoRun, Judged
from jobs.demo_screen import Screen, print_verdict, ways_to_look
from replication.spark_session import stratalog_session

MARKER = ".stratalog-demo"
FETCH_SLOTS = 2 * BROKERS
"""Two overlapping fetch sessions for each broker (`stratalog.fetch.sessions`)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code."""
    path: Path = _parser().parse_args(arguments).path
    try:
        with _fresh_folder(path):
            return _run(path)
    except (StratalogError, PySparkException, OSError) as reason:
        print(f"the demo stopped: {type(reason).__name__}: {reason}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.demo",
        description=(
            "Starts three brokers on three directories, feeds 10,000 lines of a real web log into a replicated topic "
            "with Structured Streaming, counts hits per minute with a second query, kills the broker that leads most "
            "partitions, brings it back, and checks that nothing was lost, doubled or reordered. Takes about two minutes."
        ),
        epilog="Exit code: 0 when every claim of the verdict holds, 1 when one fails or the demo cannot run.",
    )
    parser.add_argument(
        "--path",
        type=Path,
        default=Path("data/demo"),
        metavar="FOLDER",
        help="where the data goes; emptied at the start if an earlier demo made it, refused if something else is in it "
        "(default: %(default)s)",
    )
    return parser


def _run(path: Path) -> int:
    with Screen() as screen:
        judged = _on_cluster(path, screen)
    print_verdict(judged.checks, judged.before, judged.after, TOPIC)
    print(judged.latency)
    print("The verdict holds." if judged.holds else "THE VERDICT FAILS.")
    print()
    print("\n".join(ways_to_look(path, TOPIC, judged.chart, judged.failover_version)))
    return 0 if judged.holds else 1


def _on_cluster(path: Path, screen: Screen) -> Judged:
    logs = path / "logs"
    logging.basicConfig(
        filename=logs / "demo.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = stratalog_session("stratalog demo", fetch_slots=FETCH_SLOTS, log_dir=logs)
    try:
        with Cluster.start(path, BROKERS, spark=spark) as cluster:
            try:
                return DemoRun(path, cluster, spark, screen).run()
            finally:
                for query in spark.streams.active:
                    if query.name in ("feed", "count"):
                        query.stop()
    finally:
        spark.stop()


@contextmanager
def _fresh_folder(path: Path) -> Iterator[None]:
    """The folder, emptied, for this process alone. FileExistsError when its content is not a demo's."""
    path.mkdir(parents=True, exist_ok=True)
    marker = path / MARKER
    if not marker.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty and was not made by the demo: give another --path")
    with marker.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"another demo runs in {path}") from None
        for child in path.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            elif child != marker:
                child.unlink()
        (path / "logs").mkdir()
        yield


if __name__ == "__main__":
    sys.exit(main())
