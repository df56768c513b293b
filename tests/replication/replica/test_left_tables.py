"""Tables in storage domains that a partition has left: sealed, and deleted after a while."""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.metadata.records import ConfigRecord, StorageDomainRecord
from stratalog.replication.replica.left_tables import LeftTables
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import MemoryStores, commit, create, led_by, register

T0 = TopicPartition("t", 0)
LAKE = "lake/t.id"
DELAY_MS = 60_000


class Left:
    """A topic that is in its brokers' roots by now, and the table that it left in the lake; broker 1 leads."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.metadata = self.stores.metadata()
        register(self.metadata, 1, 5)
        commit(self.metadata, StorageDomainRecord("lake", "lake", durable=True))
        create(self.metadata, "t", replace(led_by(1, epoch=3), left=("lake",)))
        commit(self.metadata, ConfigRecord("t", "file.delete.delay.ms", str(DELAY_MS)))
        log = self.log()
        log.exists_or_create("id")
        log.start_epoch(2, as_leader=True)
        log.append([NewRecordBatch(payload_table([(1, b"k", b"v", None)]))], 2, 0)
        self.tables = LeftTables(1, self.stores.ports(), self.metadata)

    def log(self) -> PartitionLog:
        return PartitionLog(self.stores.table(LAKE, T0), LogConfig(), self.stores.clock, self.stores.ids)

    def step(self, after_ms: int = 0, times: int = 2) -> None:
        """One call begins what is due, the next one sees its end."""
        self.stores.clock.now_ms += after_ms
        for _ in range(times):
            self.tables.step(5, self.stores.clock.now_ms)

    @property
    def is_there(self) -> bool:
        return self.stores.table(LAKE, T0).snapshot() is not None

    @property
    def left(self) -> tuple[str, ...]:
        self.metadata.refresh()
        return self.metadata.image.partitions[T0].left


def test_a_table_is_sealed_at_once_and_deleted_after_a_while() -> None:
    left = Left()
    left.step()
    log = left.log()
    log.refresh()
    assert (log.leader_epoch, left.is_there) == (SEALED_EPOCH, True)
    left.step(DELAY_MS - 1)
    assert left.is_there
    left.step(DELAY_MS)
    assert (left.is_there, left.left) == (False, ())


def test_a_domain_that_does_not_answer_is_tried_again() -> None:
    left = Left()
    disk = left.stores.disk(LAKE)
    disk.fault = lambda _operation, _table, _detail: True
    assert disk.error is StoreUnavailableError
    left.step()
    left.step(DELAY_MS)
    assert left.left == ("lake",)
    disk.fault = None
    left.step(DELAY_MS)
    left.step(2 * DELAY_MS)
    assert (left.is_there, left.left) == (False, ())


def test_only_the_leader_deletes_it() -> None:
    left = Left()
    commit(left.metadata, replace(led_by(2, epoch=4), left=("lake",)))
    left.step()
    left.step(2 * DELAY_MS)
    assert (left.is_there, left.left) == (True, ("lake",))
