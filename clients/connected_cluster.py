"""The brokers that a client calls, whatever it knows of the cluster. I/O: through what it opens."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from stratalog.replication.stores import Stores
from stratalog.server.bootstrap import BrokerFace, Cluster, RunningCluster, root_of

THROUGH_INBOXES: Mapping[str, object] = MappingProxyType({"stratalog.transport": "inbox"})
"""How brokers are called where nothing says how: who reaches the storage reaches an inbox, and a listener may ask for a
login."""


class ConnectedCluster(RunningCluster, Protocol):
    """Brokers of other processes, until `close`."""

    def close(self) -> None:
        """End the connections."""
        ...


def connected(root: str, connection: Mapping[str, object], stores: Stores) -> ConnectedCluster:
    """What calls the brokers of a metadata root; the client closes it.

    connection  configs of connections (`server.remote.connection_config.ConnectionConfig`), by their dotted names
    It is imported when it is needed: clients that read storage alone do not load it (decision 0116).
    """
    from stratalog.server.remote.remote_cluster import RemoteCluster

    return RemoteCluster(root, connection, stores=stores)


def connection_of_root(given: Mapping[str, object]) -> dict[str, object]:
    """The configs of connections of a client of a metadata root that needs no coordinator: through inboxes, unless
    `given` names another transport or a login."""
    return dict(given) if "security.protocol" in given else {**THROUGH_INBOXES, **given}


class CalledBrokers:
    """The brokers of a cluster, each as the client calls it: those of a `RunningCluster` as that does, others of its
    root, and all brokers of a root alone, by a connection of the client's own. In a `with` block, or `close` it."""

    def __init__(self, cluster: Cluster, stores: Stores, connection: Mapping[str, object] = THROUGH_INBOXES) -> None:
        """`connection`: as of `connected`."""
        self._running = None if isinstance(cluster, str) else cluster
        self._root = root_of(cluster)
        self._stores = stores
        self._connection = connection
        self._opened: ConnectedCluster | None = None
        if self._running is None:
            self._open()

    def get(self, broker_id: int) -> BrokerFace | None:
        """None for a broker that is not running, or not known."""
        if self._running is not None:
            found = self._running.brokers().get(broker_id)
            if found is not None or self._running.hosts(broker_id):
                return found
        return (self._opened or self._open()).brokers().get(broker_id)

    def _open(self) -> ConnectedCluster:
        opened = self._opened = connected(self._root, self._connection, self._stores)
        weakref.finalize(self, opened.close)
        return opened

    def close(self) -> None:
        """End what was opened: requests under way are lost."""
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()
