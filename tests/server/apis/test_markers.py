"""WriteTxnMarkers: each partition gets its markers, and none is written for a connection that has ended."""

from __future__ import annotations

import pytest

from stratalog.server.request.api import Connection
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import Answer, KafkaClient, framed
from tests.clients.memory_cluster import MemoryCluster

VERSION = 1
MARKERS = [
    {"producer_id": producer, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
     "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
    for producer in range(40)
]  # fmt: skip


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    return made


def asked(client: KafkaClient, connection: Connection) -> Answer:
    """For all markers, over a connection."""
    answer = Answer(ApiKey.WRITE_TXN_MARKERS, VERSION)
    client.handlers[1].broker.view.refresh()
    client.handlers[1].handle(
        framed(ApiKey.WRITE_TXN_MARKERS, VERSION, {"markers": MARKERS}), connection, answer.receive
    )
    return answer


def errors(answer: Answer) -> list[int]:
    """The error of each marker."""
    topics = [topic for marker in answer().markers for topic in marker.topics]
    return [int(partition.error_code) for topic in topics for partition in topic.partitions]


def test_all_markers_of_all_partitions_are_written(cluster: MemoryCluster, client: KafkaClient) -> None:
    assert errors(asked(client, Connection())) == [0] * 80
    assert [cluster.log(1, TopicPartition("t", number)).log_end_offset for number in (0, 1)] == [40, 40]


def test_none_is_written_for_a_connection_that_has_ended(cluster: MemoryCluster, client: KafkaClient) -> None:
    ended = Connection()
    ended.memory.end()
    assert asked(client, ended)() is None, "an answer is made for nobody"
    assert cluster.log(1, TopicPartition("t", 0)).log_end_offset == 0
