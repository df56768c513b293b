"""No request to list or describe groups makes a coordinator fold its shard again, whatever is wrong with it."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.listeners import Listener, SecurityProtocol
from stratalog.server.endpoint.socket_server import SocketServer, bind
from stratalog.server.handler import KafkaHandler
from stratalog.server.view.cluster_view import ClusterView
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import encode_request
from stratalog.wire.messages.schema import request_type
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.kafka_client import ClosedError, KafkaClient
from tests.kio_messages import build

MALFORMED = [
    (ApiKey.LIST_GROUPS, 4, {"states_filter": None}),
    (ApiKey.LIST_GROUPS, 5, {"types_filter": None}),
    (ApiKey.LIST_GROUPS, 5, {"states_filter": (None,)}),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": None}),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": (None,)}),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": None}),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": (None,)}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": None}),
    (ApiKey.LIST_TRANSACTIONS, 1, {"state_filters": None}),
    (ApiKey.LIST_TRANSACTIONS, 1, {"producer_id_filters": None}),
]


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


def malformed(key: int, version: int, fields: dict[str, Any]) -> Any:
    return dataclasses.replace(build(request_type(key, version), {}), **fields)


@pytest.mark.parametrize(("key", "version", "fields"), MALFORMED)
def test_bytes_with_such_a_null_end_the_connection_before_any_shard_sees_them(
    client: KafkaClient, caplog: pytest.LogCaptureFixture, key: int, version: int, fields: dict[str, Any]
) -> None:
    with caplog.at_level(logging.WARNING, "stratalog"):
        try:
            frame = encode_request(3, "test", malformed(key, version, fields))
        except (TypeError, AttributeError):
            return  # no client can write that either
        with pytest.raises(ClosedError, match="null"):
            client.sent(frame, key, version)()
    assert caplog.records == []


def test_a_null_closes_its_own_connection_with_one_line_though_the_api_is_slow(
    cluster: CoordinatingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """CreateTopics, DeleteRecords and ListGroups over sockets, beside a connection that goes on."""
    config = BrokerConfig()
    queued = RequestBound(config.queued_max_requests)
    server = SocketServer(config, queued)
    (bound,) = bind([Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0)])
    port = bound.listener.port
    with ThreadPoolExecutor(2) as io:
        view = ClusterView(cluster, stores=cluster.stores)
        handler = KafkaHandler(cluster, 1, config=config, view=view, io=io)
        server.serve(1, [bound], handler)
        with socket_to(port) as neighbour:
            for key, version, fields in (
                (ApiKey.CREATE_TOPICS, 7, {"topics": None}),
                (ApiKey.DELETE_RECORDS, 2, {"topics": None}),
                (ApiKey.LIST_GROUPS, 4, MALFORMED[0][2]),
            ):
                with caplog.at_level(logging.WARNING, "stratalog"):
                    with socket_to(port) as own:
                        send(own, encode_request(3, "test", malformed(key, version, fields)))
                        assert own.recv(1) == b"", "closed without an answer"
                    send(neighbour, encode_request(4, "test", {}, request_type(ApiKey.API_VERSIONS, 3)))
                    assert neighbour.recv(4) != b""
                    neighbour.recv(1 << 16)
                (line,) = [record.getMessage() for record in caplog.records]
                assert f"API {key}" in line
                assert "null" in line
                caplog.clear()
        server.stop()
        handler.close()


def socket_to(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 20)


def send(own: socket.socket, frame: bytes) -> None:
    own.sendall(len(frame).to_bytes(4, "big") + frame)
