"""The times of a request by its parts, and a line of the log for each. Pure.

Source: Kafka's `RequestChannel.Request.updateRequestMetrics`, `RequestConvertToJson`, and `KafkaApis.handle`, whose
logger is `kafka.request.logger`; here it is `stratalog.request`, which has

    DEBUG   a line for each answered request: its API, client, connection, principal and times
    TRACE   a line when it begins, too, and in both lines what was asked

Its level is changed while a broker runs: `kafka-configs --entity-type broker-loggers`. What must not stand in a log
does not: bytes (records, keys, logins) are their number, and the values of configs are left out.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from stratalog.replication.metadata.acls import Principal
from stratalog.storage.log_lines import FIELDS, line_logger
from stratalog.wire.api_keys import api_name
from stratalog.wire.messages.frames import RequestFrame
from stratalog.wire.messages.schema import EntityType, held_fields, request_type

CHARACTERS_MAX = 100_000
"""A line of this log is a whole request."""
REQUEST_LOG = line_logger("stratalog.request", CHARACTERS_MAX)
TRACE = logging.NOTSET + 1
VALUES_MAX = 100
"""Elements of one list of a request that a line shows."""
TEXT_MAX = 500
"""Letters of one text of a request that a line shows."""
UNKNOWN_SOFTWARE = ("unknown", "unknown")
"""Kafka's words for a client that does not say what it is."""
SECRET_FIELDS = frozenset({"value", "hmac"})
"""The value of a config may be a password."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The parts of a request's time, in nanoseconds; together they are its total time in the broker.

    queue   from its turn on the connection to the thread that handles it
    local   in that thread
    remote  from there until its answer was known: the high watermark, other brokers, new records

    >>> RequestTimes.between(0, 2_000_000, 5_000_000, 9_000_000)
    RequestTimes(queue_ns=2000000, local_ns=3000000, remote_ns=4000000)
    >>> RequestTimes.between(0, 2_000_000, 0, 5_000_000)  # answered by its handler, before that returned
    RequestTimes(queue_ns=2000000, local_ns=3000000, remote_ns=0)
    """

    queue_ns: int
    local_ns: int
    remote_ns: int

    @classmethod
    def between(cls, received_ns: int, begun_ns: int, worked_ns: int, answered_ns: int) -> RequestTimes:
        """From the clock at each of the four moments; one that has not come is 0."""
        begun_ns = begun_ns or answered_ns
        worked_ns = min(worked_ns or answered_ns, answered_ns)
        return cls(begun_ns - received_ns, worked_ns - begun_ns, answered_ns - worked_ns)


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Where a request comes from, for its line.

    peer      the client's address and port, "" in the same process
    software  name and version of the client's library (KIP-511)
    """

    listener: str
    peer: str
    principal: Principal
    client_id: str
    software: tuple[str, str] = UNKNOWN_SOFTWARE


def log_begun(request: RequestFrame, origin: RequestOrigin) -> None:
    """A line, at level TRACE, for a request that a thread begins to handle."""
    _log(TRACE, "Handling request", _described(request, origin, with_body=True))


def log_completed(request: RequestFrame, origin: RequestOrigin, times: RequestTimes) -> None:
    """A line, at level DEBUG, for a request whose answer is known."""
    described = _described(request, origin, with_body=REQUEST_LOG.isEnabledFor(TRACE))
    described |= {
        "totalTimeMs": _ms(times.queue_ns + times.local_ns + times.remote_ns),
        "requestQueueTimeMs": _ms(times.queue_ns),
        "localTimeMs": _ms(times.local_ns),
        "remoteTimeMs": _ms(times.remote_ns),
    }
    _log(logging.DEBUG, "Completed request", described)


def _log(level: int, what: str, described: dict[str, Any]) -> None:
    """One line, whose fields a formatter may write in its own way."""
    REQUEST_LOG.log(level, "%s:%s", what, _line(described), extra={FIELDS: described})


def _described(request: RequestFrame, origin: RequestOrigin, *, with_body: bool) -> dict[str, Any]:
    key, version = request.api_key, request.version
    header = {
        "requestApiKey": key,
        "requestApiVersion": version,
        "clientId": origin.client_id[:TEXT_MAX],
        "requestApiKeyName": api_name(key),
    }
    return {
        "requestHeader": header,
        **({"request": plain(request.entity, request_type(key, version))} if with_body else {}),
        "connection": origin.peer or origin.principal.host,
        "principal": origin.principal.name[:TEXT_MAX],
        "listener": origin.listener,
        "clientInformation": {"softwareName": origin.software[0], "softwareVersion": origin.software[1]},
    }


def request_text(request: RequestFrame) -> str:
    """A request as JSON, without bytes and secrets."""
    return _line(plain(request.entity, request_type(request.api_key, request.version)))


def plain(value: Any, of: EntityType = None) -> Any:
    """A message or a part of one, of this class of kio's, or another value of its fields, as JSON has it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if isinstance(value, tuple | list):
        shown = [plain(each, of) for each in value[:VALUES_MAX]]
        return shown if len(value) <= VALUES_MAX else [*shown, f"{len(value) - VALUES_MAX} more"]
    if of is not None:
        held_as: EntityType = type(value)
        return {
            shape.name: "hidden" if shape.name in SECRET_FIELDS else plain(getattr(value, attribute), shape.part)
            for shape, attribute, _ in held_fields(of, held_as)
        }
    return str(value)[:TEXT_MAX]


def _line(described: dict[str, Any]) -> str:
    """One line of ASCII: a client's text cannot begin another line or move a terminal's cursor."""
    return json.dumps(described, separators=(",", ":"), ensure_ascii=True)


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1_000_000, 3)
