"""Where the table of a replica is: in its broker's root, or in a storage domain that replicas share. Pure.

In a domain a partition has one table, `<domain>/<topic>.<topic id>/<topic>-<partition>`. The id keeps a table apart
from that of a later topic of the name: what a deposed leader writes late, or a slow deletion, meets no other table.
"""

from __future__ import annotations

from stratalog.replication.folders import topic_folder
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, StorageDomainRecord
from stratalog.storage.errors import UnknownStorageDomainError

DOMAIN_CONFIG = "stratalog.storage.domain"
"""The topic config that says where a topic's tables are; empty: in the brokers' roots."""
COPIES_CONFIG = "stratalog.storage.copies"
"""The topic config that names further storage domains, each with a copy of the topic's tables."""


def domain_of(image: ClusterImage, name: str) -> StorageDomainRecord:
    """UnknownStorageDomainError, with the names of those that there are."""
    found = image.storage_domains.get(name)
    if found is None:
        known = ", ".join(sorted(image.storage_domains)) or "none"
        raise UnknownStorageDomainError(f"there is no storage domain '{name}'; there are: {known}")
    return found


def topic_root(domain: StorageDomainRecord, topic: str, topic_id: str) -> str:
    """The URL of the folder of a topic's tables in a domain."""
    return f"{domain.url}/{topic_folder(topic, topic_id)}"


def replica_root(image: ClusterImage, state: PartitionRecord, broker_id: int) -> str | None:
    """The URL below which this replica's table lies, named as its partition; None for a broker that never registered.

    UnknownStorageDomainError where the image does not know the partition's domain.
    """
    if name := state.domain_of(broker_id):
        return topic_root(domain_of(image, name), state.topic, image.topic_ids.get(state.topic, ""))
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.registration.root


def replica_directory(image: ClusterImage, state: PartitionRecord, broker_id: int) -> tuple[str, str] | None:
    """The URL of the store with this replica's table, and its directory there; None and raises as `replica_root`."""
    root = replica_root(image, state, broker_id)
    if root is None or not state.domain_of(broker_id):
        return None if root is None else (root, str(state.topic_partition))
    place, _, folder = root.rpartition("/")
    return place, f"{folder}/{state.topic_partition}"
