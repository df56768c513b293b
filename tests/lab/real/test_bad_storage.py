"""Faulty storage: foreign commits, lost folders, two processes, deleted offsets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import (
    CorruptMessageError,
    ForeignCommitError,
    InconsistentClusterIdError,
    KafkaStorageError,
    LogDirNotFoundError,
    OffsetOutOfRangeError,
    StratalogError,
)
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.domains import only_in_roots
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[3]
PARTITIONS = 4
"""More partitions than brokers: a broker leads two of them, and a fault in one must not affect the other."""
SETTINGS = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 1_500,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as running:
        Admin(running).create_topics([NewTopic("orders", PARTITIONS, 3, {"min.insync.replicas": 2})])
        yield running


def append_foreign_commit(table: Path) -> None:
    """Commit as a writer does that ignores the table's protocol; the ones that keep it refuse."""
    commit = table / "foreign.json"
    commit.write_text(json.dumps({"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "a notebook"}}))
    while True:
        newest = max(int(path.stem) for path in (table / "_delta_log").glob("*.json"))
        try:
            os.link(commit, table / "_delta_log" / f"{newest + 1:020}.json")
        except FileExistsError:
            continue
        return


def replica_of(cluster: Cluster, broker_id: int, partition: int) -> Path:
    return cluster.path / f"broker-{broker_id}" / f"orders-{partition}"


def send(producer: Producer, partition: int, value: str) -> int:
    return producer.send("orders", value, partition=partition).result(20).offset


def isr_of(cluster: Cluster, partition: int) -> tuple[int, ...]:
    return Admin(cluster).describe_topics(["orders"])["orders"].partitions[partition].isr


def test_a_foreign_commit_to_a_leader_s_table_fails_its_partition_clearly_and_no_other(cluster: Cluster) -> None:
    leader = ClusterView(cluster).leader(TopicPartition("orders", 0))
    with Producer(cluster, acks="all", delivery_timeout_ms=30_000, request_timeout_ms=10_000) as producer:
        assert [send(producer, partition, "before") for partition in range(PARTITIONS)] == [0] * PARTITIONS
        append_foreign_commit(replica_of(cluster, leader, 0))
        with pytest.raises(ForeignCommitError, match=r"orders-0: version \d+ .*not committed by stratalog") as caught:
            send(producer, 0, "refused")
        assert (caught.value.name, caught.value.code) == ("KAFKA_STORAGE_ERROR", 56)
        others = range(1, PARTITIONS)
        assert [send(producer, partition, "others go on") for partition in others] == [1 for _ in others]
        wait_until(lambda: ClusterView(cluster).leader(TopicPartition("orders", 0)) != leader, "another leader")
        assert send(producer, 0, "goes on elsewhere") == 1
        assert leader not in isr_of(cluster, 0)


def test_a_foreign_commit_to_a_follower_s_table_costs_only_that_replica(cluster: Cluster) -> None:
    leader = ClusterView(cluster).leader(TopicPartition("orders", 0))
    follower = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
    with Producer(cluster, acks="all") as producer:
        assert send(producer, 0, "before") == 0
        wait_until(lambda: DeltaTable(str(replica_of(cluster, follower, 0))).to_pyarrow_table().num_rows, "a copy")
        append_foreign_commit(replica_of(cluster, follower, 0))
        assert send(producer, 0, "waits until the replica is out of the ISR") == 1
        wait_until(lambda: follower not in isr_of(cluster, 0), f"an ISR without broker {follower}")
        assert send(producer, 0, "goes on") == 2
        assert set(isr_of(cluster, 1)) == {1, 2, 3}
        assert send(producer, 1, "other partitions too") == 0
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        assert [record.offset for record in consumer.poll(5_000)] == [0, 1, 2]


def test_after_a_foreign_commit_another_replica_leads_once_the_broker_is_restarted(cluster: Cluster) -> None:
    """The remedy: the partition has another leader, and the broker leads its other partitions again."""
    leader = ClusterView(cluster).leader(TopicPartition("orders", 0))
    with Producer(cluster, acks="all", delivery_timeout_ms=30_000, request_timeout_ms=10_000) as producer:
        assert send(producer, 0, "before") == 0
        append_foreign_commit(replica_of(cluster, leader, 0))
        with pytest.raises(ForeignCommitError):
            send(producer, 0, "refused")
        cluster.kill(leader)
        wait_until(lambda: ClusterView(cluster).leader(TopicPartition("orders", 0)) != leader, "another leader")
        cluster.restart(leader)
        assert [send(producer, partition, "after") for partition in range(PARTITIONS)] == [1, 0, 0, 0]
        wait_until(lambda: all(leader in isr_of(cluster, p) for p in range(1, PARTITIONS)), "the broker in sync")
        assert leader not in isr_of(cluster, 0)
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        assert [record.value for record in consumer.poll(5_000)] == [b"before", b"after"]


def test_reading_below_the_log_start_is_out_of_range(tmp_path: Path) -> None:
    """The log starts above zero after records were deleted, here while the cluster is down, on every replica."""
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3)])
        with Producer(cluster) as producer:
            assert [send(producer, 0, str(number)) for number in range(5)] == [0, 1, 2, 3, 4]
    for broker_id in (1, 2, 3):
        move_log_start(tmp_path / "cluster" / f"broker-{broker_id}", 3)
    place = TopicPartition("orders", 0)
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as cluster:
        view = ClusterView(cluster.root)
        assert view.offsets.beginning_offsets([place]) == {place: 3}
        with pytest.raises(OffsetOutOfRangeError, match=r"orders-0: offset 2 is outside \[3, 5\]"):
            view.records.read(place, 2, 1_000)
        assert values_from(cluster, place, 3, "none") == [b"3", b"4"]
        assert values_from(cluster, place, 2, "earliest") == [b"3", b"4"]
        with pytest.raises(OffsetOutOfRangeError, match="Fetch position out of range with no reset policy"):
            values_from(cluster, place, 2, "none")
        with Producer(cluster) as producer:
            assert send(producer, 0, "5") == 5


def move_log_start(root: Path, log_start: int) -> None:
    log = PartitionLog(
        DeltaLogTable(open_store(str(root)), "orders-0", RandomIds()), LogConfig(), SystemClock(), RandomIds()
    )
    log.refresh()
    log.start_epoch(log.leader_epoch, as_leader=False, log_start=log_start)


def values_from(cluster: Cluster, place: TopicPartition, offset: int, reset: str) -> list[bytes | None]:
    with Consumer(cluster.root, auto_offset_reset=reset) as consumer:
        consumer.assign([place])
        consumer.seek(place, offset)
        return [record.value for record in consumer.poll(5_000)]


def a_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not a folder")
    return path


def a_broker_folder_that_is_a_file(path: Path) -> Path:
    a_file(path / "broker-2")
    return path


def a_metadata_folder_that_is_a_file(path: Path) -> Path:
    a_file(path / "metadata")
    return path


def a_broker_folder_of_another_cluster(path: Path) -> Path:
    for name in ("one", "other"):
        Cluster.start(path / name, brokers=1, fetcher="thread").stop()
    (path / "one" / "broker-1").rename(path / "gone")
    (path / "other" / "broker-1").rename(path / "one" / "broker-1")
    return path / "one"


def a_torn_meta_properties(path: Path) -> Path:
    only_in_roots("the root has a replica, and is not taken for a new one")
    with Cluster.start(path, brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 1)])
    (path / "broker-1" / "meta.properties").write_text("clus")
    return path


BAD_ROOTS = [
    (a_file, KafkaStorageError, "cannot be used for a cluster"),
    (a_broker_folder_that_is_a_file, StratalogError, "broker-2"),
    (a_metadata_folder_that_is_a_file, StratalogError, "metadata"),
    (a_broker_folder_of_another_cluster, InconsistentClusterIdError, "broker-1"),
    (a_torn_meta_properties, CorruptMessageError, "is torn"),
]


@pytest.mark.parametrize(("prepare", "kind", "text"), BAD_ROOTS)
def test_a_root_that_cannot_be_used_is_refused_by_name(  # type: ignore[no-untyped-def]
    tmp_path: Path, prepare, kind: type[StratalogError], text: str
) -> None:
    path = prepare(tmp_path / "place")
    with pytest.raises(kind, match=text):
        Cluster.start(path, fetcher="thread")


def test_a_client_does_not_create_a_root_without_a_cluster(tmp_path: Path) -> None:
    for client in (Admin, Consumer, Producer, ClusterView):
        with pytest.raises(LogDirNotFoundError, match="nowhere"):
            client(str(tmp_path / "nowhere"))
    assert list(tmp_path.iterdir()) == []


START_ELSEWHERE = """
import sys
from stratalog import Cluster, StratalogError
try:
    Cluster.start(sys.argv[1], fetcher="thread").stop()
except StratalogError as error:
    sys.exit(f"{error.name}: {error}")
"""


def start_elsewhere(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START_ELSEWHERE, str(path)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)


def test_a_second_process_on_the_same_cluster_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "cluster"
    with Cluster.start(path, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3)])
        refused = start_elsewhere(path)
        assert refused.returncode == 1
        why = "another process runs this cluster. Stop that one, or use another path."
        assert refused.stderr == f"KAFKA_STORAGE_ERROR: {path}: {why}\n"
        with Producer(cluster) as producer:
            assert send(producer, 0, "the first one continues") == 0
    after = start_elsewhere(path)
    assert (after.returncode, after.stderr) == (0, "")
