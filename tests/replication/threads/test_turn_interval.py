"""Turns begin further apart only while many partitions move."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.threads.turn_interval import APART_TIMES, LOOPS_MAX, PARTITIONS_MIN, TurnInterval
from stratalog.storage.records import TopicPartition


def moved(turns: TurnInterval, count: int, now_ms: int) -> None:
    for number in range(count):
        turns.moved(TopicPartition("t", number), now_ms)


@pytest.mark.parametrize(
    ("count", "after_ms", "rest_ms"),
    [
        (PARTITIONS_MIN - 1, 0, 0),
        (PARTITIONS_MIN, 0, cadence.TURNS_APART.ms * LOOPS_MAX - 1),
        (PARTITIONS_MIN, cadence.TURN_WINDOW.ms, cadence.TURNS_APART.ms * LOOPS_MAX - 1),
        (PARTITIONS_MIN, 2 * cadence.TURN_WINDOW.ms, 0),
    ],
)
def test_many_partitions_within_a_window_space_the_turns_of_the_next(count: int, after_ms: int, rest_ms: int) -> None:
    turns = TurnInterval()
    moved(turns, count, 1_000)
    assert turns.rest_ms(begun_ms=999 + after_ms, now_ms=1_000 + after_ms) == rest_ms


def test_one_busy_partition_is_never_made_to_wait() -> None:
    turns = TurnInterval()
    for now_ms in range(1_000, 1_200):
        moved(turns, 1, now_ms)
        assert turns.rest_ms(now_ms, now_ms) == 0


@pytest.mark.parametrize(
    ("took_ms", "rest_ms"),
    [
        (0, cadence.TURNS_APART.ms * LOOPS_MAX),
        (cadence.TURNS_APART_MOST.ms // APART_TIMES, cadence.TURNS_APART_MOST.ms // APART_TIMES * (APART_TIMES - 1)),
        (cadence.TURNS_APART_MOST.ms - 3, 3),
        (cadence.TURNS_APART_MOST.ms, 0),
        (10 * cadence.TURNS_APART_MOST.ms, 0),
    ],
)
def test_the_longer_a_turn_took_the_further_apart_is_the_next_up_to_a_bound(took_ms: int, rest_ms: int) -> None:
    turns = TurnInterval()
    moved(turns, PARTITIONS_MIN, 1_000)
    assert turns.rest_ms(begun_ms=1_000, now_ms=1_000 + took_ms) == rest_ms


@pytest.mark.parametrize(
    ("busy", "rest_ms"),
    [
        (0, cadence.TURNS_APART.ms),
        (1, 2 * cadence.TURNS_APART.ms),
        (2, 3 * cadence.TURNS_APART.ms),
        (4, LOOPS_MAX * cadence.TURNS_APART.ms),
    ],
)
def test_the_busy_loops_of_an_interpreter_share_it(busy: int, rest_ms: int) -> None:
    loops: list[TurnInterval] = []
    own, *others = [TurnInterval(loops) for _ in range(6)]
    loops += [own, *others]
    for each in [own, *others[:busy]]:
        moved(each, PARTITIONS_MIN, 1_000)
    moved(others[-1], PARTITIONS_MIN - 1, 1_000)
    assert own.rest_ms(1_000, 1_000) == rest_ms


def test_a_loop_that_was_busy_does_not_count_any_more() -> None:
    loops: list[TurnInterval] = []
    own, other = TurnInterval(loops), TurnInterval(loops)
    loops += [own, other]
    moved(other, PARTITIONS_MIN, 1_000)
    moved(own, PARTITIONS_MIN, 1_000 + 2 * cadence.TURN_WINDOW.ms)
    assert own.rest_ms(1_000 + 2 * cadence.TURN_WINDOW.ms, 1_000 + 2 * cadence.TURN_WINDOW.ms) == cadence.TURNS_APART.ms


@pytest.mark.parametrize(
    ("count", "few_ms", "work_ms"),
    [
        (PARTITIONS_MIN - 1, 2, 2),
        (PARTITIONS_MIN, 2, cadence.TURN_WORK_MANY.ms),
        (PARTITIONS_MIN, 2 * cadence.TURN_WORK_MANY.ms, 2 * cadence.TURN_WORK_MANY.ms),
    ],
)
def test_a_turn_takes_up_more_while_many_partitions_move(count: int, few_ms: int, work_ms: int) -> None:
    turns = TurnInterval()
    moved(turns, count, 1_000)
    assert turns.work_ms(few_ms, now_ms=1_001) == work_ms
    assert turns.work_ms(few_ms, now_ms=1_001 + 2 * cadence.TURN_WINDOW.ms) == few_ms
