"""Partitions in storage domains that brokers of this process lead, for its readers: what their tables hold, without a
read.

I/O: none; threads share it. A leader's loop puts what it has committed. All of that is committed for good, so an old
entry is a lower bound, whoever leads by now; the table itself says what it lacks.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet

from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.records import TopicPartition


class Waiting(Protocol):
    """A reader that may wait for records."""

    def wake(self) -> None:
        """End its wait. Called from any thread; it must not block."""


class LedHere:
    """`readers` are woken by what is put; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, ReplicaProgress] = {}
        self._readers: WeakSet[Waiting] = WeakSet()

    def add_reader(self, reader: Waiting) -> None:
        """Wake it from now on."""
        self._readers.add(reader)

    def put(self, entry: ReplicaProgress) -> None:
        """The newest of a partition, after its commit."""
        self._entries[entry.topic_partition] = entry
        for reader in tuple(self._readers):
            reader.wake()

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is not led here any more."""
        self._entries.pop(topic_partition, None)

    def get(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> ReplicaProgress | None:
        """What the leader of this epoch has committed; None where it is not led here."""
        entry = self._entries.get(topic_partition)
        if entry is None or (entry.topic_id, entry.leader_epoch) != (topic_id, leader_epoch):
            return None
        return entry
