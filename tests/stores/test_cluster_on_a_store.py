"""A cluster whose every byte is in an object store: produce, lose a broker, consume, stop, start again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.admin.admin import Admin, NewTopic
from stratalog.clients.cluster import Cluster
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.storage.objects.remote import open_store
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
    assert {"broker-1", "broker-2", "broker-3", "metadata"} == set(open_store(root).directories())
    with Cluster.start(root, fetcher="thread", config=SETTINGS) as again, Producer(again, acks="all") as producer:
        assert send(producer, range(1)) == [2 * COUNT]
