"""Broker sessions and their expiry, without comparing clocks. Pure.

Each broker overwrites `sessions/<broker id>` at every heartbeat. An observer expires a session whose object has not
*changed* for the session timeout on the observer's own monotonic clock, over several polls without a gap. After a gap,
as when the observer itself slept, all timers restart (promise 14).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

POLLS_MIN = 3


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

    def observe(self, now_ms: int, contents: Mapping[int, bytes | None]) -> set[int]:
        """The expired brokers, given the session objects by broker id (None: no object).

        With a timeout of 9,000 ms a broker whose object last changed at the poll of 1,000 expires at the
        first poll at or after 10,000, if polls came in time between.
        """
        gap = self._last_poll_ms is not None and now_ms - self._last_poll_ms > self._poll_gap_ms_max
        self._last_poll_ms = now_ms
        for broker_id, content in contents.items():
            known = self._watched.get(broker_id)
            if known is None or gap or known.content != content:
                self._watched[broker_id] = _Watched(content, now_ms, 0)
            else:
                known.polls += 1
        for broker_id in set(self._watched) - set(contents):
            del self._watched[broker_id]
        return {i for i, w in self._watched.items() if self._is_expired(w, now_ms)}

    def has_late(self, now_ms: int, late_ms: int) -> bool:
        """Whether some session has not changed for so long that it may soon expire."""
        return any(now_ms - watched.since_ms >= late_ms for watched in self._watched.values())

    def forget(self, broker_id: int) -> None:
        """Start the broker's timer again, as at a registration."""
        self._watched.pop(broker_id, None)

    def _is_expired(self, watched: _Watched, now_ms: int) -> bool:
        return watched.polls >= POLLS_MIN and now_ms - watched.since_ms >= self._session_timeout_ms
