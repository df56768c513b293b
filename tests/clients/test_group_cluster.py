"""Groups over three real brokers: shared partitions, commits, a coordinator that dies, and the tool that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord, OffsetAndMetadata
from stratalog.jobs.records import consume, groups, transactions
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition

QUICK = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
}
T = [TopicPartition("t", number) for number in range(6)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Topic `t` of six partitions, 100 records of ten keys."""
    with Cluster.start(tmp_path_factory.mktemp("groups"), fetcher="thread", config=QUICK) as running:
        Admin(running).create_topic("t", 6, 3)
        with Producer(running) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, key=b"%d" % (number % 10))
            producer.flush()
        yield running


def poll_until(is_done: Callable[[], bool], *consumers: Consumer) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    for _ in range(3_000):
        if is_done():
            return records
        for consumer in consumers:
            records += consumer.poll(10)
    raise AssertionError(f"not so after 3,000 polls: {[sorted(consumer.assignment()) for consumer in consumers]}")


def shared(*consumers: Consumer) -> bool:
    shares = [consumer.assignment() for consumer in consumers]
    return set().union(*shares) == set(T) and sum(map(len, shares)) == len(T) and all(shares)


def test_a_group_reads_each_record_once_and_outlives_its_coordinator(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, object] = {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 100, "client.id": "c"}
    one, two = (Consumer(cluster, {"group.id": "g"} | settings) for _ in range(2))
    for consumer in (one, two):
        consumer.subscribe(["t"])
    records = poll_until(lambda: shared(one, two), one, two)
    records += poll_until(lambda: sum(c.position(tp) for c in (one, two) for tp in c.assignment()) == 100, one, two)
    assert len({(record.partition, record.offset) for record in records}) == 100
    for consumer in (one, two):
        consumer.commit_sync()
    member_ids = {consumer.group_metadata().member_id for consumer in (one, two)}

    view = ClusterView(cluster)
    coordinator = GroupAdmin(StoredGroups(view), view).coordinator("g")
    cluster.kill(coordinator)
    for consumer in (one, two):
        consumer.commit_sync(timeout_ms=30_000)
    assert sum(at.offset for at in one.committed(T).values() if at is not None) == 100
    with Producer(cluster) as producer:
        producer.send("t", b"after", key=b"k")
        producer.flush()
    after = poll_until(lambda: sum(c.position(tp) for c in (one, two) for tp in c.assignment()) == 101, one, two)
    assert [record.value for record in after] == [b"after"]
    assert shared(one, two)
    assert {consumer.group_metadata().member_id for consumer in (one, two)} == member_ids

    assert groups.main.call(["--describe", "--group", "g"], cluster) == 0
    live = capsys.readouterr().out
    assert {line.split()[5] for line in live.splitlines()[2:]} <= {"0", "1"}
    assert groups.main.call(["--root", cluster.root, "--describe", "--group", "g"]) == 0
    assert capsys.readouterr().out == live
    two.close()
    poll_until(lambda: shared(one), one)
    one.close()
    reset = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute"]
    assert groups.main.call(reset, cluster) == 0
    again = Consumer(cluster, {"group.id": "g"} | settings)
    again.subscribe(["t"])
    assert len(poll_until(lambda: sum(again.position(tp) for tp in again.assignment()) == 101, again)) == 101
    again.commit_async({T[0]: OffsetAndMetadata(0)})
    again.close()


def test_a_transaction_moves_records_and_offsets_together(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Consume, transform, produce: what was aborted is neither read nor committed."""
    Admin(cluster).create_topic("out", 1, 3)
    settings: dict[str, object] = {"group.id": "mover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(cluster, settings)
    consumer.subscribe(["t"])
    producer = Producer(cluster, {"transactional.id": "mover-1"})
    producer.init_transactions()
    for is_commit in (False, True):
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        records = poll_until(lambda: len(consumer.assignment()) == 6, consumer)
        records += poll_until(lambda: sum(consumer.position(tp) for tp in T) == 100, consumer)
        assert len(records) == 100
        producer.begin_transaction()
        for record in records:
            producer.send("out", record.value)
        offsets = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in T}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert sum(at.offset for at in consumer.committed(T).values() if at is not None) == 100
    consumer.close()
    producer.close()
    shown = ["--root", cluster.root, "--topic", "out", "--from-beginning", "--timeout-ms", "500"]
    for level, count in (("read_committed", 100), ("read_uncommitted", 200)):
        capsys.readouterr()
        assert consume.main.call([*shown, "--isolation-level", level]) == 0
        assert len(capsys.readouterr().out.split()) == count
    assert transactions.main.call(["--root", cluster.root, "list"]) == 0
    assert capsys.readouterr().out.split()[4::4] == ["mover-1"]


def test_the_console_consumer_in_a_group_goes_on_where_it_stopped(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--topic", "t", "--group", "shown", "--from-beginning"]
    printed: list[str] = []
    for more in (["--max-messages", "30"], ["--max-messages", "70"]):
        assert consume.main.call([*flags, *more], cluster) == 0
        printed += capsys.readouterr().out.split()
    assert sorted(map(int, printed)) == list(range(100))
    offsets = ["--root", cluster.root, "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "500"]
    formatter = ["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"]
    assert consume.main.call([*offsets, *formatter]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    newest = {line["key"]["data"]["partition"]: line["value"]["data"]["offset"] for line in lines}
    assert {line["key"]["data"]["group"] for line in lines} == {"shown"}
    assert sum(newest.values()) == 100
