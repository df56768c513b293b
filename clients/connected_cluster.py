"""The cluster of a client that has no more than a metadata root, and calls brokers. I/O: through what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stratalog.replication.stores import Stores
from stratalog.server.bootstrap import RunningCluster


class ConnectedCluster(RunningCluster, Protocol):
    """Brokers of other processes, until `close`."""

    def close(self) -> None:
        """End the connections."""
        ...


def connected(root: str, connection: Mapping[str, object], stores: Stores) -> ConnectedCluster:
    """What calls the brokers of a metadata root; the client closes it.

    connection  configs of connections (`server.remote.connection_config.ConnectionConfig`), by their dotted names
    It is imported when it is needed: clients that read storage alone do not load it (decision 0047).
    """
    from stratalog.server.remote.remote_cluster import RemoteCluster

    return RemoteCluster(root, connection, stores=stores)
