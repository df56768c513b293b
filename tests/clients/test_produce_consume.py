"""Producing and consuming over three real brokers: storage, followers, elections, other processes, bad input."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.partitioner import partition_for_key
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StratalogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition

QUICK_SESSIONS = {"broker.session.timeout.ms": 1_500, "broker.heartbeat.interval.ms": 300}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("cluster"), fetcher="thread", config=QUICK_SESSIONS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Admin:
    return Admin(cluster)


def read_all(cluster: Cluster | str, topic: str, count: int, timeout_s: float = 20) -> list[ConsumerRecord]:
    """The first `count` records and whatever comes within a moment after them."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_all(topic)
        while len(records) < count and time.monotonic() < deadline:
            records.extend(consumer.poll(200))
        return records + consumer.poll(100)


def test_what_is_produced_is_consumed_in_order_from_every_partition(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("orders", 3, 3, {"retention.ms": -1})])
    with Producer(cluster) as producer:
        sent = [producer.send("orders", f"{i}", key=f"k{i % 7}", timestamp_ms=1_000 + i) for i in range(700)]
        stored = [future.result(20) for future in sent]
    records = read_all(cluster, "orders", 700)
    assert len(records) == 700
    by_place = {(r.partition, r.offset): r for r in records}
    for i, metadata in enumerate(stored):
        record = by_place[metadata.partition, metadata.offset]
        assert (record.key, record.value, record.timestamp_ms) == (b"k%d" % (i % 7), b"%d" % i, 1_000 + i)
        assert metadata.partition == partition_for_key(b"k%d" % (i % 7), 3)


def test_a_table_goes_in_and_comes_out_as_a_table(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("tables", 3, 3)])
    rows = pa.table({"key": [f"k{i}" for i in range(5_000)], "value": [b"%0100d" % i for i in range(5_000)]})
    with Producer(cluster) as producer:
        assert producer.send_table("tables", rows).result(20).record_count == 5_000
    values: list[bytes] = []
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign_all("tables")
        while len(values) < 5_000 and (table := consumer.poll_table(5_000)).num_rows:
            values.extend(table["value"].to_pylist())
    assert sorted(values) == rows["value"].to_pylist()


def test_a_leader_dies_and_nothing_is_lost_doubled_or_reordered(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("survivors", 3, 3, {"min.insync.replicas": 2})])
    victim = admin.describe_topics(["survivors"])["survivors"].partitions[0].leader
    acked: dict[str, list[int]] = defaultdict(list)
    is_over = threading.Event()

    def produce() -> None:
        number = 0
        with Producer(cluster, acks="all", batch_size=2_000) as producer:
            while not is_over.is_set():
                keys = [f"k{i}" for i in range(10)]
                sent = [(key, number, producer.send("survivors", str(number), key=key)) for key in keys]
                for key, value, future in sent:
                    future.result(60)
                    acked[key].append(value)
                number += 1

    writer = threading.Thread(target=produce)
    writer.start()
    time.sleep(0.5)
    cluster.kill(victim)
    before = len(acked["k0"])
    wait_until(lambda: all(s.leader not in (-1, victim) for s in partitions_of(admin, "survivors")))
    wait_until(lambda: len(acked["k0"]) > before + 20)
    is_over.set()
    writer.join(60)
    cluster.restart(victim)

    count = sum(map(len, acked.values()))
    records = read_all(cluster, "survivors", count)
    assert len(records) == count
    consumed: dict[str, list[int]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        assert record.value is not None
        consumed[record.key.decode()].append(int(record.value))
    assert consumed == acked
    wait_until(lambda: all(len(s.isr) == 3 for s in partitions_of(admin, "survivors")))


def partitions_of(admin: Admin, topic: str):  # type: ignore[no-untyped-def]
    return admin.describe_topics([topic])[topic].partitions


def wait_until(is_so, timeout_s: float = 30) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


PRODUCE_ELSEWHERE = """
import sys
from stratalog.clients.producer.producer import Producer
with Producer(sys.argv[1], acks="all") as producer:
    sent = [producer.send("elsewhere", str(i), partition=i % 2) for i in range(400)]
    print(sum(future.result(30).offset for future in sent))
"""


def test_another_process_produces_through_the_inbox(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("elsewhere", 2, 3)])
    done = subprocess.run(
        [sys.executable, "-c", PRODUCE_ELSEWHERE, cluster.root],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 2 * sum(range(200))
    records = read_all(cluster.root, "elsewhere", 400)
    for partition in (0, 1):
        values = [int(r.value or b"") for r in records if r.partition == partition]
        assert values == list(range(partition, 400, 2))


def test_an_inbox_producer_follows_a_leader_change(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("moved", 1, 3)])
    victim = partitions_of(admin, "moved")[0].leader
    with Producer(cluster.root) as producer:
        assert producer.send("moved", "0").result(20).offset == 0
        cluster.kill(victim)
        assert [producer.send("moved", str(i)).result(30).offset for i in (1, 2)] == [1, 2]
    cluster.restart(victim)
    assert [r.value for r in read_all(cluster, "moved", 3)] == [b"0", b"1", b"2"]


def test_topics_are_described_altered_and_deleted(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("passing", 2, 2, {"retention.ms": 5_000})])
    description = admin.describe_topics(["passing"])["passing"]
    assert [(len(s.replicas), len(s.isr)) for s in description.partitions] == [(2, 2), (2, 2)]
    assert admin.alter_configs("passing", {"retention.ms": None, "max.message.bytes": 9_999}) == {
        "max.message.bytes": "9999"
    }
    configs = {entry.name: entry for entry in admin.describe_configs("passing")}
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].is_default) == ("9999", False)
    assert configs["retention.ms"].is_default
    assert admin.create_partitions("passing", 3) == 1
    admin.delete_topics(["passing"])
    assert "passing" not in admin.list_topics()
    assert len(admin.describe_cluster().brokers) == 3
    wait_until(lambda: not list(cluster.path.glob("broker-*/passing-*")))


BAD_TOPICS: list[tuple[NewTopic, type[StratalogError], str]] = [
    (NewTopic("", 1, 1), InvalidTopicError, "the empty string is not allowed"),
    (NewTopic("a b", 1, 1), InvalidTopicError, "contains one or more characters other than ASCII alphanumerics"),
    (NewTopic("kept", 1, 1), TopicAlreadyExistsError, "Topic 'kept' already exists."),
    (NewTopic("new", 0, 1), InvalidPartitionsError, "Number of partitions"),
    (NewTopic("new", 1, 4), InvalidReplicationFactorError, "Replication factor: 4 larger than available brokers: 3."),
    (NewTopic("new", 1, 0), InvalidReplicationFactorError, "Replication factor"),
    (NewTopic("new", replica_assignment={0: [1, 1]}), InvalidReplicaAssignmentError, "the broker 1 more than once"),
    (NewTopic("new", replica_assignment={0: [1, 9]}), InvalidReplicaAssignmentError, "9"),
    (NewTopic("new", 1, 1, {"retention.mss": 1}), InvalidConfigError, "Unknown topic config name: retention.mss"),
    (
        NewTopic("new", 1, 1, {"min.insync.replicas": 0}),
        InvalidConfigError,
        "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
    ),
    (NewTopic("new", 1, 1, {"cleanup.policy": "shred"}), InvalidConfigError, "Invalid value shred"),
]


@pytest.fixture(scope="module")
def kept(admin: Admin) -> str:
    admin.create_topics([NewTopic("kept", 1, 3, {"max.message.bytes": 2_000})])
    return "kept"


@pytest.mark.parametrize(("topic", "kind", "text"), BAD_TOPICS)
def test_a_bad_topic_is_refused_and_leaves_nothing(
    admin: Admin, kept: str, topic: NewTopic, kind: type[StratalogError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        admin.create_topics([topic])
    assert "new" not in admin.list_topics()


BAD_RECORDS: list[tuple[dict[str, object], type[StratalogError], str]] = [
    ({"topic": "nowhere"}, UnknownTopicOrPartitionError, "Topic nowhere not present in metadata"),
    ({"topic": "kept", "partition": 1}, UnknownTopicOrPartitionError, r"1 is not in the range \[0...1\)"),
    ({"topic": "kept", "value": b"x" * 3_000}, RecordTooLargeError, "max.message.bytes 2000"),
    ({"topic": "kept", "value": b"x" * 2_000_000}, RecordTooLargeError, "max.request.size"),
]


@pytest.mark.parametrize("way", ["in process", "inbox"])
@pytest.mark.parametrize(("record", "kind", "text"), BAD_RECORDS)
def test_a_bad_record_is_refused_and_the_next_one_stored(
    cluster: Cluster, kept: str, way: str, record: dict[str, object], kind: type[StratalogError], text: str
) -> None:
    with Producer(cluster if way == "in process" else cluster.root, max_block_ms=50) as producer:
        with pytest.raises(kind, match=text):
            producer.send(**record).result(20)  # type: ignore[arg-type]
        assert producer.send(kept, "good").result(20).offset >= 0


def test_a_batch_above_max_message_bytes_is_split_and_stored(cluster: Cluster, kept: str) -> None:
    for target in (cluster, cluster.root):
        with Producer(target, linger_ms=50) as producer:
            offsets = [f.result(20).offset for f in [producer.send(kept, b"x" * 500) for _ in range(20)]]
        assert offsets == list(range(offsets[0], offsets[0] + 20))


def test_reading_outside_the_log_follows_the_reset_policy(cluster: Cluster, kept: str) -> None:
    place = TopicPartition(kept, 0)
    with Consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, 1_000_000)
        with pytest.raises(OffsetOutOfRangeError, match="Fetch position out of range with no reset policy"):
            consumer.poll(1_000)
    with pytest.raises(UnknownTopicOrPartitionError, match="no such topic"), Consumer(cluster) as consumer:
        consumer.assign([("nowhere", 0)])
