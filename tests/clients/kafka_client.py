"""A client of Kafka's protocol without a socket: frames in and out of the handlers of a cluster in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Self

from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.acls import Principal
from stratalog.replication.stores import Stores
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.api import Connection
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import Header, NewRecordBatch, payload_table
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import Answer as ResponseFrame
from stratalog.wire.messages.frames import decode_response, encode_request, whole
from stratalog.wire.messages.schema import request_type

ANSWER_S = 60


class ClosedError(Exception):
    """The broker closed the connection."""


class KafkaClient:
    """Sends requests to the handlers of brokers 1 to 3."""

    def __init__(
        self,
        cluster: RunningCluster,
        *,
        stores: Stores | None = None,
        advertised: Iterable[int] = (1, 2, 3),
        settings: Mapping[str, object] | None = None,
        config: BrokerConfig | None = None,
    ) -> None:
        endpoints = {broker: Endpoint(f"b{broker}.example", 9090 + broker) for broker in advertised}
        config = config or BrokerConfig.from_properties(dict(settings or {}))
        self.handlers = {
            broker: KafkaHandler(
                cluster,
                broker,
                config=config,
                view=ClusterView(cluster, stores=stores) if stores is not None else None,
                advertised=endpoints,
            )
            for broker in (1, 2, 3)
        }
        self.principal = Principal()

    def ask(
        self, key: int, version: int, values: Mapping[str, Any] | None = None, *, broker: int = 1, client: str = "test"
    ) -> Any:
        """The response to a request; None when none is sent. ClosedError when the connection is."""
        return self.asked(key, version, values, broker=broker, client=client)()

    def asked(
        self, key: int, version: int, values: Mapping[str, Any] | None = None, *, broker: int = 1, client: str = "test"
    ) -> Answer:
        """Send a request; the call of the result returns the response."""
        return self.sent(framed(key, version, values or {}, client), key, version, broker=broker)

    def sent(self, frame: bytes, key: int, version: int, *, broker: int = 1) -> Answer:
        """The same for bytes. The broker refreshes its metadata first, since it polls only from time to time."""
        self.handlers[broker].broker.view.refresh()
        answer = Answer(key, version)
        connection = Connection(self.principal, answer.close)
        self.handlers[broker].handle(frame, connection, answer.receive)
        return answer

    def close(self) -> None:
        for handler in self.handlers.values():
            handler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def framed(key: int, version: int, values: Mapping[str, Any], client: str = "test") -> bytes:
    """A request as a frame, with correlation id 3."""
    return encode_request(3, client, values, request_type(key, version))


class Answer:
    """The response to one request, when it comes."""

    def __init__(self, key: int, version: int) -> None:
        self.frame: bytes | None = None
        self.closed_by: str | None = None
        self.is_there = threading.Event()
        self._key, self._version = key, version

    def receive(self, frame: ResponseFrame | None) -> None:
        assert not self.is_there.is_set(), "answered twice"
        self.frame = None if frame is None else whole(frame)
        self.is_there.set()

    def close(self, reason: str) -> None:
        self.closed_by = reason
        self.is_there.set()

    def __call__(self) -> Any:
        assert self.is_there.wait(ANSWER_S), "no answer"
        if self.closed_by is not None:
            raise ClosedError(self.closed_by)
        if self.frame is None:
            return None
        correlation_id, response = decode_response(self.frame, self._key, self._version)
        assert correlation_id == 3
        return response


def batch_of(*values: bytes | None, key: bytes | None = b"k", time_ms: int = 1, **fields: Any) -> bytes:
    """A record batch of these values as a producer sends it."""
    rows = [(time_ms + i, key, value, [Header("h", b"1")]) for i, value in enumerate(values)]
    return encode_batch(NewRecordBatch(payload_table(rows), **fields))


def code(part: Any) -> int:
    """The error code of a response or a part of one."""
    return int(part.error_code)
