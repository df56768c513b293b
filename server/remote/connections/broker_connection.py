"""One connection to a broker: made when it is needed, used until it ends. I/O: an asyncio transport.

All methods run in the network thread. Requests are sent at once, one behind the other, and answered in order. Where
there is a login they wait for it, and for its renewal before the first request that comes late in a session's time.
Source: Kafka's `NetworkClient`, `Selector`, `SaslClientAuthenticator`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from stratalog.server.endpoint.frames import FrameReader
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.login import Login
from stratalog.server.remote.connections.open_requests import ReconnectBackoff
from stratalog.server.remote.connections.request_connection import RequestConnection
from stratalog.server.remote.connections.security import ConnectionSecurity
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.wire.messages.frames import Message

RENEWAL_SHARE = 0.85
"""Part of a session's time after which it is renewed (Kafka: 85 to 95 %)."""
ANSWER_BYTES_MAX = 100 << 20
"""Limit of one answer; Kafka's default of `socket.request.max.bytes`."""


class BrokerConnection(RequestConnection, asyncio.BufferedProtocol):
    """A connection to a listener."""

    def __init__(
        self,
        thread: NetworkThread,
        endpoint: Endpoint,
        config: ConnectionConfig,
        backoff: ReconnectBackoff,
        ended: Callable[[RequestConnection], None],
        security: ConnectionSecurity,
    ) -> None:
        """Connects as soon as `backoff` allows."""
        super().__init__(thread, config, backoff, ended)
        self._endpoint = endpoint
        self._security = security
        self._login: Login | None = None
        self._asked: Message | None = None
        self._renew_ms: int | None = None
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    # -- the connection ------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"{self._endpoint.host}:{self._endpoint.port}"

    def _begin(self) -> None:
        self._task = self._thread.loop.create_task(self._connect())

    async def _connect(self) -> None:
        host, port = self._endpoint.host, self._endpoint.port
        try:
            async with asyncio.timeout(self._config.socket_connection_setup_timeout_ms / 1_000):
                tls = self._security.tls
                name = host if tls is not None else None
                await self._thread.loop.create_connection(lambda: self, host, port, ssl=tls, server_hostname=name)
        except (TimeoutError, OSError) as reason:
            self._end(f"{host}:{port} cannot be reached: {str(reason) or type(reason).__name__}", is_failure=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)  # uvloop's are not of its classes
        if self._has_ended:
            made.abort()
            return
        self._transport, self.was_made = made, True
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._login = self._security.login()
        if self._login is None:
            self._backoff.succeeded()
            self._send_all()
        else:
            self._ask(self._login.first())

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection has ended: {exc or 'closed by the broker'}", is_failure=True)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._active_s = self._thread.loop.time()
        try:
            for frame in map(bytes, self._reader.received(nbytes)):
                if self._login is not None:
                    self._follow(self._login, frame)
                else:
                    self._open.answered(frame).answer(frame)
                    self._renew()
        except InvalidRequestError as reason:
            self._end(f"an answer cannot be read: {reason}", is_failure=True)

    def _send_all(self) -> None:
        assert self._transport is not None
        if self._login is not None or self._renew():
            return
        for request in self._open.to_send():
            self._transport.write(len(request.frame).to_bytes(4, "big") + request.frame)
            if not request.has_answer:
                request.answer(b"")

    # -- the login -----------------------------------------------------------------------------------------

    def _ask(self, message: Message) -> None:
        assert self._transport is not None
        self._asked = message
        frame = message.frame(0, self._config.client_id or None)
        self._transport.write(len(frame).to_bytes(4, "big") + frame)

    def _follow(self, login: Login, frame: bytes) -> None:
        """The broker's answer to the last message of a login."""
        assert self._asked is not None
        answer = self._asked.answer(frame)
        try:
            message = login.answered(answer)
        except StratalogError as refusal:
            self._end(f"Authentication failed: {refusal}", is_failure=True, error=refusal)
            return
        if message is not None:
            self._ask(message)
            return
        self._login = None
        if login.lifetime_ms > 0:
            self._renew_ms = self._clock.monotonic_ms() + int(login.lifetime_ms * RENEWAL_SHARE)
        self._backoff.succeeded()
        self._send_all()

    def _renew(self) -> bool:
        """Whether requests wait for a renewal of the session; it begins when those that were sent are answered."""
        if self._has_ended or self._renew_ms is None or self._clock.monotonic_ms() < self._renew_ms:
            return False
        if len(self._open) and not self._open.awaits_answers:
            self._renew_ms = None
            self._login = self._security.login()
            assert self._login is not None
            self._ask(self._login.first())
        return True

    def _release(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
