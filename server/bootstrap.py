"""A cluster as those who call it know it: one that runs in their process, or the place of its metadata. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a Spark planner, which reads storage alone, loads none of them
    from stratalog.replication.coordinator.transactions.add_partitions import Coordinates
    from stratalog.replication.leader.log_offsets import LogOffsetSnapshot
    from stratalog.replication.metadata.image import ClusterImage
    from stratalog.replication.metadata.records import MetadataRecord
    from stratalog.replication.requests.coordinators import (
        CoordinatorType,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from stratalog.replication.requests.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
    from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
    from stratalog.replication.shared_fold import SharedFold
    from stratalog.storage.records import IdentifiedPartition

FIND_TIMEOUT_MS = 1_000
"""Limit of a FindCoordinator call; short, since any other broker knows the coordinator as well."""
JOIN_GRACE_MS = 5_000
"""Time beyond the rebalance timeout that a JoinGroup may take (Kafka's JOIN_GROUP_TIMEOUT_LAPSE)."""


class BrokerFace(Protocol):
    """The calls of a client to a broker, in its own process or elsewhere."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete` is called once, possibly from the broker's thread. Does not block."""

    def delete_records(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """Have the leaders of partitions, which this broker is, move their logs' starts. Answered as above."""

    def log_offsets(self, partition: IdentifiedPartition) -> LogOffsetSnapshot | None:
        """What is known in memory of a log that it leads. None: nothing without asking somebody. Does not block."""

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        """The coordinators of groups or transactional ids. Answered as above."""

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Call a coordinator on this broker, of a key or of a partition by number; its response or a StratalogError."""

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        """Call all coordinators of a kind on this broker; their responses or errors."""


class RunningCluster(Protocol):
    """The part of a `server.cluster.Cluster` that clients in its process use.

    A `server.remote.remote_cluster.RemoteCluster` has it, too: its brokers run in other processes.
    """

    @property
    def root(self) -> str:
        """The metadata root."""

    def brokers(self) -> Mapping[int, BrokerFace]:
        """The running brokers by id."""

    def peers(self) -> Mapping[int, Coordinates]:
        """The brokers that those of this process call, by id: themselves, and others as far as they can be called."""

    def hosts(self, broker_id: int) -> bool:
        """Whether the broker is one of those, running or stopped; others are reached through their inboxes."""


Cluster = str | RunningCluster
"""A running cluster, or the URL or path of a metadata root."""


def root_of(cluster: Cluster) -> str:
    """The metadata root of a cluster."""
    return cluster if isinstance(cluster, str) else cluster.root


def shared_metadata_of(cluster: Cluster) -> SharedFold[ClusterImage, MetadataRecord] | None:
    """What the brokers of a process share with its other readers of the metadata log, if they run in this one: an
    attribute `shared_metadata` of the cluster."""
    return getattr(cluster, "shared_metadata", None)


def addresses_by_listener(registered: Iterable[str]) -> dict[str, str]:
    """Name of a listener -> its addresses, from what brokers register: `NAME://host:port` each, with commas.

    >>> addresses_by_listener(["IN://h:9092,OUT://h:9192", "IN://h:9093,OUT://h:9193"])
    {'IN': 'h:9092,h:9093', 'OUT': 'h:9192,h:9193'}
    """
    found: dict[str, list[str]] = {}
    for each in ",".join(registered).split(","):
        name, mark, address = each.partition("://")
        if mark:
            found.setdefault(name, []).append(address)
    return {name: ",".join(addresses) for name, addresses in found.items()}
