"""The cluster's storage, for questions that brokers cannot answer. I/O: that of the view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.replication.stores import DeltaStores, Stores, client_stores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.partition_logs import check_topic
from stratalog.storage.errors import LogDirNotFoundError, StorageNotKnownError, StratalogError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica's log, or why it cannot be read."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    log: LogReader | None
    error: StratalogError | None


def stored_view(asker: Asker, what: str) -> ClusterView:
    """The view of a cluster that is known by its storage.

    what  is on storage, as the subject of a sentence: `the past is`
    StorageNotKnownError for a cluster that is known by its brokers' addresses.
    """
    view = asker.cluster.view
    if not isinstance(view, ClusterView):
        raise StorageNotKnownError(
            f"{what} on storage, and only brokers' addresses are known: start it with --root, the metadata root"
        )
    return view


def uncached_stores(view: ClusterView) -> Stores:
    """Stores that read what lies on storage, not what this process remembers of it: for comparisons of copies."""
    known = view.stores
    return client_stores(view.ids, known.settings, FileCache(0)) if isinstance(known, DeltaStores) else known


def replica_logs(view: ClusterView, stores: Stores, topic_partition: TopicPartition) -> Iterator[ReplicaLog]:
    """The logs of a partition's replicas, folded now: the leader's first, then those of the ISR.

    UnknownTopicOrPartitionError. What is wrong with one replica is its `error`.
    """
    state = view.partition_state(topic_partition)
    topic_id = view.image.topic_ids.get(topic_partition.topic, "")
    for broker_id in sorted(state.replicas, key=lambda each: (each != state.leader, each not in state.isr)):
        root = view.replica_root(topic_partition, broker_id)
        found: LogReader | None = None
        error: StratalogError | None = None
        try:
            if root is None:
                raise LogDirNotFoundError(f"{topic_partition}: broker {broker_id} has never registered")
            found = LogReader(stores.table(root, topic_partition), view.clock)
            found.refresh()
            check_topic(found, topic_id)
        except StratalogError as reason:
            found, error = None, reason
        yield ReplicaLog(broker_id, broker_id == state.leader, broker_id in state.isr, found, error)
