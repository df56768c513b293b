"""A streaming query copies a topic in transactions, and is killed at random moments: driver, executor, or what commits.

For readers under read_committed each input is in the output exactly once, and of a batch all or nothing is there:
what is visible ends, in every partition of the input, where a batch of Spark's offset log ends, and exactly there the
group stands, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.clients.producer.producer import Producer
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import view_of
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition
from tests.lab.real.processes.copying_query import MASTER
from tests.lab.real.processes.python_workers import running
from tests.lab.real.processes.query_process import QueryProcess
from tests.lab.real.processes.standalone_spark import StandaloneSpark
from tests.waiting import wait_until

SOURCE, TARGET, NAME = "orders", "copies", "copy"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 4, 3
COMMITTER, DRIVER, EXECUTOR = "committer", "driver", "executor"
MODULES = {"copying_query": "python_streaming_sink_runner", "micro_batches": "multiprocessing.spawn"}
"""Modules of processes with a query: Spark's, and one that calls the format as Spark does; for each, the module that
runs where batches are committed."""
UP_S_MAX = 6.0
"""Longest time for which a query runs until it is killed."""
AHEAD_MAX = 1_000
"""Records of a partition that wait for the query; more are not sent, so that the end comes soon after the last kill."""
CONFIG = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
SHARE = ("stratalog.group.mode=share", "stratalog.auto.offset.reset=earliest", "startingOffsets=group")
MEMBER = ("kafka.session.timeout.ms=6000", "kafka.heartbeat.interval.ms=500")
Ends = tuple[int, ...]


class Traffic:
    """Numbered records to all partitions of the source, until the block ends. `copied`: those of a partition that the
    query has copied, as far as is known."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.sent = 0
        self.copied = 0

    def _produce(self) -> None:
        with Producer(self._cluster) as producer:
            while not self._is_over.wait(0.1):
                if self.sent - self.copied >= AHEAD_MAX:
                    continue
                for partition in range(SOURCE_PARTITIONS):
                    name = f"{partition}:{self.sent}"
                    producer.send(SOURCE, name, key=name, partition=partition)
                self.sent += 1

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


class Copies:
    """What is visible of the copying query."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._committed = view_of("read_committed")(cluster.root)
        self._groups = ClusterView(cluster.root)
        self._folder = folder
        self._names: list[str] = []
        self._read_to = {TopicPartition(TARGET, number): 0 for number in range(TARGET_PARTITIONS)}

    def names(self) -> list[str]:
        """The visible records, each `<partition>:<offset>` of its input."""
        for topic_partition, end in self._committed.offsets.end_offsets(list(self._read_to)).items():
            while (offset := self._read_to[topic_partition]) < end:
                fetched = self._committed.records.fetch(topic_partition, offset, 1 << 20, end)
                is_record = [not each & CONTROL_ATTRIBUTE for each in fetched.rows["attributes"].to_pylist()]
                values = fetched.rows["value"].filter(pa.array(is_record, pa.bool_())).to_pylist()
                self._names += [value.decode() for value in values]
                self._read_to[topic_partition] = fetched.next_offset
        return self._names

    def visible(self) -> Ends:
        """How many records of each partition of the input are visible; they are its first, each once."""
        names = self.names()
        twice = [name for name, times in Counter(names).items() if times > 1]
        assert not twice, f"visible twice: {twice[:10]}"
        found = [sorted(int(n.split(":")[1]) for n in names if n.startswith(f"{p}:")) for p in range(SOURCE_PARTITIONS)]
        assert all(offsets == list(range(len(offsets))) for offsets in found), "a record is skipped"
        return tuple(len(offsets) for offsets in found)

    def of_group(self) -> Ends:
        self._groups.refresh()
        found = GroupAdmin(StoredGroups(self._groups), self._groups).committed(NAME)
        offsets = {tp.partition: each.offset for tp, each in found.items()}
        return tuple(offsets.get(number, 0) for number in range(SOURCE_PARTITIONS))

    def of_batches(self) -> set[Ends]:
        """Where the batches of Spark's offset log end, and the beginning."""
        ends = {(0,) * SOURCE_PARTITIONS}
        for path in (self._folder / "checkpoint" / "offsets").glob("[0-9]*"):
            offsets = json.loads(path.read_text().splitlines()[-1]).get(SOURCE, {})
            ends.add(tuple(int(offsets.get(str(number), 0)) for number in range(SOURCE_PARTITIONS)))
        return ends


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=CONFIG) as running_cluster:
        Admin(running_cluster).create_topic(SOURCE, SOURCE_PARTITIONS, 1)
        Admin(running_cluster).create_topic(TARGET, TARGET_PARTITIONS, 1)
        yield running_cluster


def kill_committer(query: QueryProcess, module: str) -> bool:
    """Kill the processes in which batches are committed; False if there are none now."""
    found = running(module, query.pid)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


def kill_executor(spark: StandaloneSpark, chance: random.Random) -> bool:
    """Kill one executor's JVM; False if there is none now."""
    found = spark.executor_processes()
    if found:
        os.kill(chance.choice(found), signal.SIGKILL)
    return bool(found)


def check_between_runs(copies: Copies) -> None:
    """With nobody running: the markers of a transaction that was committed may still be on their way."""
    wait_until(lambda: copies.visible() == copies.of_group(), "the group stands where the output ends", timeout_s=30)
    assert copies.visible() in copies.of_batches(), "a part of a batch is visible"


def kills(
    cluster: Cluster,
    query: QueryProcess,
    victims: list[str],
    seed: int,
    spark: StandaloneSpark | None = None,
) -> Counter[str]:
    """Kill the query as often as there are victims; check what is visible whenever nobody runs, and in the end.

    What happened, by kind: kills, failures that the driver saw, records.
    """
    chance, done = random.Random(seed), Counter[str]()
    copies = Copies(cluster, query.folder)
    starts = 0
    try:
        query.start()
        with Traffic(cluster) as traffic:
            for victim in victims:
                # a query counts as running when it has made something visible since it was started
                wait_until(lambda: query.started_count() > starts, "the query is started", timeout_s=180)  # noqa: B023
                before = len(copies.names())
                traffic.copied = before // SOURCE_PARTITIONS
                wait_until(lambda: len(copies.names()) > before, "the query copies", timeout_s=180)  # noqa: B023
                time.sleep(chance.uniform(0, UP_S_MAX))
                starts = query.started_count()
                if victim == COMMITTER:
                    wait_until(lambda: kill_committer(query, MODULES[query.module]), "a process that commits")
                elif spark is not None and victim == EXECUTOR:
                    wait_until(lambda: kill_executor(spark, chance), "an executor")
                else:
                    query.kill()
                    check_between_runs(copies)
                    query.start()
                done[victim] += 1
                if victim != DRIVER:
                    starts = max(0, starts - 1)  # what was idle is replaced without a failure, an executor always
        # markers reach the partitions one after the other, so that records are only counted while the query runs
        while (before := len(copies.names())) < traffic.sent * SOURCE_PARTITIONS:
            wait_until(lambda: len(copies.names()) > before, "the query copies what is left", timeout_s=180)
        wait_until(lambda: copies.visible() == copies.of_group(), "the group stands at the end", timeout_s=30)
    finally:
        query.stop()
    assert copies.visible() in copies.of_batches()
    done["failed"] = (query.folder / "output").read_text().count("failed: ")
    done["records"] = len(copies.names())
    return done


def copying(module: str, cluster: Cluster, folder: Path, *settings: str) -> QueryProcess:
    return QueryProcess(module, folder, cluster.root, SOURCE, TARGET, NAME, str(folder), *settings)


IN_BOTH_MODES = pytest.mark.parametrize("settings", [(), (*SHARE, *MEMBER)], ids=["commit", "share"])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_three_kills_leave_every_input_once(cluster: Cluster, tmp_path: Path) -> None:
    query = copying("micro_batches", cluster, tmp_path / "query")
    print(kills(cluster, query, [COMMITTER, DRIVER, COMMITTER], 1))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3_000)
@IN_BOTH_MODES
def test_thirty_kills_leave_every_input_once(cluster: Cluster, tmp_path: Path, settings: tuple[str, ...]) -> None:
    victims = random.Random(2).choices([COMMITTER, DRIVER], k=30)
    print(kills(cluster, copying("micro_batches", cluster, tmp_path / "query", *settings), victims, 2))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3_000)
@IN_BOTH_MODES
def test_thirty_kills_of_sparks_processes_leave_every_input_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    """On a standalone cluster, whose executors are processes of their own."""
    victims = random.Random(3).choices([COMMITTER, DRIVER, EXECUTOR], k=30)
    with StandaloneSpark(tmp_path / "spark") as spark:
        monkeypatch.setenv(MASTER, spark.url)
        query = copying("copying_query", cluster, tmp_path / "query", *settings)
        print(kills(cluster, query, victims, 3, spark))
