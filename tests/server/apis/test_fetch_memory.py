"""A fetch that comes again is not read again, and is answered as if it were: whatever happened since."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.acls import AclBinding, Operation, PatternType, Permission, Principal, ResourceType
from stratalog.replication.metadata.records import RemoveTopicRecord
from stratalog.server.apis.fetch.delayed_fetches import DelayedFetches
from stratalog.server.apis.fetch.partition_read import PartitionFetch
from stratalog.server.apis.fetch.waiting_fetches import FetchRun
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.api import Connection
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import Answer, framed
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSIONLESS, IN_SESSION = 6, 12
SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:root",
    "allow.everyone.if.no.acl.found": "true",
}
LONG_MS, SHORT_MS = 60_000, 5
ANSWER_S = 60


class Consumer:
    """A client that fetches from the end of t-0 and t-1, each of which has one record."""

    def __init__(self, handler: KafkaHandler, version: int) -> None:
        self._handler = handler
        self._version = version
        self._connection = Connection(Principal("User:alice"))
        self._session = (0, 0) if version >= IN_SESSION else (0, -1)

    def fetch(self, wait_ms: int = SHORT_MS, *, is_committed: bool = False) -> Answer:
        wanted = [{"partition": number, "fetch_offset": 1, "partition_max_bytes": 1 << 20} for number in (0, 1)]
        session_id, epoch = self._session
        topics = [] if epoch > 0 else [{"topic": "t", "partitions": wanted}]
        values = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        values |= {"isolation_level": int(is_committed), "session_id": session_id, "session_epoch": epoch}
        answer = Answer(ApiKey.FETCH, self._version)
        frame = framed(ApiKey.FETCH, self._version, values)
        self._handler.handle(frame, self._connection, answer.receive)
        return answer

    def fetched(self, **how: Any) -> dict[int, tuple[int, int, bool]]:
        """Error code, high watermark and whether there are records, of each partition of the answer."""
        return self.read(self.fetch(**how))

    def read(self, answer: Answer) -> dict[int, tuple[int, int, bool]]:
        response = answer()
        if self._version >= IN_SESSION:
            self._session = (response.session_id, self._session[1] + 1)
        return {
            each.partition_index: (int(each.error_code), each.high_watermark, bool(each.records))
            for topic in response.responses
            for each in topic.partitions
        }


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    for each in (T0, T1):
        made.append(each, b"a")
        made.publish(each)
    return made


@pytest.fixture
def handler(cluster: MemoryCluster) -> Iterator[KafkaHandler]:
    with ThreadPoolExecutor(2) as io:
        view, config = ClusterView(cluster, stores=cluster.stores), BrokerConfig.from_properties(SETTINGS)
        made = KafkaHandler(cluster, 1, view=view, config=config, io=io)
        yield made
        made.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """The partitions that are read."""
    found: list[TopicPartition] = []

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(reader: PartitionFetch, named: TopicPartition, *others: Any, **more: Any) -> Any:
            found.append(named)
            return read(reader, named, *others, **more)

        return call

    for name in ("read", "cached"):
        monkeypatch.setattr(PartitionFetch, name, noted(getattr(PartitionFetch, name)))
    return found


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("version", [SESSIONLESS, IN_SESSION])
def test_what_had_nothing_is_not_read_again(
    handler: KafkaHandler, reads: list[TopicPartition], version: int, is_committed: bool
) -> None:
    consumer = Consumer(handler, version)
    first = consumer.fetched(is_committed=is_committed)
    assert first == {0: (0, 1, False), 1: (0, 1, False)}
    second = consumer.fetched(is_committed=is_committed)
    reads.clear()
    for _ in range(3):
        assert consumer.fetched(is_committed=is_committed) == second == ({} if version == IN_SESSION else first)
    assert reads == []


@pytest.mark.parametrize("version", [SESSIONLESS, IN_SESSION])
def test_only_what_moved_is_read_again(
    cluster: MemoryCluster,
    handler: KafkaHandler,
    reads: list[TopicPartition],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    consumer = Consumer(handler, version)
    for _ in range(3):
        consumer.fetched()
    waits, add = threading.Event(), DelayedFetches.add

    def added(delayed: DelayedFetches, run: FetchRun) -> None:
        add(delayed, run)
        waits.set()

    monkeypatch.setattr(DelayedFetches, "add", added)
    waiting = consumer.fetch(LONG_MS)
    assert waits.wait(ANSWER_S)
    reads.clear()
    cluster.append(T1, b"b")
    cluster.publish(T1)
    assert consumer.read(waiting)[1] == (0, 2, True)
    assert set(reads) == {T1}


@pytest.mark.parametrize("version", [SESSIONLESS, IN_SESSION])
def test_isolation_levels_do_not_share_what_was_read(
    handler: KafkaHandler, reads: list[TopicPartition], version: int
) -> None:
    consumer = Consumer(handler, version)
    consumer.fetched()
    consumer.fetched()
    reads.clear()
    consumer.fetched(is_committed=True)
    assert set(reads) == {T0, T1}


def _records(cluster: MemoryCluster) -> None:
    cluster.append(T0, b"b")
    cluster.publish(T0)


def _deleted_records(cluster: MemoryCluster) -> None:
    cluster.append(T0, b"b")
    cluster.publish(T0, log_start=2)


def _another_leader(cluster: MemoryCluster) -> None:
    cluster.elect(T0, 2)


def _no_topic(cluster: MemoryCluster) -> None:
    cluster.commit(RemoveTopicRecord("t", cluster.metadata.image.topic_ids["t"]))


def _no_access(cluster: MemoryCluster) -> None:
    admin = Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores))
    allowed = (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW)
    admin.create_acls([AclBinding(*allowed)])


@pytest.mark.parametrize("version", [SESSIONLESS, IN_SESSION])
@pytest.mark.parametrize("change", [_records, _deleted_records, _another_leader, _no_topic, _no_access])
def test_whatever_happened_the_answer_is_that_of_a_new_connection(
    cluster: MemoryCluster, handler: KafkaHandler, version: int, change: Callable[[MemoryCluster], None]
) -> None:
    consumer = Consumer(handler, version)
    for _ in range(3):
        consumer.fetched()
    change(cluster)
    handler.broker.view.refresh()
    handler.broker.view.changes.poll()
    again, fresh = consumer.fetched(), Consumer(handler, SESSIONLESS).fetched()
    assert fresh != {0: (0, 1, False), 1: (0, 1, False)}
    assert again[0] == fresh[0]
    assert again.get(1, (0, 1, False)) == fresh[1]


def test_the_same_bytes_are_answered_under_their_own_correlation_id(handler: KafkaHandler) -> None:
    wanted = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
    values = {"max_wait": SHORT_MS, "min_bytes": 1, "topics": [{"topic": "t", "partitions": [wanted]}]}
    connection, frame = Connection(Principal("User:alice")), framed(ApiKey.FETCH, SESSIONLESS, values)
    found: list[bytes] = []
    for correlation_id in (3, 70_000, -1):
        answer = Answer(ApiKey.FETCH, SESSIONLESS)
        number = correlation_id.to_bytes(4, "big", signed=True)
        handler.handle(frame[:4] + number + frame[8:], connection, answer.receive)
        assert answer.is_there.wait(20)
        assert answer.frame is not None
        assert answer.frame[:4] == number
        found.append(answer.frame[4:])
    assert found[0] == found[1] == found[2]
