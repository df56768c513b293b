"""Which partitions a sticky assignor moved between whom, so that no two members swap partitions of one topic. Pure.

Source: `AbstractStickyAssignor.PartitionMovements` of Kafka 4.3.1.
"""

from __future__ import annotations

from stratalog.replication.java_strings import bucket_order, string_hash
from stratalog.storage.records import TopicPartition

_Way = tuple[str, str]
"""From whom, to whom."""


class PartitionMoves:
    """The moves so far; a partition that moved twice went from its first owner to its last."""

    def __init__(self) -> None:
        self._way: dict[TopicPartition, _Way] = {}
        self._moved: dict[tuple[str, _Way], dict[TopicPartition, None]] = {}

    def better_moved(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move from `source` to `target` in place of this one: one of the same topic that came the
        opposite way, which then goes home, if there is one."""
        origin = self._way[partition][0] if partition in self._way else source
        came = self._moved.get((partition.topic, (target, origin)))
        if not came:
            return partition
        candidates = list(came)
        return candidates[bucket_order([_hash(candidate) for candidate in candidates])[0]]

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """`partition` went from `source` to `target`; back at its first owner it never moved."""
        origin = source
        if partition in self._way:
            before = self._way.pop(partition)
            del self._moved[(partition.topic, before)][partition]
            origin = before[0]
        if origin != target:
            self._way[partition] = (origin, target)
            self._moved.setdefault((partition.topic, (origin, target)), {})[partition] = None


def _hash(partition: TopicPartition) -> int:
    """Java's `TopicPartition.hashCode`."""
    return 31 * (31 + partition.partition) + string_hash(partition.topic)
