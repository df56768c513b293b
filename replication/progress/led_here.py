"""Partitions in storage domains that brokers of this process lead, for its readers: what their tables hold, without a
read.

I/O: none; threads share it. A leader's loop puts what it has committed. All of that is committed for good, so an old
entry is a lower bound, whoever leads by now; the table itself says what it lacks.
"""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet

from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.records import TopicPartition


class Waiting(Protocol):
    """A reader that may wait for records."""

    def wake(self) -> None:
        """End its wait. Called from any thread; it must not block."""


class LedHere:
    """Readers are woken by what is put; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, ReplicaProgress] = {}
        self._puts: dict[TopicPartition, int] = {}
        """The number of the last put of each, in the order of these numbers."""
        self._count = 0
        self._readers: WeakSet[Waiting] = WeakSet()
        self._lock = threading.Lock()
        """Held for changes, and while they are read."""

    def add_reader(self, reader: Waiting) -> None:
        """Wake it from now on."""
        with self._lock:
            self._readers.add(reader)

    def put(self, entry: ReplicaProgress) -> None:
        """The newest of a partition, after its commit."""
        topic_partition = entry.topic_partition
        with self._lock:
            self._entries[topic_partition] = entry
            self._count += 1
            self._puts.pop(topic_partition, None)
            self._puts[topic_partition] = self._count
            readers = tuple(self._readers)
        for reader in readers:
            reader.wake()

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is not led here any more."""
        with self._lock:
            self._entries.pop(topic_partition, None)
            self._puts.pop(topic_partition, None)

    def get(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> ReplicaProgress | None:
        """What the leader of this epoch has committed; None where it is not led here."""
        entry = self._entries.get(topic_partition)
        if entry is None or (entry.topic_id, entry.leader_epoch) != (topic_id, leader_epoch):
            return None
        return entry

    def put_since(self, number: int) -> tuple[int, list[TopicPartition]]:
        """The number for the next call, and the partitions that were put after `number` (at first 0): it takes no
        longer when many others were put before."""
        found: list[TopicPartition] = []
        with self._lock:
            for topic_partition in reversed(self._puts):
                if self._puts[topic_partition] <= number:
                    break
                found.append(topic_partition)
            return self._count, found
