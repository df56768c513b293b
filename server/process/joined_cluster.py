"""The cluster's metadata as brokers find it when they come up: made on an empty root, else joined.

I/O: the metadata root and its lock, `meta.properties` of the brokers' roots, the claim of a storage domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

from stratalog.replication.broker_root import (
    FORMAT_VERSION,
    check_meta_properties,
    cluster_id_of,
    folder_here,
    lock_shared,
)
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.cluster_configs import start_cluster_configs
from stratalog.replication.controller.domains.storage_domains import add_storage_domain
from stratalog.replication.metadata.configs import Replaced
from stratalog.replication.metadata.domain_claim import claim_domain
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import MetadataLog, SharedMetadata, open_metadata
from stratalog.replication.metadata.records import ClusterRecord
from stratalog.replication.metadata.storage_domains import DOMAIN_CONFIG
from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import (
    CorruptMessageError,
    InconsistentClusterIdError,
    LogDirNotFoundError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore

_LOG = line_logger("stratalog.cluster")

DEFAULT_DOMAIN = "default"
"""The storage domain of a cluster in one bucket."""


@dataclass(frozen=True, slots=True)
class JoinedCluster:
    """Holds the lock of the metadata root, shared with the brokers of other processes, until `close`.

    domain_urls  of its storage domains
    """

    cluster_id: str
    lock: IO[str]
    domain_urls: tuple[str, ...]

    def close(self) -> None:
        self.lock.close()


def join_cluster(
    metadata_root: str,
    broker_roots: Mapping[int, str],
    config: BrokerConfig,
    topic_defaults: Mapping[str, object] | None = None,
    shared: SharedMetadata | None = None,
) -> JoinedCluster:
    """Make the cluster on an empty metadata root, or join the one that is there, with these brokers (root by id).

    The roots are made and marked as this cluster's. The settings that clients need to know are recorded, with
    `topic_defaults` (`record_cluster_wide_configs`); those of the broker that came up last are in force, and the log
    names what they replaced. After an unclean stop of all brokers of this machine the metadata log is recovered.
    `shared`: with the other readers of the metadata log in this process.
    A new cluster whose roots all lie in one bucket has a storage domain there, beside the metadata root, in which its
    topics are made: `stratalog.storage.domain` says otherwise.
    Raises InconsistentClusterIdError when a root belongs to another cluster, or to one whose metadata is not at
    `metadata_root`: it may not be mounted; a new cluster there would be a second one of the same brokers.
    """
    roots = {broker_id: open_store(root, create=True) for broker_id, root in broker_roots.items()}
    opened = partial(open_metadata, DeltaStores(RandomIds()), metadata_root, SystemClock(), RandomIds(), shared=shared)
    known_ids = {store.url: known_id for store in roots.values() if (known_id := cluster_id_of(store)) is not None}
    metadata = _metadata_there(opened, known_ids, metadata_root) if known_ids else None
    objects = open_store(metadata_root, create=True)
    if metadata is None or not objects.durable_on_answer:  # what was folded may be cut by the recovery
        metadata = opened()
    lock = lock_shared(folder_here(objects), lambda: _recover(metadata, objects))
    try:
        metadata.create()
        cluster_id = metadata.propose(lambda image: _identify(image, RandomIds().new_id()))
        for broker_id, store in roots.items():
            check_meta_properties(store, cluster_id, broker_id, FORMAT_VERSION)
        defaults = dict(topic_defaults or {})
        if DOMAIN_CONFIG not in dict(config.topic_defaults):
            _share_bucket(metadata, metadata_root, [objects, *roots.values()])
            defaults[DOMAIN_CONFIG] = DEFAULT_DOMAIN if DEFAULT_DOMAIN in metadata.image.storage_domains else ""
        replaced = metadata.propose(lambda image: start_cluster_configs(image, config, defaults))
        _warn(replaced, sorted(metadata.image.live_brokers().keys() - broker_roots.keys()))
    except BaseException:
        lock.close()
        raise
    return JoinedCluster(cluster_id, lock, tuple(each.url for each in metadata.image.storage_domains.values()))


def _share_bucket(metadata: MetadataLog, metadata_root: str, stores: Sequence[ObjectStore]) -> None:
    """Give a new cluster whose stores are one bucket a storage domain there."""
    place, image = domain_beside(metadata_root, [store.url for store in stores]), metadata.image
    is_bucket = all(store.durable_on_answer and store.distance.is_far for store in stores)
    if place is None or not is_bucket or image.brokers or image.topic_ids:
        return
    store = open_store(place)
    claim_domain(store, image.cluster_id, DEFAULT_DOMAIN)
    metadata.propose(lambda image: add_storage_domain(image, DEFAULT_DOMAIN, store.url, durable=True))


def domain_beside(metadata_root: str, urls: Iterable[str]) -> str | None:
    """The place for a storage domain of a cluster with these roots: beside that of the metadata; None where they are in
    several buckets, or the metadata root is a whole bucket.

    >>> domain_beside("s3://b/logs/metadata", ["s3://b/logs/metadata", "s3://b/logs/broker-1"])
    's3://b/logs/domain'
    >>> domain_beside("s3://b/metadata", ["s3://b/metadata", "s3://other/broker-1"])
    """
    scheme, _, path = metadata_root.rstrip("/").partition("://")
    bucket, slash, below = path.partition("/")
    if not slash or any(not f"{url}/".startswith(f"{scheme}://{bucket}/") for url in urls):
        return None
    above = below.rpartition("/")[0]
    return f"{scheme}://{bucket}/{above}/domain" if above else f"{scheme}://{bucket}/domain"


def _warn(replaced: Sequence[Replaced], others: Sequence[int]) -> None:
    if replaced and others:
        _LOG.warning(
            "cluster-wide settings of brokers %s are replaced by those of a broker that starts: %s. All brokers should "
            "be started with the same ones",
            others,
            ", ".join(map(str, replaced)),
        )


def _metadata_there(opened: Callable[[], MetadataLog], known_ids: Mapping[str, str], metadata_root: str) -> MetadataLog:
    """The metadata log of roots that have a cluster, whose ids are given by root. InconsistentClusterIdError where
    there is none."""
    try:
        metadata = opened()
        metadata.log.refresh()
    except CorruptMessageError:  # as a power cut leaves it, before it is recovered
        return metadata
    except (LogDirNotFoundError, UnknownTopicOrPartitionError) as reason:
        root, known_id = next(iter(known_ids.items()))
        raise InconsistentClusterIdError(
            f"{root} belongs to cluster {known_id}, but there is no cluster metadata at {metadata_root}: "
            "is it mounted, and is stratalog.metadata.root right?"
        ) from reason
    return metadata


def _recover(metadata: MetadataLog, objects: ObjectStore) -> None:
    """Repair what a power cut may have torn, while no broker of this machine runs. An object store tears nothing, and
    brokers on other machines may be writing there."""
    if not objects.durable_on_answer:
        metadata.log.table.recover_tail()


def _identify(image: ClusterImage, new_id: str) -> Result[str]:
    """The cluster's id; a new cluster gets `new_id`."""
    if image.cluster_id:
        return Result((), image.cluster_id)
    return Result((ClusterRecord(new_id, FORMAT_VERSION),), new_id)
