"""A cluster whose every byte is in an object store: produce, lose a broker, consume, stop, start again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import TopicPartition
from tests.stores.servers import SERVERS, StoreServer
from tests.waiting import wait_until

COUNT = 50
SETTINGS = {
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 4_000,
    "stratalog.fetch.sessions": 1,
    "stratalog.inbox.poll.ms": 500,
    "stratalog.metadata.poll.ms": 200,
    "stratalog.progress.poll.min.ms": 20,
    "stratalog.progress.poll.max.ms": 100,
}


@pytest.fixture(params=SERVERS)
def root(request: pytest.FixtureRequest) -> str:
    server: StoreServer = request.getfixturevalue(request.param)
    return server.new_root()


@pytest.fixture
def cluster(root: str) -> Iterator[Cluster]:
    with Cluster.start(root, fetcher="thread", config=SETTINGS) as running:
        Admin(running).create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": 2})])
        yield running


def send(producer: Producer, values: range) -> list[int]:
    sent = [producer.send("orders", f"order {i}", partition=0) for i in values]
    return [each.result(60).offset for each in sent]


def consumed(root: str, count: int) -> list[tuple[int, bytes | None]]:
    with Consumer(root, auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        found: list[tuple[int, bytes | None]] = []
        wait_until(
            lambda: found.extend((r.offset, r.value) for r in consumer.poll(500)) or len(found) >= count, "records"
        )
        return found


@pytest.mark.timeout(300)
def test_records_outlive_their_leader_and_the_cluster(root: str, cluster: Cluster) -> None:
    assert cluster.root == f"{root}/metadata"
    expected = [(i, b"order %d" % i) for i in range(2 * COUNT)]
    with Producer(cluster, acks="all", delivery_timeout_ms=120_000) as producer:
        assert send(producer, range(COUNT)) == list(range(COUNT))
        assert consumed(cluster.root, COUNT) == expected[:COUNT]
        leader = ClusterView(cluster).leader(TopicPartition("orders", 0))
        cluster.kill(leader)
        assert send(producer, range(COUNT, 2 * COUNT)) == list(range(COUNT, 2 * COUNT))
    assert ClusterView(cluster).leader(TopicPartition("orders", 0)) != leader
    assert consumed(cluster.root, 2 * COUNT) == expected
    cluster.restart(leader)
    wait_until(
        lambda: len(Admin(cluster).describe_topics(["orders"])["orders"].partitions[0].isr) == 3, "all in sync", 60
    )
    cluster.stop()
    assert {"broker-1", "broker-2", "broker-3", "domain", "metadata"} == set(open_store(root).directories())
    with Cluster.start(root, fetcher="thread", config=SETTINGS) as again, Producer(again, acks="all") as producer:
        assert send(producer, range(1)) == [2 * COUNT]


COORDINATED = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "stratalog.inbox.poll.ms": 50,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_and_transactions_need_no_socket(root: str, protocol: str) -> None:
    """By the metadata root alone: requests and answers are objects, and no request is left."""
    with Cluster.start(root, fetcher="thread", config={**SETTINGS, **COORDINATED}) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": 2})])
        with Producer(cluster.root, transactional_id="t", max_block_ms=120_000) as producer:
            producer.init_transactions()
            for is_commit in (True, False):
                producer.begin_transaction()
                sent = [producer.send("orders", f"order {number}", partition=0) for number in range(3)]
                assert [each.result(60).partition for each in sent] == [0] * 3
                producer.commit_transaction() if is_commit else producer.abort_transaction()
        read = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "group_protocol": protocol}
        with Consumer(cluster.root, group_id="g", **read) as consumer:
            consumer.subscribe(["orders"])
            values: list[bytes | None] = []
            wait_until(lambda: values.extend(r.value for r in consumer.poll(500)) or len(values) == 3, "records", 120)
            consumer.commit_sync()
            committed = consumer.committed([TopicPartition("orders", 0)])[TopicPartition("orders", 0)]
        assert values == [b"order 0", b"order 1", b"order 2"]
        assert committed is not None
        assert committed.offset >= 3
        stores = [open_store(f"{root}/broker-{broker_id}") for broker_id in (1, 2, 3)]
        wait_until(lambda: not any(each.list("inbox/") for each in stores), "the last requests")
