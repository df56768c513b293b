"""With STRATALOG_TEST_DOMAIN=1 each new cluster of a test has a storage domain beside its roots, and its topics there.

`make test-domains` runs the suites that way. The domain is a folder, or a part of the memory, that is said to be
durable. I/O: the metadata of the cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.domains.storage_domains import add_storage_domain
from stratalog.replication.metadata.domain_claim import claim_domain
from stratalog.replication.metadata.log import MetadataLog
from stratalog.server.process import joined_cluster
from stratalog.server.process.joined_cluster import DEFAULT_DOMAIN, join_cluster
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore

NAME = DEFAULT_DOMAIN
OWN_TABLE = re.compile(r"broker-\d+/[\w.-]+-\d+\b")
"""A replica's table in its broker's root."""
IS_ON = os.environ.get("STRATALOG_TEST_DOMAIN") == "1"

_share_bucket = joined_cluster._share_bucket


def _share_folder(metadata: MetadataLog, metadata_root: str, stores: Sequence[ObjectStore]) -> None:
    """As a new cluster in one bucket has it, for any new cluster."""
    _share_bucket(metadata, metadata_root, stores)
    image = metadata.image
    if image.brokers or image.topic_ids or image.storage_domains:
        return
    store = open_store(f"{metadata_root.rstrip('/').rpartition('/')[0]}/domain", create=True)
    claim_domain(store, image.cluster_id, NAME)
    metadata.propose(lambda image: add_storage_domain(image, NAME, store.url, durable=True))


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


def only_in_roots(what: str) -> None:
    """Called by what tests use that there is only where each replica has a table in its broker's root: with the switch
    on the test is not applicable."""
    if IS_ON:
        pytest.skip(f"not applicable in a storage domain: {what}")


def looks_into_a_root(error: BaseException) -> bool:
    """Whether a test has failed since it looked for a replica in a broker's root, with the switch on.

    >>> looks_into_a_root(FileNotFoundError("cluster/broker-1/events-0")) == IS_ON
    True
    >>> looks_into_a_root(FileNotFoundError("cluster/broker-1/meta.properties"))
    False
    """
    return IS_ON and not isinstance(error, AssertionError) and OWN_TABLE.search(str(error)) is not None


def replica_folder(cluster: Path, broker_id: int, topic: str, partition: int) -> Path:
    """That of a replica's table, wherever it is, in a cluster in this folder."""
    name = f"{topic}-{partition}"
    return next(cluster.glob(f"domain/{topic}.*/{name}")) if IS_ON else cluster / f"broker-{broker_id}" / name
