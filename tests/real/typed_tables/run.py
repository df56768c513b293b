"""Orders of five schema versions into a typed table whose processes are killed: `python -m
tests.real.typed_tables.run`.

I/O: an embedded cluster, processes of a query, signals. Victims are the whole process (the driver), its JVM (where
commits are made) and its Python workers (the executors' side). At the end table and dead letters are compared with what
was sent, by chispa; then the late schema is registered, and a replay has to empty the dead letters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from stratalog import Admin, Cluster, NewTopic, Producer, SchemaFolder, TypedTable, stratalog_session
from tests.real.processes.broker_processes import ENVIRONMENT, PROJECT
from tests.real.typed_tables.orders import ARROW, COLUMNS, LATE, PARTITIONS, SCHEMAS, expected, values, version_of
from tests.real.typed_tables.table_process import TOPIC

FILL_ROWS = 20_000
KILLS = ("driver", "jvm", "worker")
END_WAIT_S = 30


@dataclass(slots=True)
class Outcome:
    """What a run showed; `rate` in records/s over the batches of the last process but its first one."""

    records: int
    kills: dict[str, int] = field(default_factory=dict)
    processes: int = 0
    rate: float = 0.0
    replayed: int = 0


def fill(cluster: Cluster, count: int) -> None:
    """Send all orders: number n to partition n % 4, in order."""
    with Producer(cluster) as producer:
        sent = []
        for first in range(0, count, FILL_ROWS):
            end = min(count, first + FILL_ROWS)
            numbers = range(first, end)
            rows = {
                "key": pa.array([b"order-%d" % number for number in numbers]),
                "value": pa.array(list(values(first, end, count)), pa.binary()),
                "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
            }
            sent.append(producer.send_table(TOPIC, pa.table(rows)))
        for each in sent:
            each.result(120)


class QueryProcess:
    """Processes of one query, one at a time; each in a session of its own (setsid), with its JVM and its workers."""

    def __init__(self, root: str, table: Path, settings: dict[str, object], output: Path) -> None:
        self._arguments = [root, str(table), json.dumps(settings)]
        self._output = output
        self._begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._begin = output.tell()
            command = [sys.executable, "-m", "tests.real.typed_tables.table_process", *self._arguments]
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=PROJECT, env=ENVIRONMENT, start_new_session=True
            )

    @property
    def code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def notes(self) -> list[dict[str, Any]]:
        """What the current process has noted."""
        with self._output.open("rb") as output:
            output.seek(self._begin)
            lines = output.read().decode(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"kind"')]

    def kill(self, victim: str) -> bool:
        """Kill a part of the process; False if there is no such part now."""
        assert self._process is not None
        if victim == "driver":
            os.killpg(self._process.pid, signal.SIGKILL)
            self._end_session()
            return True
        word = "java" if victim == "jvm" else "pyspark.daemon"
        found = [pid for pid, command in session_processes(self._process.pid) if word in command]
        for pid in found:
            _kill(pid)
        return bool(found)

    def _end_session(self) -> None:
        assert self._process is not None
        for pid, _ in session_processes(self._process.pid):
            _kill(pid)

    def end(self) -> None:
        """Wait for the end of a process that cannot go on, then clear what is left of its session."""
        assert self._process is not None
        try:
            self._process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_WAIT_S)
        self._end_session()


def session_processes(session: int) -> list[tuple[int, str]]:
    """Process ids and command lines of a session (setsid)."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                numbers = (place / "stat").read_text().rpartition(")")[2].split()
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            if int(numbers[3]) == session:
                found.append((int(place.name), command))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run(folder: Path, count: int, kills: int, seed: int = 1, limit_s: float = 3_600, batches: int = 40) -> Outcome:
    """Fill a topic, bring it into a table under kills, and compare; AssertionError for what is wrong."""
    outcome, rng = Outcome(count), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 1,
    }  # fmt: skip
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=config) as cluster:
        Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        with SchemaFolder.create(cluster, replication_factor=1) as schemas:
            for version, schema in enumerate(SCHEMAS[: LATE - 1], start=1):
                assert schemas.register(f"order-{version}", schema).id == version
            fill(cluster, count)
            settings: dict[str, object] = {
                "value.format": "avro", "max.offsets.per.trigger": max(1, count // batches),
            }  # fmt: skip
            table = folder / "table"
            process = QueryProcess(cluster.root, table, settings, folder / "query.out")
            bring_in(process, kills, rng, outcome, time.monotonic() + limit_s)
            spark = stratalog_session("typed-tables-judge", extra={"spark.master": "local[2]"})
            judge(spark, table, count, is_replayed=False)
            assert schemas.register(f"order-{LATE}", SCHEMAS[LATE - 1]).id == LATE
            replayed = TypedTable(spark, cluster, TOPIC, str(table), settings, schemas).replay()
            assert replayed.left_count == 0, replayed
            outcome.replayed = replayed.replayed_count
            judge(spark, table, count, is_replayed=True)
            spark.stop()
    return outcome


def bring_in(process: QueryProcess, kills: int, rng: random.Random, outcome: Outcome, deadline: float) -> None:
    """Run the query to its end, killing parts of it so often on the way."""
    left = kills
    while True:
        victim = KILLS[left % len(KILLS)] if left else None
        if live(process, victim, rng.uniform(1.0, 8.0), deadline) and victim is not None:
            outcome.kills[victim] = outcome.kills.get(victim, 0) + 1
            left -= 1
        outcome.processes += 1
        done = [each for each in process.notes() if each["kind"] == "done"]
        if done and process.code == 0:
            steady = done[0]["batches"][1:]
            outcome.rate = 1_000 * sum(b["rows"] for b in steady) / max(1, sum(b["ms"] for b in steady))
            return


def live(process: QueryProcess, victim: str | None, after_s: float, deadline: float) -> bool:
    """One process from start to end; whether its part `victim` was killed, so long after its session was up.

    Without its JVM it ends or hangs; workers are made again by Spark, or their query fails.
    """
    process.start()
    wait_for(lambda: process.code is not None or bool(process.notes()), deadline)
    is_killed = False
    if victim is not None:
        kill_at = time.monotonic() + after_s
        wait_for(lambda: process.code is not None or time.monotonic() >= kill_at, deadline)
        is_killed = process.code is None and process.kill(victim)
    if not (is_killed and victim == "jvm"):
        wait_for(lambda: process.code is not None, deadline)
    process.end()
    return is_killed


def wait_for(is_so: Callable[[], bool], deadline: float) -> bool:
    """Wait for a condition of a process; AssertionError when the whole run takes too long."""
    while not is_so():
        assert time.monotonic() < deadline, "the run takes too long"
        time.sleep(0.05)
    return True


def judge(spark: SparkSession, table: Path, count: int, *, is_replayed: bool) -> None:
    """Table and dead letters are what was sent: each record in one of them, once."""
    numbers = [n for n in range(count) if is_replayed or version_of(n, count) != LATE]
    rows = [expected(number, version_of(number, count)) for number in numbers]
    oracle = spark.createDataFrame(pa.Table.from_pylist(rows, ARROW))
    names = [column.split()[0] for column in COLUMNS.split(", ")] if is_replayed else ARROW.names[:-1]
    found = spark.read.format("delta").load(str(table)).select(*names)
    same(found, oracle.select(*names))
    letters = spark.read.format("delta").load(f"{table}__dlq").select("partition", "offset")
    late = [] if is_replayed else [n for n in range(count) if version_of(n, count) == LATE]
    places = [(n % PARTITIONS, n // PARTITIONS) for n in late]
    same(letters, spark.createDataFrame(places, "partition INT, offset BIGINT"))


def same(found: DataFrame, oracle: DataFrame) -> None:
    """The same rows as often. chispa shows those that are not; it would hold all of both in memory."""
    assert found.count() == oracle.count()
    left, right = found.exceptAll(oracle).limit(20), oracle.exceptAll(found).limit(20)
    assert_df_equality(left, right, ignore_nullable=True, ignore_row_order=True)
    assert left.isEmpty()


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every record is where it belongs, once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the files here (a temporary folder)")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="stratalog-typed-tables-"))
    outcome = run(folder, given.records, given.kills, given.seed, batches=given.batches)
    print(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
