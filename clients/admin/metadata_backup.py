"""Restoration of the metadata log from a backup and the inventory of the brokers' roots.

I/O: reads every replica's table; writes a new metadata log in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stratalog.replication.broker_root import read_meta_properties
from stratalog.replication.metadata.backup.backup import (
    Backup,
    ReplicaInventory,
    Restoration,
    RootInventory,
    restored_records,
)
from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.log import METADATA_PARTITION, MetadataLog, open_metadata
from stratalog.replication.metadata.records import ControllerRecord
from stratalog.replication.progress.progress import PROGRESS_PREFIX, leader_progress_path
from stratalog.replication.stores import Stores
from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.table import ERASE_PASS, ERASED, Conflict
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

CHECK_MS = 5_000
"""Time between two reads of a broker's progress object: more than two of its heartbeats by default."""


@dataclass(frozen=True, slots=True)
class StoredInventory:
    """The inventories of the readable roots, and the errors of others: root or table -> reason."""

    roots: tuple[RootInventory, ...]
    unreadable: Mapping[str, str]


def read_inventory(
    backup: Backup,
    stores: Stores,
    clock: Clock,
    extra_roots: Iterable[str] = (),
    have_read: Callable[[int, int], None] = lambda _done, _total: None,
) -> StoredInventory:
    """The inventory of the roots of the backup's brokers, and of `extra_roots`: roots that moved or are newer.

    have_read  is called after each root: how many were read, of how many
    InconsistentClusterIdError for an extra root of another cluster.
    """
    image = backup.image()
    places = {broker_id: broker.registration.root for broker_id, broker in image.brokers.items()}
    for root in extra_roots:
        broker_id, cluster_id = read_meta_properties(stores.objects(root))
        if cluster_id != backup.cluster_id:
            raise errors.InconsistentClusterIdError(f"{root} belongs to cluster {cluster_id}, not {backup.cluster_id}")
        places[broker_id] = root
    roots: list[RootInventory] = []
    unreadable: dict[str, str] = {}
    for broker_id, root in sorted(places.items()):
        try:
            objects = stores.objects(root)
            replicas = [
                _replica(broker_id, root, topic_partition, stores, clock, unreadable)
                for topic_partition in stores.replicas(root)
            ]
            found = tuple(replica for replica in replicas if replica is not None)
            roots.append(RootInventory(broker_id, root, _broker_epoch(objects), found))
        except StratalogError as reason:
            unreadable[root] = str(reason)
        have_read(len(roots) + len(unreadable), len(places))
    return StoredInventory(tuple(roots), unreadable)


def _replica(
    broker_id: int, root: str, topic_partition: TopicPartition, stores: Stores, clock: Clock, unreadable: dict[str, str]
) -> ReplicaInventory | None:
    log = LogReader(stores.table(root, topic_partition), clock)
    try:
        log.refresh()
    except errors.UnknownTopicOrPartitionError:
        return None  # a directory without a table
    except StratalogError as reason:
        unreadable[log.name] = str(reason)
        return None
    erased = max(map(log.state.txn_number, (ERASED, ERASE_PASS)))
    return ReplicaInventory(broker_id, topic_partition, log.topic_id, log.leader_epoch, log.log_end_offset, erased)


def _broker_epoch(objects: ObjectStore) -> int:
    names = (meta.path.removeprefix(PROGRESS_PREFIX).partition("/")[0] for meta in objects.list(PROGRESS_PREFIX))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def check_stopped(inventory: StoredInventory, stores: Stores, clock: Clock, check_ms: int = CHECK_MS) -> None:
    """KafkaStorageError naming a broker that still publishes between two reads, `check_ms` apart."""
    before = {root.broker_id: _published(root, stores) for root in inventory.roots}
    clock.sleep_ms(check_ms)
    running = [root for root in inventory.roots if _published(root, stores) != before[root.broker_id]]
    if running:
        raise errors.KafkaStorageError(
            f"broker {running[0].broker_id} runs on {running[0].root}: stop all brokers first"
        )


def _published(root: RootInventory, stores: Stores) -> bytes | None:
    return stores.objects(root.root).get_register(leader_progress_path(root.broker_epoch))


def restore_backup(
    backup: Backup, inventory: StoredInventory, stores: Stores, metadata_root: str, clock: Clock, ids: Ids
) -> Restoration:
    """Create the metadata log in an empty root, in one commit: the backup's records, and those that adapt them to the
    roots.

    Every broker is down then, and registers again when it is started. InvalidRequestError unless the root is empty,
    RequestTimedOutError and store errors when the commit could not be made.
    """
    check_empty(stores, metadata_root)
    restoration = restored_records(backup, inventory.roots)
    for path, content in backup.manifests.items():
        stores.objects(metadata_root).put_register(path, content.encode())
    metadata = open_metadata(stores, metadata_root, clock, ids)
    metadata.create()
    records = (*(each.record for each in backup.records), *restoration.records)
    metadata.propose(lambda _image: Result(records, None), checks_transitions=False)
    _start_epoch(metadata, restoration)
    return restoration


def _start_epoch(metadata: MetadataLog, restoration: Restoration) -> None:
    """Fence a previous controller at the table, too, should one still run."""
    epoch = max(r.controller_epoch for r in restoration.records if isinstance(r, ControllerRecord))
    if isinstance(metadata.log.start_epoch(epoch, as_leader=True), Conflict):
        raise errors.KafkaStorageError(f"{metadata.log.name}: another process writes to the restored metadata log")


def check_empty(stores: Stores, metadata_root: str) -> None:
    """InvalidRequestError naming an object in a metadata root that is not empty."""
    found = stores.objects(metadata_root).list("")
    if found:
        what = METADATA_PARTITION if any(m.path.startswith(str(METADATA_PARTITION)) for m in found) else found[0].path
        raise errors.InvalidRequestError(f"{metadata_root} holds {what}: a backup is restored into an empty root")
