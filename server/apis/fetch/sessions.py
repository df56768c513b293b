"""Incremental fetch sessions: a broker remembers a client's partitions; requests and answers name only changes. Pure.

A full request (epoch 0) with room in the cache makes a session; the following ones (epoch 1, 2, …, after 2^31 - 1
again 1) name partitions that are added, moved on or forgotten, and get those with something new. Epoch -1 ends it.
One connection uses a session at a time; the epoch refuses another client that guesses its id.
Source: KIP-227, Kafka's `FetchSession.scala` (FetchSessionCacheShard, IncrementalFetchContext).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stratalog.storage import errors

INVALID_SESSION_ID = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
"""The idle time after which a session is replaced by any other (MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""
INT_MAX = 2**31 - 1
REFUSED_MAX = 1_000
"""Partitions with an error up to which a session keeps them, as Kafka's do."""


class FetchKey(NamedTuple):
    """A partition as the request names it: by `topic` name, or, from version 13 on, by `topic_id`."""

    topic: str | None
    topic_id: str | None
    partition: int


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """A partition of a request; epochs -1: absent."""

    key: FetchKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class _Sent:
    """A partition's offsets as last sent to the client; one with an error or records is sent in any case."""

    high_watermark: int = -1
    log_start_offset: int = -1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of this epoch.

    >>> next_epoch(0), next_epoch(INT_MAX), next_epoch(FINAL_EPOCH)
    (1, 1, -1)
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT_MAX else epoch + 1


@dataclass(slots=True)
class FetchSession:
    """One client's partitions, in the order in which they are served.

    topics  the name of each topic id that was known once: it stays when the topic is deleted
    memory  a `FetchMemory`, or None
    user    of the client that made it
    """

    session_id: int
    uses_topic_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    wanted: dict[FetchKey, WantedPartition] = field(default_factory=dict)
    sent: dict[FetchKey, _Sent] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    first_size: int = 0
    memory: Any = None
    user: str = ""

    def update(self, wanted: Iterable[WantedPartition], forgotten: Iterable[FetchKey]) -> None:
        """Apply the changes of a request."""
        for each in wanted:
            self.wanted[each.key] = each
        for key in forgotten:
            self.wanted.pop(key, None)
            self.sent.pop(key, None)

    def answered(self, key: FetchKey, result: FetchSessionResult) -> None:
        """Remember what a partition's result says of it."""
        self.sent[key] = _sent(result)
        if key.topic_id is not None and result.topic is not None:
            self.topics[key.topic_id] = result.topic


@dataclass(frozen=True, slots=True)
class FetchContext:
    """One request within its session, or without one.

    session   None: the answer names all partitions and has session id 0
    is_full   a session is to be made with the answer
    """

    wanted: tuple[WantedPartition, ...]
    session: FetchSession | None = None
    epoch: int = FINAL_EPOCH
    is_full: bool = False
    uses_topic_ids: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True)
class FetchSessionResult:
    """The result of one partition, as far as sessions are concerned.

    must_be_sent  it has an error
    topic         its topic's name; None if that is not known
    """

    high_watermark: int
    log_start_offset: int
    must_be_sent: bool
    has_records: bool
    topic: str | None = None


class FetchSessions:
    """The sessions of one broker. Any thread may use it.

    new_session_id  a random number from 1 to 2^31 - 1
    """

    def __init__(self, slots: int, new_session_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_session_id = new_session_id
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[WantedPartition],
        forgotten: Iterable[FetchKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        user: str = "",
    ) -> FetchContext:
        """The partitions that a request is for, with those of its session.

        Raises FetchSessionIdNotFoundError, InvalidFetchSessionEpochError, FetchSessionTopicIdError: the client then
        begins again with a full request.
        """
        named = tuple({each.key: each for each in wanted}.values())
        with self._lock:
            if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
                self._sessions.pop(session_id, None)  # a full request ends the session that it names
                return FetchContext(named, is_full=epoch == INITIAL_EPOCH, uses_topic_ids=uses_topic_ids, user=user)
            session = self._sessions.get(session_id)
            if session is None:
                raise errors.FetchSessionIdNotFoundError(f"no fetch session {session_id}")
            if session.epoch != epoch:
                raise errors.InvalidFetchSessionEpochError(
                    f"fetch session {session_id}: epoch {epoch} != {session.epoch}"
                )
            if session.uses_topic_ids != uses_topic_ids:
                how = "topic ids" if session.uses_topic_ids else "topic names"
                raise errors.FetchSessionTopicIdError(f"fetch session {session_id} uses {how}")
            session.update(named, forgotten)
            if not session.wanted:
                del self._sessions[session_id]
                return FetchContext(named)
            session.used_ms = now_ms
            session.epoch = next_epoch(epoch)
            return FetchContext(tuple(session.wanted.values()), session, epoch)

    def end(
        self, context: FetchContext, outcomes: Mapping[FetchKey, FetchSessionResult], now_ms: int
    ) -> tuple[int, list[FetchKey]]:
        """(session id, partitions to be sent) for the answer to a request.

        InvalidFetchSessionEpochError when another request used the session meanwhile.
        """
        with self._lock:
            session = context.session
            if session is None:
                session_id = self._make(context, outcomes, now_ms) if context.is_full else INVALID_SESSION_ID
                return session_id, list(outcomes)
            expected = next_epoch(context.epoch)
            if _has_too_many_refused(outcomes):
                self._sessions.pop(session.session_id, None)
                return INVALID_SESSION_ID, list(outcomes)
            if session.epoch != expected:
                raise errors.InvalidFetchSessionEpochError(
                    f"fetch session {session.session_id}: epoch {session.epoch} != {expected}, a duplicate request?"
                )
            return session.session_id, [key for key, each in outcomes.items() if _is_sent(session, key, each)]

    def _make(self, context: FetchContext, outcomes: Mapping[FetchKey, FetchSessionResult], now_ms: int) -> int:
        """A session for these partitions, if there is room. There may be none yet: a later request adds some."""
        if _has_too_many_refused(outcomes) or not self._has_room(len(context.wanted), now_ms, context.user):
            return INVALID_SESSION_ID
        session_id = self._new_session_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._new_session_id()
        session = FetchSession(session_id, context.uses_topic_ids, now_ms, now_ms, user=context.user)
        session.update(context.wanted, ())
        session.first_size = len(session.wanted)
        for key, each in outcomes.items():
            session.answered(key, each)
        self._sessions[session_id] = session
        return session_id

    def _has_room(self, size: int, now_ms: int, user: str) -> bool:
        """Whether one more session fits, if need be in place of a stale one, of a smaller one that is not young, or of
        one of the user that has most, if that has more than this user."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        counts = Counter(each.user for each in self._sessions.values())
        most, count = counts.most_common(1)[0]
        if count > counts[user] + 1:
            of_most = (each for each in self._sessions.values() if each.user == most)
            del self._sessions[min(of_most, key=lambda each: (each.used_ms, each.session_id)).session_id]
            return True
        stalest = min(self._sessions.values(), key=lambda each: (each.used_ms, each.session_id))
        if now_ms - stalest.used_ms <= EVICTION_MS:
            old = [each for each in self._sessions.values() if now_ms - each.created_ms > EVICTION_MS]
            if not old:
                return False
            stalest = min(old, key=lambda each: (each.first_size, each.session_id))
            if stalest.first_size >= size:
                return False
        del self._sessions[stalest.session_id]
        return True


def _has_too_many_refused(outcomes: Mapping[FetchKey, FetchSessionResult]) -> bool:
    """A session would keep them for a client that gets nothing of them; it asks without a session instead."""
    return sum(each.must_be_sent and not each.has_records for each in outcomes.values()) > REFUSED_MAX


def _sent(result: FetchSessionResult) -> _Sent:
    """The offsets to be remembered. After an error the partition is sent again in any case."""
    is_error = result.must_be_sent and not result.has_records
    return _Sent(-1 if is_error else result.high_watermark, result.log_start_offset)


def _is_sent(session: FetchSession, key: FetchKey, result: FetchSessionResult) -> bool:
    """Whether an incremental answer names the partition; its offsets are remembered.

    A partition with records moves behind the others, so that it does not fill the next answer, too (KIP-74).
    """
    before = session.sent.get(key, _Sent())
    is_changed = before != _Sent(result.high_watermark, result.log_start_offset)
    session.answered(key, result)
    if result.has_records and key in session.wanted:
        session.wanted[key] = session.wanted.pop(key)
    return result.must_be_sent or result.has_records or is_changed
