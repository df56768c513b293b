"""The inboxes of a process's brokers, as far as they have Kafka's requests. I/O: threads, the brokers' roots.

What answers them is made at the first request: a process whose inboxes nobody uses does not even load it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.sessions import PeerBeats
from stratalog.replication.coordinator.runtime.remote_appends import Peer
from stratalog.replication.metrics import BrokerMetrics
from stratalog.server.bootstrap import RunningCluster
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectMeta

if TYPE_CHECKING:
    from stratalog.server.audit.audit_log import AuditLog
    from stratalog.server.endpoint.inbox_listener import InboxListener
    from stratalog.server.handler import KafkaHandler

_LOG = line_logger("stratalog.network")

CHANNEL_GRACE_MS = 60_000
"""The time beyond `connections.max.idle.ms` for which a client's channel is known: the client ends it before."""


class InboxHost(RunningCluster, Protocol):
    """A process that hosts brokers."""

    def peers(self) -> Mapping[int, Peer]:
        """The brokers that those of this process call, by id: themselves, and others as far as they can be called."""

    def inbox(self, broker_id: int) -> BrokerInbox:
        """The inbox of a running broker."""

    def counters(self, broker_id: int) -> BrokerMetrics:
        """The counters of a running broker."""

    def beats(self, broker_id: int) -> PeerBeats | None:
        """What takes the beats of other brokers to a running broker; None: nothing does."""

    def when_published(self, broker_id: int, call: Callable[[], None]) -> None:
        """As `Broker.call_when_published`, of a running broker."""


class InboxEndpoint:
    """A `ClientEndpoint` without sockets: `serve` once a broker is up, `withdraw` when it is gone, `stop` at last."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._served: dict[int, _ServedInbox] = {}

    def bind(self, _broker_id: int, _shift: int = 0) -> None:
        """No ports."""

    def serve(
        self, host: InboxHost, broker_id: int, handler: KafkaHandler | None = None, audit: AuditLog | None = None
    ) -> None:
        """Answer requests in a broker's inbox, unless `stratalog.inbox.principal` is empty.

        handler  the broker's, which its owner closes; None: it is made when it is needed
        audit    the same
        """
        if self._config.stratalog_inbox_principal:
            make = partial(_inbox_parts, self._config, host, broker_id, handler, audit)
            self._served[broker_id] = _ServedInbox(host.inbox(broker_id), make)

    def leaders_moved(self, _broker_id: int) -> None:
        """Its clients find the new leaders in the metadata log."""

    def drain(self) -> None:
        """The brokers are about to end: what their audit logs hold is written."""
        for served in self._served.values():
            served.drain()

    def withdraw(self, broker_id: int) -> None:
        """Answer no more, as when the broker's process ended."""
        served = self._served.pop(broker_id, None)
        if served is not None:
            served.close()

    def stop(self) -> None:
        """The same for all brokers."""
        for broker_id in list(self._served):
            self.withdraw(broker_id)


class _InboxParts(NamedTuple):
    """What answers in a broker's inbox; `handler` and `audit` only where they were made for it."""

    listener: InboxListener
    handler: KafkaHandler | None
    audit: AuditLog | None


def _inbox_parts(
    config: BrokerConfig, host: InboxHost, broker_id: int, handler: KafkaHandler | None, audit: AuditLog | None
) -> _InboxParts:
    from stratalog.server.audit.audit_log import open_audit_log
    from stratalog.server.endpoint.inbox_listener import InboxLimits, InboxListener
    from stratalog.server.handler import KafkaHandler

    made = made_audit = None
    if handler is None:
        audit = made_audit = open_audit_log(config, host, broker_id)
        made = KafkaHandler(host, broker_id, config=config)
        made.broker.metrics = host.counters(broker_id)
    limits = InboxLimits(config.socket_request_max_bytes, config.connections_max_idle_ms + CHANNEL_GRACE_MS)
    answering = made if handler is None else handler
    assert answering is not None
    objects, user = host.inbox(broker_id).objects, config.stratalog_inbox_principal
    keep = None if audit is None else audit.put
    return _InboxParts(InboxListener(objects, answering, user, limits, keep), made, made_audit)


class _ServedInbox:
    """The inbox of one broker. `_listed` is called by the broker's loop."""

    def __init__(self, inbox: BrokerInbox, make: Callable[[], _InboxParts]) -> None:
        self._inbox = inbox
        self._make = make
        self._listener: InboxListener | None = None
        self._handler: KafkaHandler | None = None
        self._audit: AuditLog | None = None
        self._newest: tuple[Sequence[ObjectMeta], int] = ((), -1)
        self._beginning: threading.Thread | None = None
        inbox.frames_listed = self._listed

    def _listed(self, found: Sequence[ObjectMeta], broker_epoch: int) -> None:
        if self._listener is not None:
            self._listener.listed(found, broker_epoch)
        elif found:
            self._newest = found, broker_epoch
            if self._beginning is None:
                self._beginning = threading.Thread(target=self._begin, name="kafka-inbox-begin", daemon=True)
                self._beginning.start()

    def _begin(self) -> None:
        try:
            listener, self._handler, self._audit = self._make()
        except Exception:  # noqa: BLE001 - a thread that ends silently would hide it
            _LOG.exception("requests in the inbox cannot be answered")
            self._beginning = None  # the next listing tries again
            return
        listener.listed(*self._newest)
        self._listener = listener

    def drain(self) -> None:
        if self._audit is not None:
            self._audit.drain()

    def close(self) -> None:
        self._inbox.frames_listed = None
        if self._beginning is not None:
            self._beginning.join()
        if self._listener is not None:
            self._listener.close()
        if self._handler is not None:
            self._handler.close()
        if self._audit is not None:
            self._audit.close()
