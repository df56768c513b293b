"""A cluster whose store takes as long for a request as one in a cloud: what belongs together is asked for together.

The bounds count round trips, so that a slower machine or a nearer store does not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from tests.stores.cloud.simulated import simulated_cloud
from tests.stores.servers import StoreServer

DELAY_MS, PARTITIONS, BROKERS = 50, 6, 3
RECORDS = 60
TIMEOUT_S = 120

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(params=["versity_server"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server: StoreServer = request.getfixturevalue(request.param)
    with simulated_cloud(server.environment["AWS_ENDPOINT_URL"], f"{DELAY_MS}ms") as cloud:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
        yield server.new_root()


def round_trips(what: str, call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    took = (time.monotonic() - begun) * 1_000 / DELAY_MS
    print(f"{what}: {took:.0f} round trips")
    return took


def start(root: str) -> Cluster:
    return Cluster.start(root, brokers=BROKERS, fetcher="thread")


def send_one(producer: Producer, partition: int) -> None:
    producer.send("orders", "a", partition=partition).result(TIMEOUT_S)


def send_in_a_transaction(producer: Producer) -> None:
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.send("orders", "t", partition=partition)
    producer.commit_transaction()


def read_in_a_group(cluster: Cluster, count: int) -> None:
    with Consumer(cluster, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        found, end_s = 0, time.monotonic() + TIMEOUT_S
        while found < count and time.monotonic() < end_s:
            found += len(consumer.poll(1_000))
        assert found >= count
        consumer.commit_sync()


def test_what_takes_a_cluster_few_round_trips(root: str) -> None:
    """Groups and transactions have internal topics of fifty partitions each, which are made, led and followed."""
    with start(root) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", PARTITIONS, BROKERS)])
        with Producer(cluster, acks="all") as producer:
            send_one(producer, 0)
            assert round_trips("a record", lambda: send_one(producer, 0)) < 40
            for number in range(RECORDS):
                producer.send("orders", "b", partition=number % PARTITIONS)
            producer.flush(TIMEOUT_S)
        assert round_trips("a new group reads", lambda: read_in_a_group(cluster, RECORDS)) < 600
        with Producer(cluster, transactional_id="copier") as producer:
            assert round_trips("a new producer of transactions", producer.init_transactions) < 400
            send_in_a_transaction(producer)
            assert round_trips("a transaction in six partitions", lambda: send_in_a_transaction(producer)) < 200
    begun = time.monotonic()
    with start(root) as cluster, Producer(cluster, acks="all") as producer:
        for partition in range(PARTITIONS):
            send_one(producer, partition)
        started = (time.monotonic() - begun) * 1_000 / DELAY_MS
        print(f"a start with 106 partitions, and a record in each of six: {started:.0f} round trips")
        assert started < 800
