"""The five leader selectors give Kafka's leader and never an empty ISR (promise 11)."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from stratalog.replication.controller.election.leader_election import (
    Election,
    elect_controlled_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from tests.replication.images import partition


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "expected"),
    [
        ((1, 2, 3), {2, 3}, False, Election(2, (2, 3))),
        ((3, 2, 1), {2, 3}, False, Election(2, (3, 2))),  # the order of the replicas, not of the ISR
        ((1, 3), {2, 3}, False, Election(3, (3,))),
        ((1, 3), {2, 3}, True, Election(3, (3,))),  # an ISR member is clean whatever is allowed
        ((1,), {2, 3}, False, None),
        ((1,), {2, 3}, True, Election(2, (2,), unclean=True)),
        ((1,), {3}, True, Election(3, (3,), unclean=True)),
        ((1,), {9}, True, None),
        ((1,), set(), True, None),
    ],
)
def test_offline(isr: tuple[int, ...], live: set[int], unclean: bool, expected: Election | None) -> None:
    assert elect_offline(partition((1, 2, 3), 1, isr), live, unclean) == expected


@pytest.mark.parametrize(
    ("election", "epochs"),
    [
        pytest.param(Election(2, (2, 3)), (6, 10), id="another leader"),
        pytest.param(Election(1, (1,)), (5, 10), id="the leader stays, the ISR shrinks"),
        pytest.param(Election(1, (1,), unclean=True), (6, 10), id="an unclean election"),
    ],
)
def test_a_leader_epoch_begins_with_another_leader(election: Election, epochs: tuple[int, int]) -> None:
    """`epochs`: leader epoch and partition epoch, from 5 and 9."""
    before = partition((1, 2, 3), 1, (1, 2, 3), leader_epoch=5, partition_epoch=9)
    after = election.applied_to(before, 1)
    assert (after.leader_epoch, after.partition_epoch, after.isr) == (*epochs, election.isr)


@pytest.mark.parametrize(
    ("isr", "elr", "last_known", "live", "unclean", "expected"),
    [
        pytest.param((1,), (3, 2), (), {2, 3}, False, Election(2, (2,)), id="an eligible one leads alone"),
        pytest.param((1,), (3,), (), {2, 3}, True, Election(3, (3,)), id="that is clean whatever is allowed"),
        pytest.param((1, 3), (2,), (), {2, 3}, False, Election(3, (3,)), id="not while the ISR has somebody"),
        pytest.param((1,), (3,), (), {2}, False, None, id="it must be live"),
        pytest.param((1,), (), (3,), {2, 3}, False, None, id="who was eligible is not any more"),
        pytest.param((1,), (), (3,), {2, 3}, True, Election(3, (3,), unclean=True), id="but it probably lacks least"),
        pytest.param((1,), (), (3,), {2}, True, Election(2, (2,), unclean=True), id="else whoever is there"),
    ],
)
def test_offline_with_eligible_leader_replicas(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last_known: tuple[int, ...],
    live: set[int],
    unclean: bool,
    expected: Election | None,
) -> None:
    state = partition((1, 2, 3), 1, isr, elr=elr, last_known_elr=last_known)
    assert elect_offline(state, live, unclean) == expected


@pytest.mark.parametrize(
    ("target", "live", "expected"),
    [
        ((4, 5, 6), {1, 4, 5, 6}, Election(4, (1, 2, 3, 4, 5, 6))),  # OAR {1,2,3} -> RAR {4,5,6}: the leader moves
        ((4, 5, 6), {1, 5, 6}, Election(5, (1, 2, 3, 4, 5, 6))),
        ((4, 5, 6), {1, 2, 3}, None),
        ((7,), {7}, None),  # live, not in sync
    ],
)
def test_reassigned(target: tuple[int, ...], live: set[int], expected: Election | None) -> None:
    state = partition((1, 2, 3, 4, 5, 6), 1, (1, 2, 3, 4, 5, 6))
    assert elect_reassigned(state, live, target) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "live", "expected"),
    [
        (2, (2, 1), {1, 2, 3}, Election(1, (2, 1))),
        (1, (1, 2), {1, 2, 3}, Election(1, (1, 2))),
        (2, (2, 3), {1, 2, 3}, None),  # not in sync
        (2, (1, 2), {2, 3}, None),  # not live
    ],
)
def test_preferred(leader: int, isr: tuple[int, ...], live: set[int], expected: Election | None) -> None:
    state = partition((1, 2, 3), leader, isr)
    election = elect_preferred(state, live)
    assert election == expected
    assert election is None or election.changes(state) == (leader != 1)


@pytest.mark.parametrize(
    ("leader", "isr", "leaving", "expected"),
    [
        (1, (1, 2, 3), {1}, Election(2, (2, 3))),
        (1, (1, 3), {1}, Election(3, (3,))),
        (2, (1, 2, 3), {1}, Election(2, (2, 3))),  # a follower leaves: the leader stays
        (1, (1, 2, 3), {1, 2}, Election(3, (3,))),
        (1, (1,), {1}, None),
        (1, (1, 9), {1}, None),  # the other member is not live
    ],
)
def test_controlled_shutdown(leader: int, isr: tuple[int, ...], leaving: set[int], expected: Election | None) -> None:
    assert elect_controlled_shutdown(partition((1, 2, 3, 9), leader, isr), {1, 2, 3}, leaving) == expected


@pytest.mark.parametrize(
    ("elr", "live", "leaving", "expected"),
    [
        ((2, 3), {1, 2, 3}, {1}, Election(2, (2,))),
        ((2, 3), {1, 2, 3}, {1, 2}, Election(3, (3,))),  # who leaves, too, does not lead
        ((2,), {1, 3}, {1}, None),
    ],
)
def test_controlled_shutdown_of_the_last_in_the_isr_leaves_an_eligible_replica_to_lead(
    elr: tuple[int, ...], live: set[int], leaving: set[int], expected: Election | None
) -> None:
    assert elect_controlled_shutdown(partition((1, 2, 3), 1, (1,), elr=elr), live, leaving) == expected


def test_preferred_and_reassigned_leaders_come_from_the_isr_alone() -> None:
    """They are for partitions that have a leader, who may have more than an eligible replica has."""
    state = partition((2, 1), 1, (1,), elr=(2,))
    assert elect_preferred(state, {1, 2}) is None
    assert elect_reassigned(state, {1, 2}, (2,)) is None


def test_whoever_is_elected_is_live_and_in_the_isr() -> None:
    replicas = (1, 2, 3)
    subsets = list(chain.from_iterable(combinations(replicas, n) for n in range(4)))
    for isr in subsets[1:]:
        for live in subsets:
            state = partition(replicas, isr[0], isr)
            for election in (
                elect_offline(state, live, unclean=True),
                elect_reassigned(state, live, (3, 2)),
                elect_preferred(state, live),
                elect_controlled_shutdown(state, live, {1}),
            ):
                assert election is None or (election.leader in live and election.leader in election.isr)
