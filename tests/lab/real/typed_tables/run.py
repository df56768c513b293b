"""Orders of five schema versions into a typed table whose processes are killed: `python -m
tests.lab.real.typed_tables.run`.

I/O: an embedded cluster, processes of a query, signals. Victims are the whole process (the driver), its JVM (where
commits are made) and its Python workers (the executors' side), some seconds after the start or just after a commit to
table or dead letters. Half of the orders are sent in parts, one before each process that is to be killed, so that it
has something to read; the rest before the last process, whose rate counts. At the end table and dead letters are
compared with what was sent, by chispa; then the late schema is registered, and a replay has to empty the dead letters.

With `--upsert` the topic is compacted: keys come again, some records delete theirs. At the very end the cleaner runs,
and the table has to equal the compacted log, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from stratalog import (
    Admin,
    Cluster,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    SchemaFolder,
    TypedTable,
    stratalog_session,
)
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.lab.real.harness.children import module
from tests.lab.real.harness.command import options, work_folder
from tests.lab.real.typed_tables.orders import ARROW, COLUMNS, LATE, PARTITIONS, SCHEMAS, Orders
from tests.lab.real.typed_tables.table_process import TOPIC

FILL_ROWS = 20_000
KILLS = ("driver", "jvm", "worker")
BATCHES_OF_PART, COMMITS_MAX = 3, 5
"""Batches of a process that is to be killed, and after how many of its commits it is, at most."""
END_WAIT_S, CLEANER_WAIT_S = 30, 120
LAST = b"last"


@dataclass(slots=True)
class Outcome:
    """What a run showed.

    rate      records/s over the batches of the last process but its first one, 0 without
    rows      rows of the table before the replay and after it, each time equal to those expected
    letters   dead letters before the replay, equal to those expected; the replay has left none
    compacted records of the log once the cleaner has run; 0 for a topic that is not compacted
    """

    records: int
    is_upsert: bool = False
    kills: dict[str, int] = field(default_factory=dict)
    processes: int = 0
    rate: float = 0.0
    rows: tuple[int, int] = (0, 0)
    letters: int = 0
    replayed: int = 0
    compacted: int = 0
    seconds: float = 0.0


def fill(cluster: Cluster, numbers_sent: range, orders: Orders) -> None:
    """Send some of all orders, in order."""
    with Producer(cluster) as producer:
        sent = []
        for first in range(numbers_sent.start, numbers_sent.stop, FILL_ROWS):
            end = min(numbers_sent.stop, first + FILL_ROWS)
            numbers = range(first, end)
            rows = {
                "key": pa.array([b"order-%d" % orders.key(number) for number in numbers]),
                "value": pa.array(list(orders.values(first, end)), pa.binary()),
                "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
            }
            sent.append(producer.send_table(TOPIC, pa.table(rows)))
        for each in sent:
            each.result(120)


class TableProcess(ServerProcess):
    """Processes of one query, one at a time; each in a session of its own (setsid), with its JVM and its workers."""

    def __init__(self, root: str, table: Path, output: Path) -> None:
        super().__init__("query", (), output)
        self._root, self._table = root, table

    def begin(self, settings: dict[str, object]) -> None:
        """Start another process, with these settings of the table."""
        arguments = self._root, self._table, json.dumps(settings)
        self._command = module("tests.lab.real.typed_tables.table_process", *arguments)
        self.start()

    @property
    def has_ended(self) -> bool:
        return not self.is_running

    def notes(self) -> list[dict[str, Any]]:
        """What the current process has noted."""
        return [json.loads(line) for line in self.output().splitlines() if line.startswith('{"kind"')]

    def commits(self) -> int:
        """How many commits the table and its dead letters have."""
        tables = self._table, Path(f"{self._table}__dlq")
        return sum(1 for each in tables for _ in (each / "_delta_log").glob("*.json"))

    def kill_part(self, victim: str) -> bool:
        """Kill a part of the process; False if there is no such part now."""
        if victim == "driver":
            self.kill()
            self._end_session()
            return True
        word = "java" if victim == "jvm" else "pyspark.daemon"
        found = [pid for pid, command in session_processes(self.pid) if word in command]
        for pid in found:
            _kill(pid)
        return bool(found)

    def _end_session(self) -> None:
        for pid, _ in session_processes(self.pid):
            _kill(pid)

    def end(self) -> None:
        """Wait for the end of a process that cannot go on, then clear what is left of its session."""
        try:
            self.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
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


CLUSTER = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 1,
    "stratalog.upkeep.interval.ms": 1_000,
}  # fmt: skip
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1, "delete.retention.ms": 0}
"""Nothing is compacted before the cleaner is let run, so that it is known which dead letters there are."""


def run(folder: Path, orders: Orders, kills: int, seed: int = 1, limit_s: float = 3_600) -> Outcome:
    """Fill a topic, bring it into a table under kills, and compare; AssertionError for what is wrong."""
    outcome, rng, began = Outcome(orders.count, orders.is_upsert), random.Random(seed), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "table"
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=CLUSTER) as cluster:
        Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 1, COMPACTED if orders.is_upsert else {})])
        with SchemaFolder.create(cluster, replication_factor=1) as schemas:
            for version, schema in enumerate(SCHEMAS[: LATE - 1], start=1):
                assert schemas.register(f"order-{version}", schema).id == version
            process = TableProcess(cluster.root, table, folder / "query.out")
            plan = Plan.of(orders.count, kills, began + limit_s)
            bring_in(process, plan, cluster, orders, rng, outcome)
            note("the query is at the end: the table is compared with what was sent")
            spark = stratalog_session("typed-tables-judge", extra={"spark.master": "local[2]"})
            before, outcome.letters = judge(spark, table, orders, has_late=False)
            assert schemas.register(f"order-{LATE}", SCHEMAS[LATE - 1]).id == LATE
            replayed = TypedTable(spark, cluster, TOPIC, str(table), {"value.format": "avro"}, schemas).replay()
            assert (replayed.replayed_count, replayed.left_count) == (outcome.letters, 0), replayed
            outcome.replayed = replayed.replayed_count
            after, _ = judge(spark, table, orders, has_late=True)
            outcome.rows = before, after
            if orders.is_upsert:
                outcome.compacted = judge_by_log(spark, table, cluster)
            spark.stop()
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run goes: how many of its processes are to be killed, the orders that are sent before each of those, the
    orders of a batch of the last one, and the end of the time for all."""

    kills: int
    part: int
    measured_batch: int
    deadline: float

    @classmethod
    def of(cls, count: int, kills: int, deadline: float) -> Self:
        """Half of the orders are in parts; a process that ended before it could be killed costs the other half one."""
        return cls(kills, max(1, count // 2 // max(1, kills)), max(1, count // 10), deadline)


class Moment(NamedTuple):
    """When a part of a process is killed: so many commits after its start, and then so many seconds."""

    commits: int
    seconds: float

    @classmethod
    def of(cls, rng: random.Random) -> Self:
        """A random one."""
        commits = rng.randint(0, COMMITS_MAX)
        return cls(commits, rng.uniform(0, 0.5) if commits else rng.uniform(1, 8))


def bring_in(
    process: TableProcess, plan: Plan, cluster: Cluster, orders: Orders, rng: random.Random, outcome: Outcome
) -> None:
    """Run the query to its end, killing a part of it in each process but the last one."""
    first = 0
    while True:
        left = plan.kills - sum(outcome.kills.values())
        sent = range(first, first + plan.part if left else orders.count)
        assert sent.stop <= orders.count, f"too many processes ended before they could be killed: {outcome}"
        first = sent.stop
        fill(cluster, sent, orders)
        victim = KILLS[left % len(KILLS)] if left else None
        batch = max(1, len(sent) // BATCHES_OF_PART) if left else plan.measured_batch
        began = time.monotonic()
        process.begin({"value.format": "avro", "max.offsets.per.trigger": batch})
        if live(process, victim, Moment.of(rng), plan.deadline) and victim is not None:
            outcome.kills[victim] = outcome.kills.get(victim, 0) + 1
        outcome.processes += 1
        note(f"{len(sent)} orders, victim {victim}, {time.monotonic() - began:.0f} s; kills so far {outcome.kills}")
        if victim is None:
            done = [each for each in process.notes() if each["kind"] == "done"]
            assert done, f"a query that nothing killed ended with {process.code}: see {process.output}"
            steady = done[0]["batches"][1:]
            outcome.rate = 1_000 * sum(b["rows"] for b in steady) / max(1, sum(b["ms"] for b in steady))
            return


def live(process: TableProcess, victim: str | None, moment: Moment, deadline: float) -> bool:
    """A process that was started, to its end; whether its part `victim` was killed.

    Without its JVM it ends or hangs; workers are made again by Spark, or their query fails.
    """
    wait_for(lambda: process.has_ended or bool(process.notes()), deadline)
    is_killed = False
    if victim is not None:
        commits = process.commits() + moment.commits
        wait_for(lambda: process.has_ended or process.commits() >= commits, deadline)
        kill_at = time.monotonic() + moment.seconds
        wait_for(lambda: process.has_ended or time.monotonic() >= kill_at, deadline)
        while not is_killed and process.is_running:  # workers come and go
            is_killed = process.kill_part(victim)
            time.sleep(0.05)
    if not (is_killed and victim == "jvm"):
        wait_for(lambda: process.has_ended, deadline)
    process.end()
    return is_killed


def wait_for(is_so: Callable[[], bool], deadline: float) -> bool:
    """Wait for a condition of a process; AssertionError when the whole run takes too long."""
    while not is_so():
        assert time.monotonic() < deadline, "the run takes too long"
        time.sleep(0.05)
    return True


def judge(spark: SparkSession, table: Path, orders: Orders, *, has_late: bool) -> tuple[int, int]:
    """Table and dead letters are what was sent, each record once; how many rows and dead letters there are."""
    numbers, unfit = orders.outcome(has_late=has_late)
    oracle = spark.createDataFrame(pa.Table.from_pylist([orders.row(number) for number in numbers], ARROW))
    names = [column.split()[0] for column in COLUMNS.split(", ")] if has_late else ARROW.names[:-1]
    found = spark.read.format("delta").load(str(table)).select(*names)
    same(found, oracle.select(*names))
    letters = spark.read.format("delta").load(f"{table}__dlq").select("partition", "offset")
    places = [(number % PARTITIONS, number // PARTITIONS) for number in unfit]
    same(letters, spark.createDataFrame(places, "partition INT, offset BIGINT"))
    return len(numbers), len(unfit)


def judge_by_log(spark: SparkSession, table: Path, cluster: Cluster) -> int:
    """The table has the keys of the compacted log, each at its offset; how many records the log is left with.

    The newest segment is never compacted: one more record, which deletes a key that there never was, begins another.
    """
    admin = Admin(cluster)
    admin.alter_configs(TOPIC, {"segment.ms": 1, "min.cleanable.dirty.ratio": 0})
    with Producer(cluster) as producer:
        for partition in range(PARTITIONS):
            producer.send(TOPIC, None, LAST, partition=partition)
    deadline = time.monotonic() + CLEANER_WAIT_S
    while True:
        log = read_log(cluster)
        if len({record.key for record in log}) == len(log):
            break
        assert time.monotonic() < deadline, f"after {CLEANER_WAIT_S} s {len(log)} records are not compacted"
    kept = [(each.partition, each.offset, each.key) for each in log if each.value is not None]
    rows = spark.read.format("delta").load(str(table)).selectExpr("_partition", "_offset", "_key")
    same(rows, spark.createDataFrame(kept, "_partition INT, _offset BIGINT, _key BINARY"))
    return len(log)


def read_log(cluster: Cluster) -> list[ConsumerRecord]:
    """The records of the topic as a consumer reads them from the start, but those that begin new segments."""
    found: list[ConsumerRecord] = []
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_all(TOPIC)
        while records := consumer.poll(timeout_ms=1_000):
            found += [record for record in records if record.key != LAST]
    return found


def same(found: DataFrame, oracle: DataFrame) -> None:
    """The same rows as often. chispa shows those that are not; it would hold all of both in memory."""
    assert found.count() == oracle.count()
    left, right = found.exceptAll(oracle).limit(20), oracle.exceptAll(found).limit(20)
    assert_df_equality(left, right, ignore_nullable=True, ignore_row_order=True)
    assert left.isEmpty()


def note(text: str) -> None:
    """A line for who watches."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every record is where it belongs, once."""
    parser = options(__doc__, seed=1)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--upsert", action="store_true", help="a compacted topic, whose table has a row for each key")
    given = parser.parse_args(arguments)
    with work_folder(given.folder, "typed-tables") as folder:
        outcome = run(folder, Orders(given.records, given.upsert), given.kills, given.seed)
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
