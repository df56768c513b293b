"""Two planner processes in one group, of which one is killed: what the other one reads, and when.

Each is driven as Spark drives the planner of a query. `tests/lab/real/test_shared_queries.py` does it with Spark.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.producer.producer import Producer
from stratalog.clients.spark.source.batch_reader import RangesPartition
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.clients.spark.planner_process import PlannerProcess
from tests.waiting import wait_until

SESSION_TIMEOUT_MS, HEARTBEAT_MS = 6_000, 500
TAKE_OVER_S = 5
LAG_S_MAX = 1
TOPIC = [TopicPartition("t", number) for number in range(12)]
CONFIG = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.min.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
}
CLASSIC = {"kafka.session.timeout.ms": SESSION_TIMEOUT_MS, "kafka.heartbeat.interval.ms": HEARTBEAT_MS}
MODERN = {"kafka.group.protocol": "consumer"}
Row = tuple[int, int]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=CONFIG) as running:
        Admin(running).create_topic("t", len(TOPIC), 1)
        yield running


class Query:
    """A planner, and a thread that plans, stores and checkpoints batches as Spark does, until the planner is gone."""

    def __init__(self, root: str, folder: Path, options: dict[str, Any], checkpoint: list[dict[str, Any]]) -> None:
        """`checkpoint`: the logged ends of its batches. The last one is planned again, as after a failure."""
        given = {
            "stratalog.root": root,
            "subscribe": "t",
            "kafka.group.id": "g",
            "stratalog.group.mode": "share",
            "stratalog.auto.offset.reset": "earliest",
            **options,
        }
        self.planner = PlannerProcess(folder, given)
        self.logged = list(checkpoint)
        self.read: list[list[Row]] = []
        self.stored_at: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError, EOFError):  # it was killed, or stopped
            stored: dict[str, Any] = {} if len(self.logged) < 2 else self.logged[-2]
            if self.logged:
                self._store(stored, self.logged[-1])
                stored = self.logged[-1]
            while True:
                end = self.planner.latest_offset(stored)
                if end != stored:
                    self.logged.append(end)
                    self._store(stored, end)
                    stored = end

    def _store(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        tasks = [task for task in self.planner.partitions(start, end) if isinstance(task, RangesPartition)]
        wanted = [each for task in tasks for each in task.wanted]
        self.read.append([(w.topic_partition.partition, offset) for w in wanted for offset in range(w.start, w.end)])
        self.stored_at.append(time.monotonic())

    def end(self) -> None:
        self.planner.end()
        self._join()

    def kill(self) -> None:
        self.planner.process.kill()
        self._join()

    def _join(self) -> None:
        self._thread.join()
        self.planner.close()

    def batch_s_max(self) -> float:
        return max((b - a for a, b in zip(self.stored_at, self.stored_at[1:], strict=False)), default=0.0)


class Traffic:
    """Records to all partitions, until the block ends; `count` of them to each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.count = 0

    def _produce(self) -> None:
        with Producer(self._cluster) as producer:
            while not self._is_over.wait(0.05):
                for topic_partition in TOPIC:
                    producer.send("t", b"x", partition=topic_partition.partition)
                self.count += 1

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


class Shown:
    """What an administrator sees of the group."""

    def __init__(self, cluster: Cluster) -> None:
        self._view = ClusterView(cluster.root)
        self._admin = GroupAdmin(LiveGroups(cluster, self._view.clock, 10_000), self._view)

    def shares(self) -> list[int]:
        return sorted(len(each.assignment) for each in self._admin.describe_group("g").members)

    def lag(self) -> int:
        committed, ends = self._admin.committed("g"), self._view.offsets.end_offsets(TOPIC)
        return sum(ends[tp] - (committed[tp].offset if tp in committed else 0) for tp in TOPIC)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_killed_planners_partitions_move_and_nothing_is_skipped(
    cluster: Cluster, tmp_path: Path, options: dict[str, Any]
) -> None:
    queries = [Query(cluster.root, tmp_path / name, options, []) for name in ("killed", "other")]
    killed, other = queries
    shown = Shown(cluster)
    try:
        with Traffic(cluster) as traffic:
            wait_until(lambda: shown.shares() == [6, 6], "they share")
            wait_until(lambda: len(killed.read) > 3 and len(other.read) > 3, "both read")
            killed.kill()
            killed_at = time.monotonic()
            wait_until(lambda: shown.shares() == [12], "the other one has all")
            took_s = time.monotonic() - killed_at
            bound_s = SESSION_TIMEOUT_MS / 1000 + other.batch_s_max() + TAKE_OVER_S
            again = Query(cluster.root, tmp_path / "again", options, killed.logged)
            queries.append(again)
            wait_until(lambda: shown.shares() == [6, 6], "they share again")
        every = {(tp.partition, offset) for tp in TOPIC for offset in range(traffic.count)}
        wait_until(lambda: {row for query in queries for rows in query.read for row in rows} >= every, "all is read")
        began = time.monotonic()
        wait_until(lambda: shown.lag() == 0, "no lag", timeout_s=LAG_S_MAX)
        lag_s = time.monotonic() - began
    finally:
        for query in queries[1:]:
            query.end()
    read = Counter(row for query in queries for rows in query.read for row in rows)
    twice = {row for row, times in read.items() if times > 1}
    print(f"all partitions after {took_s:.1f} s, bound {bound_s:.1f} s; {len(twice)} of {len(read)} records twice")
    print(f"no lag after {lag_s:.2f} s")
    assert took_s < bound_s
    assert read.keys() == every
    assert max(read.values()) <= 2
    assert twice <= set(killed.read[-1])
