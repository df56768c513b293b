"""Where a broker of another process is called: at its listener, or through its inbox. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stratalog.replication.metadata.image import BrokerState
from stratalog.server.remote.connections.config import ConnectionConfig, TransportMode
from stratalog.server.request.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class InboxPlace:
    """The inbox of one registration of a broker."""

    root: str
    broker_epoch: int


Place = Endpoint | InboxPlace
"""Where a broker is called."""


def place_of(
    broker: BrokerState, config: ConnectionConfig, endpoint: Endpoint | None, unreachable: Collection[Endpoint]
) -> Place | None:
    """Where a broker is called, by `stratalog.transport`; None for one that cannot be.

    endpoint     its listener, None without one
    unreachable  listeners to which no connection could be made

    By default its listener, and its inbox where that cannot be reached. A client with a login is never led past it.
    """
    inbox = InboxPlace(broker.registration.root, broker.broker_epoch)
    if config.stratalog_transport == TransportMode.INBOX:
        return inbox
    if config.stratalog_transport == TransportMode.LISTENER or config.has_login:
        return endpoint
    return inbox if endpoint is None or endpoint in unreachable else endpoint
