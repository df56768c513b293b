"""Where an embedded cluster lies: in a folder, or in an object store with a folder here for its lock and text logs.

I/O: makes that folder and locks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stratalog.replication.directory_lock import lock_alone, temporary_folder


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
        """One process of this machine runs an embedded cluster at a time: KafkaStorageError for a second one."""
        return lock_alone(self.folder, f"{self.root}: another process runs this cluster")


def cluster_place(path: str | Path) -> ClusterPlace:
    """The place at a folder, or at the URL of an object store such as `s3://bucket/prefix`."""
    url = str(path)
    if isinstance(path, Path) or "://" not in url:
        folder = Path(path).absolute()
        return ClusterPlace(str(folder), folder)
    url = url.rstrip("/")
    return ClusterPlace(url, temporary_folder(url))
