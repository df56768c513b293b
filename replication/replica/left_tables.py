"""Tables in storage domains that a partition has left: sealed, and deleted once nobody can be about to write there.

I/O: those tables, beside the loop where there is an executor: a domain that is gone must not hold up the leader; and
the metadata log, which names them (`PartitionRecord.left`). The partition's leader deletes them. What fails is tried
again, ever less often; a domain that is gone for good is forgotten by `strata metadata domains --remove --lost`.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from functools import partial
from typing import NamedTuple

from stratalog.replication import cadence
from stratalog.replication.controller.domains.moves import left_deleted
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.storage_domains import domain_of, topic_root
from stratalog.replication.replica.removal import Leaving, is_sealed, seal
from stratalog.replication.stores import Ports
from stratalog.storage.cadence import BackOff
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import StaleBrokerEpochError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import IdentifiedPartition
from stratalog.storage.topic_config import LogConfig

_LOG = line_logger("stratalog.state.change")


class LeftTable(NamedTuple):
    """The table of a partition in a domain where it has no replica any more."""

    partition: IdentifiedPartition
    domain: str


class LeftTables:
    """Deletes the tables that the partitions which one broker leads have left in storage domains."""

    def __init__(self, broker_id: int, ports: Ports, metadata: MetadataLog) -> None:
        self._broker_id = broker_id
        self._ports = ports
        self._metadata = metadata
        self._under_way: dict[LeftTable, Future[bool]] = {}
        self._sealed_ms: dict[LeftTable, int] = {}
        self._retries: dict[LeftTable, BackOff] = {}
        self._seen: ClusterImage | None = None
        self._waiting: list[tuple[LeftTable, PartitionRecord]] = []

    def step(self, broker_epoch: int, now_ms: int) -> None:
        """Begin what is due, and report what was deleted."""
        for table, state in self._found():
            done = self._under_way.pop(table, None) if self._is_done(table) else None
            if done is not None:
                self._end(table, done, broker_epoch, now_ms)
            elif table not in self._under_way and self._retries.get(table, cadence.LEFT_TABLE_RETRY).is_due(now_ms):
                self._begin(table, state, now_ms)

    def _found(self) -> list[tuple[LeftTable, PartitionRecord]]:
        """Those of the newest image, which is looked through when it is another."""
        image = self._metadata.image
        if image is not self._seen:
            led = (p for p in image.partitions.values() if p.left and p.leader == self._broker_id)
            self._waiting = [
                (LeftTable(image.identified(state.topic_partition), domain), state)
                for state in led
                for domain in state.left
            ]
            self._seen = image
        return self._waiting

    def _is_done(self, table: LeftTable) -> bool:
        return table in self._under_way and self._under_way[table].done()

    def _begin(self, table: LeftTable, state: PartitionRecord, now_ms: int) -> None:
        """Seal it, or delete it `file.delete.delay.ms` later, since readers may still have it open: in a thread of the
        executor's if there is one."""
        delay_ms = LogConfig.from_properties(self._metadata.image.topic_config(state.topic)).file_delete_delay_ms
        sealed_ms = self._sealed_ms.get(table)
        is_due = sealed_ms is not None and now_ms >= sealed_ms + delay_ms
        work = partial(self._deleted, table, state.leader_epoch, is_due=is_due)
        executor: Executor | None = self._ports.executor
        if executor is not None:
            self._under_way[table] = executor.submit(work)
            return
        future = self._under_way[table] = Future[bool]()
        try:
            future.set_result(work())
        except StratalogError as reason:
            future.set_exception(reason)

    def _deleted(self, table: LeftTable, leader_epoch: int, *, is_due: bool) -> bool:
        """Whether the table is gone. First it is sealed, and it rests: a deposed leader may be about to commit."""
        named, clock, ids = table.partition, self._ports.clock, self._ports.ids
        root = topic_root(domain_of(self._metadata.image, table.domain), named.topic, named.topic_id)
        found: LogTable = self._ports.stores.table(root, named.topic_partition)
        is_sealed_now = seal(found, Leaving(named.topic_id, leader_epoch), clock, ids)
        if not (is_sealed_now and is_due and found.has_rested()):
            return False
        return found.drop(lambda: is_sealed(found, clock, ids, if_unreadable=True))

    def _end(self, table: LeftTable, done: Future[bool], broker_epoch: int, now_ms: int) -> None:
        retry = self._retries.get(table, cadence.LEFT_TABLE_RETRY)
        try:
            if not done.result():
                self._sealed_ms.setdefault(table, now_ms)
                self._retries[table] = retry.failed(now_ms)
                return
            self._metadata.propose(
                lambda image: left_deleted(image, self._broker_id, broker_epoch, table.partition, table.domain)
            )
        except StaleBrokerEpochError as reason:
            _LOG.info("[Broker %d] %s", self._broker_id, reason)
        except StratalogError as reason:
            self._retries[table] = retry.failed(now_ms)
            _LOG.warning(
                "[Broker %d] the table that %s left in the storage domain %s is not deleted yet: %s",
                self._broker_id, table.partition, table.domain, reason,
            )  # fmt: skip
            return
        self._retries.pop(table, None)
        self._sealed_ms.pop(table, None)
        _LOG.info("[Broker %d] deleted the table that %s left in the storage domain %s",
                  self._broker_id, table.partition, table.domain)  # fmt: skip
