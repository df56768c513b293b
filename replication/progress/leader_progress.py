"""What a broker's leaders publish: log ends for their followers, high watermarks for those who read.

I/O: through an `ObjectStore`. Two objects, since whoever watches one is woken by each write: a follower would look at
every high watermark that its own copy has just raised, and a consumer at records that it may not have yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.replication.progress.progress import (
    ReplicaProgress,
    concerns_followers,
    concerns_readers,
    leader_ends_path,
    leader_progress_path,
)
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.storage.objects.remote import ObjectStore
from stratalog.storage.records import TopicPartition


class LeaderProgress:
    """The only writer of both objects of one registration; they are there once this is made."""

    def __init__(self, store: ObjectStore, broker_epoch: int) -> None:
        """Raises StoreUnavailableError."""
        self._ends = ProgressWriter(store, leader_ends_path(broker_epoch), concerns=concerns_followers)
        self._marks = ProgressWriter(store, leader_progress_path(broker_epoch), concerns=concerns_readers)
        self._ends.publish()
        self._marks.publish()

    def forget(self, topic_partition: TopicPartition) -> None:
        """The broker no longer leads this partition."""
        self._ends.forget(topic_partition)
        self._marks.forget(topic_partition)

    def publish(self, entries: Sequence[ReplicaProgress], now_ms: int, *, beat_is_due: bool) -> bool:
        """Show what changed to whom it concerns, followers first: producers of acks=all wait for them. True when
        something was written. Raises StoreUnavailableError: the next call shows the rest."""
        self._ends.update(entries)
        self._marks.update(entries)
        has_ends, has_marks = self._ends.is_unpublished, self._marks.is_unpublished or beat_is_due
        if has_ends:
            self._ends.publish(now_ms)
        if has_marks:
            self._marks.publish(now_ms)
        return has_ends or has_marks
