"""Network threads: each runs an event loop with its share of the connections. I/O: sockets, threads.

The loop is asyncio's, or uvloop's where `stratalog.event.loop` says so. Answers come from other threads: they are
collected, and the loop is woken once for all that came since its last turn.
Source: Kafka's `SocketServer.Processor`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from socket import socket
from typing import Protocol

from stratalog.replication.config import ASYNCIO
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.network")
HANDSHAKE_S = 10.0
"""Limit of the time for a TLS handshake."""
SHUTDOWN_S = 0.5
"""Limit of the time in which a client answers the end of TLS: Kafka does not wait for it."""
UNREAD_S = 1.0
"""The time within which a client has to read of its answers, at the end, to be waited for."""
CLOSE_S = 1.0
"""The time in which connections end in order, at the end."""
IDLE_CHECK_S = 5.0
STOP_S = 5.0


class Closable(Protocol):
    """A connection, as its loop sees it."""

    def close_if_idle(self, now_s: float) -> None: ...

    def close(self, reason: str = "") -> None: ...

    def abort(self) -> None: ...

    def stop_reading(self) -> None: ...

    @property
    def is_busy(self) -> bool:
        """Whether a request is not answered yet, or an answer not sent."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has to read before more is sent; 0 while it reads."""


def new_event_loop(library_name: str = ASYNCIO) -> asyncio.AbstractEventLoop:
    """A new loop of the library that `stratalog.event.loop` names. InvalidConfigError when it is not installed."""
    if library_name == ASYNCIO:
        return asyncio.new_event_loop()
    try:
        library = import_module(library_name)
    except ImportError as reason:
        raise InvalidConfigError(
            f"stratalog.event.loop is {library_name}, which is not installed here ({reason}): "
            f"pip install 'stratalog[uvloop]', or set it to {ASYNCIO}"
        ) from reason
    loop: asyncio.AbstractEventLoop = library.new_event_loop()
    return loop


class NetworkThread:
    """One event loop in a thread of its own. `start`, then `stop`; other methods may be called from any thread."""

    def __init__(self, name: str, event_loop: str = ASYNCIO, number: int = 0) -> None:
        """`event_loop`: the library of the loop, as `stratalog.event.loop` names it. `number`: among those of a
        server."""
        self.number = number
        self.loop = new_event_loop(event_loop)
        self.connections: set[Closable] = set()
        """Changed by the loop alone."""
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def thread(self) -> threading.Thread:
        """Where the loop runs."""
        return self._thread

    @property
    def is_own(self) -> bool:
        """Whether the caller is this thread."""
        return threading.get_ident() == self._thread.ident

    def call(self, call: Callable[[], None]) -> None:
        """Run something in the loop, in the order of the calls."""
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self.loop.call_soon_threadsafe(self._run_calls)

    def _run_calls(self) -> None:
        self._is_woken = False  # before the calls: one that is added from now on wakes the loop again
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - one connection's defect must not end the others
                _LOG.exception("a call in a network thread failed")

    def accept(
        self,
        accepted: socket,
        make: Callable[[], asyncio.BaseProtocol],
        security: ssl.SSLContext | None,
        lost: Callable[[], None],
    ) -> None:
        """Serve a socket that was accepted; `lost` is called when its handshake fails: there will be no connection."""

        def begin() -> None:
            task = self.loop.create_task(self._connect(accepted, make, security, lost))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.call(begin)

    async def _connect(
        self,
        accepted: socket,
        make: Callable[[], asyncio.BaseProtocol],
        security: ssl.SSLContext | None,
        lost: Callable[[], None],
    ) -> None:
        peer = _peer_of(accepted)
        try:
            if security is None:
                await self.loop.connect_accepted_socket(make, accepted)
                return
            await self.loop.connect_accepted_socket(
                make, accepted, ssl=security, ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=SHUTDOWN_S
            )
        except (TimeoutError, OSError, ssl.SSLError) as reason:
            accepted.close()
            lost()
            _LOG.info("connection of %s closed: no handshake (%s)", peer, reason)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop.call_later(IDLE_CHECK_S, self._close_idle)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _close_idle(self) -> None:
        now_s = self.loop.time()
        for connection in list(self.connections):
            connection.close_if_idle(now_s)
        self.loop.call_later(IDLE_CHECK_S, self._close_idle)

    def stop(self, drain_s: float) -> None:
        """Read no more requests, answer those that were read within `drain_s`, close the connections, end the loop."""
        if self._thread.is_alive():
            done = asyncio.run_coroutine_threadsafe(self._drain(drain_s), self.loop)
            with suppress(TimeoutError, asyncio.CancelledError):
                done.result(drain_s + STOP_S)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_S)

    async def _drain(self, drain_s: float) -> None:
        end_s = self.loop.time() + drain_s
        for connection in list(self.connections):
            connection.stop_reading()
        unread = {each: (each.unread_bytes, self.loop.time()) for each in self.connections}
        while self.loop.time() < end_s and any(self._is_awaited(each, unread) for each in self.connections):
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        close_s = self.loop.time() + CLOSE_S
        while self.connections and self.loop.time() < close_s:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()

    def _is_awaited(self, connection: Closable, unread: dict[Closable, tuple[int, float]]) -> bool:
        """Whether the end waits for it: it is busy, and its client has read something within `UNREAD_S`."""
        now_s, left = self.loop.time(), connection.unread_bytes
        before, since_s = unread.get(connection, (0, now_s))
        if left == 0 or left != before:
            unread[connection] = (left, now_s)
            return connection.is_busy
        return connection.is_busy and now_s - since_s < UNREAD_S


def _peer_of(accepted: socket) -> str:
    try:
        found = accepted.getpeername()
    except OSError:
        return "an unknown peer"
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else str(found)
