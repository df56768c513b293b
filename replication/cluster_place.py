"""Where an embedded cluster lies: in a folder, or in an object store with a folder here for its lock and text logs.

I/O: makes that folder and locks it.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from storage.errors import KafkaStorageError


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """`root` holds the metadata root and the brokers' roots; `folder` is on this machine."""

    root: str
    folder: Path

    @property
    def metadata_root(self) -> str:
        return f"{self.root}/metadata"

    def broker_root(self, broker_id: int) -> str:
        return f"{self.root}/broker-{broker_id}"

    def lock(self) -> IO[str]:
        """One process of this machine runs an embedded cluster at a time: KafkaStorageError for a second one.

        On an object store another machine's brokers are refused while the sessions of these live.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as reason:
            raise KafkaStorageError(f"{self.folder}: cannot be used for a cluster: {reason}") from reason
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as reason:
            lock.close()
            raise KafkaStorageError(f"{self.root}: another process runs this cluster") from reason
        return lock


def cluster_place(path: str | Path) -> ClusterPlace:
    """The place at a folder, or at the URL of an object store such as `s3://bucket/prefix`."""
    url = str(path)
    if isinstance(path, Path) or "://" not in url:
        folder = Path(path).absolute()
        return ClusterPlace(str(folder), folder)
    url = url.rstrip("/")
    here = Path(tempfile.gettempdir()).resolve() / f"stratalog-{os.getuid()}"
    return ClusterPlace(url, here / re.sub(r"[^\w.-]+", "-", url))
