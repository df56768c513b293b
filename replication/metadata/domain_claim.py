"""The claim of a storage domain: which cluster uses a place, and as which of its domains. I/O: an object there.

It is created if it is absent: of two clusters that use one place, the second meets it. A directory without it is not
the place, since nothing is mounted there: no table is made in such a one, and none is taken for lost.
"""

from __future__ import annotations

import json

from stratalog.storage.errors import InconsistentClusterIdError, StoreUnavailableError
from stratalog.storage.objects.port import ObjectStore

CLAIM_PATH = "stratalog-domain.json"


def claim_domain(store: ObjectStore, cluster_id: str, name: str) -> None:
    """InconsistentClusterIdError where another cluster has claimed the place, or this one under another name."""
    if not store.create(CLAIM_PATH, _claim(cluster_id, name)):
        _check(store, store.get_optional(CLAIM_PATH), cluster_id, name)


def check_claim(store: ObjectStore, cluster_id: str, name: str) -> None:
    """StoreUnavailableError where the place has no claim; InconsistentClusterIdError as of `claim_domain`."""
    found = store.get_optional(CLAIM_PATH)
    if found is None:
        raise StoreUnavailableError(
            f"{store.url} is not the storage domain '{name}': there is no {CLAIM_PATH}, as where nothing is mounted"
        )
    _check(store, found, cluster_id, name)


def _claim(cluster_id: str, name: str) -> bytes:
    return json.dumps({"cluster_id": cluster_id, "domain": name}).encode()


def _check(store: ObjectStore, found: bytes | None, cluster_id: str, name: str) -> None:
    if found != _claim(cluster_id, name):
        raise InconsistentClusterIdError(
            f"{store.url} cannot be the storage domain '{name}' of cluster {cluster_id}: {CLAIM_PATH} there says "
            f"{(found or b'nothing').decode(errors='replace')}. Two clusters in one place would take each other's "
            "tables for leftovers: use another prefix"
        )


def end_claim(store: ObjectStore) -> None:
    """The place is free again."""
    store.delete(CLAIM_PATH)
