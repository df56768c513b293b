"""The replicas in the brokers' log directories: their sizes and lags (KIP-113).

I/O: folds the metadata log and every replica's table, whether its broker runs or not. A broker has one log directory,
its root. A table in a storage domain is nobody's alone: of those that share it one has its size, the leader if it does,
and the others 0, so that sums are what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stratalog.replication.follower.metrics import ThreadFetch, thread_fetch_path
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import BrokerNotAvailableError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory.

    size_bytes  of the data files in the log, without those that wait for deletion
    offset_lag  records between the replica's log end and the partition's high watermark, 0 when it has all
    is_future   in Kafka, a replica that moves to another directory of its broker; here always False
    domain      the storage domain with its table; empty: the table is in the log directory, or that is not known
    """

    size_bytes: int
    offset_lag: int
    is_future: bool = False
    domain: str = ""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory: its replicas, or the error that keeps it from being read.

    fetches_in_threads  why the broker fetches in threads of its process, since Spark cannot run its queries; else empty
    """

    path: str
    replicas: Mapping[TopicPartition, ReplicaInfo] = field(default_factory=dict)
    error: StratalogError | None = None
    fetches_in_threads: str = ""


def describe_log_dirs(
    view: ClusterView, broker_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None
) -> dict[int, LogDirDescription]:
    """See `Admin.describe_log_dirs`."""
    view.refresh()
    brokers = view.image.brokers
    wanted = sorted(brokers) if broker_ids is None else list(dict.fromkeys(broker_ids))
    unknown = [str(broker_id) for broker_id in wanted if broker_id not in brokers]
    if unknown:
        known = ",".join(map(str, sorted(brokers)))
        raise BrokerNotAvailableError(f"no broker {','.join(unknown)}, only {known}")
    names = None if topics is None else set(topics)
    states = [s for tp, s in sorted(view.image.partitions.items()) if names is None or tp.topic in names]
    return {broker_id: _log_dir(view, brokers[broker_id], states) for broker_id in wanted}


def _log_dir(view: ClusterView, broker: BrokerState, states: Iterable[PartitionRecord]) -> LogDirDescription:
    registration = broker.registration
    replicas: dict[TopicPartition, ReplicaInfo] = {}
    try:
        objects = view.stores.objects(registration.root)
        objects.directories()
        fetch = objects.get_register(thread_fetch_path(broker.broker_epoch))
        for state in states:
            if registration.broker_id in state.replicas:
                found = _replica(view, registration.broker_id, state)
                if found is not None:
                    replicas[state.topic_partition] = found
    except StratalogError as error:
        return LogDirDescription(registration.root, error=error.as_value())
    reason = "" if fetch is None else ThreadFetch.from_json(fetch).reason
    return LogDirDescription(registration.root, replicas, fetches_in_threads=reason)


def _replica(view: ClusterView, broker_id: int, state: PartitionRecord) -> ReplicaInfo | None:
    """None while the broker has not created the table; sizes of -1 when it cannot be read."""
    domain = state.domain_of(broker_id)
    if broker_id != _teller(state, broker_id):
        return ReplicaInfo(0, 0, domain=domain)
    root = view.replica_root(state.topic_partition, broker_id)
    if root is None:
        return None
    log = LogReader(view.stores.table(root, state.topic_partition), view.clock)
    try:
        log.refresh()
    except UnknownTopicOrPartitionError:
        return None
    except StratalogError:
        return ReplicaInfo(-1, -1, domain=domain)
    published = view.watermarks.published(state.topic_partition)
    lag = max(0, published.high_watermark - log.log_end_offset) if published is not None else 0
    return ReplicaInfo(sum(entry.file.size_bytes for entry in log.files), lag, domain=domain)


def _teller(state: PartitionRecord, broker_id: int) -> int:
    """The broker that has the size of this replica's table: of those that share it in a storage domain the leader,
    otherwise a member of the ISR."""
    sharing = state.sharing(broker_id)
    return next((r for r in (state.leader, *state.isr) if r in sharing), sharing[0])
