"""A broker as leader: log ends for its followers, high watermarks for readers.

I/O: through an `ObjectStore`. There are two objects, since each write wakes all that watch an object: followers would
be woken by each high watermark that their own copies raise, consumers by records that are not readable yet. A follower
watches the log ends alone; it polls high watermarks, which tell what part of its own log is committed, now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from stratalog.replication.progress.progress import (
    ReplicaProgress,
    concerns_followers,
    concerns_readers,
    leader_ends_path,
    leader_progress_path,
)
from stratalog.replication.progress.progress_object import ProgressReader, ProgressWriter, Registers
from stratalog.replication.stores import OneByOne, Together
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
from stratalog.storage.records import TopicPartition


class LeaderProgress:
    """The only writer of both objects of one registration; the constructor creates them."""

    def __init__(
        self, store: Registers, broker_epoch: int, together: Together | None = None, *, beats: bool = True
    ) -> None:
        """`together` writes both. `beats`: whether a beat writes an object that says nothing new; without it nothing is
        written while nothing changes. Raises StoreUnavailableError."""
        self._beats = beats
        self._together = together or OneByOne()
        self._ends = ProgressWriter(store, leader_ends_path(broker_epoch), concerns=concerns_followers)
        self._watermarks = ProgressWriter(store, leader_progress_path(broker_epoch), concerns=concerns_readers)
        self._with_beat: dict[TopicPartition, ReplicaProgress] = {}
        """What nobody waits for: written with the next change of the others, or the next beat."""
        self._ends.publish()
        self._watermarks.publish()

    def forget(self, topic_partition: TopicPartition) -> None:
        """The broker no longer leads this partition."""
        self._with_beat.pop(topic_partition, None)
        self._ends.forget(topic_partition)
        self._watermarks.forget(topic_partition)

    def publish(
        self,
        entries: Sequence[ReplicaProgress],
        now_ms: int,
        *,
        beat_is_due: bool,
        with_beat: Sequence[ReplicaProgress] = (),
    ) -> bool:
        """Write the changes, for followers first: producers with acks=all wait for them. True when something was
        written.

        with_beat  changes for which nobody waits, as in a storage domain: the next object that is written has them
        Raises StoreUnavailableError: the next call writes the rest.
        """
        self._ends.update(entries)
        self._watermarks.update(entries)
        calls: list[Callable[[], None]] = []
        if self._ends.is_unpublished:
            calls.append(partial(self._ends.publish, now_ms))
        self._with_beat.update((entry.topic_partition, entry) for entry in with_beat)
        if self._watermarks.is_unpublished or beat_is_due:
            self._watermarks.update(self._with_beat.values())
            self._with_beat.clear()
        if self._watermarks.is_unpublished or (beat_is_due and self._beats):
            calls.append(partial(self._watermarks.publish, now_ms))
        self._together.run(calls)
        return bool(calls)


class FollowedLeader:
    """A leader's progress as its followers read it.

    What a leader published of a deleted topic stays until it publishes again, and every topic begins with leader epoch
    0: so an entry is asked for by topic id, too.
    """

    def __init__(self, store: ObjectStore, broker_epoch: int) -> None:
        self._store = store
        self._path = leader_ends_path(broker_epoch)
        self._ends = ProgressReader(store, self._path)
        self._watermarks = ProgressReader(store, leader_progress_path(broker_epoch))
        self._watch: WatchedPlace | None = None

    def watch(self, wakeup: Wakeup) -> None:
        """Let new log ends wake this process."""
        if self._watch is None:
            self._watch = self._store.waiting_for(lambda: wakeup.watch(self._store, self._path))

    def unwatch(self, wakeup: Wakeup | None) -> None:
        """`wakeup` None: it is closed."""
        if self._watch is not None and wakeup is not None:
            wakeup.unwatch(self._watch)
        self._watch = None

    def moved(self) -> list[ReplicaProgress]:
        """The log ends that moved since the last call, if the object was written. Raises StratalogError."""
        return self._ends.poll() if self._watch is None else self._watch.read(self._ends.poll) or []

    def poll_high_watermarks(self) -> None:
        """Raises StratalogError."""
        self._watermarks.poll()

    def published(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> ReplicaProgress | None:
        """The last published log end of this topic and epoch."""
        return _of_epoch(self._ends.entries.get(topic_partition), topic_id, leader_epoch)

    def high_watermark(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> int:
        """The last polled one of this topic and epoch; -1 if there is none."""
        entry = _of_epoch(self._watermarks.entries.get(topic_partition), topic_id, leader_epoch)
        return -1 if entry is None else entry.high_watermark


def _of_epoch(entry: ReplicaProgress | None, topic_id: str, leader_epoch: int) -> ReplicaProgress | None:
    if entry is None or (entry.topic_id, entry.leader_epoch) != (topic_id, leader_epoch):
        return None
    return entry
