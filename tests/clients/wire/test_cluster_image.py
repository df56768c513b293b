"""The image of a cluster from brokers' answers."""

from __future__ import annotations

from typing import Any

from stratalog.clients.wire.cluster_image import described_partitions, image_of
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage.errors import TopicAuthorizationFailedError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_response
from stratalog.wire.messages.schema import Entity, response_type

ID = "0123456789abcdef0123456789abcdef"


def response(api_key: int, version: int, values: dict[str, Any]) -> Entity:
    """As a client gets it."""
    return decode_response(encode_response(1, values, response_type(api_key, version)), api_key, version)[1]


def partition(number: int, **more: object) -> dict[str, object]:
    return {
        "partition_index": number, "leader_id": 2, "leader_epoch": 5, "replica_nodes": [2, 1], "isr_nodes": [2], **more,
    }  # fmt: skip


def test_an_image_has_topics_partitions_and_brokers_that_are_called_at_their_addresses() -> None:
    hidden = {"name": "hidden", "error_code": TopicAuthorizationFailedError("no")}
    topics = [{"name": "t", "topic_id": ID, "partitions": [partition(0), partition(1, leader_id=-1)]}, hidden]
    metadata = response(ApiKey.METADATA, 12, {"topics": topics})
    brokers = [
        {"broker_id": 1, "host": "h1", "port": 9092, "rack": "a", "is_fenced": True},
        {"broker_id": 2, "host": "h2", "port": 9093, "is_fenced": False},
    ]
    cluster = response(ApiKey.DESCRIBE_CLUSTER, 2, {"cluster_id": "c", "controller_id": 2, "brokers": brokers})
    image = image_of(metadata, cluster, "SASL_SSL")
    assert (image.cluster_id, image.controller_id, dict(image.topic_ids)) == ("c", 2, {"t": ID})
    assert image.partitions_of("t") == [TopicPartition("t", 0), TopicPartition("t", 1)]
    first = image.partition(TopicPartition("t", 0))
    assert (first.leader, first.leader_epoch, first.replicas, first.isr) == (2, 5, (2, 1), (2,))
    assert (list(image.live_brokers()), image.brokers[1].registration.rack) == ([2], "a")
    registered = Endpoint.by_listener(image.brokers[2].registration.endpoint or "")
    assert registered["SASL_SSL"] == Endpoint("h2", 9093)
    assert image_of(metadata, cluster, "SASL_SSL") == image


def test_described_partitions_have_eligible_replicas_and_what_a_reassignment_adds() -> None:
    parts = [partition(0, eligible_leader_replicas=[1], last_known_elr=[])]
    topics = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "t", "partitions": parts}]}).topics
    moving = [(TopicPartition("t", 0), (1,), (2,)), (TopicPartition("gone", 0), (1,), ())]
    (found,) = described_partitions(topics, moving).values()
    assert (found.elr, found.adding, found.removing) == ((1,), (1,), (2,))
