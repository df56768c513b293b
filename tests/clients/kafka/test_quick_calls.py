"""Produce is answered without a read of storage in the thread that hands requests over, and keeps its order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratalog.clients.kafka.handler import KafkaHandler
from stratalog.clients.kafka.request.api import Connection
from stratalog.clients.kafka.request.quick_calls import STALE_MS
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.replication.metadata.acls import Principal
from stratalog.storage.errors import NotEnoughReplicasError, StoreUnavailableError
from tests.clients.kafka_client import PRODUCE, Answer, batch_of, framed
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.view.test_reads_at_once import ANSWER_S, Gate, stopped
from tests.storage.logs import FakeClock

VERSION = 9
UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID = 3, 19, 56, 100


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t")
    return made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def handler(cluster: MemoryCluster, clock: FakeClock) -> Iterator[KafkaHandler]:
    view = ClusterView(cluster, stores=cluster.stores, clock=clock)
    with ThreadPoolExecutor(2) as io:
        made = KafkaHandler(cluster, 1, view=view, io=io)
        yield made
        made.close()


def asked(handler: KafkaHandler, value: bytes, topic: str = "t") -> Answer:
    """A Produce request of one record, handed over by this thread."""
    answer = Answer(PRODUCE, VERSION)
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch_of(value)}]}
    frame = framed(PRODUCE, VERSION, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    handler.handle(frame, Connection(Principal(), answer.close), answer.receive)
    return answer


def error_of(answer: Answer) -> int:
    (part,) = answer().responses[0].partition_responses
    return int(part.error_code)


def offset_of(answer: Answer) -> int:
    (part,) = answer().responses[0].partition_responses
    assert part.error_code == 0
    return int(part.base_offset)


def closed_metadata(cluster: MemoryCluster) -> Gate:
    """From now on a read of the metadata log waits."""
    return stopped(cluster, ROOT, lambda _operation, _table, _detail: True)


def unavailable(_operation: str, _table: str, _detail: str) -> None:
    raise StoreUnavailableError("the store is away")


def test_produce_is_answered_while_the_metadata_log_is_read(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    cluster.running[1].script = [NotEnoughReplicasError("as scripted") for _ in range(3)]  # it reads no metadata then
    gate = closed_metadata(cluster)
    assert error_of(asked(handler, b"a")) == NOT_ENOUGH_REPLICAS
    assert not gate.reached.is_set(), "the metadata is new"
    clock.sleep_ms(STALE_MS - 1)
    first = asked(handler, b"b")
    assert gate.reached.wait(ANSWER_S), "read beside the requests"
    second = asked(handler, b"c")
    assert first.is_there.is_set()
    assert second.is_there.is_set()
    assert [error_of(each) for each in (first, second)] == [NOT_ENOUGH_REPLICAS] * 2
    gate.open()


def test_after_a_pause_requests_wait_for_the_metadata_in_their_order(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    gate = closed_metadata(cluster)
    clock.sleep_ms(STALE_MS)
    answers = [asked(handler, value) for value in (b"a", b"b", b"c")]
    assert gate.reached.wait(ANSWER_S)
    assert not any(each.is_there.is_set() for each in answers)
    gate.open()
    assert [offset_of(each) for each in answers] == [0, 1, 2]


def test_a_topic_that_is_not_at_hand_is_looked_for_and_what_follows_waits(
    cluster: MemoryCluster, handler: KafkaHandler
) -> None:
    cluster.create_topic("u")
    gate = closed_metadata(cluster)
    answers = [asked(handler, b"a", "u"), asked(handler, b"a", "t"), asked(handler, b"b", "u")]
    assert gate.reached.wait(ANSWER_S)
    assert not any(each.is_there.is_set() for each in answers)
    gate.open()
    assert [offset_of(each) for each in answers] == [0, 0, 1]


def test_a_topic_that_does_not_exist_is_answered_so(handler: KafkaHandler) -> None:
    assert error_of(asked(handler, b"a", "none")) == UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_without_an_id_is_answered_so(handler: KafkaHandler) -> None:
    answer = Answer(PRODUCE, 13)
    data = {"topic_id": None, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}
    frame = framed(PRODUCE, 13, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    handler.handle(frame, Connection(Principal(), answer.close), answer.receive)
    assert error_of(answer) == UNKNOWN_TOPIC_ID


def test_a_metadata_log_that_cannot_be_read_is_an_answer(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    clock.sleep_ms(STALE_MS)
    cluster.stores.disks[ROOT].access = unavailable
    assert error_of(asked(handler, b"a")) == KAFKA_STORAGE_ERROR
