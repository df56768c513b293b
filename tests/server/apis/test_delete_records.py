"""DeleteRecords: a call to the broker's leaders, answered for each partition when the broker answers."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.requests.delete_records import DeleteRecordsRequest
from stratalog.storage.errors import OffsetOutOfRangeError, UnknownTopicIdError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIER = "cd" * 16
VERSIONS = range(3)
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE = 3, 100, 6, 1


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    made.append(T0, b"a", b"b", b"c")
    return made


def values(*offsets: tuple[int, int], topic_id: str | None = None, timeout_ms: int = 1_000) -> dict[str, Any]:
    """A request for partitions of `t` by number; the id is left out by default, as by Kafka's clients."""
    partitions = [{"partition_index": number, "offset": offset} for number, offset in offsets]
    topic = {"name": "t", "partitions": partitions} | ({} if topic_id is None else {"topic_id": topic_id})
    return {"topics": [topic], "timeout": timeout_ms}


def results(answer: Any) -> list[tuple[int, int]]:
    """Error code and low watermark of each partition."""
    return [(code(part), part.low_watermark) for topic in answer.topics for part in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_result(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    asked = values((0, 2), (1, -1), (7, 1))
    assert results(client.ask(ApiKey.DELETE_RECORDS, version, asked)) == [
        (0, 2),
        (0, 0),
        (UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert cluster.log(1, T0).log_start_offset == 2
    topic_id = cluster.metadata.image.topic_ids["t"]
    offsets = {IdentifiedPartition(topic_id, T0): 2, IdentifiedPartition(topic_id, T1): -1}
    assert cluster.running[1].deletions == [DeleteRecordsRequest(offsets, 1_000)]


def test_no_object_is_written_into_an_inbox(client: KafkaClient, cluster: MemoryCluster) -> None:
    assert results(client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 1)))) == [(0, 1)]
    assert [path for store in cluster.stores.stores.values() for path in store.objects if "inbox/" in path] == []


def test_another_broker_refuses(client: KafkaClient, cluster: MemoryCluster) -> None:
    answer = client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 1)), broker=2)
    assert results(answer) == [(NOT_LEADER_OR_FOLLOWER, -1)]
    assert cluster.running[2].deletions == []


def test_a_leaders_refusal_is_answered(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.running[1].script = [OffsetOutOfRangeError("9 > 3")]
    assert results(client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 9)))) == [(OFFSET_OUT_OF_RANGE, -1)]


def test_the_id_that_a_client_names_is_the_topic_that_it_means(client: KafkaClient, cluster: MemoryCluster) -> None:
    answer = client.ask(ApiKey.DELETE_RECORDS, 2, values((0, -1), topic_id=EARLIER))
    assert results(answer) == [(UNKNOWN_TOPIC_ID, -1)]
    assert cluster.log(1, T0).log_start_offset == 0
    (asked,) = cluster.running[1].deletions
    assert list(asked.offsets) == [IdentifiedPartition(EARLIER, T0)]


def test_a_client_without_ids_learns_that_its_topic_is_gone(client: KafkaClient, cluster: MemoryCluster) -> None:
    """It was deleted, and made again, while the request waited for the broker's loop."""
    cluster.running[1].script = [UnknownTopicIdError("another one")]
    assert results(client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 1)))) == [(UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_time_below_0_is_none(client: KafkaClient, cluster: MemoryCluster) -> None:
    client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 1), timeout_ms=-5))
    assert [each.timeout_ms for each in cluster.running[1].deletions] == [0]


def test_requests_that_wait_take_no_threads_from_others(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.running[1].script = [None] * 20
    waiting = [client.asked(ApiKey.DELETE_RECORDS, 2, values((0, 1))) for _ in range(20)]
    assert results(client.ask(ApiKey.DELETE_RECORDS, 2, values((0, 2)))) == [(0, 2)]
    assert not any(each.is_there.is_set() for each in waiting)
