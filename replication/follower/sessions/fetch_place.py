"""Where a follower's fetch sessions run: in queries on Spark or, while these cannot run, in threads. Pure.

`decide(state, event, now_ms)` returns the new state and what the runner is to do. A query that fails is started again.
After three failures in a row without a session, or when no session of a query publishes anything for long, the
follower fetches in threads of its broker's process, and Spark is tried again at growing intervals. The threads end when
a session on Spark publishes: that one is on standby, and becomes active at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from stratalog.replication import cadence

FAILURES_MAX = 3
"""Failures of queries in a row from which on a follower fetches in threads."""
DOUBLINGS_MAX = 6
"""Number of times that the interval between two tries doubles."""


class Place(StrEnum):
    """The place of a follower's sessions."""

    SPARK = "spark"
    THREADS = "threads"


class FetchTask(Enum):
    """A task of the runner."""

    START_QUERIES = auto()
    """Start the queries that do not run."""
    TRY_ONE_QUERY = auto()
    """Start one query, to find out whether Spark works."""
    END_QUERIES = auto()
    """Stop the queries that still run, without waiting for their sessions."""
    START_THREADS = auto()
    END_THREADS = auto()


class QueryFailed(NamedTuple):
    """A query died or did not start. `others_work`: sessions of the follower's other queries publish."""

    reason: str
    others_work: bool = False


class SessionPublished(NamedTuple):
    """A session of one of the follower's queries has published something since the last time."""


class TimePassed(NamedTuple):
    """Nothing has happened."""


Event = QueryFailed | SessionPublished | TimePassed


@dataclass(frozen=True, slots=True)
class FetchPlace:
    """The place of one follower's sessions, and what is known of its queries. Times are monotonic.

    failures      of queries in a row
    tries         tries of Spark that failed in a row, since it last worked for `cadence.PLACE_SOUND`
    due_ms        when queries that do not run are started (again)
    is_trying     in threads: whether a query is running, or starting, to try Spark
    began_ms      when sessions on Spark began to publish; None: none has since the last failure
    published_ms  when a session on Spark last published, or since when one is waited for
    reason        of the newest failure; empty when there was none
    """

    retry_ms: int
    published_ms: int
    place: Place = Place.SPARK
    failures: int = 0
    tries: int = 0
    due_ms: int = 0
    is_trying: bool = False
    began_ms: int | None = None
    reason: str = ""

    @property
    def pause_ms(self) -> int:
        """The pause before Spark is tried again: `retry_ms`, doubled for each try that failed, at most 64 times it.

        >>> [FetchPlace(30_000, 0, tries=tries).pause_ms for tries in (0, 1, 2, 9)]
        [30000, 60000, 120000, 1920000]
        """
        return self.retry_ms << min(self.tries, DOUBLINGS_MAX)


class PlaceDecision(NamedTuple):
    """The new state, and the tasks of the runner, in order."""

    state: FetchPlace
    tasks: tuple[FetchTask, ...] = ()


def decide(state: FetchPlace, event: Event, now_ms: int) -> PlaceDecision:
    """What an event changes.

    >>> state = FetchPlace(retry_ms=30_000, published_ms=0)
    >>> for at_ms in (1_000, 3_000, 5_000): state, tasks = decide(state, QueryFailed("no module"), at_ms)
    >>> state.place.value, state.due_ms, [task.name for task in tasks]
    ('threads', 35000, ['END_QUERIES', 'START_THREADS'])
    """
    if isinstance(event, QueryFailed):
        return _failed(state, event, now_ms)
    if isinstance(event, SessionPublished):
        return _published(state, now_ms)
    return _passed(state, now_ms)


def _failed(state: FetchPlace, event: QueryFailed, now_ms: int) -> PlaceDecision:
    if state.place is Place.THREADS:
        failed = replace(state, reason=event.reason)
        if not state.is_trying:
            return PlaceDecision(failed)
        tried = replace(failed, is_trying=False, tries=state.tries + 1)
        return PlaceDecision(replace(tried, due_ms=now_ms + tried.pause_ms), (FetchTask.END_QUERIES,))
    was_sound = state.began_ms is not None and now_ms - state.began_ms >= cadence.PLACE_SOUND.ms
    failures, tries = (1, 0) if was_sound else (state.failures + 1, state.tries)
    failed = replace(state, reason=event.reason, failures=failures, tries=tries, due_ms=now_ms, began_ms=None)
    if failures < FAILURES_MAX:
        return PlaceDecision(failed)
    if event.others_work:  # records are copied: this query alone is started again, ever more rarely
        return PlaceDecision(replace(failed, due_ms=now_ms + failed.pause_ms, tries=tries + 1))
    return _to_threads(replace(failed, due_ms=now_ms + failed.pause_ms), FetchTask.END_QUERIES)


def _published(state: FetchPlace, now_ms: int) -> PlaceDecision:
    if state.place is Place.THREADS and not state.is_trying:
        return PlaceDecision(state)  # the last words of a query that has failed
    began_ms = now_ms if state.began_ms is None else state.began_ms
    published = replace(state, published_ms=now_ms, began_ms=began_ms)
    if state.place is Place.SPARK:
        return PlaceDecision(published)
    works = replace(published, place=Place.SPARK, is_trying=False, failures=0, due_ms=now_ms)
    return PlaceDecision(works, (FetchTask.END_THREADS, FetchTask.START_QUERIES))


def _passed(state: FetchPlace, now_ms: int) -> PlaceDecision:
    if state.place is Place.THREADS:
        if state.is_trying or now_ms < state.due_ms:
            return PlaceDecision(state)
        return PlaceDecision(replace(state, is_trying=True, began_ms=None), (FetchTask.TRY_ONE_QUERY,))
    silence_ms, wait_ms = (
        now_ms - state.published_ms,
        cadence.PLACE_FIRST_SESSION.ms if state.began_ms is None else cadence.PLACE_SILENCE.ms,
    )
    if silence_ms >= wait_ms:
        reason = state.reason or f"no session has published anything for {silence_ms} ms"
        return _to_threads(replace(state, reason=reason, is_trying=True, began_ms=None))
    return PlaceDecision(state, (FetchTask.START_QUERIES,) if now_ms >= state.due_ms else ())


def _to_threads(state: FetchPlace, *first: FetchTask) -> PlaceDecision:
    return PlaceDecision(replace(state, place=Place.THREADS), (*first, FetchTask.START_THREADS))
