"""What a process shows over HTTP: fixed paths, each with a text that is made when it is asked for.

I/O: a listening socket and threads. A text is made no oftener than its making allows, whoever reaches the port.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from socket import AI_PASSIVE, SOCK_STREAM, gaierror, getaddrinfo
from typing import Any

from stratalog.replication.metrics import Metric
from stratalog.server.metrics.exposition import CONTENT_TYPE, prometheus_text
from stratalog.server.metrics.login import CHALLENGE, MetricsLogin
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import KafkaStorageError

METRICS = "/metrics"
LOOPBACK = "localhost"
REQUEST_TIMEOUT_S = 2
"""Time after which a silent connection is closed, so that it does not keep a thread for ever."""
THREADS = 4
CONNECTIONS_MAX = 64
"""Connections that are answered, or wait for a thread."""
KEPT_TIMES, KEPT_MS_MAX = 10, 1_000
"""A text is kept for so many times the time that it took, and for so long at most."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: the status is 200 where `is_ok`, else 503."""

    content: bytes
    content_type: str = "application/json"
    is_ok: bool = True


@dataclass(frozen=True, slots=True)
class ServedPath:
    """A path's page.

    make      makes it; the argument says whether who asks may see everything
    is_open   needs no login
    """

    make: Callable[[bool], Page]
    is_open: bool = False


ServedPaths = Mapping[str, ServedPath]


class StatusServer:
    """Serves from its construction until `close`. `port` 0 chooses a free one."""

    def __init__(self, port: int, routes: ServedPaths, host: str = LOOPBACK, login: MetricsLogin | None = None) -> None:
        """`host`: where to listen; `login`: None lets everybody in who reaches the port.

        KafkaStorageError when the address is taken, or none of this machine's.
        """

        class Handler(_Handler):
            pass

        Handler.routes, Handler.login = routes, login
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


def is_loopback_host(host: str) -> bool:
    """Whether only this machine reaches a socket that listens there. A name that is not known is none.

    >>> is_loopback_host("127.0.0.1"), is_loopback_host("0.0.0.0")
    (True, False)
    """
    try:
        found = getaddrinfo(host, None, type=SOCK_STREAM, flags=AI_PASSIVE)
    except gaierror:
        return False
    return all(ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def metrics_routes(metrics: Callable[[], Iterable[Metric]]) -> ServedPaths:
    """The page of these metrics."""
    return {METRICS: metrics_route(lambda: prometheus_text(metrics()))}


def metrics_route(text: Callable[[], bytes]) -> ServedPath:
    """A page in Prometheus' text format."""
    kept = _KeptText(text, SystemClock())
    return ServedPath(lambda _sees_all: Page(kept(), CONTENT_TYPE))


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

    def __init__(self, make: Callable[[], bytes], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._until_ms = -1

    def __call__(self) -> bytes:
        with self._lock:
            begun_ms = self._clock.monotonic_ms()
            if begun_ms >= self._until_ms:
                self._text = self._make()
                now_ms = self._clock.monotonic_ms()
                self._until_ms = now_ms + min(KEPT_MS_MAX, KEPT_TIMES * (now_ms - begun_ms))
            return self._text


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    routes: ServedPaths
    login: MetricsLogin | None

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/") or METRICS
        route = type(self).routes.get(path)
        if route is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        login = type(self).login
        sees_all = login is None or login.allows(self.headers.get("Authorization", ""))
        if not sees_all and not route.is_open:
            self._answer(HTTPStatus.UNAUTHORIZED, Page(b"a login is needed\n", "text/plain"), CHALLENGE)
            return
        page = route.make(sees_all)
        self._answer(HTTPStatus.OK if page.is_ok else HTTPStatus.SERVICE_UNAVAILABLE, page)

    def _answer(self, status: HTTPStatus, page: Page, challenge: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.content)))
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(page.content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """No line for each request: Prometheus asks all the time."""
