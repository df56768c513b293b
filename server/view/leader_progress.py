"""What leaders published: their progress objects, and which partitions moved.

I/O: reads progress objects; those that brokers of this process wrote are there without a read. Each has a lock of its
own, which is held during its read; what was read is there for any thread without waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.progress.led_here import LedHere
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.progress.progress import ReplicaProgress, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader, ReadableRegisters
from stratalog.replication.stores import Stores
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.change_wait import Moves, Place
from stratalog.server.view.shared_read import SharedRead
from stratalog.storage.errors import LogDirNotFoundError, StoreError
from stratalog.storage.records import TopicPartition


def own_registers_of(cluster: Cluster) -> OwnRegisters | None:
    """What the brokers of a process published, if they run in this one: an attribute `own_registers` of the cluster."""
    return getattr(cluster, "own_registers", None)


def led_here_of(cluster: Cluster) -> LedHere:
    """What brokers of this process lead in storage domains; nothing where none run here."""
    own = own_registers_of(cluster)
    return LedHere() if own is None else own.led_here


class LeaderEntries:
    """The progress object of one registration of a broker.

    place  where it is, to be watched
    """

    def __init__(
        self,
        broker_epoch: int,
        place: Place,
        registers: ReadableRegisters,
        moved: Callable[[list[TopicPartition]], None],
    ) -> None:
        """`registers` reads the object. `moved` is called with the partitions that a read found changed, after `entry`
        returns their new state."""
        self.broker_epoch = broker_epoch
        self.place = place
        self._reader = ProgressReader(registers, place[1])
        self._moved = moved
        self._reads = SharedRead(self._read)

    def entry(self, topic_partition: TopicPartition) -> ReplicaProgress | None:
        """What was published about a partition, as of the last read."""
        return self._reader.entries.get(topic_partition)

    def poll(self) -> None:
        """Read what was published before this call. StoreError, LogDirNotFoundError."""
        self._reads.run()

    def poll_once(self) -> None:
        """Read if that was never done and nobody does it now."""
        if not self._reads.was_read:
            self._reads.run_if_free()

    def _read(self) -> None:
        changed = self._reader.poll()
        if changed:
            self._moved([entry.topic_partition for entry in changed])


class PublishedProgress:
    """The leaders' progress objects that a view has asked for so far. Any thread may use it."""

    def __init__(self, stores: Stores, own_registers: OwnRegisters | None = None) -> None:
        """`own_registers`: what the brokers of this process wrote."""
        self._stores = stores
        self._own_registers = own_registers or OwnRegisters()
        self._leaders: dict[int, LeaderEntries] = {}
        self._moves = Moves()
        self._moves_lock = threading.Lock()

    def of(self, broker: BrokerState | None) -> LeaderEntries | None:
        """The object of a broker's present registration; None for a broker that is not known. LogDirNotFoundError."""
        if broker is None:
            return None
        broker_id = broker.registration.broker_id
        known = self._leaders.get(broker_id)
        if known is None or known.broker_epoch != broker.broker_epoch:
            root, path = broker.registration.root, leader_progress_path(broker.broker_epoch)
            store = self._stores.objects(root)
            registers = self._own_registers.readable(root, store)
            made = LeaderEntries(broker.broker_epoch, (store, path), registers, self.add_moves)
            if known is None:
                return self._leaders.setdefault(broker_id, made)
            known = self._leaders[broker_id] = made
        return known

    def poll(self) -> None:
        """Read every object. Storage out of reach is handled where a partition is read."""
        for leader in list(self._leaders.values()):
            with suppress(StoreError, LogDirNotFoundError):
                leader.poll()

    def places(self) -> Mapping[str, Place]:
        """Where the objects are, by broker id."""
        return {str(broker_id): leader.place for broker_id, leader in list(self._leaders.items())}

    def clear(self) -> None:
        """Forget all objects: the metadata that named them is gone."""
        self._leaders = {}

    def moved_since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]:
        """As `Moves.since`."""
        with self._moves_lock:
            return self._moves.since(sequence)

    def moved_among(self, partitions: Iterable[TopicPartition], sequence: int) -> list[TopicPartition]:
        """As `Moves.among`."""
        with self._moves_lock:
            return self._moves.among(partitions, sequence)

    def all_moved(self) -> None:
        """Any partition may have moved: metadata changed."""
        with self._moves_lock:
            self._moves.add_all()

    def add_moves(self, moved: list[TopicPartition]) -> None:
        """These partitions have moved."""
        with self._moves_lock:
            self._moves.add(moved)
