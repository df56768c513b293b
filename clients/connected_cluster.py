"""The brokers that a client calls, whatever it knows of the cluster. I/O: through what it opens."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, Self

from stratalog.replication.stores import Stores
from stratalog.replication.threads.dropped import DROPPED
from stratalog.server.bootstrap import BrokerFace, Cluster, RunningCluster

THROUGH_INBOXES: Mapping[str, object] = MappingProxyType({"stratalog.transport": "inbox"})
"""How brokers are called where nothing says how: who reaches the storage reaches an inbox, and a listener may ask for a
login."""


class ConnectedCluster(RunningCluster, Protocol):
    """Brokers of other processes, until `close`."""

    def close(self) -> None:
        """End the connections."""


def connected(root: str, connection: Mapping[str, object], stores: Stores) -> ConnectedCluster:
    """What calls the brokers of a metadata root; the client closes it.

    connection  configs of connections (`server.remote.connections.config.ConnectionConfig`), by their dotted names
    It is imported when it is needed: clients that read storage alone do not load it (decision 0047).
    """
    from stratalog.server.remote.remote_cluster import RemoteCluster

    return RemoteCluster(root, connection, stores=stores)


def connection_of_root(given: Mapping[str, object]) -> dict[str, object]:
    """The configs of connections of a client of a metadata root that needs no coordinator: through inboxes, unless
    `given` names another transport or a login."""
    return dict(given) if "security.protocol" in given else {**THROUGH_INBOXES, **given}


class CalledBrokers:
    """The brokers of a cluster, each as the client calls it: those of a `RunningCluster` as that does, other brokers of
    its root through their inboxes, and all brokers of a root alone by `connection`. In a `with` block, or `close` it.

    Only the first call to a broker beside those of a `RunningCluster` reads storage: the connection begins with it.

    cluster  the one that was given, or the one that calls the brokers of the root
    """

    def __init__(
        self, cluster: Cluster, stores: Stores, connection: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """`connection`: as of `connected`."""
        self._stores = stores
        self._connection = connection
        self._opened: ConnectedCluster | None = None
        self._calls_all = isinstance(cluster, str)
        self.cluster = self._open(cluster, connection) if isinstance(cluster, str) else cluster

    def get(self, broker_id: int) -> BrokerFace | None:
        """None for a broker that is not running, or not known."""
        found = self.cluster.brokers().get(broker_id)
        if found is not None or self._calls_all or self.cluster.hosts(broker_id):
            return found
        elsewhere = self._opened or self._open(self.cluster.root, connection_of_root(self._connection))
        return elsewhere.brokers().get(broker_id)

    def _open(self, root: str, connection: Mapping[str, object]) -> ConnectedCluster:
        opened = self._opened = connected(root, connection, self._stores)
        DROPPED.when(self, opened.close)
        return opened

    def close(self) -> None:
        """End what was opened: requests under way are lost."""
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
