"""A leader's view of its followers: the progress objects of other brokers' fetch sessions.

I/O: lists and reads objects in the followers' roots; where they can be watched, only after a write. Only objects for
this leader: copies of another leader's partitions do not wake it. Sessions overlap, so they are listed again now and
then and whenever an active session has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.progress.progress import ENDED, ReplicaProgress, follower_progress_prefix
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.replication.stores import Stores
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
from stratalog.storage.records import TopicPartition

LIST_INTERVAL_MS = 200
LIST_WATCHED_INTERVAL_MS = 5_000
"""The interval where new sessions are reported: only in case a report was missed."""
RETRY_MS = 500

_LOG = logging.getLogger("stratalog.broker")


@dataclass(frozen=True, slots=True)
class _Session:
    """One fetch session's object, and whether it was written since the last read."""

    reader: ProgressReader
    watch: WatchedPlace


@dataclass(slots=True)
class _Follower:
    """One broker under one broker epoch: progress of an older registration is ignored."""

    broker_epoch: int
    root: str
    sessions: dict[str, _Session] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    directory: WatchedPlace | None = None
    listed_at_ms: int | None = None
    retry_at_ms: int = 0


class FollowerWatch:
    """Reads the progress that followers published; `poll` returns changes only."""

    def __init__(self, broker_id: int, stores: Stores, wakeup: Wakeup) -> None:
        self._broker_id = broker_id
        self._stores = stores
        self._wakeup = wakeup
        self._followers: dict[int, _Follower] = {}

    def update_brokers(self, brokers: Mapping[int, BrokerState]) -> list[int]:
        """Set the registered brokers; returns those with a new registration since the last call.

        Of a new registration only its own progress objects are read.
        """
        restarted = []
        for broker_id, broker in brokers.items():
            known = self._followers.get(broker_id)
            if broker_id != self._broker_id and (known is None or known.broker_epoch != broker.broker_epoch):
                self._forget(broker_id)
                self._followers[broker_id] = _Follower(broker.broker_epoch, broker.registration.root)
                restarted.append(broker_id)
        for broker_id in set(self._followers) - set(brokers):
            self._forget(broker_id)
        return restarted

    def _forget(self, broker_id: int) -> None:
        follower = self._followers.pop(broker_id, None)
        if follower is None:
            return
        if follower.directory is not None:
            self._wakeup.unwatch(follower.directory)
        for session in follower.sessions.values():
            self._wakeup.unwatch(session.watch)

    def broker_epochs(self) -> dict[int, int]:
        """The registration of each follower whose progress is read."""
        return {broker_id: follower.broker_epoch for broker_id, follower in self._followers.items()}

    def poll(self, now_ms: int) -> list[tuple[int, ReplicaProgress]]:
        """Changes since the last poll, as `(follower broker id, progress)`.

        A follower whose root is out of reach is skipped for a while, so that it does not delay the others.
        """
        moved: list[tuple[int, ReplicaProgress]] = []
        for broker_id, follower in self._followers.items():
            if now_ms < follower.retry_at_ms:
                continue
            try:
                for progress in self._poll_follower(follower, now_ms):
                    moved.append((broker_id, progress))  # noqa: PERF401 - changes read before a failure count
            except StratalogError as reason:
                follower.retry_at_ms = now_ms + RETRY_MS
                if follower.directory is not None:
                    follower.directory.mark_written()
                _LOG.debug("broker %d cannot read the progress of broker %d: %s", self._broker_id, broker_id, reason)
        return moved

    def known(self, topic_partition: TopicPartition) -> Iterable[tuple[int, ReplicaProgress]]:
        """All followers' progress of a partition that this broker has just begun to lead."""
        for broker_id, follower in self._followers.items():
            for session in follower.sessions.values():
                progress = session.reader.entries.get(topic_partition)
                if progress is not None:
                    yield broker_id, progress

    def _poll_follower(self, follower: _Follower, now_ms: int) -> Iterator[ReplicaProgress]:
        """Yields each progress as it is read, so that a later failure loses none."""
        has_newly_ended = False
        for path, session in follower.sessions.items():
            if path in follower.ended:
                continue
            yield from session.watch.read(session.reader.poll) or ()
            if session.reader.state == ENDED:
                follower.ended.add(path)
                has_newly_ended = True
        if has_newly_ended or self._is_listing_due(follower, now_ms):
            yield from self._list_sessions(follower)
            follower.listed_at_ms = now_ms

    def _is_listing_due(self, follower: _Follower, now_ms: int) -> bool:
        if follower.directory is None or follower.listed_at_ms is None:
            return True
        if follower.directory.is_active:
            return follower.directory.was_written() or now_ms - follower.listed_at_ms >= LIST_WATCHED_INTERVAL_MS
        has_active = len(follower.sessions) > len(follower.ended)
        has_only_ended = bool(follower.sessions) and not has_active
        return has_only_ended or now_ms - follower.listed_at_ms >= LIST_INTERVAL_MS

    def _list_sessions(self, follower: _Follower) -> Iterator[ReplicaProgress]:
        store = self._stores.objects(follower.root)
        prefix = follower_progress_prefix(follower.broker_epoch, self._broker_id)
        if follower.directory is None:
            follower.directory = self._wakeup.watch(store, prefix, only_new=True)
        found = {m.path for m in store.list(prefix) if m.path.startswith(f"{prefix}fetch-")}
        for path in set(follower.sessions) - found:
            self._wakeup.unwatch(follower.sessions.pop(path).watch)
            follower.ended.discard(path)
        for path in sorted(found - set(follower.sessions)):
            session = _Session(ProgressReader(store, path), self._wakeup.watch(store, path))
            try:
                yield from session.reader.poll()
            except StratalogError:
                self._wakeup.unwatch(session.watch)  # listed again at the next look
                raise
            follower.sessions[path] = session
            if session.reader.state == ENDED:
                follower.ended.add(path)
