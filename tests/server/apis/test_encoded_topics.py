"""A topic of a Metadata response is encoded once for each version of the metadata, listener and version of the API."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.apis.metadata import EncodedTopics, MetadataApis
from stratalog.server.request.api import Connection
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_response
from stratalog.wire.messages.layouts import EncodedPart, layout_of
from stratalog.wire.messages.schema import response_type
from tests.clients.kafka_client import Answer, KafkaClient, framed
from tests.clients.memory_cluster import MemoryCluster
from tests.kio_messages import build

TOPICS = 100


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    for number in range(TOPICS):
        made.create_topic(f"t{number}", started=False)
    return made


def encoded(client: KafkaClient) -> EncodedTopics:
    (family,) = (api.handle.__self__ for api in client.handlers[1].apis if api.key == ApiKey.METADATA)  # type: ignore[attr-defined]
    assert isinstance(family, MetadataApis)
    return family._encoded


def asked(client: KafkaClient, version: int, listener: str = "", **fields: Any) -> bytes:
    answer = Answer(ApiKey.METADATA, version)
    frame = framed(ApiKey.METADATA, version, {"topics": None, **fields})
    client.handlers[1].handle(frame, Connection(close=answer.close, listener=listener), answer.receive)
    assert answer().topics
    assert answer.frame is not None
    return answer.frame if isinstance(answer.frame, bytes) else b"".join(answer.frame)


def test_topics_are_encoded_once_until_metadata_changes(client: KafkaClient, cluster: MemoryCluster) -> None:
    first = asked(client, 12)
    assert encoded(client).made_count == TOPICS
    for _ in range(5):
        assert asked(client, 12) == first
    assert encoded(client).made_count == TOPICS
    asked(client, 11)
    assert encoded(client).made_count == 2 * TOPICS, "another version of the API"
    asked(client, 12, "OUTSIDE")
    assert encoded(client).made_count == 3 * TOPICS, "another listener"
    cluster.elect(TopicPartition("t7", 0), 2)
    changed = asked(client, 12)
    assert encoded(client).made_count == 4 * TOPICS
    before = {topic.name: topic for topic in decode_response(first, ApiKey.METADATA, 12)[1].topics}
    after = {topic.name: topic for topic in decode_response(changed, ApiKey.METADATA, 12)[1].topics}
    assert [name for name in after if after[name] != before[name]] == ["t7"]
    assert after["t7"].partitions[0].leader_id == 2


def test_what_is_allowed_is_asked_for_each_caller(client: KafkaClient) -> None:
    asked(client, 12, include_topic_authorized_operations=True)
    assert encoded(client).made_count == 0


@pytest.mark.parametrize("version", range(14))
def test_an_encoded_part_is_written_as_it_would_be(version: int) -> None:
    values = {
        "topics": [{"name": "t", "partitions": [{"partition_index": 3, "leader_id": 1, "replica_nodes": [1, 2]}]}]
    }
    kios = response_type(ApiKey.METADATA, version)
    (topic,) = build(kios, values).topics
    kept = EncodedPart(type(topic), values["topics"][0])
    assert kept == {}, "nobody reads its values"
    assert EncodedPart(type(topic), {"error_code": 3}) == {"error_code": 3}, "but for errors"
    assert kept.as_bytes == layout_of(type(topic)).write(topic)
    assert encode_response(3, {"topics": [kept]}, kios) == encode_response(3, values, kios)


def test_what_was_made_during_a_fold_is_made_again() -> None:
    versions = [0]
    topics = EncodedTopics(lambda: versions[0])

    def make() -> dict[str, Any]:
        versions[0] += 1  # a fold ends meanwhile
        return {"name": "t"}

    image = ClusterImage()
    topics.topic(image, ("t", "", 12), make)
    topics.topic(image, ("t", "", 12), lambda: {"name": "t"})
    topics.topic(image, ("t", "", 12), lambda: {"name": "t"})
    assert topics.made_count == 2


def test_what_was_made_of_an_image_that_was_replaced_is_made_again() -> None:
    topics = EncodedTopics(lambda: 7)
    before, after = ClusterImage(), ClusterImage()
    old = {"name": "t", "partitions": [{"leader_id": 1}]}
    new = {"name": "t", "partitions": [{"leader_id": 2}]}
    topics.topic(before, ("t", "", 12), lambda: old)
    assert topics.topic(after, ("t", "", 12), lambda: new).as_bytes == EncodedTopics(lambda: 7).topic(
        after, ("t", "", 12), lambda: new
    ).as_bytes  # fmt: skip
