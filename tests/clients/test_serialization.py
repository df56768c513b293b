"""A producer's serializers and a consumer's deserializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.config import ConsumerConfig, ProducerConfig
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.serialization import SerializationContext
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import InvalidConfigError, RecordDeserializationError, SerializationError
from stratalog.storage.records import Header, TopicPartition


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("serialization")
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread") as running:
        yield running


def to_json(data: Any, context: SerializationContext) -> bytes | None:
    if isinstance(data, set):
        raise SerializationError("a set is no JSON")
    context.headers.append((f"{context.field}-of", context.topic.encode()))
    return None if data is None else json.dumps(data).encode()


def from_json(data: bytes | None, context: SerializationContext) -> Any:
    return None if data is None else json.loads(data)


def test_data_is_what_was_sent(cluster: Cluster) -> None:
    Admin(cluster).create_topic("pairs", 1)
    with Producer(cluster, {"key.serializer": to_json}, value_serializer=to_json) as producer:
        producer.send("pairs", {"a": 1}, [7], headers=[("trace", b"x")]).result(10)
        producer.send("pairs", None, "k").result(10)
        refused = producer.send("pairs", {1})
        assert isinstance(refused.exception(10), SerializationError)
    with Consumer(cluster, auto_offset_reset="earliest", value_deserializer=from_json) as consumer:
        consumer.assign_all("pairs")
        first, second = consumer.poll(10_000)
    assert (first.key, first.value) == (b"[7]", {"a": 1})
    assert (second.key, second.value) == (b'"k"', None)
    assert first.headers == (Header("trace", b"x"), Header("key-of", b"pairs"), Header("value-of", b"pairs"))


def test_a_record_that_is_refused_is_named_and_can_be_passed(cluster: Cluster) -> None:
    Admin(cluster).create_topic("broken", 1)
    with Producer(cluster) as producer:
        for value in ("1", "2", "{", "4"):
            producer.send("broken", value).result(10)
    partition = TopicPartition("broken", 0)
    with Consumer(cluster, auto_offset_reset="earliest", value_deserializer=from_json) as consumer:
        consumer.assign_all("broken")
        assert [record.value for record in consumer.poll(10_000)] == [1, 2]
        for _ in range(2):
            assert consumer.position(partition) == 2
            with pytest.raises(RecordDeserializationError, match="VALUE for partition broken-0 at offset 2") as raised:
                consumer.poll(10_000)
            assert isinstance(raised.value.__cause__, json.JSONDecodeError)
        consumer.seek(partition, raised.value.offset + 1)
        assert [record.value for record in consumer.poll(10_000)] == [4]


def test_a_serializer_is_an_object_not_a_name() -> None:
    with pytest.raises(InvalidConfigError, match=r"value\.serializer: Expected an object that can be called"):
        ProducerConfig.from_settings({"value.serializer": "org.example.Json"}, {})
    assert ConsumerConfig.from_settings({"key.deserializer": from_json}, {}).key_deserializer is from_json
