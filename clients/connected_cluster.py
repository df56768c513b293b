"""The cluster of a client that has no more than a metadata root, and calls brokers. I/O: through what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from stratalog.clients.bootstrap import RunningCluster
from stratalog.replication.stores import Stores


class ConnectedCluster(RunningCluster, Protocol):
    """Brokers of other processes, until `close`."""

    def close(self) -> None:
        """End the connections."""
        ...


def connected(root: str, connection: Mapping[str, object], stores: Stores) -> ConnectedCluster:
    """What calls the brokers of a metadata root; the client closes it.

    connection  configs of connections (`clients.config.ConnectionConfig`), by their dotted names
    It is got through the front door, by name and when it is needed: it stands above the clients, and those that read
    storage alone do not load it (decision 0116).
    """
    made: ConnectedCluster = import_module("stratalog").RemoteCluster(root, connection, stores=stores)
    return made
