"""How often a fetch session publishes that it is alive, and looks at the other sessions. Pure.

Where sessions watch each other, a look follows each write, and the intervals are for missed notifications. Elsewhere
each look is a request. There an active session that had nothing to do for a while rests: it publishes that, and beats
and looks less often, and a session on standby waits longer before it takes a resting one for dead. The first copy, or
the first change of metadata, ends the rest.
"""

from __future__ import annotations

from stratalog.replication import cadence
from stratalog.replication.cadence import Heartbeats

STANDBY, ACTIVE, RESTING, ENDING = "standby", "active", "resting", "ending"


def published_state(state: str, idle_ms: int, *, is_watched: bool) -> str:
    """What a session publishes: `resting` for an active one where writes are not reported, after a time without work.

    >>> [published_state(ACTIVE, idle_ms, is_watched=False) for idle_ms in (9_999, 10_000)]
    ['active', 'resting']
    >>> published_state(ENDING, 60_000, is_watched=False), published_state(ACTIVE, 60_000, is_watched=True)
    ('ending', 'active')
    """
    return RESTING if state == ACTIVE and idle_ms >= cadence.RESTS_AFTER.ms and not is_watched else state


def heartbeats(state: str, elder_state: str, *, is_watched: bool) -> Heartbeats:
    """The intervals of a session that publishes `state`.

    elder_state  what the active session published last, as far as one on standby knows
    is_watched   whether writes of the other sessions are reported

    >>> heartbeats(STANDBY, RESTING, is_watched=False).check_ms, heartbeats(STANDBY, ENDING, is_watched=False).check_ms
    (1000, 20)
    """
    if is_watched:
        return cadence.HEARTBEATS_WATCHED_STANDBY if state == STANDBY else cadence.HEARTBEATS_WATCHED
    if state == STANDBY:
        behind = {RESTING: cadence.HEARTBEATS_STANDBY_RESTING, ENDING: cadence.HEARTBEATS_STANDBY_ENDING}
        return behind.get(elder_state, cadence.HEARTBEATS_STANDBY)
    return cadence.HEARTBEATS_RESTING if state == RESTING else cadence.HEARTBEATS


def silence_ms(state: str) -> int:
    """Time without a change after which a session that published `state` last is taken for dead; 0: it does not copy.

    >>> [silence_ms(state) for state in (ACTIVE, ENDING, RESTING, STANDBY, "ended")]
    [1000, 1000, 6000, 0, 0]
    """
    return {ACTIVE: cadence.SILENCE.ms, ENDING: cadence.SILENCE.ms, RESTING: cadence.RESTING_SILENCE.ms}.get(state, 0)
