"""The claim of a storage domain: which cluster uses a place, and as which of its domains. I/O: an object there.

It is created if it is absent: of two clusters that use one place, the second meets it.
"""

from __future__ import annotations

import json

from stratalog.storage.errors import InconsistentClusterIdError
from stratalog.storage.objects.port import ObjectStore

CLAIM_PATH = "stratalog-domain.json"


def claim_domain(store: ObjectStore, cluster_id: str, name: str) -> None:
    """InconsistentClusterIdError where another cluster has claimed the place, or this one under another name."""
    own = json.dumps({"cluster_id": cluster_id, "domain": name}).encode()
    if store.create(CLAIM_PATH, own):
        return
    found = store.get_optional(CLAIM_PATH)
    if found != own:
        raise InconsistentClusterIdError(
            f"{store.url} cannot be the storage domain '{name}' of cluster {cluster_id}: {CLAIM_PATH} there says "
            f"{(found or b'nothing').decode(errors='replace')}. Two clusters in one place would take each other's "
            "tables for leftovers: use another prefix"
        )


def end_claim(store: ObjectStore) -> None:
    """The place is free again."""
    store.delete(CLAIM_PATH)
