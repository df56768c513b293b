"""States of a partition as events: tables of histories."""

from __future__ import annotations

import pytest

from stratalog.clients.console.stored.timeline import StateInTime, changes_of, events_of
from stratalog.clients.console.stored.who_led import RecordNear, failover_of, is_inside, newest

ALL = (1, 2, 3)


def state(
    offset: int,
    leader: int,
    epoch: int,
    isr: tuple[int, ...] = ALL,
    replicas: tuple[int, ...] = ALL,
    partition: int = 0,
) -> StateInTime:
    return StateInTime(offset, 1_000 * offset, "id", partition, leader, epoch, None, isr, replicas, offset)


@pytest.mark.parametrize(
    ("before", "after", "last_leader", "expected"),
    [
        (None, state(1, 1, 0), -1, ("created",)),
        (state(1, 1, 0), state(2, 2, 1, (2, 3)), 1, ("failover", "ISR shrunk")),
        (state(1, 1, 0), state(2, -1, 1, (1,)), 1, ("leader lost", "ISR shrunk")),
        (state(1, -1, 1, (1,)), state(2, 1, 2, (1,)), 1, ("failover",)),
        (state(1, 1, 0), state(2, 2, 1), 1, ("leader changed",)),
        (state(1, 1, 0), state(2, 1, 1), 1, ("same leader, new epoch",)),
        (state(1, 1, 0, (1, 2)), state(2, 1, 0), 1, ("ISR expanded",)),
        (state(1, 1, 0), state(2, 1, 0, (1, 2)), 1, ("ISR shrunk",)),
        (state(1, 1, 0), state(2, 1, 0, ALL, (1, 2, 3, 4)), 1, ("replicas changed",)),
        (state(1, 1, 0), state(2, 1, 0), 1, ("other change",)),
        (state(1, 1, 0, (1, 2)), state(2, 2, 1, (2, 3)), 1, ("failover", "ISR shrunk", "ISR expanded")),
    ],
)
def test_a_change_is_named(
    before: StateInTime | None, after: StateInTime, last_leader: int, expected: tuple[str, ...]
) -> None:
    assert changes_of(before, after, last_leader) == expected


def test_events_are_those_of_each_partition_in_time() -> None:
    states = [state(3, 2, 1, (2, 3)), state(1, 1, 0), state(2, 3, 0, partition=1), state(3, 2, 1, (2, 3))]
    events = events_of(states, {(0, 1): 17})
    assert [(each.partition, each.metadata_offset, each.until_ms) for each in events] == [
        (0, 1, 3_000),
        (0, 3, None),
        (1, 2, None),
    ]
    assert (events[1].left, events[1].joined, events[1].start_offset) == ((1,), (), 17)


def test_a_failover_tells_how_long_nobody_led_and_what_is_beside_it() -> None:
    states = [state(1, 1, 0), state(4, -1, 1, (1,)), state(9, 2, 2, (2,))]
    events = events_of(states, {(0, 2): 5})
    around = (RecordNear(4, 0, 3_900, 3_950, True), RecordNear(5, 2, 9_100, None, False))
    found = failover_of(events[2], events, around)
    assert (found.from_leader, found.to_leader, found.without_ms) == (1, 2, 5_000)
    assert (found.last_before_ms, found.first_after_ms, found.silent_ms) == (3_900, 9_100, 5_200)


def test_a_failover_without_records_around_has_no_silence() -> None:
    events = events_of([state(1, 1, 0), state(2, 2, 1, (2, 3))], {})
    found = failover_of(events[1], events, ())
    assert (found.without_ms, found.silent_ms, found.start_offset) == (0, None, None)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"), [(0, 9_999, [1, 4]), (0, 3_999, [1]), (4_001, 9_999, [4]), (4_000, 4_000, [1, 4])]
)
def test_an_event_counts_while_its_state_is_in_force(from_ms: int, to_ms: int, expected: list[int]) -> None:
    events = events_of([state(1, 1, 0), state(4, 2, 1)], {})
    assert [each.metadata_offset for each in events if is_inside(each, from_ms, to_ms)] == expected


def test_the_newest_events_are_kept_in_their_order() -> None:
    events = events_of([state(1, 1, 0), state(5, 2, 1), state(3, 1, 0, partition=1)], {})
    assert [each.metadata_offset for each in newest(events, 2)] == [5, 3]
