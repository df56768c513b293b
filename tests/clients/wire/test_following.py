"""A consumer, by brokers' addresses or by the root, goes on reading what is produced later, wherever it was before."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.wire.view import WireView
from stratalog.clients.wire.wire_cluster import WireCluster
from stratalog.server.admin.admin import NewTopic
from stratalog.storage.records import TopicPartition
from stratalog.testing import InMemoryCluster

NUMBERS = count()
POLL_MS, AWAITED_S = 20, 20
STEPS = 12
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class Reader:
    """A consumer of one partition beside its producer, and what the partition has."""

    def __init__(self, consumer: Consumer, producer: Producer, place: TopicPartition) -> None:
        self.consumer, self._producer, self.place = consumer, producer, place
        self.values: list[str] = []
        self.position = 0
        consumer.assign([place])

    def produce(self, records: int) -> None:
        for _ in range(records):
            self.values.append(f"value {len(self.values)}")
            self._producer.send(self.place.topic, self.values[-1], partition=self.place.partition)
        self._producer.flush()

    def seek(self, offset: int) -> None:
        self.consumer.seek(self.place, offset)
        self.position = offset

    def seek_to_beginning(self) -> None:
        self.consumer.seek_to_beginning()
        self.position = 0

    def seek_to_end(self) -> None:
        self.consumer.seek_to_end()
        self.position = len(self.values)

    def lag(self) -> None:
        found = self.consumer.current_lag(self.place)
        assert found is None or found >= 0

    def poll(self, timeout_ms: int = POLL_MS) -> None:
        for record in self.consumer.poll(timeout_ms):
            assert (record.offset, record.value) == (self.position, self.values[self.position].encode())
            self.position += 1

    def read_all(self) -> None:
        end_s = time.monotonic() + AWAITED_S
        while self.position < len(self.values):
            assert time.monotonic() < end_s, f"at {self.position} of {len(self.values)}"
            self.poll(1_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster.start_new(brokers=1) as running:
        yield running


@pytest.fixture(params=[(way, level) for way in ("wire", "root") for level in ISOLATION_LEVELS], ids="-".join)
def consumer(cluster: InMemoryCluster, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    way, level = request.param
    settings = {"auto.offset.reset": "earliest", "isolation.level": level}
    if way == "root":
        with Consumer(cluster, settings) as found:
            yield found
        return
    with (
        WireCluster(cluster.bootstrap_servers) as served,
        Consumer(served, settings, view=WireView(served, isolation_level=level)) as found,
    ):
        yield found


@pytest.fixture
def topic(cluster: InMemoryCluster) -> str:
    name = f"topic-{next(NUMBERS)}"
    cluster.admin().create_topics([NewTopic(name, 1, 1)])
    return name


@pytest.fixture
def reader(cluster: InMemoryCluster, consumer: Consumer, topic: str) -> Iterator[Reader]:
    with cluster.producer() as producer:
        yield Reader(consumer, producer, TopicPartition(topic, 0))


SETUPS: dict[str, Callable[[Reader], object]] = {
    "nothing": lambda _: None,
    "the beginning": lambda reader: reader.seek_to_beginning(),
    "the beginning, its lag": lambda reader: (reader.seek_to_beginning(), reader.lag()),
    "the end": lambda reader: reader.seek_to_end(),
    "the end, its lag": lambda reader: (reader.seek_to_end(), reader.lag()),
    "an offset": lambda reader: reader.seek(2),
    "read, an earlier offset": lambda reader: (reader.read_all(), reader.seek(1)),
    "read, the end, its lag": lambda reader: (reader.read_all(), reader.seek_to_end(), reader.lag()),
}


@pytest.mark.parametrize("setup", SETUPS)
def test_what_is_produced_later_is_read(reader: Reader, setup: str) -> None:
    reader.produce(5)
    SETUPS[setup](reader)
    reader.read_all()
    for _ in range(2):
        reader.produce(3)
        reader.read_all()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_asked_before(reader: Reader, seed: int) -> None:
    rng = random.Random(seed)
    steps: list[Callable[[], object]] = [
        lambda: reader.produce(rng.randrange(1, 4)),
        lambda: reader.seek(rng.randrange(len(reader.values) + 1)),
        reader.seek_to_beginning,
        reader.seek_to_end,
        reader.lag,
        reader.poll,
    ]
    for _ in range(STEPS):
        rng.choice(steps)()
    reader.produce(1)
    reader.read_all()


def test_a_transaction_is_read_once_it_has_ended(cluster: InMemoryCluster, consumer: Consumer, topic: str) -> None:
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    expected: list[str] = []
    found: list[str] = []
    is_committed = consumer.config.isolation_level == "read_committed"
    with cluster.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
            producer.begin_transaction()
            values = [f"{number} {each}" for each in range(3)]
            for value in values:
                producer.send(topic, value, partition=0)
            producer.flush()
            found += polled(consumer, POLL_MS)
            assert not is_committed or found == expected
            ends()
            expected += values if not is_committed or ends == producer.commit_transaction else []
            end_s = time.monotonic() + AWAITED_S
            while len(found) < len(expected):
                assert time.monotonic() < end_s, f"{found} of {expected}"
                found += polled(consumer, 1_000)
            assert found == expected


def polled(consumer: Consumer, timeout_ms: int) -> list[str]:
    return [record.value.decode() for record in consumer.poll(timeout_ms)]


class CountedCluster(WireCluster):
    """`sent`: requests whose answers are not waited for, long polls among them."""

    sent = 0

    def send(self, *asked: Any) -> None:
        self.sent += 1
        super().send(*asked)


def test_a_paused_partition_whose_offset_is_gone_is_not_asked_for_without_a_rest(
    cluster: InMemoryCluster, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    with (
        cluster.producer() as producer,
        CountedCluster(cluster.bootstrap_servers) as served,
        Consumer(served, {"auto.offset.reset": "earliest"}, view=WireView(served)) as consumer,
    ):
        reader = Reader(consumer, producer, place)
        reader.produce(2)
        reader.read_all()
        consumer.pause([place])
        reader.produce(2)
        cluster.admin().delete_records({place: 4})
        before = served.sent
        assert consumer.poll(500) == []
        assert served.sent - before < 5
        consumer.resume([place])
        reader.produce(1)
        reader.position = 4
        reader.read_all()
