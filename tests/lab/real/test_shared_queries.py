"""Two streaming queries of one group, each in a process of its own with a Spark session; one of them is killed.

The other one has all partitions within the session timeout, a batch and five seconds. No record is skipped, and at most
the batch that was under way is read twice. `strata groups` shows both queries, and no lag a second after the
last batch of an idle topic.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.producer.producer import Producer
from stratalog.jobs.records import groups
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.lab.real.processes.group_query import STOP_SESSION
from tests.lab.real.processes.query_process import QueryProcess
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[3]
TOPIC, GROUP, PARTITIONS = "orders", "billing", 12
SESSION_TIMEOUT_MS, HEARTBEAT_MS = 6_000, 500
TAKE_OVER_S = 5
LAG_S_MAX = 1
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
CLASSIC = (f"kafka.session.timeout.ms={SESSION_TIMEOUT_MS}", f"kafka.heartbeat.interval.ms={HEARTBEAT_MS}")
MODERN = ("kafka.group.protocol=consumer",)
Row = tuple[int, int]


class GroupQuery(QueryProcess):
    """A process of `group_query`."""

    def __init__(self, root: str, folder: Path, *options: str) -> None:
        super().__init__("group_query", folder, root, TOPIC, GROUP, str(folder), *options)

    def stop_session(self) -> None:
        """Its driver and Spark's JVM go on."""
        self.tell(STOP_SESSION)

    def batches(self) -> dict[int, list[Row]]:
        """What each batch has made visible."""
        found = {}
        for folder in self.folder.glob("batch-*"):
            if (folder / "_SUCCESS").exists():
                rows = pq.read_table(folder).to_pylist()
                found[int(folder.name.removeprefix("batch-"))] = [(row["partition"], row["offset"]) for row in rows]
        return found

    def last_stored(self) -> int:
        """The newest batch in Spark's commit log, which Spark does not run again; -1 when there is none."""
        commits = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(each.name) for each in commits), default=-1)

    def batch_s_max(self) -> float:
        """The longest time between two batches of the process."""
        times = sorted(mark.stat().st_mtime for mark in self.folder.glob("batch-*/_SUCCESS"))
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


class Traffic:
    """Records to all partitions, until the block ends; `ends` are the partitions' ends then."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.ends: dict[int, int] = {}

    def _produce(self) -> None:
        with Producer(self._cluster) as producer:
            while not self._is_over.wait(0.05):
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"x", partition=partition)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        topic = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.ends = {tp.partition: end for tp, end in ClusterView(self._cluster).offsets.end_offsets(topic).items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=CONFIG) as running:
        Admin(running).create_topic(TOPIC, PARTITIONS, 1)
        yield running


def shares(cluster: Cluster) -> list[int]:
    """How many partitions each member of the stable group has."""
    view = ClusterView(cluster.root)
    described = GroupAdmin(LiveGroups(cluster, view.clock, 10_000), view).describe_group(GROUP)
    return sorted(len(member.assignment) for member in described.members)


def shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The rows of `strata groups --describe`."""
    capsys.readouterr()
    assert groups.main.call(["--root", cluster.root, "--describe", "--group", GROUP], cluster) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(GROUP)]
    return sorted(lines, key=lambda row: int(row[2]))


def _lag_s(cluster: Cluster, capsys: pytest.CaptureFixture[str], *queries: GroupQuery) -> float:
    """Time from a last batch's being visible until the tool shows no lag, where no other batch follows."""
    known = sum(len(rows) for query in queries for rows in query.batches().values())
    with Producer(cluster) as producer:
        for partition in range(PARTITIONS):
            producer.send(TOPIC, b"x", partition=partition)
    wait_until(
        lambda: sum(len(rows) for query in queries for rows in query.batches().values()) >= known + PARTITIONS,
        "the records are visible",
    )
    began = time.monotonic()
    wait_until(lambda: all(int(row[5]) == 0 for row in shown(cluster, capsys)), "no lag", timeout_s=LAG_S_MAX)
    return time.monotonic() - began


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("options", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_a_killed_querys_partitions_move_and_no_record_is_skipped(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    killed, other = (GroupQuery(cluster.root, tmp_path / name, *options) for name in ("killed", "other"))
    try:
        with Traffic(cluster) as traffic:
            for query in (killed, other):
                query.start()
            for query in (killed, other):
                wait_until(query.has_started, "started", timeout_s=120)
            wait_until(lambda: shares(cluster) == [6, 6], "they share", timeout_s=120)
            wait_until(lambda: len(killed.batches()) > 3 and len(other.batches()) > 3, "both read", timeout_s=120)
            rows = shown(cluster, capsys)
            assert [int(row[2]) for row in rows] == list(range(PARTITIONS))
            assert len({row[6] for row in rows}) == 2  # CONSUMER-ID
            assert all(int(row[5]) >= 0 for row in rows)  # LAG
            newest = max(killed.batches())
            wait_until(lambda: max(killed.batches()) > newest, "a batch that Spark's commit log does not have yet")
            killed.kill()
            killed_at = time.monotonic()
            wait_until(lambda: shares(cluster) == [PARTITIONS], "the other one has all")
            took_s = time.monotonic() - killed_at
            before, stored = killed.batches(), killed.last_stored()
            bound_s = SESSION_TIMEOUT_MS / 1000 + other.batch_s_max() + TAKE_OVER_S
            assert took_s < bound_s
            killed.start()  # its last batch is planned again, without the partitions that the other one has
            wait_until(lambda: shares(cluster) == [6, 6], "they share again", timeout_s=120)
        ends = traffic.ends
        wait_until(lambda: all(int(row[5]) == 0 for row in shown(cluster, capsys)), "no lag", timeout_s=60)
        lag_s = _lag_s(cluster, capsys, killed, other)
        ends = {partition: end + 1 for partition, end in ends.items()}
    finally:
        for query in (killed, other):
            query.stop()
    in_flight = max(before)
    # a batch that Spark's commit log has is not run again: its rows are those of before
    again = [rows for number, rows in killed.batches().items() if number >= in_flight and number > stored]
    read = Counter(row for rows in [*before.values(), *again, *other.batches().values()] for row in rows)
    assert set(read) == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    twice = {row for row, times in read.items() if times > 1}
    print(f"the newest batch before the kill is {in_flight}, of Spark's commit log {stored}")
    print(f"all partitions after {took_s:.1f} s, bound {bound_s:.1f} s; {len(twice)} of {len(read)} records twice")
    print(f"no lag {lag_s:.2f} s after the last batch was visible")
    assert max(read.values()) <= 2
    assert twice <= set(before[in_flight])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_query_leaves_its_group_when_its_session_stops(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody has stopped the query, and its driver and JVM go on."""
    query = GroupQuery(cluster.root, tmp_path / "query", "kafka.group.protocol=consumer")
    query.start()
    try:
        wait_until(lambda: query.started_count() and shares(cluster) == [PARTITIONS], "it has all", timeout_s=120)
        query.stop_session()
        began = time.monotonic()
        wait_until(lambda: shares(cluster) == [], "it left")
        assert query.is_alive
        print(f"left {time.monotonic() - began:.2f} s after the session was to stop")
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_queries_change_the_protocol_of_their_group_one_after_the_other(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a rolling restart with `kafka.group.protocol=consumer`: the new query reads beside the old one."""
    old = GroupQuery(cluster.root, tmp_path / "old", *CLASSIC)
    new = GroupQuery(cluster.root, tmp_path / "new", *MODERN)
    try:
        with Traffic(cluster) as traffic:
            old.start()
            wait_until(lambda: old.started_count() and shares(cluster) == [PARTITIONS], "the old one reads", 120)
            wait_until(lambda: len(old.batches()) > 3, "batches of the old one", timeout_s=120)
            new.start()
            wait_until(lambda: new.started_count() and shares(cluster) == [6, 6], "they share", timeout_s=120)
            wait_until(lambda: len(new.batches()) > 3, "batches of the new one", timeout_s=120)
            old.stop()
            wait_until(lambda: shares(cluster) == [PARTITIONS], "the new one has all", timeout_s=60)
        wait_until(lambda: all(int(row[5]) == 0 for row in shown(cluster, capsys)), "no lag", timeout_s=60)
    finally:
        for query in (old, new):
            query.stop()
    read = Counter(row for query in (old, new) for rows in query.batches().values() for row in rows)
    assert set(read) == {(partition, offset) for partition, end in traffic.ends.items() for offset in range(end)}
    print(f"{sum(times > 1 for times in read.values())} of {len(read)} records twice")
    assert max(read.values()) <= 2
