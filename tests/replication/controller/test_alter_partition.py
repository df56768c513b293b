"""A leader changes its ISR only as the current leader, from the state it knows, with members that may be in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import IsrChange, alter_partition, fence_brokers, register_broker
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotLeaderOrFollowerError,
    StaleBrokerEpochError,
    StratalogError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.replication.images import TOPIC, brief, commit, image_of, partition, state

TP = TopicPartition(TOPIC, 0)
LED_BY_1 = partition((1, 2, 3), 1, (1, 2), leader_epoch=5, partition_epoch=9)
GROW = IsrChange(IdentifiedPartition("id-orders", TP), 5, 9, (1, 2, 3), {3: 13})


@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (1, 3), (3, 1)])
def test_the_leader_changes_its_isr_without_a_new_leader_epoch(isr: tuple[int, ...]) -> None:
    image = image_of([1, 2, 3], LED_BY_1)
    answers = commit(image, alter_partition(image, 1, 11, [GROW._replace(isr=isr)]))
    assert answers == [replace(LED_BY_1, isr=isr, partition_epoch=10)] == [state(image)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (GROW._replace(partition=IdentifiedPartition("id", TopicPartition("nope", 0))), UnknownTopicOrPartitionError),
        (GROW._replace(partition=IdentifiedPartition("an earlier id", TP)), UnknownTopicIdError),
        (GROW._replace(leader_epoch=4), FencedLeaderEpochError),
        (GROW._replace(leader_epoch=6), UnknownLeaderEpochError),
        (GROW._replace(partition_epoch=8), InvalidUpdateVersionError),
        (GROW._replace(partition_epoch=10), InvalidUpdateVersionError),
        (GROW._replace(isr=()), InvalidRequestError),
        (GROW._replace(isr=(2, 3)), InvalidRequestError),  # without the leader
        (GROW._replace(isr=(1, 1, 2, 3)), InvalidRequestError),
        (GROW._replace(isr=(1, 2, 4)), InvalidRequestError),  # live, not assigned
        (GROW._replace(isr=(1, 2, 5)), InvalidRequestError),  # assigned, fenced
        (GROW._replace(isr=(1, 2, 6)), InvalidRequestError),  # assigned, never registered
        (GROW._replace(broker_epochs={3: 12}), InvalidRequestError),  # caught up before its restart (KIP-903)
        (GROW._replace(broker_epochs={}), InvalidRequestError),  # caught up under no registration that the leader knows
    ],
)
def test_refused(change: IsrChange, error: type[StratalogError]) -> None:
    image = image_of([1, 2, 3, 4, 5], replace(LED_BY_1, replicas=(1, 2, 3, 5, 6)), fenced={5: False})
    decision = alter_partition(image, 1, 11, [change])
    assert decision.records == ()
    assert [type(answer) for answer in decision.response] == [error]


def test_only_the_leader_may_ask() -> None:
    image = image_of([1, 2, 3], LED_BY_1)
    answers = alter_partition(image, 2, 12, [GROW]).response
    assert [type(answer) for answer in answers] == [NotLeaderOrFollowerError]


@pytest.mark.parametrize(("broker_id", "broker_epoch", "fenced"), [(1, 10, {}), (1, 12, {}), (1, 11, {1: False})])
def test_an_earlier_life_of_the_leader_is_refused_as_a_whole(
    broker_id: int, broker_epoch: int, fenced: dict[int, bool]
) -> None:
    with pytest.raises(StaleBrokerEpochError):
        alter_partition(image_of([1, 2, 3], LED_BY_1, fenced=fenced), broker_id, broker_epoch, [GROW])


def test_an_isr_that_is_so_already_is_answered_with_the_state() -> None:
    image = image_of([1, 2, 3], LED_BY_1)
    commit(image, alter_partition(image, 1, 11, [GROW]))
    again = alter_partition(image, 1, 11, [GROW])
    assert (again.records, again.response) == ((), [state(image)])


def test_a_member_that_stays_is_not_asked_for_its_broker_epoch() -> None:
    image = image_of([1, 2, 3], LED_BY_1)
    change = GROW._replace(broker_epochs={2: 1, 3: 13})
    assert commit(image, alter_partition(image, 1, 11, [change])) == [state(image)]


def test_changes_are_decided_each_for_itself_and_answered_in_order() -> None:
    other = replace(LED_BY_1, partition=1)
    image = image_of([1, 2, 3], LED_BY_1, other)
    stale = IsrChange(IdentifiedPartition("id-orders", TopicPartition(TOPIC, 1)), 4, 9, (1,))
    twice = [GROW, stale, GROW._replace(isr=(1,)), GROW._replace(partition_epoch=10, isr=(1, 3))]
    decision = alter_partition(image, 1, 11, twice)
    kinds = [PartitionRecord, FencedLeaderEpochError, InvalidUpdateVersionError, PartitionRecord]
    assert [type(answer) for answer in decision.response] == kinds
    assert decision.records == (decision.response[3],), "one record a partition, the last state"
    image = image.fold(decision.records[0])
    assert (state(image).isr, state(image).partition_epoch) == ((1, 3), 11)


def test_an_expansion_in_flight_dies_with_the_leaders_old_life() -> None:
    # Promise 13: the hung leader's {1,2} -> {1,2,3} must not commit after its restart.
    image = image_of([1, 2, 3], LED_BY_1)
    commit(image, register_broker(image, 1, "run-1b", "/data/1"))
    assert brief(state(image)) == (2, (2,), 6)
    with pytest.raises(StaleBrokerEpochError):
        alter_partition(image, 1, 11, [GROW])
    assert [type(a) for a in alter_partition(image, 1, 14, [GROW]).response] == [FencedLeaderEpochError]


def test_an_expansion_in_flight_dies_with_the_failover() -> None:
    # The controller's shrink keeps the leader epoch, but a change decided before it cannot bring the dead back.
    image = image_of([1, 2, 3], LED_BY_1)
    commit(image, fence_brokers(image, {2: 12}))
    answers = alter_partition(image, 1, 11, [GROW]).response
    assert [type(answer) for answer in answers] == [InvalidUpdateVersionError]
    assert (brief(state(image)), state(image).partition_epoch) == ((1, (1,), 5), 10)
