"""A local disk that writes new files over deleted ones, whatever disk it is."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from stratalog.storage.objects.disk.spare_files import SpareFiles
from stratalog.storage.objects.local import LocalStore

Store = TypeVar("Store", bound=LocalStore)


def store_with_spares(root: Path, count: int, kind: type[Store]) -> Store:
    """A store that begins with so many spare files and may use all of them."""
    store = kind(str(root), spares=SpareFiles(str(root), are_used=True, kept_back=0))
    for number in range(count):
        (root / f"was-{number}").write_bytes(b"what was deleted, " * (1 + number % 50))  # not over a spare one
    for number in range(count):
        store.delete(f"was-{number}")
    return store
