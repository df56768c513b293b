"""The times of a request by its parts, and the lines of the request log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.replication.metadata.acls import Principal
from stratalog.server.apis.configs import BROKER_LOGGER
from stratalog.server.request.api import Connection
from stratalog.server.request.request_log import (
    REQUEST_LOG,
    TRACE,
    RequestOrigin,
    RequestTimes,
    log_begun,
    log_completed,
)
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import RequestFrame
from stratalog.wire.messages.schema import request_type
from tests.clients.kafka_client import KafkaClient, framed
from tests.clients.memory_cluster import MemoryCluster
from tests.kio_messages import build, request_frame

SOFTWARE = ("librdkafka", "2.16.0")
ORIGIN = RequestOrigin("INTERNAL", "10.0.0.7:4711", Principal("User:alice", "10.0.0.7"), "app-1", SOFTWARE)
TIMES = RequestTimes(1_500_000, 2_000_000, 4_000_000)


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    """The request log, whose level a test may change."""
    yield REQUEST_LOG
    REQUEST_LOG.setLevel(logging.NOTSET)


def asked(key: int, version: int, **values: object) -> RequestFrame:
    return request_frame(build(request_type(key, version), values))


def described(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines, of which each is a word, a colon and JSON."""
    return [json.loads(each.message.split(":", 1)[1]) for each in caplog.records if each.name == REQUEST_LOG.name]


@pytest.mark.parametrize(
    ("received", "begun", "worked", "answered", "expected"),
    [
        (10, 20, 50, 90, (10, 30, 40)),
        (10, 20, 0, 90, (10, 70, 0)),  # its handler answers before it returns
        (10, 20, 95, 90, (10, 70, 0)),  # another thread answers before the handler returns
        (10, 0, 0, 90, (80, 0, 0)),  # refused before a thread had it
    ],
)
def test_a_requests_time_is_the_sum_of_its_parts(
    received: int, begun: int, worked: int, answered: int, expected: tuple[int, int, int]
) -> None:
    times = RequestTimes.between(received, begun, worked, answered)
    assert (times.queue_ns, times.local_ns, times.remote_ns) == expected
    assert sum(expected) == answered - received


def test_an_answered_request_is_a_line_with_its_client_and_times(
    caplog: pytest.LogCaptureFixture, level: logging.Logger
) -> None:
    level.setLevel(logging.DEBUG)
    log_completed(asked(ApiKey.METADATA, 12, topics=None), ORIGIN, TIMES)
    (line,) = described(caplog)
    assert line == {
        "requestHeader": {
            "requestApiKey": 3, "requestApiVersion": 12, "clientId": "app-1", "requestApiKeyName": "METADATA",
        },
        "connection": "10.0.0.7:4711",
        "principal": "User:alice",
        "listener": "INTERNAL",
        "clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.16.0"},
        "totalTimeMs": 7.5,
        "requestQueueTimeMs": 1.5,
        "localTimeMs": 2.0,
        "remoteTimeMs": 4.0,
    }  # fmt: skip


def test_what_is_secret_is_not_in_a_line(caplog: pytest.LogCaptureFixture, level: logging.Logger) -> None:
    level.setLevel(TRACE)
    config = {"name": "ssl.keystore.password", "config_operation": 0, "value": "tiger"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    log_begun(
        asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]),
        ORIGIN,
    )
    log_begun(
        asked(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0tiger"),
        ORIGIN,
    )
    configs, login = described(caplog)
    assert configs["request"]["resources"][0]["configs"][0]["name"] == "ssl.keystore.password"
    assert login["request"] == {"auth_bytes": "12 bytes"}
    assert "tiger" not in caplog.text


def test_a_clients_text_stays_in_its_line_and_is_cut(caplog: pytest.LogCaptureFixture, level: logging.Logger) -> None:
    level.setLevel(TRACE)
    names = ["a\n2026-01-01 forged \x1b[2J", *(f"t{number}" for number in range(5_000)), "ü" * 16_000]
    log_begun(asked(ApiKey.DELETE_TOPICS, 5, topic_names=names), ORIGIN)
    (record,) = (each for each in caplog.records if each.name == REQUEST_LOG.name)
    assert record.message.isprintable()
    assert record.message.isascii()
    assert len(record.message) < 10_000


def test_a_brokers_requests_are_logged_once_its_logger_is_switched_on(
    caplog: pytest.LogCaptureFixture, level: logging.Logger
) -> None:
    """`kafka-configs --alter --entity-type broker-loggers --add-config stratalog.request=DEBUG`, and back."""
    cluster = MemoryCluster()
    cluster.create_topic("t")
    counted: list[tuple[int, RequestTimes]] = []
    with KafkaClient(cluster, stores=cluster.stores) as client:
        client.ask(ApiKey.METADATA, 12, {"topics": None})
        assert described(caplog) == []
        for word in ("DEBUG", "WARN"):
            config = {"name": REQUEST_LOG.name, "config_operation": 0, "value": word}
            resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [config]}
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
            client.ask(ApiKey.METADATA, 12, {"topics": None})
        connection = Connection(times=lambda key, times: counted.append((key, times)))
        client.handlers[1].handle(framed(ApiKey.METADATA, 12, {"topics": None}), connection, lambda _answer: None)
    names = [line["requestHeader"]["requestApiKeyName"] for line in described(caplog)]
    assert names == ["INCREMENTAL_ALTER_CONFIGS", "METADATA"], "from the answer to the first change to the second one"
    ((key, times),) = counted
    assert key == ApiKey.METADATA
    assert times.local_ns > 0
