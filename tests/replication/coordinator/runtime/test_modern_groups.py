"""A KIP-848 group in a broker's runtime: it knows the broker's topics, and a new leader of its partition folds it."""

from __future__ import annotations

from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.replication.coordinator.runtime.test_classic_groups import Groups
from tests.replication.memory_stores import create, led_by

TOPIC_ID = "cd" * 16
JOIN_RECORDS = 5
"""Member, group epoch, its target, the targets' epoch, what it has."""


def with_topic() -> Groups:
    running = Groups()
    create(running.metadata, "t", *(led_by(2, topic="t", partition=number) for number in range(3)), topic_id=TOPIC_ID)
    running.settle()
    return running


def join_request() -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        "g", "m1", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), topic_partitions=()
    )


def test_a_member_is_told_its_partitions_when_the_group_is_replicated() -> None:
    running = with_topic()
    told = running.answer(join_request(), end=JOIN_RECORDS)
    assert isinstance(told, ConsumerGroupHeartbeatResponse)
    assert (told.error, told.member_epoch) == (None, 2)
    assert told.assignment is not None
    assert [(topic.topic_id, topic.partitions) for topic in told.assignment.topic_partitions] == [(TOPIC_ID, (0, 1, 2))]


def test_members_keep_their_epochs_and_partitions_when_the_coordinator_moves() -> None:
    running = with_topic()
    running.answer(join_request(), end=JOIN_RECORDS)
    running.lead(2, 1)
    assert running.answer(ConsumerGroupHeartbeatRequest("g", "m1", 2)).name == "NOT_COORDINATOR"
    running.lead(1, 2)
    running.follow(JOIN_RECORDS)
    told = running.answer(ConsumerGroupHeartbeatRequest("g", "m1", 2))
    assert (told.error, told.member_epoch, told.assignment) == (None, 2, None)
    assert len(running.groups.table.groups["g"].members["m1"].assigned) == 3


def test_a_join_is_not_told_before_it_is_replicated_and_may_be_repeated() -> None:
    running = with_topic()
    assert running.answer(join_request()) is None
    running.lead(2, 1)
    assert running.taken() == ["NOT_COORDINATOR"]
    running.lead(1, 2)
    running.follow(JOIN_RECORDS)
    told = running.answer(join_request())
    assert (told.error, told.member_epoch, told.assignment.topic_partitions[0].partitions) == (None, 2, (0, 1, 2))
    assert list(running.groups.table.groups["g"].members) == ["m1"]


def test_a_silent_member_is_removed_by_the_brokers_clock() -> None:
    running = with_topic()
    running.answer(join_request(), end=JOIN_RECORDS)
    running.clock.now_ms += 45_000
    running.settle()
    running.follow(JOIN_RECORDS + 4)
    told = running.answer(ConsumerGroupHeartbeatRequest("g", "m1", 2))
    assert told.error.name == "UNKNOWN_MEMBER_ID"
