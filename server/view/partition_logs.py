"""The replicas' logs of each partition, as a view reads them. I/O: folds and reads the replicas' tables.

Each partition has a lock of its own, for the folds of its replicas. Data files are read without it: reading old records
holds up neither other partitions nor other readers of the same one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from stratalog.replication.stores import Stores
from stratalog.storage.clock import Clock
from stratalog.storage.errors import ObjectNotFoundError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import RESOLVE_TRIES, LogReader, PlannedRead
from stratalog.storage.records import TopicPartition

T = TypeVar("T")


class PartitionReplicas:
    """The logs of one partition's replicas by root; those of an earlier topic of the name are dropped.

    lock  held while one of the logs is folded or looked at
    """

    def __init__(self, topic_partition: TopicPartition, stores: Stores, clock: Clock) -> None:
        self.lock = threading.RLock()
        self._topic_partition = topic_partition
        self._stores = stores
        self._clock = clock
        self._topic_id = ""
        self._logs: dict[str, LogReader] = {}

    def log(self, root: str, topic_id: str) -> LogReader:
        """The log of a replica, to be used under the lock. LogDirNotFoundError."""
        if topic_id != self._topic_id:
            self._topic_id, self._logs = topic_id, {}
        if root not in self._logs:
            self._logs[root] = LogReader(self._stores.table(root, self._topic_partition), self._clock)
        return self._logs[root]

    def root_of(self, log: LogReader) -> str:
        """Where a log that `log` returned lies; to be asked under the same hold of the lock."""
        return next(root for root, known in self._logs.items() if known is log)

    def read(
        self,
        log: LogReader,
        topic_id: str,
        start_offset: int,
        max_bytes: int,
        end_offset: int,
        read: Callable[[PlannedRead], T],
    ) -> T:
        """What `read` makes of a `LogReader.read`, with the lock held for folds only: call it without the lock.

        read  reads what was planned; ObjectNotFoundError when a file was deleted since
        Raises UnknownTopicOrPartitionError when the log is not, or not any more, of the topic.
        """
        for attempt in range(RESOLVE_TRIES + 1):
            with self.lock:
                check_topic(log, topic_id)
                planned = log.plan_read(start_offset, max_bytes, end_offset)
            try:
                return read(planned)
            except ObjectNotFoundError:  # a merge or clean-up deleted a file
                with self.lock:
                    if attempt == RESOLVE_TRIES or not log.refresh_for_sure():
                        raise
        raise AssertionError("the last attempt returns or raises")


def check_topic(log: LogReader, topic_id: str) -> None:
    """UnknownTopicOrPartitionError when the table, as folded last, is of another topic of the name: the topic was
    created again, and the metadata at hand is older than the table, or newer."""
    if log.topic_id != topic_id:
        raise UnknownTopicOrPartitionError(f"{log.name}: the table is of topic id {log.topic_id}, not of {topic_id}")


class PartitionLogs:
    """The partitions that a view has read."""

    def __init__(self, stores: Stores, clock: Clock) -> None:
        self._make: Callable[[TopicPartition], PartitionReplicas] = lambda tp: PartitionReplicas(tp, stores, clock)
        self._partitions: dict[TopicPartition, PartitionReplicas] = {}

    def of(self, topic_partition: TopicPartition) -> PartitionReplicas:
        """The replicas of a partition, whether it exists or not."""
        known = self._partitions.get(topic_partition)
        return known or self._partitions.setdefault(topic_partition, self._make(topic_partition))
