"""A cluster as tools use it, opened by its metadata root or by its brokers' addresses: each tool is written once.

I/O: storage, or sockets, and property files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from stratalog import Admin, ClusterView, RemoteCluster
from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.clients.admin.groups import Groups, LiveGroups, StoredGroups
from stratalog.clients.admin.transactions import KnownTransactions, StoredTransactions
from stratalog.clients.client_view import ClientView
from stratalog.clients.wire.transactions import AskedTransactions
from stratalog.clients.wire.view import WireView
from stratalog.clients.wire.wire_admin import WireAdmin
from stratalog.clients.wire.wire_cluster import BOOTSTRAP_MS, WireCluster
from stratalog.jobs.command.arguments import (
    TIMEOUT_KEYS,
    client_properties,
    cluster_of,
    cluster_root,
    connection_settings,
    timeout_ms,
)
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.view.read_committed import READ_UNCOMMITTED, view_of

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OpenedCluster:
    """A cluster that a tool works with.

    connection  how its brokers are called
    listener    by its metadata root: the name of the listener to call them at; "": as `RemoteCluster` chooses
    """

    view: ClientView
    admin: ClusterAdmin
    connection: Mapping[str, str]
    listener: str = ""

    @property
    def is_served(self) -> bool:
        """Whether it is known by its brokers' addresses."""
        return isinstance(self.view, WireView)

    @property
    def root(self) -> str | None:
        """Its metadata root; None for one that is served."""
        return None if self.is_served else self.view.root

    @property
    def has_login(self) -> bool:
        """Whether its brokers are called with a login, or encrypted."""
        return ConnectionConfig.from_settings(self.connection, {}).has_login

    @contextmanager
    def running(self) -> Iterator[RunningCluster]:
        """Its brokers, to be called. BrokerNotAvailableError when there is none."""
        if isinstance(self.view, WireView):
            yield self.view.cluster
            return
        with RemoteCluster(self.view.root, self.connection, listener=self.listener) as remote:
            remote.check()
            yield remote

    @contextmanager
    def groups(self, wait_ms: int, *, changes: bool) -> Iterator[Groups]:
        """What answers about groups: coordinators, or storage where nothing `changes` and the storage is there."""
        if isinstance(self.view, ClusterView) and not changes:
            yield StoredGroups(self.view)
        elif isinstance(self.view, ClusterView):
            with RemoteCluster(self.view.root, self.connection, listener=self.listener) as remote:
                is_called = bool(remote.brokers())
                yield LiveGroups(remote, self.view.clock, wait_ms) if is_called else StoredGroups(self.view)
        else:
            with self.running() as running:
                yield LiveGroups(running, self.view.clock, wait_ms)

    def transactions(self) -> KnownTransactions:
        """What answers about transactions."""
        if isinstance(self.view, WireView):
            return AskedTransactions(self.view)
        assert isinstance(self.view, ClusterView)
        return StoredTransactions(self.view)


@contextmanager
def open_cluster(
    given: argparse.Namespace,
    *,
    connection: Mapping[str, str] | None = None,
    isolation_level: str = READ_UNCOMMITTED,
    wait_ms: int | None = None,
    listener: str = "",
) -> Iterator[OpenedCluster]:
    """The cluster that the flags name, or else the environment or a file.

    connection  how brokers are called; None: as `--command-config` says
    wait_ms     how long leaders are waited for; None: as `--command-config` says
    listener    as of `OpenedCluster`
    """
    named = cluster_of(given)
    called = connection_settings(given.command_config) if connection is None else connection
    limit_ms = timeout_ms(client_properties(given.command_config)) if wait_ms is None else wait_ms
    if named.root:
        root = cluster_root(given)
        view = view_of(isolation_level)(root, timeout_ms=limit_ms)
        yield OpenedCluster(view, Admin(root, view=view, timeout_ms=limit_ms, connection=called), called, listener)
        return
    with WireCluster(named.servers, called, bootstrap_ms=_bootstrap_ms(given)) as served:
        asked = WireView(served, isolation_level=isolation_level, timeout_ms=limit_ms)
        yield OpenedCluster(asked, WireAdmin(asked), called)


def _bootstrap_ms(given: argparse.Namespace) -> int:
    """How long addresses are tried for: as long as `--command-config` says that a call may take."""
    properties = client_properties(given.command_config)
    return timeout_ms(properties) if any(name in properties for name in TIMEOUT_KEYS) else BOOTSTRAP_MS


def storage_view(given: argparse.Namespace, what: str) -> ClusterView:
    """The cluster of a tool that reads storage. UsageError for brokers' addresses, saying `what` is on storage."""
    root = cluster_root(given, what)
    return ClusterView(root, timeout_ms=timeout_ms(client_properties(given.command_config)))


def storage_admin(given: argparse.Namespace, what: str) -> Admin:
    """As `storage_view`: its admin client."""
    root = cluster_root(given, what)
    called = connection_settings(given.command_config)
    return Admin(root, timeout_ms=timeout_ms(client_properties(given.command_config)), connection=called)
