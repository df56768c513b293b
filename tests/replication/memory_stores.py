"""Tables and objects in memory, with storage that fails on demand, for tests of the parts that do I/O."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from stratalog.replication.folders import replica_of
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import MetadataLog, SharedMetadata, open_metadata
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from stratalog.replication.stores import Ports
from stratalog.storage.clock import Ids
from stratalog.storage.errors import LogDirNotFoundError, StoreUnavailableError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition
from tests.storage.logs import CountingIds, FakeClock
from tests.storage.memory_table import MemoryDisk, MemoryLogTable

METADATA_ROOT = "metadata"

Fault = Callable[[str, str, str], bool]
"""A function from `(operation, table, detail)` of a storage access to whether it fails."""


class FailingDisk(MemoryDisk):
    """A disk whose accesses fail with `error` when `fault` says so. `…:done` means that only the answer is lost."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(access=self._access, now_ms=clock.wall_ms)
        self.fault: Fault | None = None
        self.error = StoreUnavailableError

    def _access(self, operation: str, table: str, detail: str) -> None:
        if self.fault is not None and self.fault(operation, table, detail):
            raise self.error(f"test: {operation} {table}/{detail}")


class MemoryStores:
    """`Stores` in memory: a disk and an object store for each root. A root in `lost` cannot be reached."""

    def __init__(self, clock: FakeClock | None = None, ids: Ids | None = None) -> None:
        self.clock = clock or FakeClock()
        self.ids = ids or CountingIds()
        self.disks: dict[str, FailingDisk] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.lost: set[str] = set()

    def _check_reachable(self, root: str) -> None:
        if root in self.lost:
            raise LogDirNotFoundError(f"{root} is gone")

    def objects(self, root: str) -> MemoryStore:
        self._check_reachable(root)
        return self.stores.setdefault(root, MemoryStore({}, self.clock.wall_ms, root))

    def disk(self, root: str) -> FailingDisk:
        if root not in self.disks:
            self.disks[root] = FailingDisk(self.clock)
        return self.disks[root]

    def table(self, root: str, topic_partition: TopicPartition) -> MemoryLogTable:
        self._check_reachable(root)
        return MemoryLogTable(self.disk(root), str(topic_partition), self.ids)

    def replicas(self, root: str) -> list[TopicPartition]:
        return [found for name in self.disk(root).tables if (found := replica_of(name)) is not None]

    def ports(self, executor: Executor | None = None) -> Ports:
        return Ports(self, self.clock, self.ids, executor)

    def metadata(self, shared: SharedMetadata | None = None) -> MetadataLog:
        """Another reader of the metadata log, which is created when it is missing. `shared` with other readers."""
        metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids, shared=shared)
        metadata.create()
        return metadata


def commit(metadata: MetadataLog, *records: MetadataRecord) -> None:
    """Commit records unconditionally."""

    def decide(_image: ClusterImage) -> Result[None]:
        return Result(tuple(records), None)

    metadata.propose(decide)


def register(metadata: MetadataLog, broker_id: int, broker_epoch: int) -> None:
    record = RegisterBrokerRecord(broker_id, broker_epoch, f"run-{broker_epoch}", f"broker-{broker_id}")
    commit(metadata, record)


def create(metadata: MetadataLog, topic: str, *states: PartitionRecord, topic_id: str = "id") -> None:
    commit(metadata, TopicRecord(topic, topic_id), *states)


def led_by(
    leader: int, *, topic: str = "t", partition: int = 0, epoch: int = 0, replicas: tuple[int, ...] = (1, 2)
) -> PartitionRecord:
    return PartitionRecord(topic, partition, replicas, leader, epoch, replicas, epoch, 1)
