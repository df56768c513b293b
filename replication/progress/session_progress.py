"""What one fetch session publishes: to each leader what it has of that leader's partitions, and a word of itself.

I/O: through an `ObjectStore`. Each leader has an object of its own: a leader is woken by what is written, and would
otherwise look at every copy that this broker makes of the others' partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from stratalog.replication.progress.progress import (
    ReplicaProgress,
    fetch_progress_path,
    follower_progress_path,
    image_path,
    progress_prefix,
)
from stratalog.replication.progress.progress_object import ProgressReader, ProgressWriter
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.remote import ObjectStore
from stratalog.storage.records import TopicPartition


class SessionProgress:
    """The only writer of one session's objects. `state` is a word of the session's (`active`, `ended`, …)."""

    def __init__(self, store: ObjectStore, broker_epoch: int, session: str, state: str) -> None:
        self.state = state
        self._store = store
        self._broker_epoch = broker_epoch
        self._session = session
        self._own = ProgressWriter(store, fetch_progress_path(broker_epoch, session))
        self._by_leader: dict[int, ProgressWriter] = {}

    def update(self, leader_id: int, progress: ReplicaProgress) -> None:
        """Take in what the session has of a partition of that leader; `publish` shows it."""
        writer = self._by_leader.get(leader_id)
        if writer is None:
            path = follower_progress_path(self._broker_epoch, leader_id, self._session)
            writer = self._by_leader[leader_id] = ProgressWriter(self._store, path)
        writer.update([progress])

    def forget(self, topic_partition: TopicPartition) -> None:
        """The session no longer moves this replica."""
        for writer in self._by_leader.values():
            writer.forget(topic_partition)

    def publish(self, now_ms: int) -> None:
        """Show what was taken in to whom it concerns. Raises StoreUnavailableError: the next call shows the rest."""
        for writer in self._by_leader.values():
            if writer.is_unpublished:
                writer.state = self.state
                writer.publish(now_ms)

    def beat(self, now_ms: int) -> None:
        """Show the other sessions that this one is there, and its state."""
        self._own.state = self.state
        self._own.publish(now_ms)

    def end(self, now_ms: int, state: str) -> None:
        """Show everybody that nothing more will come."""
        self.state = state
        for writer in self._by_leader.values():
            writer.state = state
            writer.publish(now_ms)
        self.beat(now_ms)


def published_by(
    store: ObjectStore, broker_epoch: int, session: str, leader_ids: Iterable[int]
) -> dict[TopicPartition, ReplicaProgress]:
    """What another session of the broker published of these leaders' partitions; nothing where it is out of reach."""
    found: dict[TopicPartition, ReplicaProgress] = {}
    for leader_id in leader_ids:
        reader = ProgressReader(store, follower_progress_path(broker_epoch, leader_id, session))
        with suppress(StratalogError):
            reader.poll()
        found |= reader.entries
    return found


def remove_session_progress(store: ObjectStore, broker_epoch: int, path: str) -> None:
    """Delete what a session published that ended long ago. `path`, its word of itself, goes last: that tells of it."""
    names = {name.rpartition("/")[2] for name in (path, image_path(path))}
    for meta in store.list(progress_prefix(broker_epoch)):
        if meta.path != path and meta.path.rpartition("/")[2] in names:
            store.delete(meta.path)
    store.delete(path)
