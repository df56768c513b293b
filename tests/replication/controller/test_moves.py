"""Moves of partitions between places, step by step, on states without a cluster."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stratalog.replication.controller.domains.moves import arriving, moved, step
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, record_from_json, record_to_json

LAKE, SEA, ROOT = "lake", "sea", ""


def state_of(
    placed: dict[int, str], target: dict[int, str], isr: tuple[int, ...] | None = None, leader: int | None = None
) -> PartitionRecord:
    """The first replica's place is the home."""
    home = next(iter(placed.values()))
    return PartitionRecord(
        topic="orders",
        partition=0,
        replicas=tuple(placed),
        leader=next(iter(placed)) if leader is None else leader,
        leader_epoch=5,
        isr=tuple(placed) if isr is None else isr,
        partition_epoch=9,
        controller_epoch=1,
        domain=home,
        elsewhere=tuple((r, domain) for r, domain in placed.items() if domain != home),
        target=tuple(target.items()),
    )


def with_joined(state: PartitionRecord, live: set[int]) -> PartitionRecord:
    """After the leader has added all live replicas, which have copied by then."""
    return replace(state, isr=tuple(r for r in state.replicas if r in state.isr or r in live))


def steps(
    state: PartitionRecord, live: set[int], min_isr: int, spare: tuple[int, ...] = ()
) -> Iterator[PartitionRecord]:
    """Each state of a move in which all that is to be copied is copied at once."""
    for _ in range(50):
        free = [r for r in spare if r not in state.replicas]
        after = step(state, live, min_isr, free)
        if after is None:
            joined = with_joined(state, live)
            if joined == state:
                return
            state = joined
            continue
        state = moved(state, after, 1)
        yield state


def brief(state: PartitionRecord) -> tuple[dict[int, str], tuple[int, ...], int]:
    return {r: state.domain_of(r) for r in state.replicas}, state.isr, state.leader


def test_from_roots_to_a_domain() -> None:
    three = dict.fromkeys((1, 2, 3), ROOT)
    first, second, last = steps(state_of(three, dict.fromkeys((1, 2, 3), LAKE)), {1, 2, 3}, 2)
    assert brief(first) == ({1: ROOT, 2: LAKE, 3: ROOT}, (1, 3), 1)
    assert brief(second) == ({1: LAKE, 2: LAKE, 3: LAKE}, (1, 2, 3), 1)
    assert (brief(last), last.domain, last.target, last.left) == (brief(second), LAKE, (), ())
    assert [each.leader_epoch for each in (first, second, last)] == [6, 7, 7]


def test_from_a_domain_to_roots_the_leader_is_the_last() -> None:
    three = dict.fromkeys((1, 2, 3), LAKE)
    taken = list(steps(state_of(three, dict.fromkeys((1, 2, 3), ROOT)), {1, 2, 3}, 2))
    assert [brief(each)[0] for each in taken] == [
        {1: LAKE, 2: ROOT, 3: LAKE},
        {1: LAKE, 2: ROOT, 3: ROOT},
        {1: ROOT, 2: ROOT, 3: ROOT},
        {1: ROOT, 2: ROOT, 3: ROOT},
    ]
    assert [len(each.isr) >= 2 for each in taken] == [True] * 4
    assert (taken[2].leader, taken[3].leader, taken[3].left) == (2, 2, (LAKE,))


def test_where_too_few_would_be_in_sync_another_broker_stands_in() -> None:
    state = state_of({1: ROOT}, {1: LAKE})
    added, shared, last = steps(state, {1, 2}, 1, (2,))
    assert brief(added) == ({1: ROOT, 2: LAKE}, (1,), 1)
    assert brief(shared)[0] == {1: LAKE, 2: LAKE}
    assert brief(last) == ({1: LAKE}, (1,), 1)
    assert list(steps(state, {1}, 1)) == []


def test_a_copy_is_added_and_leads_when_it_is_the_home() -> None:
    both = {1: LAKE, 2: LAKE, 4: SEA, 5: SEA}
    added, last = steps(state_of({1: LAKE, 2: LAKE}, both), {1, 2, 4, 5}, 1)
    assert (brief(added)[0], added.isr) == (both, (1, 2))
    assert (brief(last), last.has_one_table) == ((both, (1, 2, 4, 5), 1), False)
    (promoted,) = steps(replace(last, target=((4, SEA), (5, SEA), (1, LAKE), (2, LAKE))), {1, 2, 4, 5}, 1)
    assert (promoted.replicas, promoted.leader, promoted.domain) == ((4, 5, 1, 2), 4, SEA)


def test_a_copy_that_is_behind_is_waited_for() -> None:
    both = {1: LAKE, 4: SEA}
    state = state_of(both, {4: SEA, 1: LAKE}, isr=(1,))
    assert step(state, {1, 4}, 1) is None
    assert arriving(state) == (4,)


def test_a_dead_follower_that_shares_a_table_delays_nothing() -> None:
    three = dict.fromkeys((1, 2, 3), ROOT)
    taken = list(steps(state_of(three, dict.fromkeys((1, 2, 3), LAKE), isr=(1, 2)), {1, 2}, 1))
    assert (taken[-1].target, taken[-1].isr) == ((), (1, 2))


@pytest.mark.parametrize("seed", range(300))
def test_every_move_ends_and_no_table_leads_that_the_isr_did_not_hold(seed: int) -> None:
    rng = random.Random(seed)
    places = [ROOT, LAKE, SEA]

    def placed(brokers: list[int]) -> dict[int, str]:
        home = rng.choice(places)
        copies = {r: rng.choice(places) for r in brokers[1:] if rng.random() < 0.3}
        return dict(sorted((dict.fromkeys(brokers, home) | copies).items(), key=lambda each: each[1] != home))

    before = placed(rng.sample(range(1, 6), rng.randrange(1, 5)))
    target = placed(rng.sample(range(1, 6), rng.randrange(1, 5)))
    live = set(range(1, 6)) - ({rng.randrange(1, 6)} if rng.random() < 0.3 else set())
    isr = tuple(r for r in before if r in live)
    if not isr:
        return
    min_isr = rng.randrange(1, len(target) + 1)
    state = state_of(before, target, isr, rng.choice(isr))
    for _ in range(60):
        after = step(state, live, min_isr, sorted(live - set(state.replicas)))
        if after is None:
            if not state.target:
                break
            joined = with_joined(state, live)
            if joined == state:
                break
            state = joined
            continue
        assert after.isr
        assert after.leader == NO_LEADER or after.leader in after.isr
        for member in after.isr:  # each may lead next: its table was that of a member
            domain = after.domain_of(member)
            held = [r for r in state.isr if state.domain_of(r) == domain and (domain or r == member)]
            assert held, (state, after)
        if len(state.isr) >= min_isr and after.target:
            assert len(after.isr) >= min_isr, (state, after)
        state = moved(state, after, 1)
        assert record_from_json(record_to_json(state)[1]) == state
    if set(target) <= live:
        assert state.target == (), state
        assert brief(state)[0] == target
