"""How often a fetch session publishes that it is alive, and looks at the other sessions. Pure.

Where sessions watch each other, a look follows each write, and the intervals are for missed notifications. Elsewhere
each look is a request. There an active session that had nothing to do for a while rests: it publishes that, and beats
and looks less often, and a session on standby waits longer before it takes a resting one for dead. The first copy, or
the first change of metadata, ends the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

STANDBY, ACTIVE, RESTING, ENDING = "standby", "active", "resting", "ending"
BEAT_INTERVAL_MS = 200
QUIET_BEAT_MS = 2_000
"""Interval of sessions that rest or are on standby where writes are not reported: nobody beats less often."""
RESTS_AFTER_MS = 10_000
"""Time without copies and changes of metadata after which an active session rests."""
RESTING_LENGTH_MS_MIN = 60_000
"""Length of the shortest session that rests: the next one is to find the end of a short one in time."""
SILENCE_MS, RESTING_SILENCE_MS = 1_000, 6_000
"""Time without a beat after which an active session, and a resting one, is taken for dead."""


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The intervals of one session.

    beat        between two of its heartbeats
    stop        between two looks whether the broker has stopped
    superseded  between two looks, of an active session, whether another one took its place
    check       between two looks, of one on standby, at the active session
    others      between two listings, of one on standby, of the other sessions
    """

    beat_ms: int
    stop_ms: int
    superseded_ms: int
    check_ms: int
    others_ms: int


_WATCHED = Heartbeats(beat_ms=BEAT_INTERVAL_MS, stop_ms=1_000, superseded_ms=1_000, check_ms=200, others_ms=1_000)
_WATCHED_STANDBY = Heartbeats(beat_ms=500, stop_ms=1_000, superseded_ms=1_000, check_ms=200, others_ms=1_000)
_POLLED = Heartbeats(beat_ms=BEAT_INTERVAL_MS, stop_ms=200, superseded_ms=1_000, check_ms=200, others_ms=1_000)
_POLLED_RESTING = Heartbeats(beat_ms=QUIET_BEAT_MS, stop_ms=2_000, superseded_ms=5_000, check_ms=1_000, others_ms=5_000)
_POLLED_STANDBY = {
    ACTIVE: Heartbeats(beat_ms=QUIET_BEAT_MS, stop_ms=2_000, superseded_ms=5_000, check_ms=200, others_ms=1_000),
    RESTING: Heartbeats(beat_ms=QUIET_BEAT_MS, stop_ms=2_000, superseded_ms=5_000, check_ms=1_000, others_ms=5_000),
    ENDING: Heartbeats(beat_ms=QUIET_BEAT_MS, stop_ms=2_000, superseded_ms=5_000, check_ms=20, others_ms=1_000),
}
"""By the state of the active session. One that is ending is looked at closely, so that nobody copies only briefly."""


def published_state(state: str, idle_ms: int, *, is_watched: bool) -> str:
    """What a session publishes: `resting` for an active one where writes are not reported, after a time without work.

    >>> [published_state(ACTIVE, idle_ms, is_watched=False) for idle_ms in (9_999, 10_000)]
    ['active', 'resting']
    >>> published_state(ENDING, 60_000, is_watched=False), published_state(ACTIVE, 60_000, is_watched=True)
    ('ending', 'active')
    """
    return RESTING if state == ACTIVE and idle_ms >= RESTS_AFTER_MS and not is_watched else state


def heartbeats(state: str, elder_state: str, *, is_watched: bool) -> Heartbeats:
    """The intervals of a session that publishes `state`.

    elder_state  what the active session published last, as far as one on standby knows
    is_watched   whether writes of the other sessions are reported

    >>> heartbeats(STANDBY, RESTING, is_watched=False).check_ms, heartbeats(STANDBY, ENDING, is_watched=False).check_ms
    (1000, 20)
    """
    if is_watched:
        return _WATCHED_STANDBY if state == STANDBY else _WATCHED
    if state == STANDBY:
        return _POLLED_STANDBY.get(elder_state, _POLLED_STANDBY[ACTIVE])
    return _POLLED_RESTING if state == RESTING else _POLLED


def silence_ms(state: str) -> int:
    """Time without a change after which a session that published `state` last is taken for dead; 0: it does not copy.

    >>> [silence_ms(state) for state in (ACTIVE, ENDING, RESTING, STANDBY, "ended")]
    [1000, 1000, 6000, 0, 0]
    """
    return {ACTIVE: SILENCE_MS, ENDING: SILENCE_MS, RESTING: RESTING_SILENCE_MS}.get(state, 0)
