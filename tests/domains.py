"""With STRATALOG_TEST_DOMAIN=1 each new cluster of a test has a storage domain beside its roots, and its topics there.

`make test-domains` runs the suites that way. The domain is a folder, or a part of the memory, that is said to be
durable. I/O: the metadata of the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.domains.storage_domains import add_storage_domain
from stratalog.replication.metadata.domain_claim import claim_domain
from stratalog.replication.metadata.log import MetadataLog
from stratalog.server.process import joined_cluster
from stratalog.server.process.joined_cluster import DEFAULT_DOMAIN, join_cluster
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore

IS_ON = os.environ.get("STRATALOG_TEST_DOMAIN") == "1"

_share_bucket = joined_cluster._share_bucket


def _share_folder(metadata: MetadataLog, metadata_root: str, stores: Sequence[ObjectStore]) -> None:
    """As a new cluster in one bucket has it, for any new cluster."""
    _share_bucket(metadata, metadata_root, stores)
    image = metadata.image
    if image.brokers or image.topic_ids or image.storage_domains:
        return
    store = open_store(f"{metadata_root.rstrip('/').rpartition('/')[0]}/domain", create=True)
    claim_domain(store, image.cluster_id, DEFAULT_DOMAIN)
    metadata.propose(lambda image: add_storage_domain(image, DEFAULT_DOMAIN, store.url, durable=True))


@contextmanager
def in_domains() -> Iterator[None]:
    """Clusters of this process, if the switch is on."""
    if not IS_ON:
        yield
        return
    with patch.object(joined_cluster, "_share_bucket", _share_folder):
        yield


def give_domain(metadata_root: str) -> None:
    """Clusters of other processes, if the switch is on: called before the first one starts."""
    if IS_ON:
        with in_domains():
            join_cluster(metadata_root, {}, BrokerConfig()).close()
