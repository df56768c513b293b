"""The Kafka endpoint of a process: sockets and inboxes, and behind them the faces of its brokers. I/O: both, threads.

The ports are taken first, so that each broker registers addresses that are real; requests are answered once the broker
is part of the cluster. In a process with several brokers, broker i listens i - 1 ports above `listeners`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress

from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.records import UserScramCredentialRecord
from stratalog.replication.metrics import Metric
from stratalog.server.audit.audit_log import AuditLog, open_audit_log
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.inbox_endpoint import InboxEndpoint, InboxHost
from stratalog.server.endpoint.io_threads import IoThreads
from stratalog.server.endpoint.listeners import (
    Listener,
    advertised_listeners,
    check_plaintext,
    inter_broker_listener,
    inter_broker_name,
    parse_listeners,
    parse_protocol_map,
    shifted,
)
from stratalog.server.endpoint.security.endpoint_security import EndpointSecurity, ListenerSecurity
from stratalog.server.endpoint.socket_server import BoundListener, SocketServer, bind
from stratalog.server.handler import KafkaHandler
from stratalog.storage.errors import StratalogError


class KafkaEndpoint:
    """`bind` before a broker starts, `serve` when it is up, `withdraw` when it is gone, `stop` at the end."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises InvalidConfigError in Kafka's words for listeners and security that cannot be."""
        self._config = config
        self._protocols = parse_protocol_map(config.listener_security_protocol_map)
        self._listeners = parse_listeners(config.listeners, self._protocols)
        check_plaintext(self._listeners, allows_plaintext=config.stratalog_allow_plaintext)
        self._security = EndpointSecurity(config, self._listeners)
        self._bound: dict[int, list[BoundListener]] = {}
        self._addresses: dict[int, tuple[Listener, ...]] = {}
        self._handlers: dict[int, KafkaHandler] = {}
        self._io: dict[int, IoThreads] = {}
        self._audits: dict[int, AuditLog] = {}
        self._queued = RequestBound(config.queued_max_requests)
        self._server: SocketServer | None = None
        self._inboxes = InboxEndpoint(config)

    def bind(self, broker_id: int, shift: int = 0) -> str | None:
        """Take the ports of a broker, `shift` above the listeners'; what it registers, None without listeners.

        A broker that is started again gets the ports that it had. InvalidConfigError when a port is in use.
        """
        if not self._listeners:
            return None
        wanted = self._addresses.get(broker_id) or shifted(self._listeners, shift)
        bound = self._bound[broker_id] = bind(wanted, self._config.socket_listen_backlog_size)
        self._addresses[broker_id] = tuple(each.listener for each in bound)
        advertised = self.advertised(broker_id, shift)
        name = inter_broker_name(self._config.inter_broker_listener_name, self._config.security_inter_broker_protocol)
        inter_broker_listener(name, advertised)
        return registered(advertised)

    def advertised(self, broker_id: int, shift: int = 0) -> tuple[Listener, ...]:
        """Where clients reach a bound broker."""
        text = self._config.advertised_listeners
        found = advertised_listeners(text, self._addresses.get(broker_id, ()), self._protocols, socket.getfqdn())
        return shifted(found, shift) if text else found

    def serve(self, host: InboxHost, broker_id: int) -> None:
        """Answer the clients of a broker that is up, at its sockets and in its inbox."""
        if broker_id not in self._bound:
            self._inboxes.serve(host, broker_id)
            return
        audit = open_audit_log(self._config, host, broker_id)
        if audit is not None:
            self._audits[broker_id] = audit
        self._inboxes.serve(host, broker_id, self._at_sockets(host, broker_id, audit), audit)

    def _at_sockets(self, cluster: InboxHost, broker_id: int, audit: AuditLog | None) -> KafkaHandler:
        if self._server is None:
            self._server = SocketServer(self._config, self._queued)
        io = self._io[broker_id] = IoThreads(self._config.num_io_threads, self._queued, f"kafka-{broker_id}-io")
        handler = self._handlers[broker_id] = KafkaHandler(cluster, broker_id, config=self._config, io=io)
        handler.broker.metrics = cluster.counters(broker_id)
        beats = handler.broker.beats = cluster.beats(broker_id)
        if beats is not None:
            handler.broker.view.on_folded = beats.folded_beside
        cluster.when_published(broker_id, handler.broker.view.changes.wake)
        bound = self._bound[broker_id]
        security, keep = self._security_of(bound, handler, io), None if audit is None else audit.put
        served = self._server.serve(broker_id, bound, handler, security, io, keep)

        def further() -> list[Metric]:
            return [*served.metrics(), *(() if audit is None else audit.metrics())]

        cluster.counters(broker_id).further = further
        return handler

    def _security_of(
        self, bound: Iterable[BoundListener], handler: KafkaHandler, io: Executor
    ) -> dict[str, ListenerSecurity]:
        def find(user: str, mechanism: str) -> UserScramCredentialRecord | None:
            return handler.broker.image().scram_credentials.get((user, mechanism))

        found = {each.listener.name: self._security.listener(each.listener, handler, find, io) for each in bound}
        return {name: security for name, security in found.items() if security is not None}

    def leaders_moved(self, broker_id: int) -> None:
        """Have a broker's answers name the leaders of now (KIP-951), and end the fetches that wait for what it led."""
        handler = self._handlers.get(broker_id)
        if handler is not None:
            with suppress(StratalogError):  # clients ask another broker then
                handler.broker.view.refresh()
            handler.broker.view.changes.wake()

    def withdraw(self, broker_id: int) -> None:
        """Close a broker's sockets, and leave its inbox alone, as when its process ended."""
        self._inboxes.withdraw(broker_id)
        bound, handler = self._bound.pop(broker_id, []), self._handlers.pop(broker_id, None)
        if handler is None or self._server is None:
            for each in bound:
                each.close()
            return
        self._server.withdraw(broker_id)
        handler.close()
        if (audit := self._audits.pop(broker_id, None)) is not None:
            audit.close()
        self._io.pop(broker_id).shutdown(wait=False)

    def drain(self) -> None:
        """The brokers are about to end: what their audit logs hold is written."""
        self._inboxes.drain()
        for audit in self._audits.values():
            audit.drain()

    def stop(self) -> None:
        """Answer the requests that were read, then close everything."""
        if self._server is not None:
            self._server.stop()
        self._inboxes.stop()
        for broker_id in list(self._bound):
            self.withdraw(broker_id)
        self._security.close()


def registered(listeners: Iterable[Listener]) -> str:
    """Listeners as a broker registers them."""
    return ",".join(each.connection_string for each in listeners)
