"""Partition reassignment is decided as Kafka decides it (KIP-455): its steps, cancellation, deaths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import (
    IsrChange,
    alter_partition,
    fence_brokers,
    leave_isr,
    online_partitions,
    register_broker,
    shut_down_broker,
)
from stratalog.replication.controller.election.leader_election import elect_reassigned
from stratalog.replication.controller.reassignment import (
    PartitionReassignment,
    alter_partition_reassignments,
    finish_reassignments,
    list_partition_reassignments,
    original_replicas,
    propose_assignment,
    target_replicas,
)
from stratalog.replication.controller.topics import create_partitions
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.storage.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, broker_epochs_of, commit, image_of, partition, state

TP = TopicPartition(TOPIC, 0)
SIX = range(1, 7)
OAR, RAR = (1, 2, 3), (4, 5, 6)


def moving(
    replicas: Sequence[int],
    leader: int,
    isr: Sequence[int],
    adding: Sequence[int] = RAR,
    removing: Sequence[int] = OAR,
) -> PartitionRecord:
    return replace(partition(replicas, leader, isr), adding=tuple(adding), removing=tuple(removing))


def ask(image: ClusterImage, target: Sequence[int] | None, *, unclean: bool = False) -> None:
    """Ask for one partition and expect that it is done."""
    answers = commit(image, alter_partition_reassignments(image, {TP: target}, unclean_of=lambda _: unclean))
    assert answers == {TP: None}


def want_isr(image: ClusterImage, isr: Sequence[int]) -> PartitionRecord:
    """The leader asks for this ISR."""
    known = state(image)
    change = IsrChange(
        image.identified(TP), known.leader_epoch, known.partition_epoch, tuple(isr), broker_epochs_of(image)
    )
    (answer,) = commit(image, alter_partition(image, known.leader, 10 + known.leader, [change]))
    assert isinstance(answer, PartitionRecord), answer
    return answer


def shape(known: PartitionRecord) -> tuple[tuple[int, ...], int, tuple[int, ...], int]:
    """`(replicas, leader, isr, leader epoch)`"""
    return known.replicas, known.leader, known.isr, known.leader_epoch


# -- OAR {1,2,3} to RAR {4,5,6} in the eleven steps of Kafka's first controller --------------------------


ARTICLE = [
    # what happens, Kafka's steps, AR, leader and ISR after them
    ("initial", "", {1, 2, 3}, 1, {1, 2, 3}),
    ("requested", "1-3", {1, 2, 3, 4, 5, 6}, 1, {1, 2, 3}),
    ("all in sync", "4-5", {1, 2, 3, 4, 5, 6}, 1, {1, 2, 3, 4, 5, 6}),
    ("leader moved", "6-7", {1, 2, 3, 4, 5, 6}, 4, {1, 2, 3, 4, 5, 6}),
    ("old ones out of the ISR", "8-9", {1, 2, 3, 4, 5, 6}, 4, {4, 5, 6}),
    ("done", "10-11", {4, 5, 6}, 4, {4, 5, 6}),
]


def test_the_articles_steps_are_the_request_the_joins_and_the_last_join() -> None:
    image = image_of(SIX, partition(OAR, 1, OAR))
    seen = [("initial", state(image))]
    ask(image, RAR)
    seen.append(("requested", state(image)))
    want_isr(image, (1, 2, 3, 4))
    want_isr(image, (1, 2, 3, 4, 5))
    # Steps 4 to 11 are one commit, the one that takes in 6. What it goes through is shown by the rules it is made of.
    in_sync = replace(state(image), isr=(1, 2, 3, 4, 5, 6))
    seen.append(("all in sync", in_sync))
    election = elect_reassigned(in_sync, set(SIX), target_replicas(in_sync))
    assert election is not None
    seen.append(("leader moved", replace(in_sync, leader=election.leader, isr=election.isr)))
    done = want_isr(image, (1, 2, 3, 4, 5, 6))
    seen.append(("old ones out of the ISR", replace(done, replicas=in_sync.replicas)))
    seen.append(("done", done))
    found = [(what, set(known.replicas), known.leader, set(known.isr)) for what, known in seen]
    assert found == [(what, replicas, leader, isr) for what, _, replicas, leader, isr in ARTICLE]


def test_epochs_and_lists_of_the_articles_example() -> None:
    image = image_of(SIX, partition(OAR, 1, OAR))
    ask(image, RAR)
    assert shape(state(image)) == ((4, 5, 6, 1, 2, 3), 1, OAR, 6)  # step 2: the leader epoch is forced up
    assert (state(image).adding, state(image).removing) == (RAR, OAR)
    assert (target_replicas(state(image)), original_replicas(state(image))) == (RAR, OAR)
    assert shape(want_isr(image, (1, 2, 3, 6))) == ((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 6), 6)
    assert shape(want_isr(image, (1, 2, 3, 6, 4))) == ((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 6, 4), 6)
    assert shape(want_isr(image, (1, 2, 3, 6, 4, 5))) == (RAR, 4, (6, 4, 5), 7)
    assert (state(image).adding, state(image).removing) == ((), ())
    assert list_partition_reassignments(image) == {}


# -- requests ----------------------------------------------------------------------------------------------

REQUESTS = [
    # replicas, isr, target -> replicas, leader, isr, leader epoch, adding, removing
    pytest.param((1, 2, 3), (1, 2, 3), (1, 2, 4), ((1, 2, 4, 3), 1, (1, 2, 3), 6, (4,), (3,)), id="one replica moves"),
    pytest.param((1, 2, 3), (1, 2, 3), (1, 2, 3, 4), ((1, 2, 3, 4), 1, (1, 2, 3), 6, (4,), ()), id="factor up"),
    pytest.param((1, 2, 3), (1, 2, 3), (1, 2), ((1, 2), 1, (1, 2), 6, (), ()), id="factor down at once"),
    pytest.param((1, 2, 3), (1, 2, 3), (2, 3), ((2, 3), 2, (2, 3), 6, (), ()), id="the leader leaves at once"),
    pytest.param((1, 2, 3), (1,), (1, 2), ((1, 2, 3), 1, (1,), 6 - 1, (), (3,)), id="factor down waits for the ISR"),
    pytest.param((1, 2, 3), (1, 2, 3), (3, 1, 2), ((3, 1, 2), 1, (1, 2, 3), 5, (), ()), id="another preferred leader"),
    pytest.param((1, 2, 3), (1, 2, 3), (1, 2, 3), ((1, 2, 3), 1, (1, 2, 3), 5, (), ()), id="nothing to do"),
    pytest.param((1,), (1,), (6,), ((6, 1), 1, (1,), 6, (6,), (1,)), id="the only replica moves"),
]


@pytest.mark.parametrize(("replicas", "isr", "target", "expected"), REQUESTS)
def test_request(
    replicas: tuple[int, ...], isr: tuple[int, ...], target: tuple[int, ...], expected: tuple[object, ...]
) -> None:
    image = image_of(SIX, partition(replicas, 1, isr))
    ask(image, target)
    known = state(image)
    assert (*shape(known), known.adding, known.removing) == expected
    assert alter_partition_reassignments(image, {TP: target}).records == (), "asked again it writes nothing"


REFUSED = [
    ((), InvalidReplicaAssignmentError, "The manual partition assignment includes an empty replica list."),
    ((1, 2, 1), InvalidReplicaAssignmentError, "includes the broker 1 more than once."),
    ((1, 9), InvalidReplicaAssignmentError, "includes broker 9, but no such broker is registered."),
    (None, NoReassignmentInProgressError, "No partition reassignment is in progress."),
]


@pytest.mark.parametrize(("target", "error", "words"), REFUSED)
def test_a_request_that_is_refused_says_why_and_changes_nothing(
    target: tuple[int, ...] | None, error: type[StratalogError], words: str
) -> None:
    image = image_of(SIX, partition(OAR, 1, OAR))
    decision = alter_partition_reassignments(image, {TP: target})
    answer = decision.response[TP]
    assert isinstance(answer, error)
    assert words in str(answer)
    assert decision.records == ()


def test_partitions_are_answered_for_themselves_in_one_commit() -> None:
    image = image_of(SIX, partition(OAR, 1, OAR), partition(OAR, 2, OAR, number=1))
    other, unknown = TopicPartition(TOPIC, 1), TopicPartition("none", 0)
    decision = alter_partition_reassignments(image, {TP: RAR, unknown: (1,), other: (2, 9)})
    answers = commit(image, decision)
    assert answers[TP] is None
    assert isinstance(answers[unknown], UnknownTopicOrPartitionError)
    assert isinstance(answers[other], InvalidReplicaAssignmentError)
    assert [record.topic_partition for record in decision.records if isinstance(record, PartitionRecord)] == [TP]


def test_a_fenced_broker_may_be_a_target() -> None:
    image = image_of(SIX, partition(OAR, 1, OAR), fenced={4: False})
    ask(image, (1, 2, 4))
    assert state(image).adding == (4,)


def test_the_replication_factor_is_kept_when_that_is_asked() -> None:
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 1, OAR))
    decision = alter_partition_reassignments(image, {TP: (1, 2)}, allow_replication_factor_change=False)
    assert isinstance(decision.response[TP], InvalidReplicationFactorError)
    assert "from 3 to 2" in str(decision.response[TP])
    kept = alter_partition_reassignments(image, {TP: (1, 2, 4)}, allow_replication_factor_change=False)
    assert kept.response[TP] is None


# -- another target, and cancellation ------------------------------------------------------------------------

ALONG_THE_WAY = [
    # leader, isr, target -> replicas, leader, isr, adding, removing
    pytest.param(1, (1, 2, 3), None, ((1, 2, 3), 1, (1, 2, 3), (), ()), id="cancelled"),
    pytest.param(1, (1, 2, 3, 4), None, ((1, 2, 3), 1, (1, 2, 3), (), ()), id="cancelled with one in sync"),
    pytest.param(4, (3, 4, 5), None, ((1, 2, 3), 3, (3,), (), ()), id="cancelled while an added one leads"),
    pytest.param(1, (1, 2, 3, 4), (3, 2, 1), ((3, 2, 1), 1, (1, 2, 3), (), ()), id="back by hand, in another order"),
    pytest.param(1, (1, 2, 3, 4), (4, 1), ((4, 1), 1, (1, 4), (), ()), id="less: done at once"),
    pytest.param(
        1,
        (1, 2, 3, 4),
        (4, 7),
        ((4, 7, 1, 2, 3), 1, (1, 2, 3, 4), (4, 7), (1, 2, 3)),
        id="5 and 6 are dropped, 7 comes",
    ),
    pytest.param(
        4, (1, 4), (7,), ((7, 1, 2, 3), 1, (1,), (7,), (1, 2, 3)), id="the leader is dropped, one of OAR leads"
    ),
]


@pytest.mark.parametrize(("leader", "isr", "target", "expected"), ALONG_THE_WAY)
def test_another_target_on_the_way_keeps_the_original_replicas(
    leader: int, isr: tuple[int, ...], target: tuple[int, ...] | None, expected: tuple[object, ...]
) -> None:
    image = image_of(range(1, 8), moving((4, 5, 6, 1, 2, 3), leader, isr))
    ask(image, target)
    known = state(image)
    assert (known.replicas, known.leader, known.isr, known.adding, known.removing) == expected
    assert known.leader_epoch == 6, "replicas were dropped"


def test_a_cancellation_that_would_leave_nobody_in_sync_is_refused_unless_unclean_elections_are_allowed() -> None:
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 4, (4, 5)), fenced={1: False})
    answer = alter_partition_reassignments(image, {TP: None}).response[TP]
    assert isinstance(answer, InvalidReplicaAssignmentError)
    assert "would require an unclean leader election: the ISR [4, 5] has none of [1, 2, 3]" in str(answer)
    commit(image, alter_partition_reassignments(image, {TP: None}, unclean_of=lambda topic: topic == TOPIC))
    assert shape(state(image)) == (OAR, 2, (2,), 6)
    assert state(image).unclean == 1


def test_what_is_under_way_is_listed_as_it_stands() -> None:
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 1, OAR), partition(OAR, 2, OAR, number=1))
    expected = {TP: PartitionReassignment((4, 5, 6, 1, 2, 3), RAR, OAR)}
    assert list_partition_reassignments(image) == expected
    assert list_partition_reassignments(image, [TopicPartition("none", 0), TP]) == expected
    assert list_partition_reassignments(image, [TopicPartition(TOPIC, 1)]) == {}


# -- brokers die, leave and return -------------------------------------------------------------------------


def lists(known: PartitionRecord) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return known.replicas, known.adding, known.removing


@pytest.mark.parametrize(
    ("dead", "leader", "isr"),
    [({1}, 4, (2, 3, 4)), ({4}, 1, (1, 2, 3)), ({5}, 1, (1, 2, 3, 4)), ({1, 2, 3}, 4, (4,)), ({1, 2, 3, 4}, -1, None)],
)
def test_deaths_on_the_way_change_leader_and_isr_and_not_the_plan(
    dead: set[int], leader: int, isr: tuple[int, ...] | None
) -> None:
    before = moving((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 4))
    image = image_of(SIX, before)
    commit(image, fence_brokers(image, {i: 10 + i for i in dead}))
    commit(image, finish_reassignments(image))
    assert (state(image).leader, state(image).isr) == (leader, isr or before.isr)
    assert lists(state(image)) == lists(before)


def test_restart_shutdown_and_damage_keep_the_plan() -> None:
    before = moving((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 4))
    for decide in (
        lambda image: register_broker(image, 1, "run-1b", "/data/1"),
        lambda image: register_broker(image, 4, "run-4b", "/data/4"),
        lambda image: shut_down_broker(image, 1, 11),
        lambda image: shut_down_broker(image, 4, 14),
        lambda image: leave_isr(image, 4, 14, image.identified(TP), ends_epoch=True),
    ):
        image = image_of(SIX, before)
        commit(image, decide(image))
        assert lists(state(image)) == lists(before)
        assert set(state(image).isr) < set(before.isr)


def test_an_isr_that_shrinks_does_not_end_a_reassignment() -> None:
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 1, (1, 2, 3, 4, 5)))
    assert shape(want_isr(image, (1, 4, 5))) == ((4, 5, 6, 1, 2, 3), 1, (1, 4, 5), 5)


def test_a_leader_that_stays_begins_a_new_epoch_when_others_leave() -> None:
    image = image_of(SIX, moving((1, 4, 5, 2, 3), 1, (1, 2, 3, 4), adding=(4, 5), removing=(2, 3)))
    assert shape(want_isr(image, (1, 2, 3, 4, 5))) == ((1, 4, 5), 1, (1, 4, 5), 6)


def test_a_higher_replication_factor_is_reached_without_a_new_epoch() -> None:
    image = image_of(SIX, moving((1, 2, 3, 4), 1, (1, 2, 3), adding=(4,), removing=()))
    assert shape(want_isr(image, (1, 2, 3, 4))) == ((1, 2, 3, 4), 1, (1, 2, 3, 4), 5)
    assert state(image).adding == ()


def test_a_reassignment_whose_target_was_dead_ends_when_it_is_back() -> None:
    # Only 1 is in sync and is to stay alone; it is dead. Dropping 2 and 3 now could lose the last copies.
    image = image_of([1, 2, 3], partition(OAR, NO_LEADER, (1,)), fenced={1: True})
    ask(image, (1,))
    assert shape(state(image)) == (OAR, NO_LEADER, (1,), 5)
    assert finish_reassignments(image).records == ()
    commit(image, register_broker(image, 1, "run-1", "/data/1"))
    commit(image, online_partitions(image))
    assert commit(image, finish_reassignments(image)) == (TP,)
    assert shape(state(image)) == ((1,), 1, (1,), 7)
    assert finish_reassignments(image).records == ()


def test_a_successor_finishes_what_the_folded_state_says_is_due() -> None:
    # An ISR with all of RAR and a plan that is still there: an older release, or the last one was dead at that moment.
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 1, (1, 4, 5, 6)))
    assert commit(image, finish_reassignments(image)) == (TP,)
    assert shape(state(image)) == (RAR, 4, RAR, 6)


def test_new_partitions_get_the_replication_factor_before_the_reassignment() -> None:
    image = image_of(SIX, moving((4, 5, 6, 1, 2, 3), 1, OAR))
    commit(image, create_partitions(image, TOPIC, 2))
    assert len(state(image, 1).replicas) == 3


# -- plans --------------------------------------------------------------------------------------------------


def test_a_proposed_assignment_is_placed_as_a_new_topic_on_these_brokers() -> None:
    current = {TopicPartition("t", p): (1, 2) for p in range(3)} | {TopicPartition("u", 0): (3,)}
    assert propose_assignment(current, {4: None, 5: None, 6: None}, start_index=0, shift=0) == {
        TopicPartition("t", 0): (4, 5),
        TopicPartition("t", 1): (5, 6),
        TopicPartition("t", 2): (6, 4),
        TopicPartition("u", 0): (4,),
    }
    racks = {4: "a", 5: "a", 6: "b", 7: "b"}
    spread = propose_assignment(current, racks, start_index=1, shift=0)
    assert all({racks[r] for r in spread[TopicPartition("t", p)]} == {"a", "b"} for p in range(3))
    with pytest.raises(InvalidReplicationFactorError, match="Replication factor: 2 larger than available brokers: 1"):
        propose_assignment(current, {4: None}, start_index=0, shift=0)
