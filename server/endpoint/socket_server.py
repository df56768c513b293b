"""The listening sockets of one process, for one broker or several. I/O: sockets, threads.

`bind` takes the ports before the brokers start, so that each registers its real ones; `serve` begins to answer. One
thread accepts; the connections are spread over `num.network.threads` loops.
Source: Kafka's `SocketServer.Acceptor`, `DataPlaneAcceptor`.
"""

from __future__ import annotations

import errno
import resource
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from weakref import WeakSet

from stratalog.replication.config import BrokerConfig
from stratalog.replication.host_address import host_address
from stratalog.server.audit.events import FAILED_LOGIN, AuditEvent
from stratalog.server.endpoint.admission import ConnectionQuotas, RequestBound, parse_overrides
from stratalog.server.endpoint.connection import ConnectionLimits, EndpointConnection, ServedListener
from stratalog.server.endpoint.endpoint_metrics import EndpointMetrics
from stratalog.server.endpoint.frames import FrameHandler
from stratalog.server.endpoint.io_threads import IoThreads
from stratalog.server.endpoint.listeners import Listener
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.endpoint.security.endpoint_security import ListenerSecurity
from stratalog.server.metrics.of_process import processor_ns
from stratalog.storage.clock import measured_ns
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.topic_config import INT_MAX

_LOG = line_logger("stratalog.network")

DRAIN_S = 2.0
"""Limit of the time in which requests that were read are answered at the end. Nothing else is read meanwhile: a client
that still asks this broker waits for so long, and then asks another one."""
FILE_DESCRIPTORS = 1_024
"""The open files that are not connections for which a process keeps descriptors; at most half of what it may open."""
WARNING_S = 1.0
"""Least time between two lines about connections that are refused: there may be thousands a second."""
FULL_S = 0.1
"""Pause of the acceptor while the process has no file descriptor left."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listener and its socket, which is bound and does not accept yet. `listener.port` is the real one."""

    listener: Listener
    socket: socket.socket

    def close(self) -> None:
        self.socket.close()


def bind(listeners: Iterable[Listener], backlog: int = 50) -> list[BoundListener]:
    """Take the addresses of these listeners. InvalidConfigError in Kafka's words when one is in use or not ours."""
    bound: list[BoundListener] = []
    try:
        bound.extend(_bound(listener, backlog) for listener in listeners)
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound


def _bound(listener: Listener, backlog: int) -> BoundListener:
    host = listener.host or None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        own = socket.socket(family, kind, protocol)
        try:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(address)
            own.listen(backlog)
            own.setblocking(False)
        except BaseException:
            own.close()
            raise
    except OSError as reason:
        raise InvalidConfigError(
            f"Socket server failed to bind to {host or '0.0.0.0'}:{listener.port}: {reason.strerror or reason}."
        ) from reason
    return BoundListener(replace(listener, port=own.getsockname()[1]), own)


@dataclass(frozen=True, slots=True)
class _Served:
    """Where connections of a listening socket go."""

    broker_id: int
    bound: BoundListener
    listener: ServedListener

    def lost(self, quotas: ConnectionQuotas, address: str) -> None:
        """A client's handshake failed: there is no connection."""
        quotas.release(address)
        self.listener.traffic().failed_authentication += 1
        if self.listener.audit is not None:
            listener, detail = self.listener.listener.name, "no TLS handshake"
            self.listener.audit(
                AuditEvent(FAILED_LOGIN, host=address, listener=listener, outcome="CLOSED", detail=detail)
            )


def allow_descriptors() -> int:
    """As many open files as the system allows this process, since each connection is one; Java does the same. The
    number of connections that leaves enough descriptors for files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS knows a limit that it does not allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_for(allowed) if allowed != resource.RLIM_INFINITY else INT_MAX


def connections_for(descriptors: int) -> int:
    """The connections that a process may have which may open so many files.

    >>> connections_for(1_024), connections_for(65_536)
    (512, 64512)
    """
    return max(1, descriptors - min(FILE_DESCRIPTORS, descriptors // 2))


class SocketServer:
    """Serves brokers of this process to clients. `serve` for each of them; `withdraw` one, or `stop` all."""

    def __init__(self, config: BrokerConfig, queued: RequestBound) -> None:
        """`queued`: the requests that wait for an io thread."""
        connections_max = min(config.max_connections, allow_descriptors())
        if connections_max < config.max_connections < INT_MAX:
            _LOG.warning("max.connections: %d instead of %d, by the limit of open files",
                         connections_max, config.max_connections)  # fmt: skip
        self.limits = ConnectionLimits(
            config.socket_request_max_bytes,
            config.connections_max_idle_ms,
            RequestBound(config.queued_max_request_bytes),
            queued,
            ConnectionQuotas(
                connections_max, config.max_connections_per_ip, parse_overrides(config.max_connections_per_ip_overrides)
            ),
            config.stratalog_login_max_ms,
        )
        self._warned_s = 0.0
        self._unwarned = 0
        self._threads = [
            NetworkThread(f"network-{n}", config.stratalog_event_loop, n) for n in range(config.num_network_threads)
        ]
        self._next_thread = cycle(self._threads)
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._changes: list[partial[None]] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        self._by_broker: dict[int, WeakSet[EndpointConnection]] = {}
        self._acceptor = threading.Thread(target=self._accept_all, name="acceptor", daemon=True)
        for thread in self._threads:
            thread.start()
        self._acceptor.start()

    def serve(
        self,
        broker_id: int,
        bound: Sequence[BoundListener],
        handler: FrameHandler,
        security: Mapping[str, ListenerSecurity] | None = None,
        io: IoThreads | None = None,
        audit: Callable[[AuditEvent], None] | None = None,
    ) -> EndpointMetrics:
        """Accept connections to these listeners; what they count. `security`: of those with TLS or SASL, by name;
        `io`: the broker's threads for requests; `audit` keeps events."""
        metrics = EndpointMetrics(lambda: self.limits.queued.taken, self._work, None if io is None else io.work)
        for each in bound:
            of_listener = (security or {}).get(each.listener.name)
            served = _Served(broker_id, each, ServedListener(each.listener, handler, of_listener, metrics, audit))
            self._change(partial(self._register, served))
            _LOG.info("broker %d accepts connections at %s", broker_id, each.listener.connection_string)
        return metrics

    def _work(self) -> tuple[int, int]:
        return processor_ns(each.thread for each in self._threads), len(self._threads)

    def withdraw(self, broker_id: int) -> None:
        """Accept no more for this broker, and close its connections, as when its process ended."""
        done = threading.Event()
        if self._change(partial(self._unregister, broker_id, done)):
            done.wait(DRAIN_S)
        for connection in self._by_broker.pop(broker_id, ()):
            connection.close_from_any_thread()

    def stop(self) -> None:
        """Accept no more, answer the requests that were read, close all connections; once."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self._wake.send(b"s")  # before the acceptor closes it: a client may have woken it already
        self._acceptor.join()
        for thread in self._threads:
            thread.stop(DRAIN_S)

    # -- the acceptor's thread ----------------------------------------------------------------------------

    def _change(self, change: partial[None]) -> bool:
        """Have the acceptor change what it serves; False when it has ended, with all its sockets."""
        with self._lock:
            if self._is_stopped:
                return False
            self._changes.append(change)
            self._wake.send(b"c")
        return True

    def _register(self, served: _Served) -> None:
        self._selector.register(served.bound.socket, selectors.EVENT_READ, served)

    def _unregister(self, broker_id: int, done: threading.Event) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Served) and key.data.broker_id == broker_id:
                self._selector.unregister(key.fileobj)
                key.data.bound.close()
        done.set()

    def _accept_all(self) -> None:
        while not self._is_stopped:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Served):
                    self._accept(key.data)
                else:
                    with suppress(BlockingIOError):
                        self._woken.recv(4_096)
            with self._lock:
                changes, self._changes = self._changes, []
            for change in changes:
                change()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Served):
                key.data.bound.close()
        self._selector.close()
        with self._lock:
            self._woken.close()
            self._wake.close()

    def _accept(self, served: _Served) -> None:
        try:
            accepted, peer = served.bound.socket.accept()
        except BlockingIOError:
            return
        except OSError as reason:
            self._warn(f"a connection could not be accepted: {reason}")
            if reason.errno in NO_DESCRIPTOR:
                threading.Event().wait(FULL_S)
            return
        address = host_address(str(peer[0]))
        quotas = self.limits.quotas
        refusal = quotas.admit(address)
        if refusal:
            accepted.close()
            self._warn(f"connection of {address} refused: {refusal}")
            return
        accepted.setblocking(False)
        thread = next(self._next_thread)
        connection = EndpointConnection(thread, served.listener, self.limits, address)
        self._by_broker.setdefault(served.broker_id, WeakSet()).add(connection)
        security = served.listener.security
        context = None if security is None else security.context
        thread.accept(accepted, lambda: connection, context, partial(served.lost, quotas, address))

    def _warn(self, text: str) -> None:
        now_s = measured_ns() / 1e9
        if now_s - self._warned_s < WARNING_S:
            self._unwarned += 1
            return
        more = f"; {self._unwarned} more since the last line" if self._unwarned else ""
        _LOG.warning("%s%s", text, more)
        self._warned_s, self._unwarned = now_s, 0
