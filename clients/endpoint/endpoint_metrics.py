"""What a broker's listeners count, by the names of Kafka's metrics: requests, their times, connections, logins. Pure.

The network threads count, each in one step of the interpreter; a reader sees each counter's current number. Requests
that come through the inbox are not counted. Source: Kafka's `RequestChannel.Metrics`, `Selector.SelectorMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache

from stratalog.clients.kafka.protocol.schema import known_versions, response_type
from stratalog.replication.metrics import COUNTER, GAUGE, HISTOGRAM, Histogram, Labels, Metric

PRODUCE = 0
UNKNOWN_VERSION = -1
"""The version that stands for all that the API does not have: a client may name any."""
SOCKETS = "kafka_server_socket_server_metrics_"


@dataclass(slots=True)
class ListenerTraffic:
    """Counters of one listener since the broker began to serve it."""

    connection_creation: int = field(default=0, metadata={"doc": "Connections that were accepted."})
    connection_close: int = field(default=0, metadata={"doc": "Connections that ended."})
    incoming_byte: int = field(default=0, metadata={"doc": "Bytes of requests, without their lengths."})
    outgoing_byte: int = field(default=0, metadata={"doc": "Bytes of responses, without their lengths."})
    request: int = field(default=0, metadata={"doc": "Requests."})
    successful_authentication: int = field(default=0, metadata={"doc": "Clients that logged in, or ended a handshake."})
    failed_authentication: int = field(default=0, metadata={"doc": "Clients whose login or TLS handshake failed."})


class EndpointMetrics:
    """The counters of one broker's listeners."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerTraffic] = {}
        self._requests: dict[tuple[int, int], int] = {}
        self._times: dict[int, Histogram] = {}

    def listener(self, name: str) -> ListenerTraffic:
        """The counters of one listener, created on first use."""
        return self._listeners.setdefault(name, ListenerTraffic())

    def answered(self, api_key: int, version: int, duration_ms: int) -> None:
        """Count a request that was answered, or that wanted no answer, so long after its turn began."""
        key = api_key, version if version in known_versions(api_key) else UNKNOWN_VERSION
        self._requests[key] = self._requests.get(key, 0) + 1
        times = self._times.get(api_key)
        if times is None:
            times = self._times.setdefault(api_key, Histogram())
        times.observe(duration_ms)

    def metrics(self) -> Iterator[Metric]:
        """All of them, as of now. Produce has its times from the broker, batch by batch. Any thread may call it."""
        yield Metric(
            "kafka_network_RequestMetrics_Requests_total",
            COUNTER,
            "Requests that were answered.",
            {
                (("request", _name(key)), ("version", _version(version))): count
                for (key, version), count in sorted(self._requests.copy().items())
            },
        )
        yield Metric(
            "kafka_network_RequestMetrics_TotalTimeMs",
            HISTOGRAM,
            "From a request's turn on its connection to its answer; a Fetch may wait for records.",
            {(("request", _name(key)),): times for key, times in sorted(self._times.copy().items()) if key != PRODUCE},
        )
        listeners = sorted(self._listeners.copy().items())
        is_open = {_labels(name): each.connection_creation - each.connection_close for name, each in listeners}
        yield Metric(f"{SOCKETS}connection_count", GAUGE, "Open connections.", is_open)
        for counter in fields(ListenerTraffic):
            values: dict[Labels, float | Histogram]
            values = {_labels(name): getattr(each, counter.name) for name, each in listeners}
            yield Metric(f"{SOCKETS}{counter.name}_total", COUNTER, counter.metadata["doc"], values)


def _labels(listener: str) -> Labels:
    return (("listener", listener),)


@cache
def _name(api_key: int) -> str:
    """The API as Kafka's metrics name it, e.g. `ListOffsets`; its number when it has no name."""
    versions = known_versions(api_key)
    return response_type(api_key, max(versions)).__name__.removesuffix("Response") if versions else str(api_key)


def _version(number: int) -> str:
    return "unknown" if number == UNKNOWN_VERSION else str(number)
