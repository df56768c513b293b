"""A leader's view of its followers: the progress objects of other brokers' fetch sessions.

I/O: lists and reads objects in the followers' roots. Sessions come and go (they overlap, DESIGN §6), so the
listing is repeated now and then and whenever an active session says that it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replication.progress import ReplicaProgress, progress_prefix
from replication.progress_object import ProgressReader
from replication.state import BrokerState
from replication.stores import Stores
from storage.errors import StratalogError

LIST_INTERVAL_MS = 200
RETRY_MS = 500
ENDED = "ended"

_LOG = logging.getLogger("stratalog.broker")


@dataclass(slots=True)
class _Follower:
    """One broker under one broker epoch: progress of an older registration does not count."""

    broker_epoch: int
    root: str
    sessions: dict[str, ProgressReader] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    listed_at_ms: int | None = None
    retry_at_ms: int = 0


class FollowerWatch:
    """Reads what followers published. `poll` returns only what moved."""

    def __init__(self, broker_id: int, stores: Stores) -> None:
        self._broker_id = broker_id
        self._stores = stores
        self._followers: dict[int, _Follower] = {}

    def update_brokers(self, brokers: Mapping[int, BrokerState]) -> list[int]:
        """The registered brokers; returns those that came up anew since the last call.

        A new registration is read from its own progress objects only.
        """
        restarted = []
        for broker_id, broker in brokers.items():
            known = self._followers.get(broker_id)
            if broker_id != self._broker_id and (known is None or known.broker_epoch != broker.broker_epoch):
                self._followers[broker_id] = _Follower(broker.broker_epoch, broker.registration.root)
                restarted.append(broker_id)
        for broker_id in set(self._followers) - set(brokers):
            del self._followers[broker_id]
        return restarted

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
                _LOG.debug("broker %d hears nothing of broker %d: %s", self._broker_id, broker_id, reason)
        return moved

    def known(self) -> Iterable[tuple[int, ReplicaProgress]]:
        """Everything heard so far, for a partition that has just begun to lead."""
        for broker_id, follower in self._followers.items():
            for reader in follower.sessions.values():
                for progress in reader.entries.values():
                    yield broker_id, progress

    def _poll_follower(self, follower: _Follower, now_ms: int) -> Iterator[ReplicaProgress]:
        """Hands out each progress as it is read: what a later failure cuts off was not taken in yet."""
        for path, reader in follower.sessions.items():
            if path not in follower.ended:
                yield from reader.poll()
        newly_ended = {n for n, r in follower.sessions.items() if r.state == ENDED} - follower.ended
        follower.ended |= newly_ended
        has_active = len(follower.sessions) > len(follower.ended)
        due = follower.listed_at_ms is None or now_ms - follower.listed_at_ms >= LIST_INTERVAL_MS
        if due or newly_ended or (follower.sessions and not has_active):
            yield from self._list_sessions(follower)
            follower.listed_at_ms = now_ms

    def _list_sessions(self, follower: _Follower) -> Iterator[ReplicaProgress]:
        store = self._stores.objects(follower.root)
        prefix = progress_prefix(follower.broker_epoch)
        found = {m.path for m in store.list(prefix) if m.path.startswith(f"{prefix}fetch-")}
        for path in set(follower.sessions) - found:
            del follower.sessions[path]
            follower.ended.discard(path)
        for path in sorted(found - set(follower.sessions)):
            reader = ProgressReader(store, path)
            yield from reader.poll()
            follower.sessions[path] = reader
            if reader.state == ENDED:
                follower.ended.add(path)
