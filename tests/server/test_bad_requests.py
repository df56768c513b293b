"""Requests with nulls: where the schema has them they are answered, where it has none the connection is closed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.request.api import Call, Connection
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import encode_request
from stratalog.wire.messages.schema import EntityType, FieldShape, request_type, shape_of
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.kafka_client import Answer, ClosedError, KafkaClient
from tests.kio_messages import build, request_frame


@pytest.fixture(scope="module")
def cluster() -> CoordinatingCluster:
    made = CoordinatingCluster({CoordinatorType.GROUP: group_shard, CoordinatorType.TRANSACTION: TransactionShard.at})
    for kind in CoordinatorType:
        made.create_topic(kind.topic, 1)
    return made


@pytest.fixture(scope="module")
def client(cluster: CoordinatingCluster) -> Iterator[KafkaClient]:
    with KafkaClient(cluster, stores=cluster.stores) as made:
        yield made


def served(client: KafkaClient) -> list[tuple[int, int]]:
    return [(api.key, version) for api in client.handlers[1].apis for version in api.versions]


def has_null(field: FieldShape) -> bool:
    return field.is_array or (field.part is None and field.kafka_type in ("string", "bytes"))


def nulls(entity_type: EntityType, *, allowed: bool) -> Iterator[Any]:
    """Messages of defaults with one null each, at any depth, where the schema allows it or where it does not."""
    base = build(entity_type, {})
    for field in shape_of(entity_type):
        if field.tag is None and has_null(field) and field.is_nullable == allowed:
            yield dataclasses.replace(base, **{field.name: None})
        if field.part is not None:
            for part in nulls(field.part, allowed=allowed):
                yield dataclasses.replace(base, **{field.name: (part,) if field.is_array else part})


def test_a_null_that_the_schema_has_is_answered(client: KafkaClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "stratalog"):
        for key, version in served(client):
            for request in nulls(request_type(key, version), allowed=True):
                client.sent(encode_request(3, "test", request), key, version)()
                assert not caplog.records, (request, caplog.records[0].exc_info)


def test_a_null_that_the_schema_does_not_have_closes_the_connection(client: KafkaClient) -> None:
    for key, version in served(client):
        for request in nulls(request_type(key, version), allowed=False):
            with pytest.raises(ClosedError, match="null"):
                client.sent(encode_request(3, "test", request), key, version)()


def test_what_cannot_even_be_refused_closes_the_connection_from_a_thread_of_its_own_too(client: KafkaClient) -> None:
    """Such a request cannot come in a frame."""
    request = dataclasses.replace(build(request_type(ApiKey.CREATE_TOPICS, 7), {}), topics=None)
    answer = Answer(ApiKey.CREATE_TOPICS, 7)
    client.handlers[1]._serve(Call(request_frame(request), Connection(close=answer.close), answer.receive))
    with pytest.raises(ClosedError, match="no answer could be made"):
        answer()
