"""Fetch sessions on Spark when something goes wrong: a worker is killed, the session has too few slots."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.replication.follower.sessions.heartbeats import ACTIVE, STANDBY
from stratalog.replication.progress.progress import ENDED, progress_header
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.objects.opened import open_store
from tests.lab.real.harness.history import ACK, FAIL, History, assert_clean
from tests.lab.real.harness.parties import Reader, Writer, events_with_replicas
from tests.lab.real.processes.python_workers import busiest_worker, kill, python_workers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, PARTITIONS, BROKERS = "orders", 2, (1, 2, 3)
PUBLISHED_MS = 900
TAKE_OVER_MS_MAX = 4_000
"""The longest silence allowed: a standby session becomes active after a second; the rest is for a busy machine."""


@contextmanager
def producing(cluster: Cluster, history: History) -> Iterator[Admin]:
    """A writer and a reader at work on a replicated topic; in the end all replicas are equal and nothing is lost."""
    admin = Admin(cluster)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
    with (
        Reader(cluster.root, TOPIC, history, "reader"),
        Writer(cluster, TOPIC, history, "writer", key_count=4, pause_s=0.02),
    ):
        await_acks(history)
        yield admin
    events = events_with_replicas(history, cluster.path, TOPIC, BROKERS, PARTITIONS)
    assert [event.value for event in events if event.kind == FAIL] == []
    assert_clean(events)


def all_have_two_sessions(cluster: Cluster) -> bool:
    return all(states == [ACTIVE, STANDBY] for states in session_states(cluster).values())


def session_states(cluster: Cluster) -> dict[int, list[str]]:
    """The states of each broker's fetch sessions that still publish and are not ended."""
    found: dict[int, list[str]] = {}
    for broker_id in cluster.brokers():
        broker = cluster.broker(broker_id)
        objects, prefix = open_store(broker.root), f"progress/{broker.broker_epoch}/fetch-"
        now_ms = time.time() * 1_000
        fresh = [
            meta.path
            for meta in objects.list(f"progress/{broker.broker_epoch}/")
            if meta.path.startswith(prefix) and now_ms - meta.last_modified_ms < PUBLISHED_MS
        ]
        states = [progress_header(objects.get_register(path) or b"").state for path in fresh]
        found[broker_id] = sorted(state for state in states if state != ENDED)
    return found


def await_acks(history: History, count: int = 100, timeout_s: float = 60) -> None:
    enough = history.counts[ACK] + count
    wait_until(lambda: history.counts[ACK] > enough, f"{count} more acknowledgements", timeout_s)


def longest_silence_ms(history: History, since_ms: int) -> int:
    """The longest time between two acknowledgements."""
    times = [event.time_ms for event in history.events() if event.kind == ACK and event.time_ms >= since_ms]
    return max(after - before for before, after in pairwise(times))


def last_ack_ms(history: History) -> int:
    return max(event.time_ms for event in history.events() if event.kind == ACK)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_fetch_worker_is_replaced_by_the_standby_session(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    with (
        Cluster.start(tmp_path / "cluster", spark=spark, fetcher="spark") as cluster,
        producing(cluster, history) as admin,
    ):
        for _ in range(2):
            wait_until(lambda: all_have_two_sessions(cluster), "a session at work and one that stands by everywhere")
            since_ms = last_ack_ms(history)
            kill(busiest_worker())
            await_acks(history, 200)
            assert longest_silence_ms(history, since_ms) < TAKE_OVER_MS_MAX
            assert all(len(state.isr) == 3 for state in admin.describe_topics([TOPIC])[TOPIC].partitions)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_fetch_workers_killed_at_once_are_started_again(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    with (
        Cluster.start(tmp_path / "cluster", spark=spark, fetcher="spark") as cluster,
        producing(cluster, history) as admin,
    ):
        wait_until(lambda: all_have_two_sessions(cluster), "a session at work and one that stands by everywhere")
        for worker in python_workers():
            kill(worker)
        await_acks(history, 200)
        wait_until(
            lambda: all(len(state.isr) == 3 for state in admin.describe_topics([TOPIC])[TOPIC].partitions),
            "all replicas in sync",
        )


def test_a_session_with_too_few_slots_gets_followers_in_threads_and_a_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "stratalog.cluster"),
        Cluster.start(tmp_path / "cluster", brokers=5, spark=spark) as cluster,
    ):
        assert cluster.fetcher == "thread"
        Admin(cluster).create_topics([NewTopic(TOPIC, 1, 5, {"min.insync.replicas": 5})])
        with Producer(cluster, acks="all") as producer:
            assert producer.send(TOPIC, "stored by all five").result(30).offset == 0
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "stratalog.cluster"]
    assert "followers fetch in threads" in warning
    slots = spark.sparkContext.defaultParallelism
    assert f"executors run {slots} tasks at once, and 10 fetch sessions would hold 10 of them" in warning


HIDING = """
import os, sys
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name == "stratalog" and os.path.exists({flag!r}):
            raise ModuleNotFoundError("No module named 'stratalog'", name=name)
sys.meta_path.insert(0, Hiding())
"""


@contextmanager
def workers_without_the_package(spark: SparkSession, folder: Path) -> Iterator[Path]:
    """Python workers of queries that start now cannot import `stratalog` while the file exists that is yielded."""
    hiding, flag = folder / "hiding", folder / "hidden"
    hiding.mkdir()
    flag.touch()
    (hiding / "sitecustomize.py").write_text(HIDING.format(flag=str(flag)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(hiding))
        yield flag


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_follower_whose_workers_lack_the_package_fetches_in_threads_until_spark_works(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"stratalog.fetch.retry.ms": 2_000}
    with (
        caplog.at_level(logging.WARNING, "stratalog.fetcher"),
        workers_without_the_package(spark, tmp_path) as flag,
        Cluster.start(tmp_path / "cluster", spark=spark, fetcher="spark", config=settings) as cluster,
    ):
        admin = Admin(cluster)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 3})])
        with Producer(cluster, acks="all") as producer:
            assert producer.send(TOPIC, "stored by all three", partition=0).result(30).offset == 0
            assert all(len(state.isr) == 3 for state in admin.describe_topics([TOPIC])[TOPIC].partitions)
            assert in_threads(cluster) == {1: 1, 2: 1, 3: 1}
            assert "No module named 'stratalog'" in admin.describe_log_dirs()[2].fetches_in_threads
            flag.unlink()
            wait_until(lambda: in_threads(cluster) == {1: 0, 2: 0, 3: 0}, "followers on Spark again", 120)
            wait_until(lambda: all_have_two_sessions(cluster), "two sessions of every follower on Spark", 120)
            assert producer.send(TOPIC, "again by all three", partition=0).result(30).offset == 1
        assert admin.describe_log_dirs()[2].fetches_in_threads == ""
    told = [record.getMessage() for record in caplog.records if "fetches in a thread" in record.getMessage()]
    assert sorted(message.partition(":")[0] for message in told) == ["broker 1", "broker 2", "broker 3"]
    assert all("No module named 'stratalog'" in message and "PYTHONPATH" in message for message in told)
    assert all("\n\tat " not in message for message in told)


def in_threads(cluster: Cluster) -> dict[int, float]:
    """The metric of each broker: 1 while it fetches in threads."""
    found = {i: [m for m in metrics if m.name.endswith("_inthreads")] for i, metrics in cluster.metrics().items()}
    return {broker_id: value for broker_id, [metric] in found.items() for value in metric.values.values()}
