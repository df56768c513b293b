"""What a broker's listeners count, by the names of Kafka's metrics: requests, their times, connections, logins. Pure.

Several threads count, each addition in one step of the interpreter. Requests that come through the inbox are not
counted. Source: Kafka's `RequestChannel.Metrics`, `Selector.SelectorMetrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache

from stratalog.replication.metrics import COUNTER, GAUGE, HISTOGRAM, Histogram, Labels, Metric
from stratalog.server.metrics.rates import IdleShare
from stratalog.server.request.request_log import RequestTimes
from stratalog.storage.clock import measured_ns
from stratalog.storage.errors import NAME_OF_CODE
from stratalog.wire.messages.schema import known_versions, response_type

UNKNOWN = -1
"""Stands for each API and each version that Kafka does not have: a client may send any number."""
PARTS = {
    "RequestQueueTimeMs": "From a request's turn on its connection to the thread that handles it.",
    "LocalTimeMs": "In the thread that handles the request.",
    "RemoteTimeMs": "From there until the answer is known; a Fetch may wait for records, a Produce for followers.",
    "ResponseQueueTimeMs": "From an answer to the thread that sends it.",
    "ResponseSendTimeMs": "In that thread, until the socket has the answer.",
}
"""The parts of a request's TotalTimeMs, by Kafka's names."""
REQUESTS = "kafka_network_requestmetrics_"
NANOSECONDS = 1_000_000
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


Work = Callable[[], tuple[int, int]]
"""The time that threads have worked in all, in ns, and their number."""


class EndpointMetrics:
    """The counters of one broker's listeners."""

    def __init__(
        self, queue_size: Callable[[], int] = lambda: 0, network: Work | None = None, io: Work | None = None
    ) -> None:
        """`queue_size`: the requests that wait for an io thread now. `network`, `io`: the work of these threads."""
        self._queue_size = queue_size
        begun_ns = measured_ns()
        self._idle = [
            (name, doc, work, IdleShare(begun_ns))
            for name, doc, work in (
                (
                    "kafka_network_socketserver_networkprocessoravgidle_percent",
                    "Of the time of network threads",
                    network,
                ),
                ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "Of the time of io threads", io),
            )
            if work is not None
        ]
        self._errors: dict[tuple[int, int], int] = {}
        """By API key and error code."""
        self._listeners: dict[tuple[str, int], ListenerTraffic] = {}
        """By name and number of the network thread."""
        self._times: dict[tuple[int, int], Histogram] = {}
        """By API key and version. A histogram counts its requests, too."""
        self._parts: dict[tuple[str, int], Histogram] = {}
        """By name, see PARTS, and API key."""

    def listener(self, name: str, processor: int = 0) -> ListenerTraffic:
        """The counters of one listener in one network thread, created on first use."""
        return self._listeners.setdefault((name, processor), ListenerTraffic())

    def timed(self, api_key: int, times: RequestTimes) -> None:
        """Count the parts of the time of one request, which is one of an API that is served."""
        self._observe("RequestQueueTimeMs", api_key, times.queue_ns)
        self._observe("LocalTimeMs", api_key, times.local_ns)
        self._observe("RemoteTimeMs", api_key, times.remote_ns)

    def _observe(self, part: str, api_key: int, duration_ns: int) -> None:
        times = self._parts.get((part, api_key))
        if times is None:
            times = self._parts.setdefault((part, api_key), Histogram())
        times.observe(duration_ns // NANOSECONDS)

    def answered(self, api_key: int, version: int, duration_ms: int, queued_ms: int = 0, send_ms: int = 0) -> None:
        """Count one request; `duration_ms` lies between its turn on the connection and the end of its answer.

        queued_ms  the part of it in which the answer waited for the thread that sends it
        send_ms    the part of it in which the answer was handed to the socket

        A login before SaslHandshake 1 sends tokens without a header, whose first bytes may look like any API.
        """
        versions = known_versions(api_key)
        key = (api_key if versions else UNKNOWN, version if version in versions else UNKNOWN)
        times = self._times.get(key)
        if times is None:
            times = self._times.setdefault(key, Histogram())
        times.observe(duration_ms)
        self._observe("ResponseQueueTimeMs", key[0], queued_ms * NANOSECONDS)
        self._observe("ResponseSendTimeMs", key[0], send_ms * NANOSECONDS)

    def met(self, api_key: int, codes: Iterable[int]) -> None:
        """Count the errors of one response."""
        for code in codes:
            key = (api_key, code)
            self._errors[key] = self._errors.get(key, 0) + 1

    def metrics(self) -> Iterator[Metric]:
        """The present values. Any thread may call it."""
        yield from self._requests()
        doc = "Requests that wait for an io thread, of all brokers of the process."
        yield Metric("kafka_network_requestchannel_requestqueuesize", GAUGE, doc, {(): self._queue_size()})
        for name, doc, work, idle in self._idle:
            share = idle.share(*work(), measured_ns())
            yield Metric(name, GAUGE, f"{doc}, the share in which they have nothing to do, 0 to 1.", {(): share})
        listeners = sorted(self._listeners.copy().items())
        is_open = {_labels(*named): each.connection_creation - each.connection_close for named, each in listeners}
        yield Metric(f"{SOCKETS}connection_count", GAUGE, "Open connections.", is_open)
        for counter in fields(ListenerTraffic):
            values: dict[Labels, float | Histogram]
            values = {_labels(*named): getattr(each, counter.name) for named, each in listeners}
            yield Metric(f"{SOCKETS}{counter.name}_total", COUNTER, counter.metadata["doc"], values)

    def _requests(self) -> Iterator[Metric]:
        by_version = sorted(self._times.copy().items())
        by_api: dict[int, Histogram] = {}
        for (key, _), times in by_version:
            by_api.setdefault(key, Histogram()).add(times)
        yield Metric(
            f"{REQUESTS}requests_total",
            COUNTER,
            "Requests that were answered.",
            {
                (("request", _name(key)), ("version", _version(version))): times.count
                for (key, version), times in by_version
            },
        )
        yield Metric(
            f"{REQUESTS}totaltimems",
            HISTOGRAM,
            "From a request's turn on its connection to its answer; a Fetch may wait for records.",
            {(("request", _name(key)),): times for key, times in by_api.items()},
        )
        parts = sorted(self._parts.copy().items())
        for part, doc in PARTS.items():
            found: dict[Labels, Histogram] = {
                (("request", _name(key)),): times for (name, key), times in parts if name == part
            }
            yield Metric(f"{REQUESTS}{part.lower()}", HISTOGRAM, doc, found)
        yield Metric(
            f"{REQUESTS}errors_total",
            COUNTER,
            "Errors in responses; one response may have several.",
            {
                (("request", _name(key)), ("error", NAME_OF_CODE.get(code, str(code)))): count
                for (key, code), count in sorted(self._errors.copy().items())
            },
        )


def _labels(listener: str, processor: int) -> Labels:
    return (("listener", listener), ("networkProcessor", str(processor)))


@cache
def _name(api_key: int) -> str:
    """The API as Kafka's metrics name it, e.g. `ListOffsets`; `unknown` for UNKNOWN."""
    versions = known_versions(api_key)
    return response_type(api_key, max(versions)).__name__.removesuffix("Response") if versions else "unknown"


def _version(number: int) -> str:
    return "unknown" if number == UNKNOWN else str(number)
