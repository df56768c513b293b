"""A leader's view of its followers: the progress objects of other brokers' fetch sessions.

I/O: lists and reads objects in the followers' roots, where they can be watched only when something was written. Only
those that are for this leader: what a follower has of another one's partitions does not wake it.
Sessions come and go (they overlap), so the listing is repeated now and then and whenever an active
session says that it ended.
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
"""Where a new session is told of: only in case something was missed."""
RETRY_MS = 500

_LOG = logging.getLogger("stratalog.broker")


@dataclass(frozen=True, slots=True)
class _Session:
    """One fetch session's object, and whether it was written since the last look."""

    reader: ProgressReader
    watch: WatchedPlace


@dataclass(slots=True)
class _Follower:
    """One broker under one broker epoch: progress of an older registration does not count."""

    broker_epoch: int
    root: str
    sessions: dict[str, _Session] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    directory: WatchedPlace | None = None
    listed_at_ms: int | None = None
    retry_at_ms: int = 0


class FollowerWatch:
    """Reads what followers published. `poll` returns only what moved."""

    def __init__(self, broker_id: int, stores: Stores, wakeup: Wakeup) -> None:
        self._broker_id = broker_id
        self._stores = stores
        self._wakeup = wakeup
        self._followers: dict[int, _Follower] = {}

    def update_brokers(self, brokers: Mapping[int, BrokerState]) -> list[int]:
        """The registered brokers; returns those that came up anew since the last call.

        A new registration is read from its own progress objects only.
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
        """Under which registration each follower's progress was read."""
        return {broker_id: follower.broker_epoch for broker_id, follower in self._followers.items()}

    def poll(self, now_ms: int) -> list[tuple[int, ReplicaProgress]]:
        """`(follower broker id, progress)` that moved since the last poll.

        A follower whose root is out of reach is skipped for a while: the others must be heard.
        """
        moved: list[tuple[int, ReplicaProgress]] = []
        for broker_id, follower in self._followers.items():
            if now_ms < follower.retry_at_ms:
                continue
            try:
                for progress in self._poll_follower(follower, now_ms):
                    moved.append((broker_id, progress))  # noqa: PERF401 - what was read before a failure counts
            except StratalogError as reason:
                follower.retry_at_ms = now_ms + RETRY_MS
                if follower.directory is not None:
                    follower.directory.mark_written()
                _LOG.debug("broker %d hears nothing of broker %d: %s", self._broker_id, broker_id, reason)
        return moved

    def known(self, topic_partition: TopicPartition) -> Iterable[tuple[int, ReplicaProgress]]:
        """Everything heard so far of a partition that has just begun to lead."""
        for broker_id, follower in self._followers.items():
            for session in follower.sessions.values():
                progress = session.reader.entries.get(topic_partition)
                if progress is not None:
                    yield broker_id, progress

    def _poll_follower(self, follower: _Follower, now_ms: int) -> Iterator[ReplicaProgress]:
        """Hands out each progress as it is read: what a later failure cuts off was not taken in yet."""
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
