"""Produce, and Fetch from memory, read no storage in the thread that hands requests over, and keep their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratalog.replication.metadata.acls import Principal
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.api import Connection
from stratalog.server.request.quick_calls import AHEAD_MS, FOLDING_MS_MAX, STALE_MS
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import NotEnoughReplicasError, StoreUnavailableError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import Answer, batch_of, framed
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.server.view.test_reads_at_once import ANSWER_S, Gate, is_data_file_of, stopped
from tests.storage.logs import FakeClock
from tests.waiting import wait_until

VERSION = 9
UNKNOWN_SERVER_ERROR, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS = -1, 1, 3, 19
KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID = 56, 100


class PausingClock(FakeClock):
    """Its sleeps also take a real millisecond: a thread that polls the memory store leaves the others their turns."""

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(0.001)
        super().sleep_ms(duration_ms)


@pytest.fixture
def clock() -> FakeClock:
    return PausingClock()


@pytest.fixture
def handler(cluster: MemoryCluster, clock: FakeClock) -> Iterator[KafkaHandler]:
    view = ClusterView(cluster, stores=cluster.stores, clock=clock)
    with ThreadPoolExecutor(2) as io:
        made = KafkaHandler(cluster, 1, view=view, io=io)
        yield made
        made.close()


def asked(handler: KafkaHandler, value: bytes, topic: str = "t", connection: Connection | None = None) -> Answer:
    """A Produce request of one record, handed over by this thread; without a connection over one of its own."""
    answer = Answer(ApiKey.PRODUCE, VERSION)
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch_of(value)}]}
    frame = framed(ApiKey.PRODUCE, VERSION, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    handler.handle(frame, connection or Connection(Principal(), answer.close), answer.receive)
    return answer


def error_of(answer: Answer) -> int:
    (part,) = answer().responses[0].partition_responses
    return int(part.error_code)


def offset_of(answer: Answer) -> int:
    (part,) = answer().responses[0].partition_responses
    assert part.error_code == 0
    return int(part.base_offset)


def fetched(handler: KafkaHandler, offset: int, epoch: int = -1, wait_ms: int = 6_000_000, version: int = 12) -> Answer:
    """A Fetch of t-0, handed over by this thread; `epoch` is the one of the client's last record."""
    answer = Answer(ApiKey.FETCH, version)
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "last_fetched_epoch": epoch}
    topic = {"topic": "t", "partitions": [wanted]}
    frame = framed(
        ApiKey.FETCH, version, {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [topic]}
    )
    handler.handle(frame, Connection(Principal(), answer.close), answer.receive)
    return answer


def read_by(monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster) -> set[str]:
    """The names of the threads that read storage from now on."""
    threads: set[str] = set()
    read = MemoryStore.get_register

    def reads(store: MemoryStore, path: str) -> bytes | None:
        threads.add(threading.current_thread().name)
        return read(store, path)

    def access(_operation: str, _table: str, _detail: str) -> None:
        threads.add(threading.current_thread().name)

    monkeypatch.setattr(MemoryStore, "get_register", reads)
    for disk in cluster.stores.disks.values():
        disk.access = access
    return threads


def closed_metadata(cluster: MemoryCluster) -> Gate:
    """From now on a read of the metadata log waits."""
    return stopped(cluster, ROOT, lambda _operation, _table, _detail: True)


def defective(_operation: str, _table: str, _detail: str) -> None:
    raise ValueError("no error of a store")


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
    gate, one = closed_metadata(cluster), Connection()
    answers = [asked(handler, value, topic, one) for value, topic in ((b"a", "u"), (b"a", "t"), (b"b", "u"))]
    assert gate.reached.wait(ANSWER_S)
    assert not any(each.is_there.is_set() for each in answers)
    gate.open()
    assert [offset_of(each) for each in answers] == [0, 0, 1]


@pytest.mark.parametrize(("topic", "folds_ms"), [("t", STALE_MS), ("u", STALE_MS), ("t", FOLDING_MS_MAX - AHEAD_MS)])
def test_a_long_fold_makes_no_other_connection_wait(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler, topic: str, folds_ms: int
) -> None:
    """Thousands of ACLs of a stranger take long to fold, or a topic that somebody asks for was just made."""
    cluster.running[1].script = [NotEnoughReplicasError("as scripted") for _ in range(2)]  # it reads no metadata then
    cluster.create_topic("u")
    gate = closed_metadata(cluster)
    clock.sleep_ms(AHEAD_MS)
    first = asked(handler, b"a", topic)
    assert gate.reached.wait(ANSWER_S)
    clock.sleep_ms(folds_ms)
    second = asked(handler, b"b")
    assert second.is_there.is_set()
    assert first.is_there.is_set() is (topic == "t")
    gate.open()
    assert [error_of(each) for each in (first, second)] == [NOT_ENOUGH_REPLICAS] * 2


def test_a_fold_that_takes_too_long_is_waited_for(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    cluster.running[1].script = [NotEnoughReplicasError("as scripted") for _ in range(2)]
    gate = closed_metadata(cluster)
    clock.sleep_ms(AHEAD_MS)
    asked(handler, b"a")
    assert gate.reached.wait(ANSWER_S)
    clock.sleep_ms(FOLDING_MS_MAX)
    late = asked(handler, b"b")
    assert not late.is_there.is_set()
    gate.open()
    assert error_of(late) == NOT_ENOUGH_REPLICAS


def test_a_topic_that_does_not_exist_is_answered_so(handler: KafkaHandler) -> None:
    assert error_of(asked(handler, b"a", "none")) == UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_without_an_id_is_answered_so(handler: KafkaHandler) -> None:
    answer = Answer(ApiKey.PRODUCE, 13)
    data = {"topic_id": None, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}
    frame = framed(ApiKey.PRODUCE, 13, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    handler.handle(frame, Connection(Principal(), answer.close), answer.receive)
    assert error_of(answer) == UNKNOWN_TOPIC_ID


def test_a_metadata_log_that_cannot_be_read_is_an_answer(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    clock.sleep_ms(STALE_MS)
    cluster.stores.disks[ROOT].access = unavailable
    assert error_of(asked(handler, b"a")) == KAFKA_STORAGE_ERROR


def test_a_defect_in_a_fold_is_an_answer_and_later_calls_are_served(
    cluster: MemoryCluster, clock: FakeClock, handler: KafkaHandler
) -> None:
    access = cluster.stores.disks[ROOT].access
    clock.sleep_ms(STALE_MS)
    cluster.stores.disks[ROOT].access = defective
    assert error_of(asked(handler, b"a")) == UNKNOWN_SERVER_ERROR
    cluster.stores.disks[ROOT].access = access
    clock.sleep_ms(STALE_MS)
    assert offset_of(asked(handler, b"b")) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_fetch_of_what_is_in_memory_reads_no_storage_in_the_thread_of_its_connection(
    cluster: MemoryCluster, handler: KafkaHandler, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    assert offset_of(asked(handler, b"a")) == 0
    cluster.publish(TopicPartition("t", 0))
    assert fetched(handler, 0)().responses[0].partitions[0].records, "progress was read"
    waiting = fetched(handler, 1, epoch)
    wait_until(lambda: fetched(handler, 0, epoch).is_there.is_set(), "leaders are watched: answered at once")
    threads = read_by(monkeypatch, cluster)
    answers: list[Answer] = []

    def is_answered_at_once() -> bool:
        answers.append(fetched(handler, 0, epoch))
        return answers[-1].is_there.is_set()

    wait_until(is_answered_at_once, "answered at once: a watch that is under way meanwhile leaves it to another thread")
    assert answers[-1]().responses[0].partitions[0].records
    assert threading.current_thread().name not in threads
    assert offset_of(asked(handler, b"b")) == 1
    cluster.publish(TopicPartition("t", 0))
    assert waiting().responses[0].partitions[0].records


def test_a_fetch_of_what_is_not_in_memory_is_read_by_another_thread(
    cluster: MemoryCluster, handler: KafkaHandler
) -> None:
    cluster.append(TopicPartition("t", 0), b"a")  # not by a producer of the handler's
    cluster.publish(TopicPartition("t", 0))
    gate = stopped(cluster, cluster.root_of(1), is_data_file_of("t-0"))
    cold = fetched(handler, 0)
    assert gate.reached.wait(ANSWER_S)
    other = fetched(handler, 1, wait_ms=20)
    assert other().responses[0].partitions[0].high_watermark == 1
    assert not cold.is_there.is_set()
    gate.open()
    assert cold().responses[0].partitions[0].records


@pytest.mark.parametrize(("offset", "epoch"), [(7, -1), (0, 5)])
def test_an_error_of_a_fetch_is_found_by_a_thread_that_may_read(handler: KafkaHandler, offset: int, epoch: int) -> None:
    fetched(handler, 0, wait_ms=1)()
    assert fetched(handler, offset, epoch)().responses[0].partitions[0].error_code == OFFSET_OUT_OF_RANGE
