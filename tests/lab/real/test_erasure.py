"""An erasure reaches every replica, also one that was down and one that became leader meanwhile, and is proved."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRequestError, UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition
from tests.domains import only_in_roots
from tests.lab.real.harness.parties import replicas_are_equal
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[3]
BROKERS = (1, 2, 3)
PARTITIONS = 2
SETTINGS = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 1_500,
    "stratalog.upkeep.interval.ms": 100,
    "stratalog.tail.cache.bytes": 0,
}
BOB = {"key": {"equals": "bob"}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as running:
        configs = {"min.insync.replicas": 1, "file.delete.delay.ms": 500}
        Admin(running).create_topics([NewTopic("events", PARTITIONS, 3, configs)])
        yield running


def send(cluster: Cluster, count: int, word: str) -> None:
    """Send `count` records of bob and of eve to each partition, in turn."""
    with Producer(cluster, acks="all") as producer:
        for number in range(count):
            for partition in range(PARTITIONS):
                for key in ("bob", "eve"):
                    producer.send("events", f"{word}-{key}-{number}", key=key, partition=partition)
        producer.flush(30)


def records_of(cluster: Cluster, partition: int) -> list[tuple[int, bytes | None]]:
    found = []
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([("events", partition)])
        end = consumer.end_offsets([TopicPartition("events", partition)])[TopicPartition("events", partition)]
        while consumer.position(TopicPartition("events", partition)) < end:
            found += [(record.offset, record.key) for record in consumer.poll(1_000)]
    return found


def keys_on_disk(path: Path, broker_id: int) -> set[tuple[bytes, bool]]:
    """`(key, whether it was sent first)` of every row of every data file of the replica, in the log or not."""
    found: set[tuple[bytes, bool]] = set()
    for file in (path / f"broker-{broker_id}").glob("events-*/segment=*/**/*.parquet"):
        rows = pq.read_table(file, columns=["key", "value"]).to_pylist()
        found |= {(row["key"], row["value"].startswith(b"first")) for row in rows}
    return found


def leads_now(view: ClusterView, place: TopicPartition) -> int:
    view.refresh()
    return view.image.partition(place).leader


def is_fenced(view: ClusterView, broker_id: int) -> bool:
    view.refresh()
    return view.image.brokers[broker_id].fenced


def test_an_erasure_reaches_every_replica_and_is_proved(cluster: Cluster) -> None:
    only_in_roots("each replica erases its own records")
    admin, place = Admin(cluster), TopicPartition("events", 0)
    send(cluster, 5, "first")
    wait_until(lambda: replicas_are_equal(cluster.path, "events", BROKERS, PARTITIONS), "equal replicas")
    view = ClusterView(cluster)
    leader = view.leader(place)
    away = next(each for each in BROKERS if each != leader)
    cluster.kill(away)  # its fetch session lives on until it sees that its broker was fenced
    wait_until(lambda: is_fenced(view, away), "a fenced broker")
    erase_id = admin.delete_where("events", BOB)
    assert erase_id == 1
    wait_until(lambda: sum(r.is_erased for r in admin.describe_erasure("events", 1).replicas) == 4, "the others' part")
    assert not admin.describe_erasure("events", 1).is_erased
    cluster.kill(leader)
    wait_until(lambda: leads_now(view, place) not in (leader, away), "another leader")
    send(cluster, 2, "later")
    cluster.restart(away)
    cluster.restart(leader)
    wait_until(lambda: admin.describe_erasure("events", 1).is_gone, "all of it gone from every replica", 90)
    wait_until(lambda: replicas_are_equal(cluster.path, "events", BROKERS, PARTITIONS), "equal replicas again")
    report = admin.describe_erasure("events", 1)
    assert [(r.topic_partition.partition, r.broker_id) for r in report.replicas] == [
        (partition, broker_id) for partition in range(PARTITIONS) for broker_id in BROKERS
    ]
    assert {(r.records_left, r.files_waiting, r.error) for r in report.replicas} == {(0, 0, None)}
    assert all(r.is_applied for r in report.replicas)
    assert max(r.records_erased for r in report.replicas) == 5
    for broker_id in BROKERS:
        assert keys_on_disk(cluster.path, broker_id) == {(b"eve", True), (b"eve", False), (b"bob", False)}
    for partition in range(PARTITIONS):
        eves = [(2 * number + 1, b"eve") for number in range(5)]
        assert records_of(cluster, partition) == [*eves, (10, b"bob"), (11, b"eve"), (12, b"bob"), (13, b"eve")]


def test_the_tool_erases_waits_and_reports(cluster: Cluster) -> None:
    send(cluster, 3, "first")
    where = '{"all": [{"key": {"equals": "bob"}}, {"value": {"begins_with": "first-bob-1"}}]}'
    tool = [sys.executable, "-m", "stratalog", "delete-where", "--root", cluster.root, "--topic", "events"]
    asked = [*tool, "--where", where, "--wait-seconds", "60"]
    done = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Erasure 1 of topic events:"
    assert lines[-1] == "Erased on all 6 replicas, and gone from storage."
    assert len(lines) == 2 + 6 + 1
    assert len(records_of(cluster, 0)) == 5
    again = subprocess.run(
        [*tool, "--report", "1"], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, lines[-1])


def test_what_the_deletion_of_a_replica_left_is_reported_and_deleted_at_the_next_start(cluster: Cluster) -> None:
    """A process that ended while it deleted a table leaves files under a name that nobody reads."""
    admin = Admin(cluster)
    send(cluster, 3, "first")
    admin.delete_where("events", BOB)
    wait_until(lambda: admin.describe_erasure("events", 1).is_gone, "all of it gone from every replica", 90)
    root = cluster.path / "broker-1"
    left = root / f"events-0.{'0123456789abcdef' * 2}-delete"
    shutil.copytree(root / "events-0", left)
    report = admin.describe_erasure("events", 1)
    files = len(list(left.glob("segment=*/**/*.parquet")))
    assert [(each.broker_id, each.directory, each.file_count) for each in report.leftovers] == [(1, left.name, files)]
    assert (report.is_erased, report.is_gone, files > 0) == (True, False, True)
    cluster.kill(1)
    cluster.restart(1)
    wait_until(lambda: not left.exists(), "the leftover deleted")
    assert admin.describe_erasure("events", 1).is_gone


def test_what_cannot_be_erased_is_refused(cluster: Cluster) -> None:
    admin = Admin(cluster)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_where("nothing", BOB)
    with pytest.raises(InvalidRequestError, match="unknown name 'offset'"):
        admin.delete_where("events", {"offset": 3})
    with pytest.raises(InvalidRequestError, match=r"no erasure 1, only \[\]"):
        admin.describe_erasure("events", 1)
