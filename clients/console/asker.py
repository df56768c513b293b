"""The user that asks a question, with the cluster that the question is about. I/O: reads the cluster.

Pages, JSON and agents get all their data through an `Asker`, so that access is decided in one place. For a cluster that
is known by its brokers' addresses the `Asker` has no authorizer: the user has a connection of his own, and the brokers
apply the ACLs to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.clients.admin.groups import Groups
from stratalog.clients.admin.transactions import KnownTransactions
from stratalog.clients.client_view import ClientView
from stratalog.clients.console.beside import NOTHING, Beside
from stratalog.replication.metadata.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    Authorizer,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from stratalog.server.bootstrap import RunningCluster

WAIT_MS = 5_000
"""How long a question waits for a leader or a coordinator."""


class AskedCluster(Protocol):
    """A cluster by its metadata root or by its brokers' addresses; `jobs.command.opened.OpenedCluster` is one."""

    @property
    def view(self) -> ClientView:
        """Topics, offsets, records."""

    @property
    def admin(self) -> ClusterAdmin:
        """What an administrator asks and changes."""

    @property
    def is_served(self) -> bool:
        """Whether it is known by its brokers' addresses alone."""

    @property
    def root(self) -> str | None:
        """Its metadata root; None for one that is served."""

    @property
    def has_login(self) -> bool:
        """Whether its brokers are called with a login: as who the console is, and not as the user of their inboxes."""

    def running(self) -> AbstractContextManager[RunningCluster]:
        """Its brokers, to be called. BrokerNotAvailableError when there is none."""

    def groups(self, wait_ms: int, *, changes: bool) -> AbstractContextManager[Groups]:
        """What answers about groups."""

    def transactions(self) -> KnownTransactions:
        """What answers about transactions."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A user with the cluster.

    principal   the user, `User:alice`
    authorizer  decides what the user may do; None: everything, or the brokers decide
    now_ms      wall time, against which ages are measured
    beside      what belongs to the cluster and is not in it
    """

    cluster: AskedCluster
    principal: Principal
    authorizer: Authorizer | None
    now_ms: int
    beside: Beside = NOTHING

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody logged in."""
        return self.principal.name == ANONYMOUS

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the user may do this with the topic, group, transactional id, or the cluster."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize(self.principal, operation, Resource(kind, name))

    def check(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """As `may`, but the tree's authorization error is raised. It does not reveal whether the resource exists."""
        if self.authorizer is None:
            return
        refusal = self.authorizer.refusal(self.principal, operation, Resource(kind, name))
        if refusal is not None:
            raise refusal

    def visible(self, kind: ResourceType, names: Iterable[str]) -> list[str]:
        """Those of the names that the user may describe, in their order."""
        return [name for name in names if self.may(Operation.DESCRIBE, kind, name)]

    def check_topic(self, topic: str, operation: Operation = Operation.DESCRIBE) -> None:
        """As `check`, for a topic."""
        self.check(operation, ResourceType.TOPIC, topic)

    def check_group(self, group_id: str, operation: Operation = Operation.DESCRIBE) -> None:
        """As `check`, for a group."""
        self.check(operation, ResourceType.GROUP, group_id)


def is_internal(topic: str) -> bool:
    """Whether it is one of the cluster's own topics."""
    return topic.startswith("__")
