"""Tables and small objects by root: the layout of roots.

I/O: opens object stores. The simulation has an in-memory implementation of the same port.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import LogTable
from stratalog.storage.files.cache import SHARED_FILE_CACHE, FileCache
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.remote import open_store
from stratalog.storage.records import TopicPartition


class Stores(Protocol):
    """Tables and objects by root URL. A root is one storage domain: a broker's, or the metadata root."""

    def objects(self, root: str) -> ObjectStore:
        """Small objects below the root (progress, sessions, inbox)."""
        ...

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        """The replica `<root>/<topic>-<partition>`."""
        ...

    def replicas(self, root: str) -> list[TopicPartition]:
        """The replicas that have a directory below the root."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The dependencies of a part of a broker: storage, time, fresh ids, another thread.

    executor  runs long upkeep of logs; None: it runs in the calling thread
    """

    stores: Stores
    clock: Clock
    ids: Ids
    executor: Executor | None = None


def replica_of(directory: str) -> TopicPartition | None:
    """The replica of a directory: partition 3 of `access-log` for `access-log-3`; None for any other directory."""
    topic, dash, partition = directory.rpartition("-")
    return TopicPartition(topic, int(partition)) if dash and topic and partition.isdecimal() else None


def replica_of_leftover(directory: str) -> TopicPartition | None:
    """The replica whose deletion left this directory (`ObjectStore.leftovers`): partition 3 of `access-log` for
    `access-log-3.0123456789abcdef0123456789abcdef-delete`."""
    return replica_of(directory.rpartition(".")[0])


class DeltaStores:
    """Delta tables on object stores, one cached connection a root. `cache` keeps the newest files' rows."""

    def __init__(self, ids: Ids, cache: FileCache = SHARED_FILE_CACHE) -> None:
        self._ids = ids
        self._cache = cache
        self._objects: dict[str, ObjectStore] = {}

    def objects(self, root: str) -> ObjectStore:
        if root not in self._objects:
            self._objects[root] = open_store(root)
        return self._objects[root]

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        return DeltaLogTable(self.objects(root), str(topic_partition), self._ids, self._cache)

    def replicas(self, root: str) -> list[TopicPartition]:
        return [found for name in self.objects(root).directories() if (found := replica_of(name)) is not None]
