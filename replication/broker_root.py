"""`meta.properties`: which cluster and broker a storage domain belongs to, and in which format it is written.

I/O: one object in the broker's root. As Kafka's file of this name.

The mark of a clean stop in a broker's root, as Kafka's `.kafka_cleanshutdown`: its tables need no recovery.

I/O: through the root's object store.

`.lock` files: which process of this machine works on a directory (as Kafka's `FileLock` of a log directory).

I/O: flock(2). It ends with the process, however that ends. A stopped process (SIGSTOP) keeps it. Roots on object
stores have their lock files in this machine's temporary folder; other machines are kept out by broker epochs alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from stratalog.replication.metadata.image import BrokerState
from stratalog.storage.errors import (
    CorruptMessageError,
    InconsistentClusterIdError,
    InvalidRequestError,
    KafkaStorageError,
    UnsupportedVersionError,
)
from stratalog.storage.objects.port import ObjectStore

META_PROPERTIES = "meta.properties"
FORMAT_VERSION = 1


def check_meta_properties(store: ObjectStore, cluster_id: str, broker_id: int, format_version: int) -> None:
    """Write the identity of a new root; refuse a root of another cluster, broker or newer format."""
    wanted = {"version": str(format_version), "cluster.id": cluster_id, "broker.id": str(broker_id)}
    if store.create(META_PROPERTIES, _encode(wanted)):
        return
    found = _decode(store.get(META_PROPERTIES))
    if not {"version", "cluster.id", "broker.id"} <= set(found):
        raise CorruptMessageError(f"{store.url}/{META_PROPERTIES} is torn: found {found}, expected {wanted}")
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
    data = store.get_optional(META_PROPERTIES)
    return None if data is None else _decode(data).get("cluster.id")


def read_meta_properties(store: ObjectStore) -> tuple[int, str]:
    """Broker id and cluster id of a root. CorruptMessageError when it says neither, ObjectNotFoundError."""
    found = _decode(store.get(META_PROPERTIES))
    try:
        return int(found["broker.id"]), found["cluster.id"]
    except (KeyError, ValueError) as reason:
        raise CorruptMessageError(f"{store.url}/{META_PROPERTIES} names no broker or cluster: {found}") from reason


def _encode(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def _decode(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in data.decode().splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


CLEAN_SHUTDOWN = "clean-shutdown"


def mark_clean_shutdown(objects: ObjectStore, broker_epoch: int) -> None:
    """After the last write below the root, fetch sessions' too: all of it outlives a power cut from here on."""
    objects.sync_all()
    objects.put(CLEAN_SHUTDOWN, b"%d" % broker_epoch)
    objects.sync([CLEAN_SHUTDOWN])


def was_shut_down(objects: ObjectStore, known: BrokerState | None) -> bool:
    """Whether the tables are as the broker's last life left them; it may have had none (`known` is None).

    That it left its ISRs cleanly is not enough: its fetch sessions may have copied until the power was cut. The mark
    is that life's own, so it needs no removal.
    """
    if known is None:
        return True
    return known.clean_shutdown and objects.get_optional(CLEAN_SHUTDOWN) == b"%d" % known.broker_epoch


NAME = ".lock"


def folder_here(root: ObjectStore) -> Path:
    """The root's directory; for an object store a folder on this machine that stands for it."""
    folder = root.file_path("")
    return temporary_folder(root.url) if folder is None else Path(folder)


def temporary_folder(url: str) -> Path:
    """Where this machine keeps what belongs to an object store's URL, but cannot lie there: locks, text logs."""
    here = Path(tempfile.gettempdir()).resolve() / f"stratalog-{os.getuid()}"
    return here / re.sub(r"[^\w.-]+", "-", url.rstrip("/"))


def lock_alone(folder: Path, refusal: str) -> IO[str]:
    """Hold the directory alone until the file is closed. KafkaStorageError: `refusal` when somebody else holds it."""
    lock = _open(folder)
    try:
        if not _is_locked(lock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise KafkaStorageError(refusal)
    except BaseException:
        lock.close()
        raise
    return lock


def lock_shared(folder: Path, when_first: Callable[[], None]) -> IO[str]:
    """Hold the directory together with others until the file is closed; those that come wait for `when_first`.

    `when_first` is called while nobody else holds it, that is, by the first one, or by one that comes when all others
    are gone: what a crash of the last one left can be put in order then.
    """
    lock = _open(folder)
    try:
        if _is_locked(lock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            when_first()
        _is_locked(lock, folder, fcntl.LOCK_SH)
    except BaseException:
        lock.close()
        raise
    return lock


def _open(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / NAME).open("a")
    except OSError as reason:
        raise KafkaStorageError(f"{folder}: cannot be used for a cluster: {reason}") from reason


def _is_locked(lock: IO[str], folder: Path, how: int) -> bool:
    """False when somebody else holds it. KafkaStorageError where there are no locks."""
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        return False
    except OSError as reason:
        raise KafkaStorageError(f"{folder / NAME} cannot be locked: {reason}") from reason
    return True
