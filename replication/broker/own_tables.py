"""The tables in a broker's root, and what its start finds there (Kafka: LogManager). I/O: reads, cuts and drops tables
through the broker's stores; every change is a line of the state change log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from stratalog.replication.broker_root import clean_shutdown_epoch, directory_id
from stratalog.replication.controller.brokers import FoundRoot
from stratalog.replication.metadata.domain_claim import check_claim
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.storage_domains import domain_of, replica_root
from stratalog.replication.progress.known_committed import had_records
from stratalog.replication.replica.removal import delete_stray, delete_unknown, has_begun, is_sealed
from stratalog.replication.stores import Ports
from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import LogDirNotFoundError, StoreError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")
STATE_CHANGE_LOG = line_logger("stratalog.state.change")


class OwnTables:
    """The tables of one broker's replicas."""

    def __init__(self, broker_id: int, root: str, ports: Ports) -> None:
        self.broker_id = broker_id
        self.objects = ports.stores.objects(root)
        self.ports = ports
        self._root = root

    @property
    def clock(self) -> Clock:
        return self.ports.clock

    def table(self, topic_partition: TopicPartition) -> LogTable:
        """The one below this broker's root."""
        return self.ports.stores.table(self._root, topic_partition)

    def table_of(self, state: PartitionRecord, image: ClusterImage) -> LogTable:
        """That of the broker's replica: in a storage domain it is the others', too."""
        root = replica_root(image, state, self.broker_id) if state.domain_of(self.broker_id) else self._root
        assert root is not None
        return self.ports.stores.table(root, state.topic_partition)

    def check_claim(self, image: ClusterImage, state: PartitionRecord) -> None:
        """Whether the storage domain of the broker's replica, if it is in one, is there: raises as `check_claim`."""
        name = state.domain_of(self.broker_id)
        if name:
            store = self.ports.stores.objects(domain_of(image, name).url)
            check_claim(store, image.cluster_id, name)

    def had_records(self, image: ClusterImage, state: PartitionRecord, topic_id: str) -> bool:
        """Whether this broker has published that there are records of the partition; in a storage domain, whether any
        of its replicas has, as far as their roots answer."""
        if not state.domain_of(self.broker_id):
            return had_records(self.objects, state, topic_id)
        for broker_id in state.replicas:
            broker = image.brokers.get(broker_id)
            with suppress(StoreError, LogDirNotFoundError):
                objects = None if broker is None else self.ports.stores.objects(broker.registration.root)
                if objects is not None and had_records(objects, state, topic_id):
                    return True
        return False

    def names(self) -> Sequence[TopicPartition]:
        """The replicas that have a table, as a listing shows them now."""
        return self.ports.stores.replicas(self._root)

    def is_sealed(self, table: LogTable, *, if_unreadable: bool = False) -> bool:
        return is_sealed(table, self.clock, self.ports.ids, if_unreadable=if_unreadable)

    def is_assigned(self, state: PartitionRecord | None) -> bool:
        """Whether this broker has a replica of the partition, by its state."""
        return state is not None and self.broker_id in state.replicas

    def is_in_root(self, state: PartitionRecord | None) -> bool:
        """Whether this broker has a replica of the partition in its root, by its state."""
        return state is not None and self.broker_id in state.replicas and not state.domain_of(self.broker_id)

    def log(self, what: str) -> None:
        """A line of the state change log."""
        STATE_CHANGE_LOG.info("[Broker %d] %s", self.broker_id, what)

    # -- at start ----------------------------------------------------------------------------------------

    def found_in_root(self, image: ClusterImage, known_id: str | None) -> FoundRoot:
        """What the root shows of the broker's last life. `known_id`: the id of its directory, if this process has seen
        it before. Tables are only looked for where they matter: on another disk, or where one was lost."""
        directory = known_id or directory_id(self.objects, self.ports.ids.new_id())
        before = image.brokers.get(self.broker_id)
        is_another = before is not None and before.registration.directory_id not in (None, directory)
        has_lost = any(self.broker_id in state.lost for state in image.partitions.values())
        held = self._begun() if is_another or has_lost else None
        return FoundRoot(clean_shutdown_epoch(self.objects), directory, held)

    def _begun(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp in self.names() if has_begun(self.table(tp), self.clock, self.ports.ids))

    def recover(self, image: ClusterImage) -> list[TopicPartition]:
        """After an unclean stop, once earlier processes are fenced: cut off what a power cut may have torn (promise 5).
        Where writes are durable once they are answered nothing is torn.

        Returns the replicas that are assigned here and were to be deleted. They are deleted by the broker's loop: a
        later process may have replaced this one meanwhile, and made them again.
        """
        sealed: list[TopicPartition] = []
        if self.objects.durable_on_answer:
            return sealed
        for topic_partition in self.names():
            table = self.table(topic_partition)
            if self.is_in_root(image.partitions.get(topic_partition)):
                table.recover_tail()
                if self.is_sealed(table):
                    self.log(f"removes replica {topic_partition}, which was to be deleted: it is copied again")
                    sealed.append(topic_partition)
        self.objects.forget_lost_writes()
        return sealed

    def remove_unknown(self, image: Callable[[], ClusterImage]) -> None:
        """Remove tables of topics that there are no more, and what deletions left. The newest `image` is asked for
        after the tables were listed, so that it shows each topic for which one was made. The broker's loop finds
        tables of partitions that are assigned elsewhere."""
        self._delete_leftovers()
        tables = self.names()
        partitions = image().partitions
        for topic_partition in tables:
            if topic_partition in partitions:
                continue
            is_known = partial(_is_known, image, topic_partition.topic)
            if delete_unknown(self.table(topic_partition), is_known, self.clock, self.ports.ids):
                self.log(f"removed replica {topic_partition}, whose topic is unknown")

    def _delete_leftovers(self) -> None:
        """Delete what deletions of tables left that ended with their process, as Kafka's `LogManager` does at start.
        Beside the start, where there is an executor: a large table takes long."""
        leftovers = self.objects.leftovers()
        if leftovers and self.ports.executor is not None:
            self.ports.executor.submit(_delete_leftovers, self.objects, leftovers)
        elif leftovers:
            _delete_leftovers(self.objects, leftovers)

    def drop_stray(self, table: LogTable, topic_id: str, reason: StratalogError) -> None:
        """The table of a replica that is to lead is of a deleted topic of this name."""
        if delete_stray(table, topic_id, self.clock, self.ports.ids):
            _LOG.warning("broker %d drops a stray replica: %s", self.broker_id, reason)


def _is_known(image: Callable[[], ClusterImage], topic: str, topic_id: str) -> bool:
    return image().topic_ids.get(topic) == topic_id


def _delete_leftovers(objects: ObjectStore, directories: Sequence[str]) -> None:
    """What cannot be deleted is tried again at the next start."""
    for directory in directories:
        try:
            objects.delete_leftover(directory)
            _LOG.info("deleted %s/%s, which an earlier process had begun to delete", objects.url, directory)
        except StratalogError as reason:
            _LOG.warning("%s/%s is left of a deletion: %s", objects.url, directory, reason)
