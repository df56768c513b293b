"""The answer to a large request is made in the threads for what takes long, whoever has the last part of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.metadata.acls import Operation
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from stratalog.server.handler import LARGE_BYTES, KafkaHandler
from stratalog.server.request.api import Call, Connection
from stratalog.server.request.coordinators import Split, ask_each
from stratalog.server.request.large_requests import LargeRequests
from stratalog.server.request.limits import QUICK_ELEMENTS
from stratalog.server.view.cluster_view import ClusterView
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Answer, RequestFrame, decode_response, encode_request, whole
from stratalog.wire.messages.schema import request_type
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.waiting import wait_until

COUNT = 2 * QUICK_ELEMENTS
NAMES = [f"n{number}" for number in range(COUNT)]
TRANSACTIONS = [{"transactional_id": each, "producer_id": 1, "producer_epoch": 0, "topics": []} for each in NAMES]
MARKERS = [{"topics": [{"name": "absent", "partition_indexes": list(range(COUNT))}]}]
LARGE = [
    pytest.param(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}, "coordinators", id="at once"),
    pytest.param(ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES}, "groups", id="of a coordinator"),
    pytest.param(
        ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": TRANSACTIONS}, "results_by_transaction", id="of another"
    ),
    pytest.param(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": MARKERS}, "markers", id="of partitions"),
]


@pytest.fixture(scope="module")
def handler() -> Iterator[KafkaHandler]:
    cluster = CoordinatingCluster(
        {CoordinatorType.GROUP: group_shard, CoordinatorType.TRANSACTION: TransactionShard.at}
    )
    for kind in CoordinatorType:
        cluster.create_topic(kind.topic, 1)
    with ThreadPoolExecutor(2) as io:
        made = KafkaHandler(cluster, 1, view=ClusterView(cluster, stores=cluster.stores), io=io)
        made.broker.view.refresh()
        yield made
        made.close()


@pytest.mark.parametrize(("key", "version", "values", "field"), LARGE)
def test_it_is_made_beside_the_brokers_loop_and_the_threads_that_read_storage(
    handler: KafkaHandler, key: int, version: int, values: Mapping[str, Any], field: str
) -> None:
    threads, answers, is_there = list[str](), list[Answer | None](), threading.Event()

    def receive(answer: Answer | None) -> None:
        threads.append(threading.current_thread().name)
        answers.append(answer)
        is_there.set()

    frame = encode_request(1, "test", values, request_type(key, version))
    handler.handle(frame, Connection(), receive)
    assert is_there.wait(30)
    assert answers[0] is not None
    assert getattr(decode_response(whole(answers[0]), key, version)[1], field)
    assert [name.rpartition("-")[0] for name in threads] == ["kafka-1-computing"]


@pytest.mark.parametrize(("size_bytes", "count"), [(LARGE_BYTES, 1), (LARGE_BYTES // 2, 0)])
def test_memory_is_returned_behind_a_request_of_many_bytes(
    handler: KafkaHandler, monkeypatch: pytest.MonkeyPatch, size_bytes: int, count: int
) -> None:
    asked, is_there = list[LargeRequests](), threading.Event()
    monkeypatch.setattr(LargeRequests, "release_later", lambda large: asked.append(large))
    topic = {"name": "absent", "partition_data": [{"index": 0, "records": bytes(size_bytes)}]}
    frame = encode_request(1, "test", {"acks": -1, "topic_data": [topic]}, request_type(ApiKey.PRODUCE, 9))
    handler.handle(frame, Connection(), lambda _answer: is_there.set())
    assert is_there.wait(30)
    assert len(asked) == count


def test_a_large_request_that_waits_for_a_slow_api_is_forgotten_with_its_connection(handler: KafkaHandler) -> None:
    """As one that waits to be decoded: each of some that a client left would keep the API's thread for long."""
    answered, connection, is_there = list[str](), Connection(), threading.Event()
    topics = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in NAMES]
    values = {"topics": topics, "validate_only": True, "timeout": 1_000}
    frame = encode_request(1, "test", values, request_type(ApiKey.CREATE_TOPICS, 7))
    connection.memory.is_over = True
    handler.handle(frame, connection, lambda _answer: answered.append("gone"))
    handler.handle(frame, Connection(), lambda _answer: is_there.set())
    assert is_there.wait(30)
    assert answered == []


@pytest.mark.parametrize(("operation", "count"), [(Operation.DESCRIBE, 1), (Operation.DELETE, COUNT)])
def test_what_a_lost_connection_only_wanted_to_know_is_not_asked_any_more(
    handler: KafkaHandler, operation: Operation, count: int
) -> None:
    """Coordinators would answer a hundred thousand questions of a client that has gone, beside everybody's heartbeats.
    What it wanted to be done is done; the answer is not made."""
    asked, made, connection = list[str](), list[str](), Connection()
    answers: list[object] = []

    def request(name: str) -> DescribeGroupsRequest:
        asked.append(name)
        connection.memory.end()
        return DescribeGroupsRequest((name,))

    def part(name: str, _: object) -> DescribedGroup:
        made.append(name)
        return DescribedGroup(name)

    split = Split(CoordinatorType.GROUP, operation, request, part, part, DescribeGroupsResponse)
    asking = RequestFrame(ApiKey.DESCRIBE_GROUPS, 5, 1, None, DescribeGroupsRequest(tuple(NAMES)))
    ask_each(handler.broker, Call(asking, connection, answers.append), NAMES, split)
    wait_until(lambda: len(answers) == 1, "the end")
    assert (len(asked), made, answers) == (count, [], [None])
