"""A relay before an object store server that counts the requests of those clients that come through it.

I/O: a TCP port of the loopback, with two threads for each connection.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

REQUEST_LINE = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r$", re.MULTILINE)
CHUNK_BYTES = 1 << 16


class RequestCounter:
    """What has been asked so far, by method. A request's body is not told from its head: none has such a line."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def counts(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def serve(self) -> None:
        """Relay connections until `close`."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for source, target, is_counted in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._relay, args=(source, target, is_counted), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _relay(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        rest = b""
        with suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if is_counted:
                    rest = self._count(rest + chunk)
                target.sendall(chunk)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _count(self, received: bytes) -> bytes:
        """Count whole lines; the last one, which may be a part, comes again."""
        lines, newline, rest = received.rpartition(b"\n")
        with self._lock:
            self._counts.update(method.decode() for method, _ in REQUEST_LINE.findall(lines + newline))
        return rest


@contextmanager
def counted_requests(server_url: str) -> Iterator[RequestCounter]:
    """A relay to the server with this URL."""
    address = urlsplit(server_url)
    assert address.hostname is not None
    assert address.port is not None
    counter = RequestCounter((address.hostname, address.port))
    thread = threading.Thread(target=counter.serve, name="request-counter", daemon=True)
    thread.start()
    try:
        yield counter
    finally:
        counter.close()
        thread.join()
