"""Where a follower fetches: the rules, as tables of events."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stratalog.replication import cadence
from stratalog.replication.follower.sessions.fetch_place import (
    Event,
    FetchPlace,
    FetchTask,
    Place,
    QueryFailed,
    SessionPublished,
    TimePassed,
    decide,
)

RETRY_MS = 30_000
FAILED, BESIDE_OTHERS = QueryFailed("no module"), QueryFailed("no module", others_work=True)
PUBLISHED, PASSED = SessionPublished(), TimePassed()
END, TRY, START, END_THREADS, THREADS = (
    FetchTask.END_QUERIES,
    FetchTask.TRY_ONE_QUERY,
    FetchTask.START_QUERIES,
    FetchTask.END_THREADS,
    FetchTask.START_THREADS,
)

History = list[tuple[int, Event, list[FetchTask]]]
TO_THREADS: History = [(1_000, FAILED, []), (3_000, FAILED, []), (5_000, FAILED, [END, THREADS])]


def play(history: History, state: FetchPlace | None = None) -> FetchPlace:
    """Decide on each event at its time; its tasks are those of the history."""
    state = state or FetchPlace(RETRY_MS, 0)
    for at_ms, event, expected in history:
        state, tasks = decide(state, event, at_ms)
        assert list(tasks) == expected, (at_ms, event)
    return state


@pytest.mark.parametrize(
    ("history", "place"),
    [
        ([(0, PASSED, [START]), (1_000, FAILED, []), (1_000, PASSED, [START])], Place.SPARK),
        (TO_THREADS, Place.THREADS),
        (
            [
                (0, PUBLISHED, []),
                *((at_ms, FAILED, []) for at_ms in (cadence.PLACE_SOUND.ms, cadence.PLACE_SOUND.ms + 1)),
            ],
            Place.SPARK,
        ),
        (
            [(0, PUBLISHED, []), (1, FAILED, []), (2, PUBLISHED, []), (3, FAILED, []), (4, FAILED, [END, THREADS])],
            Place.THREADS,
        ),
        (
            [
                (cadence.PLACE_FIRST_SESSION.ms - 1, PASSED, [START]),
                (cadence.PLACE_FIRST_SESSION.ms, PASSED, [THREADS]),
            ],
            Place.THREADS,
        ),
        (
            [
                (9, PUBLISHED, []),
                (8 + cadence.PLACE_SILENCE.ms, PASSED, [START]),
                (9 + cadence.PLACE_SILENCE.ms, PASSED, [THREADS]),
            ],
            Place.THREADS,
        ),
        ([(at_ms, BESIDE_OTHERS, []) for at_ms in range(0, 9_000, 1_000)], Place.SPARK),
    ],
    ids=[
        "a failed query is started again",
        "three failures in a row",
        "a failure after a sound life is the first in a row",
        "sessions that begin and die at once are failures in a row",
        "no first session",
        "sessions fall silent",
        "one query fails for ever, another works",
    ],
)
def test_where_a_follower_fetches(history: History, place: Place) -> None:
    assert play(history).place is place


def test_spark_is_tried_at_growing_intervals_and_left_when_it_fails_again() -> None:
    state, now_ms, waits = play(TO_THREADS), 5_000, []
    for _ in range(9):
        play([(state.due_ms - 1, PASSED, [])], state)
        waits.append((state.due_ms - now_ms) // RETRY_MS)
        now_ms = state.due_ms
        state = play([(now_ms, PASSED, [TRY]), (now_ms + 1, PASSED, []), (now_ms + 1, FAILED, [END])], state)
        now_ms += 1
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_a_session_that_publishes_ends_the_threads_and_a_sound_one_shortens_the_next_interval() -> None:
    tried = play([*TO_THREADS, (35_000, PASSED, [TRY]), (36_000, FAILED, [END]), (96_000, PASSED, [TRY])])
    works = play([(99_000, PUBLISHED, [END_THREADS, START])], tried)
    assert (works.place, works.failures, works.tries) == (Place.SPARK, 0, 1)
    soon = play([(99_500 + n, FAILED, [END, THREADS] if n == 2 else []) for n in range(3)], works)
    assert soon.due_ms - 99_502 == 2 * RETRY_MS
    late_ms = 99_000 + cadence.PLACE_SOUND.ms
    late = play([(late_ms + n, FAILED, [END, THREADS] if n == 2 else []) for n in range(3)], works)
    assert late.due_ms - (late_ms + 2) == RETRY_MS


def test_queries_that_only_wait_for_slots_go_on_waiting_and_end_the_threads_when_they_begin() -> None:
    waiting = play(
        [(cadence.PLACE_FIRST_SESSION.ms, PASSED, [THREADS]), (9 * cadence.PLACE_FIRST_SESSION.ms, PASSED, [])]
    )
    assert "no session has published anything for 60000 ms" in waiting.reason
    play([(10 * cadence.PLACE_FIRST_SESSION.ms, PUBLISHED, [END_THREADS, START])], waiting)


def test_a_query_that_fails_beside_others_is_started_ever_more_rarely() -> None:
    state, pauses = FetchPlace(RETRY_MS, 0), []
    for _ in range(6):
        state = play([(state.due_ms, BESIDE_OTHERS, [])], state)
        pauses.append(state.due_ms)
    gaps = [after - before for before, after in pairwise(pauses)]
    assert gaps == [0, RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]
