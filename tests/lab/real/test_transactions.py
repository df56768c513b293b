"""Transactions on a cluster of three brokers in this process: visible together or never, also when brokers die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerGroupMetadata, OffsetAndMetadata
from stratalog.replication.internal_topics import TRANSACTION_STATE_TOPIC, partition_of_key
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import ProducerFencedError, StratalogError
from stratalog.storage.records import TopicPartition

SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as running:
        Admin(running).create_topic("in", partitions=1, replication_factor=3)
        Admin(running).create_topic("out", partitions=2, replication_factor=3)
        yield running


def seen(cluster: Cluster, topic: str, level: str = "read_committed", timeout_ms: int = 500) -> list[str]:
    """Every value of a topic that a reader of that level receives by now."""
    found: list[str] = []
    with Consumer(cluster, auto_offset_reset="earliest", isolation_level=level) as consumer:
        consumer.assign_all(topic)
        while records := consumer.poll(timeout_ms):
            found.extend(record.value.decode() for record in records)
    return sorted(found)


def test_a_transaction_over_two_partitions_shows_together_or_never(cluster: Cluster) -> None:
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", "a", partition=0)
        producer.send("out", "b", partition=1)
        producer.flush()
        assert seen(cluster, "out") == []
        assert seen(cluster, "out", "read_uncommitted") == ["a", "b"]
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("out", "c", partition=0)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("out", "d", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.commit_transaction()
    assert until(lambda: seen(cluster, "out"), ["a", "b", "d"])
    assert seen(cluster, "out", "read_uncommitted") == ["a", "b", "c", "d"]


def until(read, wanted) -> bool:
    """Read several times, since markers are written a moment after the answer."""
    return any(read() == wanted for _ in range(40))


def test_the_next_producer_of_the_name_fences_the_older_one(cluster: Cluster) -> None:
    with Producer(cluster, transactional_id="tx") as older, Producer(cluster, transactional_id="tx") as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send("out", "zombie", partition=0).result(30)
        newer.init_transactions()
        newer.begin_transaction()
        newer.send("out", "new", partition=0)
        newer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.commit_transaction()
    assert until(lambda: seen(cluster, "out"), ["new"])


def test_offsets_count_when_their_transaction_commits(cluster: Cluster) -> None:
    partition, group = TopicPartition("in", 0), ConsumerGroupMetadata("g")
    with (
        Producer(cluster, transactional_id="tx") as producer,
        Consumer(cluster, group_id="g", enable_auto_commit=False) as consumer,
    ):
        producer.init_transactions()
        for offset, committed in ((5, False), (7, True)):
            producer.begin_transaction()
            producer.send("out", str(offset), partition=0)
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset)}, group)
            if committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        assert until(lambda: getattr(consumer.committed([partition])[partition], "offset", None), 7)
    assert until(lambda: seen(cluster, "out"), ["7"])


@pytest.mark.slow
def test_read_process_write_shows_each_input_once_though_brokers_and_processors_die(cluster: Cluster) -> None:
    """The coordinator dies within one transaction, the leader of an output within another; each time the processor
    or a new one continues."""
    count = 60
    with Producer(cluster) as filler:
        for number in range(count):
            filler.send("in", str(number), partition=0)
    view = ClusterView(cluster)
    coordinated = TopicPartition(TRANSACTION_STATE_TOPIC, partition_of_key("tx", 2))
    victims = {20: coordinated, 40: TopicPartition("out", 0)}

    def trouble(position: int) -> None:
        wanted = victims.pop(position, None)
        if wanted is not None:
            view.refresh()
            leader = view.leader(wanted)
            cluster.kill(leader)
            cluster.restart(leader)

    while process(cluster, count, trouble) < count:
        pass
    assert victims == {}
    assert until(lambda: seen(cluster, "out"), sorted(str(number) for number in range(count)))


def process(cluster: Cluster, count: int, trouble: Callable[[int], None]) -> int:
    """Run one processor until an error or the end of the input; its position then."""
    partition, group = TopicPartition("in", 0), ConsumerGroupMetadata("g")
    position = 0
    try:
        with (
            Producer(cluster, transactional_id="tx", delivery_timeout_ms=20_000, request_timeout_ms=5_000) as producer,
            Consumer(cluster, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest") as consumer,
        ):
            producer.init_transactions(60)
            committed = consumer.committed([partition])[partition]
            position = committed.offset if committed else 0
            consumer.assign([partition])
            while position < count:
                consumer.seek(partition, position)
                records = consumer.poll(5_000)[:10]
                producer.begin_transaction()
                for record in records:
                    producer.send("out", record.value, partition=record.offset % 2)
                trouble(position)
                following = position + len(records)
                producer.send_offsets_to_transaction({partition: OffsetAndMetadata(following)}, group)
                producer.commit_transaction(60)
                position = following
    except StratalogError:
        return 0
    return position
