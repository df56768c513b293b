"""The marks of a broker's root: its identity, its last clean stop, and the lock of the process that uses it.

I/O: through the root's object store; flock(2). `meta.properties` and `.lock` are as Kafka's files of these names, the
mark of a clean stop as `.kafka_cleanshutdown`: both name a broker epoch. A lock ends with its process, however that
ends, and stays while the process is stopped (SIGSTOP). Roots on object stores have their locks in this machine's
temporary folder; processes on other machines are kept out by broker epochs alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from stratalog.replication.folders import replica_of
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.storage import errors
from stratalog.storage.objects.port import ObjectStore

META_PROPERTIES = "meta.properties"
DIRECTORY_ID = "directory.id"
FORMAT_VERSION = 1
CLEAN_SHUTDOWN = "clean-shutdown"
LOCK_FILE = ".lock"

# -- identity ------------------------------------------------------------------------------------------------------


def check_meta_properties(store: ObjectStore, cluster_id: str, broker_id: int, format_version: int) -> None:
    """Write the identity of a new root; refuse a root of another cluster or broker, or of a newer format.

    It is durable before anything else is written below the root. So one that a power cut spoilt is written again if
    there is no replica; else CorruptMessageError.
    """
    wanted = {"version": str(format_version), "cluster.id": cluster_id, "broker.id": str(broker_id)}
    if store.create(META_PROPERTIES, _encode(wanted)):
        store.sync([META_PROPERTIES])
        return
    found = _decode(store.get(META_PROPERTIES))
    if not {"version", "cluster.id", "broker.id"} <= set(found):
        tables = [name for name in store.directories() if replica_of(name) is not None]
        if tables:
            raise errors.CorruptMessageError(
                f"{store.url}/{META_PROPERTIES} is torn: found {found}, expected {wanted}; there are replicas beside "
                f"it, as {tables[0]}: write the file again if they are this broker's"
            )
        store.put(META_PROPERTIES, _encode(wanted))
        store.sync([META_PROPERTIES])
        return
    if found["cluster.id"] != cluster_id:
        raise errors.InconsistentClusterIdError(
            f"{store.url} belongs to cluster {found['cluster.id']}, this is cluster {cluster_id}"
        )
    if found["broker.id"] != str(broker_id):
        raise errors.InvalidRequestError(
            f"{store.url} belongs to broker {found['broker.id']}, this is broker {broker_id}"
        )
    if int(found["version"]) > format_version:
        raise errors.UnsupportedVersionError(
            f"{store.url} is written in format {found['version']}, this release knows formats up to {format_version}"
        )


def directory_id(store: ObjectStore, new_id: str) -> str:
    """The id of this very directory (Kafka: `directory.id`): a replaced or emptied disk has another one. A root without
    one, as of an earlier release, gets `new_id`, durably."""
    found = _decode(store.get_optional(META_PROPERTIES) or b"")
    known = found.get(DIRECTORY_ID)
    if known:
        return known
    store.put(META_PROPERTIES, _encode({**found, DIRECTORY_ID: new_id}))
    store.sync([META_PROPERTIES])
    return new_id


def cluster_id_of(store: ObjectStore) -> str | None:
    """The id of the root's cluster; None for a new root."""
    data = store.get_optional(META_PROPERTIES)
    return None if data is None else _decode(data).get("cluster.id")


def read_meta_properties(store: ObjectStore) -> tuple[int, str]:
    """Broker id and cluster id of a root. CorruptMessageError when one is missing, ObjectNotFoundError."""
    found = _decode(store.get(META_PROPERTIES))
    try:
        return int(found["broker.id"]), found["cluster.id"]
    except (KeyError, ValueError) as reason:
        raise errors.CorruptMessageError(
            f"{store.url}/{META_PROPERTIES} names no broker or cluster: {found}"
        ) from reason


def _encode(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def _decode(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


# -- clean stop ----------------------------------------------------------------------------------------------------


def mark_clean_shutdown(objects: ObjectStore, broker_epoch: int) -> None:
    """Mark a clean stop after the last write below the root, fetch sessions' included; all of it is durable then.

    KafkaStorageError when any store of the root lost writes: the kernel reports that once, so the sync of this one
    succeeds, and the tails are to be examined at the next start.
    """
    objects.sync_all()
    if (lost := objects.lost_writes()) is not None:
        raise errors.KafkaStorageError(
            f"{objects.url}: no clean stop, since the disk did not keep what was written: {lost}"
        )
    objects.put(CLEAN_SHUTDOWN, b"%d" % broker_epoch)
    objects.sync([CLEAN_SHUTDOWN])


def clean_shutdown_epoch(objects: ObjectStore) -> int:
    """The broker epoch of the newest clean stop that is marked in the root; NO_BROKER_EPOCH without a readable mark, or
    when writes were lost since."""
    if objects.lost_writes() is not None:
        return NO_BROKER_EPOCH
    mark = objects.get_optional(CLEAN_SHUTDOWN) or b""
    return int(mark) if mark.isdigit() else NO_BROKER_EPOCH


def was_shut_down(clean_epoch: int, known: BrokerState | None) -> bool:
    """Whether all writes of the broker's last registration (`known`; None: it had none) are durable. `clean_epoch`: of
    the mark.

    A controlled shutdown is not enough: fetch sessions may have copied until the power was cut. The mark has the broker
    epoch of that registration, so it needs no removal; Kafka deletes its file when the broker starts.
    """
    if known is None:
        return True
    return known.clean_shutdown and clean_epoch == known.broker_epoch


# -- lock ----------------------------------------------------------------------------------------------------------


def folder_here(root: ObjectStore) -> Path:
    """The root's directory; for an object store a folder of its own on this machine."""
    folder = root.file_path("")
    return temporary_folder(root.url) if folder is None else Path(folder)


def temporary_folder(url: str) -> Path:
    """This machine's folder for an object store's files that have to be local: locks, text logs."""
    here = Path(tempfile.gettempdir()).resolve() / f"stratalog-{os.getuid()}"
    return here / re.sub(r"[^\w.-]+", "-", url.rstrip("/"))


def lock_alone(folder: Path, refusal: str) -> IO[str]:
    """Lock the directory until the file is closed. KafkaStorageError, with `refusal`, when another process holds it."""
    lock = _open(folder)
    try:
        if not _is_locked(lock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise errors.KafkaStorageError(refusal)
    except BaseException:
        lock.close()
        raise
    return lock


def lock_shared(folder: Path, when_first: Callable[[], None]) -> IO[str]:
    """Share a lock of the directory with other processes until the file is closed.

    `when_first` is called while no other process holds the lock, which all others wait for: it can repair what a crash
    of the last process left.
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
    """The lock file, readable and writable: NFSv4 keeps flock(2) by locks of ranges of bytes, of which a shared one
    needs a readable descriptor and an exclusive one a writable descriptor."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (folder / LOCK_FILE).open("a+")
    except OSError as reason:
        raise errors.KafkaStorageError(f"{folder}: cannot be used for a cluster: {reason}") from reason


def _is_locked(lock: IO[str], folder: Path, how: int) -> bool:
    """False when another process holds it. KafkaStorageError where there are no locks."""
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        return False
    except OSError as reason:
        raise errors.KafkaStorageError(f"{folder / LOCK_FILE} cannot be locked: {reason}") from reason
    return True
