"""What a broker's leaders publish: log ends for their followers, high watermarks for those who read.

I/O: through an `ObjectStore`. Two objects, since whoever watches one is woken by each write: a follower would look at
every high watermark that its own copy has just raised, and a consumer at records that it may not have yet.

One broker as a leader, as those who follow it see it: the log ends that it publishes, and its high watermarks.

I/O: reads its two progress objects (`leader_progress`). A follower waits for log ends alone; high watermarks, which
say what of its own log is committed, it looks up now and then.
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
from stratalog.replication.progress.progress_object import ProgressReader, ProgressWriter
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
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


class FollowedLeader:
    """`retry_at_ms`: not to be looked at before, as its storage domain was out of reach."""

    def __init__(self, store: ObjectStore, broker_epoch: int) -> None:
        self.retry_at_ms = 0
        self._store = store
        self._path = leader_ends_path(broker_epoch)
        self._ends = ProgressReader(store, self._path)
        self._marks = ProgressReader(store, leader_progress_path(broker_epoch))
        self._watch: WatchedPlace | None = None

    def listen(self, wakeup: Wakeup) -> None:
        """Be woken by log ends from now on."""
        if self._watch is None:
            self._watch = wakeup.watch(self._store, self._path)

    def stop_listening(self, wakeup: Wakeup | None) -> None:
        """None: that wake-up is closed."""
        if self._watch is not None and wakeup is not None:
            wakeup.unwatch(self._watch)
        self._watch = None

    def moved(self) -> list[ReplicaProgress]:
        """The log ends that moved since the last call, if the object was written. Raises StratalogError."""
        return self._ends.poll() if self._watch is None else self._watch.read(self._ends.poll) or []

    def look_at_marks(self) -> None:
        """Raises StratalogError."""
        self._marks.poll()

    def published(self, topic_partition: TopicPartition, leader_epoch: int) -> ReplicaProgress | None:
        """What it last published of this epoch."""
        return _of_epoch(self._ends.entries.get(topic_partition), leader_epoch)

    def high_watermark(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        """The last one of this epoch that was looked at; -1 when none."""
        entry = _of_epoch(self._marks.entries.get(topic_partition), leader_epoch)
        return -1 if entry is None else entry.high_watermark


def _of_epoch(entry: ReplicaProgress | None, leader_epoch: int) -> ReplicaProgress | None:
    return entry if entry is not None and entry.leader_epoch == leader_epoch else None
