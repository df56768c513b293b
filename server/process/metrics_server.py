"""The brokers' metrics over HTTP, for Prometheus to fetch: `http://<host>:<port>/metrics`.

I/O: a listening socket and threads. Metrics are read from running brokers without blocking them, and no oftener than
their reading allows: whoever reaches the port may ask, without a login.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AI_PASSIVE, SOCK_STREAM, getaddrinfo
from typing import Any

from stratalog.replication.broker.broker import Broker
from stratalog.replication.follower.metrics import (
    CopyTimes,
    ThreadFetch,
    fetch_metrics,
    fetch_metrics_prefix,
    thread_fetch_path,
)
from stratalog.replication.metrics import (
    LedLog,
    Metric,
    counter_metrics,
    image_metrics,
    log_metrics,
    prometheus_text,
    state_metric,
)
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import KafkaStorageError, StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.opened import open_store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/metrics", "/")
LOOPBACK = "localhost"
REQUEST_TIMEOUT_S = 2
"""Time after which a silent connection is closed, so that it does not keep a thread for ever."""
THREADS = 4
CONNECTIONS_MAX = 64
"""Connections that are answered, or wait for a thread."""
KEPT_TIMES, KEPT_MS_MAX = 10, 1_000
"""A text is kept for so many times the time that it took, and for so long at most."""


def metrics_of(broker: Broker) -> list[Metric]:
    """All metrics of a broker, as of now. Called from any thread."""
    image, leaders = broker.metadata.image, dict(broker.leaders)
    partitions = [led.partition for led in leaders.values()]
    lags = [
        partition.log_end_offset - follower.log_end_offset
        for partition in partitions
        if partition is not None
        for follower in list(partition.followers.values())
    ]
    return [
        *image_metrics(image, broker.broker_id, max(0, max(lags, default=0))),
        state_metric(broker.run_state),
        *counter_metrics(broker.metrics),
        *log_metrics({tp: _led_log(led.log) for tp, led in leaders.items() if led.log.is_folded}),
        *broker.metrics.further(),
        *broker.coordinator_metrics(),
        *fetch_metrics(_copy_times(broker), SystemClock().wall_ms(), _thread_fetch(broker)),
    ]


def _led_log(log: LogReader) -> LedLog:
    return LedLog(log.log_start_offset, log.log_end_offset, list(log.files), log.state.cleaner.first_dirty_offset)


def _copy_times(broker: Broker) -> list[CopyTimes | None]:
    """What the broker's fetch sessions published last; nothing while its root is out of reach."""
    try:
        objects = open_store(broker.root)
        contents = [objects.get_register(meta.path) for meta in objects.list(fetch_metrics_prefix(broker.broker_epoch))]
    except StratalogError:
        return []
    return [CopyTimes.from_json(data) for data in contents if data is not None]


def _thread_fetch(broker: Broker) -> ThreadFetch | None:
    """Whether the broker fetches in threads because Spark cannot; None while its root is out of reach."""
    try:
        data = open_store(broker.root).get_register(thread_fetch_path(broker.broker_epoch))
    except StratalogError:
        return None
    return None if data is None else ThreadFetch.from_json(data)


class MetricsServer:
    """Serves from its construction until `close`. `port` 0 chooses a free one."""

    def __init__(
        self,
        port: int,
        brokers: Callable[[], Mapping[int, Broker]],
        host: str = LOOPBACK,
        further: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        """`brokers`: those that run now; `host`: where to listen; `further`: metrics of no broker.

        KafkaStorageError when the address is taken, or none of this machine's.
        """
        text = _KeptText(
            lambda: prometheus_text({i: metrics_of(b) for i, b in brokers().items()}, further()), SystemClock()
        )

        class Handler(_Handler):
            answer = text

        try:
            self._server = _bounded_server(host, port, Handler)
        except OSError as reason:
            raise KafkaStorageError(
                f"stratalog.metrics.port {port} cannot be listened on at {host}: {reason}"
            ) from reason
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Close the socket and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _BoundedServer(HTTPServer):
    """A few threads answer; a connection that finds too many waiting for one is closed."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], family: int) -> None:
        self.address_family = family
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="metrics")
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._threads.submit(self._process, request, client_address)

    def _process(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone, or stayed silent
        finally:
            self._room.release()
            self.shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _bounded_server(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _BoundedServer:
    family, _, _, _, address = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0]
    return _BoundedServer((str(address[0]), port), handler, family)


class _KeptText:
    """The text of all metrics, made again after ten times the time that it took, at most a second."""

    def __init__(self, make: Callable[[], str], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._until_ms = -1

    def __call__(self) -> bytes:
        with self._lock:
            begun_ms = self._clock.monotonic_ms()
            if begun_ms >= self._until_ms:
                self._text = self._make().encode()
                now_ms = self._clock.monotonic_ms()
                self._until_ms = now_ms + min(KEPT_MS_MAX, KEPT_TIMES * (now_ms - begun_ms))
            return self._text


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    answer: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in PATHS:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = type(self).answer()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """No line for each request: Prometheus asks all the time."""
