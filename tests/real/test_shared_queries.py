"""Two streaming queries of one group, each in a process of its own with a Spark session; one of them is killed.

The other one has all partitions within the session timeout, a batch and five seconds. No record is skipped, and at most
the batch that was under way is read twice.
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
from stratalog.clients.cluster import Cluster
from stratalog.clients.coordinator_calls import InProcessCalls, ask
from stratalog.clients.producer.producer import Producer
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.jobs.tools import consumer_groups
from stratalog.replication.requests.consumer_protocol import decode_assignment
from stratalog.replication.requests.groups import DescribeGroupsRequest, DescribeGroupsResponse
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TopicPartition
from tests.real.processes.query_process import QueryProcess
from tests.waiting import wait_until

TOPIC, GROUP, PARTITIONS = "orders", "billing", 12
SESSION_TIMEOUT_MS = 6_000
TAKE_OVER_S = 5
CONFIG = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 500,
}
MEMBER = (f"kafka.session.timeout.ms={SESSION_TIMEOUT_MS}", "kafka.heartbeat.interval.ms=500")
Row = tuple[int, int]


class MemberProcess(QueryProcess):
    """A process of `group_query`."""

    def __init__(self, root: str, folder: Path) -> None:
        super().__init__("group_query", folder, root, TOPIC, GROUP, str(folder), *MEMBER)

    def has_started(self) -> bool:
        return self.started_count() > 0

    def batches(self) -> dict[int, list[Row]]:
        """What each batch has made visible."""
        found = {}
        for folder in self.folder.glob("batch-*"):
            if (folder / "_SUCCESS").exists():
                rows = pq.read_table(folder).to_pylist()
                found[int(folder.name.removeprefix("batch-"))] = [(row["partition"], row["offset"]) for row in rows]
        return found

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
        self.ends = {tp.partition: end for tp, end in ClusterView(self._cluster).end_offsets(topic).items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=CONFIG) as running:
        Admin(running).create_topic(TOPIC, PARTITIONS, 1)
        yield running


def shares(cluster: Cluster) -> list[int]:
    """How many partitions each member of the stable group has."""
    clock = SystemClock()
    answer = ask(InProcessCalls(cluster, clock), GROUP, DescribeGroupsRequest((GROUP,)), clock, 10_000)
    assert isinstance(answer, DescribeGroupsResponse)
    members = [each.member_assignment for each in answer.groups[0].members]
    return sorted(len(decode_assignment(each).partitions) if each else 0 for each in members)


def shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The rows of `strata-consumer-groups --describe`."""
    capsys.readouterr()
    assert consumer_groups.main.call(["--root", cluster.root, "--describe", "--group", GROUP], cluster) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(GROUP)]
    return sorted(lines, key=lambda row: int(row[2]))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_killed_querys_partitions_move_and_no_record_is_skipped(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, other = (MemberProcess(cluster.root, tmp_path / name) for name in ("killed", "other"))
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
            before = killed.batches()
            bound_s = SESSION_TIMEOUT_MS / 1000 + other.batch_s_max() + TAKE_OVER_S
            assert took_s < bound_s
            killed.start()  # its last batch is planned again, without the partitions that the other one has
            wait_until(lambda: shares(cluster) == [6, 6], "they share again", timeout_s=120)
        ends = traffic.ends
        wait_until(lambda: all(int(row[5]) == 0 for row in shown(cluster, capsys)), "no lag", timeout_s=60)
    finally:
        for query in (killed, other):
            query.stop()
    in_flight = max(before)
    again = [rows for number, rows in killed.batches().items() if number >= in_flight]
    read = Counter(row for rows in [*before.values(), *again, *other.batches().values()] for row in rows)
    assert set(read) == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    twice = {row for row, times in read.items() if times > 1}
    print(f"all partitions after {took_s:.1f} s, bound {bound_s:.1f} s; {len(twice)} of {len(read)} records twice")
    assert max(read.values()) <= 2
    assert twice <= set(before[in_flight])
