"""Replicas are placed as Kafka places them: balanced, shifted, rack by rack."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.controller.placement import assign_replicas, check_assignment, rack_alternated
from stratalog.storage.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)

FIVE = dict.fromkeys(range(5))
SIX_IN_THREE_RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_known_answer_without_racks() -> None:
    # AdminUtils' own example: 10 partitions, 3 replicas, 5 brokers, start index 0, shift 0
    assert assign_replicas(FIVE, 10, 3, start_index=0, shift=0) == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_known_answer_with_racks() -> None:
    # AdminRackAwareTest
    assert rack_alternated(SIX_IN_THREE_RACKS) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated({i: SIX_IN_THREE_RACKS[i] for i in range(5)}) == [0, 3, 1, 4, 2]
    assert assign_replicas(SIX_IN_THREE_RACKS, 7, 3, start_index=0, shift=0) == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


def test_new_partitions_go_on_where_the_old_ones_ended() -> None:
    whole = assign_replicas(FIVE, 4, 3, start_index=1, shift=2)
    assert whole[:2] == assign_replicas(FIVE, 2, 3, start_index=1, shift=2)
    assert whole[2:] == assign_replicas(FIVE, 2, 3, start_index=1, shift=2, first_partition=2)


def test_one_broker_holds_a_topic_of_one_replica() -> None:
    assert assign_replicas({7: None}, 2, 1, start_index=3, shift=5) == [(7,), (7,)]


def test_a_broker_without_a_rack_means_racks_are_not_looked_at() -> None:
    some_racks = {0: "a", 1: "a", 2: None, 3: "b"}
    no_racks = dict.fromkeys(some_racks)
    placed = assign_replicas(some_racks, 4, 2, start_index=0, shift=0)
    assert placed == assign_replicas(no_racks, 4, 2, start_index=0, shift=0)


@given(
    broker_count=st.integers(1, 9),
    rack_count=st.integers(0, 4),
    factor=st.integers(1, 9),
    start_index=st.integers(0, 20),
    shift=st.integers(0, 20),
)
def test_always_balanced_on_distinct_brokers_and_racks(
    broker_count: int, rack_count: int, factor: int, start_index: int, shift: int
) -> None:
    factor = min(factor, broker_count)
    racks = {i: f"rack{i % rack_count}" if rack_count else None for i in range(broker_count)}
    placed = assign_replicas(racks, 3 * broker_count, factor, start_index=start_index, shift=shift)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[r] for r in replicas}) == min(factor, len(set(racks.values())))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}


@pytest.mark.parametrize(
    ("partitions", "factor", "error", "words"),
    [
        (1, 4, InvalidReplicationFactorError, "Replication factor: 4 larger than available brokers: 3."),
        (1, 0, InvalidReplicationFactorError, "Replication factor must be larger than 0."),
        (0, 1, InvalidPartitionsError, "Number of partitions must be larger than 0."),
    ],
)
def test_impossible_numbers_are_refused(partitions: int, factor: int, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as refusal:
        assign_replicas({1: None, 2: None, 3: None}, partitions, factor, start_index=0, shift=0)
    assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ({}, "consecutive 0-based integer sequence"),
        ({1: (1, 2)}, "consecutive 0-based integer sequence"),
        ({0: (1, 2), 2: (1, 2)}, "consecutive 0-based integer sequence"),
        ({0: ()}, "includes an empty replica list."),
        ({0: (1, 9)}, "includes broker 9, but no such broker is registered."),
        ({0: (1, 1)}, "includes the broker 1 more than once."),
        ({0: (1, 2), 1: (1,)}, "not consistent with previous partitions, which have 2 replica(s)."),
    ],
)
def test_impossible_assignments_are_refused(assignment: dict[int, tuple[int, ...]], words: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError) as refusal:
        check_assignment(assignment, {1, 2, 3})
    assert words in str(refusal.value)


def test_a_possible_assignment_is_taken() -> None:
    check_assignment({0: (3, 1), 1: (1, 2)}, {1, 2, 3})
    check_assignment({4: (3, 1)}, {1, 2, 3}, first_partition=4)
