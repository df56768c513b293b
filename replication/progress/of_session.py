"""A fetch session of a follower: its copies for each leader, and its own state.

I/O: through an `ObjectStore`. Each leader has an object of its own, so that copies of another leader's partitions do
not wake it. The session's state is one more object: the standby session watches it to become active at once, and would
be woken by each copy otherwise. Benches read it, too. Sessions leave it for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from stratalog.replication import cadence
from stratalog.replication.progress.progress import (
    ReplicaProgress,
    fetch_progress_path,
    follower_progress_path,
    full_state_path,
    progress_prefix,
)
from stratalog.replication.progress.progress_object import ProgressReader, ProgressWriter, Registers
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

_WORKING = ("active", "ending")


class SessionProgress:
    """The only writer of one session's progress objects. `state`: `active`, `ended`, …"""

    def __init__(self, store: Registers, broker_epoch: int, session: str, state: str) -> None:
        self.state = state
        self._store = store
        self._broker_epoch = broker_epoch
        self._session = session
        self._own = ProgressWriter(store, fetch_progress_path(broker_epoch, session))
        self._by_leader: dict[int, ProgressWriter] = {}

    def update(self, leader_id: int, progress: ReplicaProgress) -> None:
        """Add the session's progress of a partition of that leader, to be written by `publish`."""
        writer = self._by_leader.get(leader_id)
        if writer is None:
            path = follower_progress_path(self._broker_epoch, leader_id, self._session)
            writer = self._by_leader[leader_id] = ProgressWriter(self._store, path)
        writer.update([progress])

    def forget(self, topic_partition: TopicPartition) -> None:
        """The session no longer moves this replica."""
        for writer in self._by_leader.values():
            writer.forget(topic_partition)

    def publish(self, leader_id: int, now_ms: int) -> None:
        """Write the changes for this leader. Raises StoreUnavailableError: the next call writes the rest."""
        writer = self._by_leader.get(leader_id)
        if writer is not None and writer.is_unpublished:
            writer.state = self.state
            writer.publish(now_ms)

    def beat(self, now_ms: int) -> None:
        """Write a heartbeat and the state for the other sessions."""
        self._own.state = self.state
        self._own.publish(now_ms)

    def end(self, now_ms: int, state: str) -> None:
        """Publish to all leaders and sessions that nothing more will come."""
        self.state = state
        for writer in self._by_leader.values():
            writer.state = state
            writer.publish(now_ms)
        self.beat(now_ms)


def published_by(
    store: ObjectStore, broker_epoch: int, session: str, leader_ids: Iterable[int]
) -> dict[TopicPartition, ReplicaProgress]:
    """The progress of another session of the broker for these leaders; none where it is out of reach."""
    found: dict[TopicPartition, ReplicaProgress] = {}
    for leader_id in leader_ids:
        reader = ProgressReader(store, follower_progress_path(broker_epoch, leader_id, session))
        with suppress(StratalogError):
            reader.poll()
        found |= reader.entries
    return found


def held_by_sessions(store: ObjectStore, broker_epoch: int) -> set[tuple[TopicPartition, str, int]]:
    """The replicas of which the broker's sessions have published, to any leader, that they hold records: with the topic
    id and the leader epoch."""
    held: set[tuple[TopicPartition, str, int]] = set()
    for meta in store.list(progress_prefix(broker_epoch)):
        kind = meta.path.removeprefix(progress_prefix(broker_epoch))
        if kind.startswith("for-") and "/fetch-" in kind:
            reader = ProgressReader(store, meta.path)
            reader.poll()
            rows = reader.entries.values()
            held |= {(row.topic_partition, row.topic_id, row.leader_epoch) for row in rows if row.log_end_offset > 0}
    return held


def remove_session_progress(store: ObjectStore, broker_epoch: int, path: str) -> None:
    """Delete the objects of a session that ended long ago. `path`, its own object, is the last, by which it is
    found."""
    names = {name.rpartition("/")[2] for name in (path, full_state_path(path))}
    for meta in store.list(progress_prefix(broker_epoch)):
        if meta.path != path and meta.path.rpartition("/")[2] in names:
            store.delete(meta.path)
    store.delete(path)


def session_states_prefix(broker_epoch: int) -> str:
    """The directory of the session states of a registration, with the slash."""
    return f"fetch/{broker_epoch}/"


class SessionState:
    """The only writer of one session's state: a JSON object of `state` and wall clock times in ms."""

    def __init__(self, store: ObjectStore, broker_epoch: int, name: str, clock: Clock) -> None:
        self._store = store
        self._prefix = session_states_prefix(broker_epoch)
        self._path = self._prefix + name
        self._clock = clock
        self._published: dict[str, int | str] = {}
        self._seen: set[tuple[str, int]] = set()
        self._ended: set[str] = set()

    def publish(self, state: str, **times_ms: int) -> None:
        """Write the new state; `<state>_ms` is now, `times_ms` are further times."""
        self._published |= {"state": state, f"{state}_ms": self._clock.wall_ms(), **times_ms}
        self._store.put_register(self._path, json.dumps(self._published).encode())

    def is_superseded(self) -> bool:
        """True, once for each of them, when another session of the same fetcher became active after this one.

        The other session took this one for dead. Both compare what they published, so that one of them stays.
        """
        own = (_active_ms(self._published), self._path)
        fetcher = self._path[: self._path.index("-", len(self._prefix)) + 1]
        is_superseded = False
        for meta in self._store.list(fetcher):
            if meta.path == self._path or meta.path in self._ended:
                continue
            published = _published_in(self._store.get_register(meta.path))
            other = (meta.path, _active_ms(published))
            if other not in self._seen and published.get("state") in _WORKING and other[::-1] > own:
                is_superseded = True
            self._seen.add(other)
            if published.get("state") == "ended":  # its last state: not read again for the hour that it is kept
                self._ended.add(meta.path)
        return is_superseded

    def delete_old(self) -> None:
        """Remove the states of sessions that ended long before the newest state was written, by the store's clock."""
        listed = self._store.list(self._prefix)
        newest_ms = max((meta.last_modified_ms for meta in listed), default=0)
        for meta in listed:
            if newest_ms - meta.last_modified_ms > cadence.SESSION_STATES_KEPT.ms:
                self._store.delete(meta.path)


def _published_in(content: bytes | None) -> dict[str, int | str]:
    """A session's state; empty when there is none, or none that can be read, as after a power cut."""
    try:
        published = json.loads(content or b"{}")
    except ValueError:
        return {}
    return published if isinstance(published, dict) else {}


def _active_ms(published: dict[str, int | str]) -> int:
    """When a session became active; -1 if it is not yet."""
    return int(published.get("active_ms", -1))
