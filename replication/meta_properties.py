"""`meta.properties`: which cluster and broker a storage domain belongs to, and in which format it is written.

I/O: one object in the broker's root. As Kafka's file of this name.
"""

from __future__ import annotations

from stratalog.storage.errors import (
    CorruptMessageError,
    InconsistentClusterIdError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from stratalog.storage.objects.remote import ObjectStore

PATH = "meta.properties"
FORMAT_VERSION = 1


def check_meta_properties(store: ObjectStore, cluster_id: str, broker_id: int, format_version: int) -> None:
    """Write the identity of a new root; refuse a root of another cluster, broker or newer format."""
    wanted = {"version": str(format_version), "cluster.id": cluster_id, "broker.id": str(broker_id)}
    if store.create(PATH, _encode(wanted)):
        return
    found = _decode(store.get(PATH))
    if not {"version", "cluster.id", "broker.id"} <= set(found):
        raise CorruptMessageError(f"{store.url}/{PATH} is torn: found {found}, expected {wanted}")
    if found.get("cluster.id") != cluster_id:
        raise InconsistentClusterIdError(
            f"{store.url} belongs to cluster {found.get('cluster.id')}, this is cluster {cluster_id}"
        )
    if found.get("broker.id") != str(broker_id):
        raise InvalidRequestError(f"{store.url} belongs to broker {found.get('broker.id')}, this is broker {broker_id}")
    if int(found.get("version", "0")) > format_version:
        raise UnsupportedVersionError(
            f"{store.url} is written in format {found['version']}, this release knows formats up to {format_version}"
        )


def cluster_id_of(store: ObjectStore) -> str | None:
    """The cluster that the root belongs to; None for a new root."""
    data = store.get_optional(PATH)
    return None if data is None else _decode(data).get("cluster.id")


def read_meta_properties(store: ObjectStore) -> tuple[int, str]:
    """Broker id and cluster id of a root. CorruptMessageError when it says neither, ObjectNotFoundError."""
    found = _decode(store.get(PATH))
    try:
        return int(found["broker.id"]), found["cluster.id"]
    except (KeyError, ValueError) as reason:
        raise CorruptMessageError(f"{store.url}/{PATH} names no broker or cluster: {found}") from reason


def _encode(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def _decode(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in data.decode().splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
