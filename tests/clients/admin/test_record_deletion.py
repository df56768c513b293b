"""Admin.delete_records: asked of the leaders, answered for each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.metadata.records import ConfigRecord, FenceBrokerRecord
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.replication.stores import DeltaStores
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.broker.test_broker import FOLLOWER, Running, in_memory, tick
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit

T0 = TopicPartition("t", 0)


class Turning:
    """A clock on which the broker takes its turns while the client sleeps; `meanwhile` happens in between."""

    def __init__(self, stores: MemoryStores, running: Running) -> None:
        self._stores = stores
        self._running = running
        self.meanwhile: list[Callable[[], None]] = []

    def wall_ms(self) -> int:
        return self._stores.clock.now_ms

    def monotonic_ms(self) -> int:
        return self._stores.clock.now_ms

    def sleep_ms(self, _duration_ms: float) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        tick(self._stores)
        self._running.settle()


class Asking:
    """An admin client beside a broker that leads `t-0` with five committed records."""

    def __init__(self) -> None:
        self.running, self.stores = in_memory()
        for value in "abcde":
            self.running.produce(value)
        self.running.settle()
        self.running.follow(5)
        tick(self.stores)
        self.running.settle()
        self.clock = Turning(self.stores, self.running)
        self.view = ClusterView(METADATA_ROOT, stores=self.stores, clock=self.clock, ids=self.stores.ids)
        self.admin = Admin(self, view=self.view)

    root = METADATA_ROOT

    def brokers(self) -> Mapping[int, BrokerCalls]:
        return {1: self.running.broker.calls}

    def peers(self) -> Mapping[int, BrokerCalls]:
        return self.brokers()

    def hosts(self, broker_id: int) -> bool:
        return broker_id == 1

    def delete(self, offset: int, topic_partition: TopicPartition = T0, timeout_ms: int = 60_000) -> int | str:
        """The low watermark, or the error's name."""
        (answer,) = self.admin.delete_records({topic_partition: offset}, timeout_ms).values()
        return answer.error.name if answer.error else answer.low_watermark


def test_the_answer_comes_when_the_replicas_have_followed_and_readers_begin_there() -> None:
    asking = Asking()
    asking.clock.meanwhile = [lambda: None, lambda: asking.running.follow(5, log_start=3, version=8)]
    assert asking.delete(3) == 3
    assert asking.view.offsets.beginning_offsets([T0]) == {T0: 3}


@pytest.mark.parametrize(
    ("offset", "topic_partition", "answer"),
    [
        (6, T0, "OFFSET_OUT_OF_RANGE"),
        (-2, T0, "OFFSET_OUT_OF_RANGE"),
        (1, TopicPartition("u", 0), "UNKNOWN_TOPIC_OR_PARTITION"),
        (1, TopicPartition("t", 9), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_cannot_be_deleted_is_answered_with_its_error(
    offset: int, topic_partition: TopicPartition, answer: str
) -> None:
    asking = Asking()
    assert asking.delete(offset, topic_partition) == answer
    assert asking.view.offsets.beginning_offsets([T0]) == {T0: 0}


def test_a_partition_that_is_refused_does_not_hold_up_another() -> None:
    asking = Asking()
    asking.clock.meanwhile = [lambda: asking.running.follow(5, log_start=2, version=8)]
    answers = asking.admin.delete_records({TopicPartition("u", 0): 1, T0: 2})
    assert [answer.error is None for answer in answers.values()] == [False, True]
    assert answers[T0] == DeletedRecords(2)


def test_a_topic_that_is_only_compacted_is_refused() -> None:
    asking = Asking()
    commit(asking.running.metadata, ConfigRecord("t", "cleanup.policy", "compact"))
    asking.clock.sleep_ms(0)
    assert asking.delete(1) == "POLICY_VIOLATION"


def test_a_broker_that_does_not_answer_is_not_waited_for_forever() -> None:
    asking = Asking()
    asking.running.settle = lambda: None  # type: ignore[method-assign]
    assert asking.delete(3, timeout_ms=500) == "REQUEST_TIMED_OUT"


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_a_leader_without_followers_needs_no_time(timeout_ms: int) -> None:
    """As in Kafka, whose leader moves its log start before it looks whether the request is to wait."""
    asking = Asking()
    assert asking.delete(2, timeout_ms=timeout_ms) == "REQUEST_TIMED_OUT"
    assert asking.view.offsets.beginning_offsets([T0]) == {T0: 2}
    commit(asking.running.metadata, FenceBrokerRecord(FOLLOWER, 20))
    asking.clock.sleep_ms(0)
    assert asking.delete(3, timeout_ms=timeout_ms) == 3


def test_a_leader_that_came_up_anew_is_asked_anew() -> None:
    asking = Asking()
    epoch = asking.running.broker.broker_epoch

    def fenced() -> None:
        commit(asking.running.metadata, FenceBrokerRecord(1, epoch))

    def follower_is_dead() -> None:
        commit(asking.running.metadata, FenceBrokerRecord(FOLLOWER, 20))

    asking.clock.meanwhile = [fenced, follower_is_dead]
    assert asking.delete(3) == 3
    assert asking.running.broker.broker_epoch != epoch


def test_records_are_deleted_on_all_replicas_of_a_running_cluster(tmp_path: Path) -> None:
    with Cluster.start(tmp_path, fetcher="thread") as cluster:
        Admin(cluster).create_topic("orders", 1, 3, min_insync_replicas=2)
        (orders,) = ClusterView(cluster).partitions("orders")
        with Producer(cluster) as producer:
            sent = [producer.send("orders", f"{i}", partition=0) for i in range(100)]
            assert [future.result(20).offset for future in sent] == list(range(100))
        assert Admin(cluster.root).delete_records({orders: 40}) == {orders: DeletedRecords(40)}
        stores = DeltaStores(RandomIds())
        for broker in (1, 2, 3):
            table = stores.table(str(tmp_path / f"broker-{broker}"), orders)
            log = PartitionLog(table, LogConfig(), SystemClock(), RandomIds())
            assert (log.log_start_offset, log.log_end_offset) == (40, 100)
        with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign_all("orders")
            found = consumer.poll(5_000)
        assert (found[0].offset, found[0].value) == (40, b"40")
        assert Admin(cluster).delete_records({orders: -1}) == {orders: DeletedRecords(100)}
        with Producer(cluster) as producer:
            assert producer.send("orders", "next", partition=0).result(20).offset == 100
