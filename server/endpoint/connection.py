"""One connection: bytes in, frames to the broker's face, answers out in order. I/O: an asyncio transport.

All methods run in the network thread, but for `answer`, which the face may call from any thread. It is not read from
while a whole request waits for its turn, while the client does not read its answers, and while the server has too many
requests or bytes under way.
Source: Kafka's `SocketServer.Processor`, `KafkaChannel`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from stratalog.replication.metadata.acls import Principal
from stratalog.server.audit.events import FAILED_LOGIN, REFUSED_FRAME, AuditEvent, api_text
from stratalog.server.endpoint.admission import ConnectionQuotas, RequestBound
from stratalog.server.endpoint.endpoint_metrics import EndpointMetrics, ListenerTraffic
from stratalog.server.endpoint.frames import FrameHandler, FrameReader
from stratalog.server.endpoint.listeners import Listener
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.endpoint.order import Flight, RequestOrder
from stratalog.server.endpoint.security.endpoint_security import ListenerSecurity
from stratalog.server.request.api import Connection
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.wire.messages.frames import Answer, joined

_LOG = line_logger("stratalog.network")

PIECES_MAX = os.sysconf("SC_IOV_MAX")
"""The number of buffers that the kernel takes in one call."""
LINGER_S = 5.0
"""The time in which a client reads the last answers of a connection that the broker closes."""
STALLED_S = 10.0
"""The time without a byte after which a large frame gives its memory back, while others wait for memory."""

UNREAD = "answers are not read"
"""The pause while a client does not read."""
QUOTA = "quota"
"""The pause of a client that has exceeded one."""
REQUEST_WAITS, SERVER_STOPS = "a request waits", "the server stops"
"""The pauses of reading alone: requests that were read begin in their turn."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Settings and limits that all connections of one server share.

    idle_ms          without a request for so long, a connection is closed
    bytes_under_way  of requests that are read and not answered
    queued           requests that wait for an io thread
    login_ms         within so long after it connected, a client has logged in where that is needed
    """

    frame_bytes_max: int
    idle_ms: int
    bytes_under_way: RequestBound
    queued: RequestBound
    quotas: ConnectionQuotas
    login_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class ServedListener:
    """What the connections to one listener of one broker share. `metrics`: the broker's; `audit` keeps events, if any
    are kept."""

    listener: Listener
    handler: FrameHandler
    security: ListenerSecurity | None
    metrics: EndpointMetrics
    audit: Callable[[AuditEvent], None] | None = None

    def traffic(self, processor: int = 0) -> ListenerTraffic:
        """The counters of the listener in a network thread."""
        return self.metrics.listener(self.listener.name, processor)


class EndpointConnection(asyncio.BufferedProtocol):
    """A client's connection to one listener of one broker."""

    def __init__(self, thread: NetworkThread, served: ServedListener, limits: ConnectionLimits, address: str) -> None:
        """`address`: the client's; `limits.quotas` has admitted it, and the connection's end releases it."""
        self._thread = thread
        self._handler = served.handler
        self._metrics = served.metrics
        self._traffic = served.traffic(thread.number)
        self._limits = limits
        self._address = address
        self._peer = address
        self._security = security = served.security
        self._has_logged_in = self._is_refused = False
        first_bytes_max = None if security is None else security.receive_bytes_max
        self._reader = FrameReader(min(limits.frame_bytes_max, first_bytes_max or limits.frame_bytes_max))
        self._order = RequestOrder()
        self._transport: asyncio.Transport | None = None
        self._pauses: set[str] = set()
        self._active_s = self._opened_s = 0.0
        self._is_pumping = False
        self._is_closed = False
        self._taken_bytes = 0
        self._announced_bytes = 0
        self._throttles = 0
        self._caller = Connection(
            Principal(host=address),
            self.close_from_any_thread,
            served.listener.name,
            self.throttle,
            errors=self._metrics.met,
            times=self._metrics.timed,
            audit=served.audit,
        )

    # -- the transport's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of its classes
        self._active_s = self._opened_s = self._thread.loop.time()
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self._peer = f"{self._address}:{peer[1]}" if peer else self._address
        self._caller = replace(self._caller, peer=self._peer)
        self._thread.connections.add(self)
        self._traffic.connection_creation += 1
        if self._security is not None:
            self._secure(self._security, transport.get_extra_info("ssl_object"))

    def _secure(self, security: ListenerSecurity, tls: ssl.SSLObject | None) -> None:
        try:
            self._handler = security.open(self, tls.getpeercert(binary_form=True) if tls is not None else None)
        except StratalogError as reason:
            self._keep(FAILED_LOGIN, str(reason))
            self.refused()
            self.close(str(reason))
        except Exception as defect:  # noqa: BLE001 - without its security a client must not pass
            self._keep(FAILED_LOGIN, type(defect).__name__)
            self.refused()
            self.close(f"{type(defect).__name__}: {defect}")
        else:
            if not security.has_login:
                self._logged_in()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._is_closed = True
        self._thread.connections.discard(self)
        self._traffic.connection_close += 1
        self._limits.quotas.release(self._address)
        self._limits.bytes_under_way.release(self._taken_bytes)
        self._caller.memory.end()
        # what refers to it in a circle would keep it and its buffers until a garbage collection, which is rare here
        self._reader.drop()
        self._order = RequestOrder()
        if hasattr(self._transport, "__dict__"):
            vars(self._transport).pop("_read_ready_cb", None)  # asyncio's own circle
        self._transport = None
        del self._caller, self._handler

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
        except InvalidRequestError as reason:
            self.close(str(reason))
            return
        self._count_announced()
        if frames or self._announced_bytes:  # a byte now and then is no sign of a client that works
            self._active_s = self._thread.loop.time()
        if frames:
            self._order.received(frames)
            self._pump()

    def _count_announced(self) -> None:
        """Count the bytes of a large frame that arrives now, whole; beyond the bound no more of it is read for now."""
        announced, bound = self._reader.announced_bytes, self._limits.bytes_under_way
        if announced and not self._announced_bytes:
            if not bound.take(announced, partial(self._thread.call, self._memory_is_free)):
                self._pause("memory")
                return
        elif self._announced_bytes and not announced:
            bound.release(self._announced_bytes)
        self._taken_bytes += announced - self._announced_bytes
        self._announced_bytes = announced

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._pause(UNREAD)

    def resume_writing(self) -> None:
        self._active_s = self._thread.loop.time()
        self._resume(UNREAD)
        self._pump()

    # -- requests and answers -----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin the requests whose turn it is."""
        if self._is_pumping:
            return  # answered within `_begin`: the loop below goes on
        self._is_pumping = True
        try:
            while not self._is_closed and not self._pauses - {REQUEST_WAITS, SERVER_STOPS}:
                if not self._limits.queued.take(0, partial(self._thread.call, self._queue_is_free)):
                    self._pause("queue")
                    break
                flight = self._order.next()
                if flight is None:
                    break
                self._begin(flight)
        finally:
            self._is_pumping = False
        if self._order.is_blocked:
            self._pause(REQUEST_WAITS)
        else:
            self._resume(REQUEST_WAITS)

    def _begin(self, flight: Flight) -> None:
        frame, flight.frame = flight.frame, b""
        flight.begun_s = self._thread.loop.time()
        self._traffic.request += 1
        self._traffic.incoming_byte += flight.size_bytes
        self._take(flight)
        try:
            self._handler.handle(frame, self._caller, partial(self._answer, flight))
        except Exception as defect:  # noqa: BLE001 - a defect closes this connection only
            _LOG.exception("API %d", flight.api_key)
            self.close(f"API {flight.api_key}: {type(defect).__name__}: {defect}")

    def _take(self, flight: Flight) -> None:
        """Count a request's bytes; beyond the bound nothing more is read here until others are answered."""
        if self._limits.bytes_under_way.take(flight.size_bytes, partial(self._thread.call, self._memory_is_free)):
            flight.taken_bytes = flight.size_bytes
            self._taken_bytes += flight.taken_bytes
        else:
            self._pause("memory")

    def _queue_is_free(self) -> None:
        self._resume("queue")
        self._pump()

    def _memory_is_free(self) -> None:
        if self._is_closed:
            return
        self._resume("memory")
        self._count_announced()
        self._pump()

    def _answer(self, flight: Flight, answer: Answer | None) -> None:
        flight.answered_s = self._thread.loop.time()
        if self._thread.is_own:
            self._answered(flight, answer)
        else:
            self._thread.call(partial(self._answered, flight, answer))

    def _answered(self, flight: Flight, answer: Answer | None) -> None:
        if self._is_closed:
            return
        self._taken_bytes -= flight.taken_bytes
        self._limits.bytes_under_way.release(flight.taken_bytes)
        self._active_s = turn_s = self._thread.loop.time()
        self._write([done.answer for done in self._order.answered(flight, answer) if done.answer is not None])
        sent_s = self._thread.loop.time()
        times_s = (sent_s - flight.begun_s, turn_s - flight.answered_s, sent_s - turn_s)
        self._metrics.answered(flight.api_key, flight.version, *(int(1_000 * each) for each in times_s))
        self._pump()

    def _write(self, answers: Sequence[Answer]) -> None:
        assert self._transport is not None
        pieces: list[bytes | memoryview] = []
        for answer in answers:
            buffers = (answer,) if isinstance(answer, bytes) else answer
            size_bytes = sum(map(len, buffers))
            self._traffic.outgoing_byte += size_bytes
            pieces.append(size_bytes.to_bytes(4, "big"))
            pieces += buffers
        ready = joined(pieces)
        if isinstance(ready, bytes):
            if ready:
                self._transport.write(ready)
            return
        for piece in self._written(ready):
            self._transport.write(piece)

    def _written(self, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """Hand pieces to the kernel in one call, as far as it takes them; what is left. Nothing is copied together.

        The transport does the rest, and all of it while it has bytes left to write itself, or encrypts.
        """
        assert self._transport is not None
        own = self._transport.get_extra_info("socket")
        is_own_turn = self._transport.get_write_buffer_size() == 0 and not self._transport.is_closing()
        if own is None or self._transport.get_extra_info("sslcontext") is not None or not is_own_turn:
            return pieces
        try:
            count = os.writev(own.fileno(), pieces[:PIECES_MAX])
        except OSError:
            return pieces  # the socket is full, or broken, which the transport finds out
        for at, piece in enumerate(pieces):
            if count < len(piece):
                return [memoryview(piece)[count:], *pieces[at + 1 :]]
            count -= len(piece)
        return ()

    def throttle(self, duration_ms: int) -> None:
        """Begin no request for so long: its client has exceeded a quota. Any thread may call it."""
        if self._thread.is_own:
            self._throttle(duration_ms)
        else:
            self._thread.call(partial(self._throttle, duration_ms))

    def _throttle(self, duration_ms: int) -> None:
        if self._is_closed or SERVER_STOPS in self._pauses:
            return
        self._throttles += 1
        self._pause(QUOTA)
        self._thread.loop.call_later(duration_ms / 1_000, self._throttled)

    def _throttled(self) -> None:
        self._throttles -= 1
        if not self._throttles:
            self._resume(QUOTA)
            self._pump()

    # -- what its security asks for, in any thread -----------------------------------------------------------

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something in the network thread after a while."""
        self._thread.call(lambda: self._call_later(delay_s, call))

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._thread.loop.call_later(delay_s, call)

    def authenticated(self) -> None:
        """Frames may have their full size from now on."""
        self._thread.call(self._logged_in)

    def refused(self) -> None:
        """Its client's authentication failed."""
        self._is_refused = True
        self._traffic.failed_authentication += 1

    def _keep(self, kind: str, reason: str, api_key: int | None = None) -> None:
        """An event without a request: a login that was refused, or a frame."""
        caller = self._caller
        if caller.audit is not None:
            api = "" if api_key is None else api_text(api_key)
            event = AuditEvent(
                kind, host=self._peer, listener=caller.listener, api=api, outcome="CLOSED", detail=reason
            )
            caller.audit(event)

    def _logged_in(self) -> None:
        if not self._has_logged_in:  # a re-authentication is of the same client
            self._has_logged_in = True
            self._traffic.successful_authentication += 1
        self._reader.frame_bytes_max = self._limits.frame_bytes_max

    # -- pauses and the end ---------------------------------------------------------------------------------

    def _pause(self, why: str) -> None:
        if not self._pauses and self._transport is not None:
            self._transport.pause_reading()
        self._pauses.add(why)

    def _resume(self, why: str) -> None:
        if why in self._pauses:
            self._pauses.discard(why)
            if not self._pauses and self._transport is not None and not self._is_closed:
                self._transport.resume_reading()

    def stop_reading(self) -> None:
        """The server stops: requests that were read are answered still, a quota holds none of them up."""
        self._pause(SERVER_STOPS)
        self._resume(QUOTA)
        self._pump()

    @property
    def is_busy(self) -> bool:
        return len(self._order) > 0 or (self._transport is not None and self._transport.get_write_buffer_size() > 0)

    @property
    def unread_bytes(self) -> int:
        if self._transport is None or UNREAD not in self._pauses:
            return 0
        return self._transport.get_write_buffer_size()

    def close_if_idle(self, now_s: float) -> None:
        silent_s, open_s = now_s - self._active_s, now_s - self._opened_s
        is_held_up = bool(self._announced_bytes and self._limits.bytes_under_way.waiting)
        if is_held_up and not self._pauses and silent_s > STALLED_S:
            text = f"of a frame of {self._announced_bytes} bytes nothing arrived for"
            self.close(f"{text} {silent_s:.0f} s > {STALLED_S}")
        elif not self._has_logged_in and self._security is not None and open_s > self._limits.login_ms / 1_000:
            self.close(f"no login within {open_s:.0f} s > stratalog.login.max.ms {self._limits.login_ms}")
        elif (not self.is_busy or self.unread_bytes) and silent_s > self._limits.idle_ms / 1_000:
            self.close()

    def close_from_any_thread(self, reason: str = "") -> None:
        self._thread.call(partial(self.close, reason))

    def close(self, reason: str = "") -> None:
        """End the connection; with a reason, a line in the log."""
        if self._is_closed or self._transport is None:
            return
        if reason:
            flight = self._order.oldest
            about = f" at API {flight.api_key}" if flight is not None else ""
            _LOG.warning("connection of %s closed%s: %s", self._peer, about, reason)
            if not self._is_refused:  # else the refused login is the event
                self._keep(REFUSED_FRAME, reason, None if flight is None else flight.api_key)
        self._is_closed = True
        if not self._transport.is_closing():  # asyncio's TLS transport cannot be asked for anything once closed twice
            self._transport.close()
        if self._transport.get_write_buffer_size():
            self._thread.loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        """End the connection without what its client has not read."""
        if self._transport is not None:
            self._transport.abort()
