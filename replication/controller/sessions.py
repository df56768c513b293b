"""Broker sessions and their expiry, without comparing clocks; beats over listeners. Pure.

Each broker overwrites `sessions/<broker id>` at every heartbeat. An observer expires a session whose object has not
*changed* for the session timeout on the observer's own monotonic clock, over several polls without a gap. After a gap,
as when the observer itself slept, all timers restart (promise 14).

On an object store each write of a session's object and each poll for metadata is paid; a request to a listener is not.
There a beat over a listener (`PeerBeats`) counts as a change of the session, only for a registration that the hearer's
own metadata have, and the sender writes its object as ever as soon as one live broker does not take its beats. Kafka's
brokers send BrokerHeartbeat to the controller; here each one goes to all live brokers, since each watches the
controller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

POLLS_MIN = 3
RANK_MAX = 4
_UNREAD = b""
"""Stands for an object that was not read since the last beat: its first content says nothing about when it was
written."""


def session_path(broker_id: int) -> str:
    return f"sessions/{broker_id}"


def encode_session(broker_epoch: int, incarnation_id: str, beat: int) -> bytes:
    """The session object, which differs at every heartbeat."""
    return json.dumps({"broker_epoch": broker_epoch, "incarnation_id": incarnation_id, "beat": beat}).encode()


@dataclass(slots=True)
class _Watched:
    content: bytes | None
    since_ms: int
    polls: int


class SessionObserver:
    """One observer's timers. `observe` is called at every poll with the stored objects."""

    def __init__(self, session_timeout_ms: int, poll_gap_ms_max: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._poll_gap_ms_max = poll_gap_ms_max
        self._watched: dict[int, _Watched] = {}
        self._last_poll_ms: int | None = None

    def observe(
        self, now_ms: int, contents: Mapping[int, bytes | None], heard_ms: Mapping[int, int] | None = None
    ) -> set[int]:
        """The expired brokers, given the session objects by broker id (None: no object).

        heard_ms  by broker id when the newest beat of its registration came, which counts as a change. Those that are
                  only here are live, too: their objects were not read

        With a timeout of 9,000 ms a broker whose object last changed at the poll of 1,000 expires at the
        first poll at or after 10,000, if polls came in time between.
        """
        gap = self._last_poll_ms is not None and now_ms - self._last_poll_ms > self._poll_gap_ms_max
        self._last_poll_ms = now_ms
        heard = heard_ms or {}
        for broker_id in {*contents, *heard}:
            known, content = self._watched.get(broker_id), contents.get(broker_id, _UNREAD)
            beat_ms = heard.get(broker_id, 0)
            if known is None or gap:
                self._watched[broker_id] = _Watched(content, now_ms, 0)
            elif beat_ms > known.since_ms:
                self._watched[broker_id] = _Watched(content, beat_ms, 0)
            elif content == known.content or content == _UNREAD or known.content == _UNREAD:
                known.polls += 1
                known.content = known.content if content == _UNREAD else content
            else:
                self._watched[broker_id] = _Watched(content, now_ms, 0)
        for broker_id in set(self._watched) - {*contents, *heard}:
            del self._watched[broker_id]
        return {i for i, w in self._watched.items() if self._is_expired(w, now_ms)}

    def late(self, now_ms: int, late_ms: int) -> set[int]:
        """The brokers whose session has not changed for so long that it may soon expire."""
        return {broker_id for broker_id, watched in self._watched.items() if now_ms - watched.since_ms >= late_ms}

    def expires_in_ms(self, now_ms: int) -> int | None:
        """The time until the next session expires, unless it changes; None where all have expired."""
        left_ms = (watched.since_ms + self._session_timeout_ms - now_ms for watched in self._watched.values())
        return min((each for each in left_ms if each > 0), default=None)

    def forget(self, broker_id: int) -> None:
        """Start the broker's timer again, as at a registration."""
        self._watched.pop(broker_id, None)

    def _is_expired(self, watched: _Watched, now_ms: int) -> bool:
        return watched.polls >= POLLS_MIN and now_ms - watched.since_ms >= self._session_timeout_ms


def late_pause_ms(pause_ms: int, expires_in_ms: int | None, rank: int) -> int:
    """The time until a candidate polls again while a session is late [ms].

    It is `pause_ms` until the last poll before the session expires. Then rank 0 polls when it expires, rank 1 one pause
    later, and so on: two candidates that stood for election at the same time would depose each other. Ranks above
    `RANK_MAX` poll with it, since `SessionObserver` takes a third of a session without a poll for a gap.

    >>> [late_pause_ms(375, expires_in_ms, rank) for expires_in_ms, rank in ((900, 0), (200, 0), (200, 2), (None, 2))]
    [375, 200, 950, 375]
    """
    if expires_in_ms is None or expires_in_ms > pause_ms:
        return pause_ms
    return expires_in_ms + min(rank, RANK_MAX) * pause_ms


@dataclass(frozen=True, slots=True)
class Beat:
    """metadata_offset  the end of the metadata log that the sender has folded"""

    broker_id: int
    broker_epoch: int
    metadata_offset: int


def _nothing() -> None:
    """Nobody reads metadata sooner."""


def _is_current(_broker_id: int, _broker_epoch: int) -> bool:
    """Nobody is known to be fenced."""
    return True


class PeerBeats:
    """One broker's. Any thread may use it; times are of its process's monotonic clock, in ms.

    send             calls the listeners of these registrations, broker epochs by id, and passes their answers to
                     `took`; it does not block. None: nobody can be called
    is_current       whether a registration is live, by this broker's own metadata
    on_newer         called when a peer has folded more metadata than this broker
    metadata_offset, metadata_version  what this broker's loop has folded, and polls on from; it sets them

    >>> beats = PeerBeats()
    >>> beats.hears(Beat(2, broker_epoch=7, metadata_offset=0), now_ms=100)
    >>> beats.heard_ms(2, broker_epoch=7), beats.heard_ms(2, broker_epoch=8)
    (100, None)
    >>> beats.took(2, broker_epoch=7, sent_ms=300)
    >>> beats.is_taken({2: 7}, since_ms=300), beats.is_taken({2: 7, 3: 9}, since_ms=300)
    (True, False)
    """

    def __init__(self) -> None:
        self.send: Callable[[Beat, Mapping[int, int], int], None] | None = None
        self.is_current: Callable[[int, int], bool] = _is_current
        self.on_newer: Callable[[], None] = _nothing
        self.metadata_offset = self.metadata_version = -1
        self.newest_offset = -1
        """The end of the metadata log that any peer has folded, as far as this broker has heard."""
        self._heard: dict[int, tuple[int, int]] = {}
        self._taken: dict[int, tuple[int, int]] = {}

    def hears(self, beat: Beat, now_ms: int) -> None:
        """A beat has come."""
        self._heard[beat.broker_id] = (beat.broker_epoch, now_ms)
        self.newest_offset = max(self.newest_offset, beat.metadata_offset)
        self.folded_beside(beat.metadata_offset)

    def folded_beside(self, metadata_offset: int) -> None:
        """Another part of the process, or another broker, has folded the metadata log to this end."""
        if metadata_offset > self.metadata_offset:
            self.on_newer()

    def heard_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """When the newest beat of a registration came; None: none has."""
        known_epoch, heard_ms = self._heard.get(broker_id, (None, None))
        return heard_ms if known_epoch == broker_epoch else None

    def took(self, broker_id: int, broker_epoch: int, sent_ms: int) -> None:
        """A peer has taken a beat that was sent at this time."""
        self._taken[broker_id] = (broker_epoch, sent_ms)

    def is_taken(self, peers: Mapping[int, int], since_ms: int) -> bool:
        """Whether each of these registrations has taken a beat that was sent then or later; with none: True."""
        for broker_id, broker_epoch in peers.items():
            known_epoch, sent_ms = self._taken.get(broker_id, (None, 0))
            if known_epoch != broker_epoch or sent_ms < since_ms:
                return False
        return True
