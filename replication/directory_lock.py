"""`.lock` files: which process of this machine works on a directory (as Kafka's `FileLock` of a log directory).

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

from stratalog.storage.errors import KafkaStorageError
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.remote import ObjectStore

NAME = ".lock"


def folder_here(root: ObjectStore) -> Path:
    """The root's directory; for an object store a folder on this machine that stands for it."""
    return Path(root.root) if isinstance(root, LocalStore) else temporary_folder(root.url)


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
