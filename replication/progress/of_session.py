"""What one fetch session publishes: to each leader what it has of that leader's partitions, and a word of itself.

I/O: through an `ObjectStore`. Each leader has an object of its own: a leader is woken by what is written, and would
otherwise look at every copy that this broker makes of the others' partitions.

What a fetch session tells of its own life: when it took over, when it ends. I/O: one object in the broker's root.

The session that stands by waits for it, so that it takes over at once: a progress object is written with every copy
and would wake it all the time. Whoever measures hand-overs reads it, too. Sessions leave it for an hour.
"""

from __future__ import annotations

import json
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
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.port import ObjectStore
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


KEPT_MS = 3_600_000


_AT_WORK = ("active", "ending")


def notices_prefix(broker_epoch: int) -> str:
    """The directory of all notices of a registration, with the slash."""
    return f"fetch/{broker_epoch}/"


class SessionNotice:
    """The only writer of one session's notice: a JSON object of `state` and wall clock times in ms."""

    def __init__(self, store: ObjectStore, broker_epoch: int, name: str, clock: Clock) -> None:
        self._store = store
        self._prefix = notices_prefix(broker_epoch)
        self._path = self._prefix + name
        self._clock = clock
        self._told: dict[str, int | str] = {}
        self._heard: set[tuple[str, int]] = set()
        self._ended: set[str] = set()

    def tell(self, state: str, **times_ms: int) -> None:
        """Write the new state; `<state>_ms` is now, `times_ms` are further times."""
        self._told |= {"state": state, f"{state}_ms": self._clock.wall_ms(), **times_ms}
        self._store.put_register(self._path, json.dumps(self._told).encode())

    def is_relieved(self) -> bool:
        """True, once for each, when another session of the same share took over after this one did: it thought that
        this one was dead. Both order themselves by what they wrote, so that one of them stays."""
        own = (self._taken_over_ms(self._told), self._path)
        share = self._path[: self._path.index("-", len(self._prefix)) + 1]
        relieved = False
        for meta in self._store.list(share):
            if meta.path == self._path or meta.path in self._ended:
                continue
            told = json.loads(self._store.get_register(meta.path) or b"{}")
            other = (meta.path, self._taken_over_ms(told))
            if other not in self._heard and told.get("state") in _AT_WORK and other[::-1] > own:
                relieved = True
            self._heard.add(other)
            if told.get("state") == "ended":  # that is its last word, and an hour's sessions are not to be read again
                self._ended.add(meta.path)
        return relieved

    @staticmethod
    def _taken_over_ms(told: dict[str, int | str]) -> int:
        return int(told.get("active_ms", -1))

    def delete_old(self) -> None:
        """Remove the notices of sessions that ended long ago."""
        for meta in self._store.list(self._prefix):
            if self._clock.wall_ms() - meta.last_modified_ms > KEPT_MS:
                self._store.delete(meta.path)
