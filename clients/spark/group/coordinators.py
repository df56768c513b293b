"""How a query's planner reaches the coordinator of its group: at the brokers' listeners, or through their inboxes.

I/O: sockets, objects in brokers' roots, the metadata log. `reach` is the only place that knows the transport: whatever
gives `CoordinatorCalls` can stand there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stratalog.clients.coordinator_calls import RETRY_MS, CoordinatorCalls, InProcessCalls, PendingAnswer
from stratalog.clients.spark.group.options import GROUP_ID, GroupOptions
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock
from stratalog.storage.errors import BrokerNotAvailableError, StratalogError

WITHOUT = f"or leave {GROUP_ID} out: a query without a group needs no broker"


@dataclass(frozen=True, slots=True)
class ReachedCoordinators:
    """`calls` to the coordinators of groups, until `close`."""

    calls: CoordinatorCalls
    close: Callable[[], None]


Reach = Callable[[ClusterView, GroupOptions], ReachedCoordinators]


def reach(view: ClusterView, group: GroupOptions) -> ReachedCoordinators:
    """Coordinators, called as a `RemoteCluster` calls brokers.

    BrokerNotAvailableError when no broker has the listener to which the options bind the query; otherwise connections
    are made by the calls.
    """
    cluster = RemoteCluster(view.root, group.connection, listener=group.listener, stores=view.stores)
    view.refresh()
    if not any(cluster.hosts(broker_id) for broker_id in view.image.brokers):
        cluster.close()
        named = f" named {group.listener}" if group.listener else ""
        raise BrokerNotAvailableError(
            f"{GROUP_ID}={group.group_id}: the offsets of a group are committed through its coordinator, and no broker "
            f"of {view.root} has a listener{named} to be called at. Set `listeners` of the brokers, leave out the "
            f"login and stratalog.transport to use their inboxes, {WITHOUT}."
        )
    return ReachedCoordinators(InProcessCalls(cluster, view.clock, group.consumer.request_timeout_ms), cluster.close)


def find_coordinator(calls: CoordinatorCalls, group: GroupOptions, clock: Clock) -> int:
    """The broker id of the group's coordinator. BrokerNotAvailableError when none answers in
    `default.api.timeout.ms`; other errors as the broker gives them."""
    timeout_ms = group.consumer.default_api_timeout_ms
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        found = PendingAnswer()
        calls.find(group.group_id, found.receive)
        answer = found.result(calls, clock, deadline_ms)
        if isinstance(answer, int):
            return answer
        if isinstance(answer, StratalogError) and not answer.retriable:
            raise answer
        if clock.monotonic_ms() >= deadline_ms:
            raise BrokerNotAvailableError(
                f"{GROUP_ID}={group.group_id}: no coordinator answered within {timeout_ms} ms "
                f"(kafka.default.api.timeout.ms): {answer}. Can this machine reach the brokers' listeners? If not, "
                f"set stratalog.transport=inbox, make them reachable (`advertised.listeners`), {WITHOUT}."
            )
        clock.sleep_ms(RETRY_MS)
