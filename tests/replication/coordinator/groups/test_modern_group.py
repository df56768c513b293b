"""A KIP-848 group: who owns what, what is refused, what a coordinator that takes over knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import ModernMemberState
from stratalog.replication.coordinator.groups.table import CLASSIC, DecisionBuilder
from stratalog.replication.metadata.configs import GROUP_ASSIGNMENT, GROUP_HEARTBEAT, GROUP_SESSION
from stratalog.replication.metadata.records import ConfigRecord, of_group
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest, TopicPartitions
from stratalog.storage.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    StratalogError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from tests.replication.consumer_groups import GROUP, Consumer, Coordinator, joining


def test_one_member_gets_everything_with_its_first_heartbeat() -> None:
    coordinator = Coordinator(t=3, u=2)
    consumer = Consumer(coordinator, "m1", ("t", "u", "nowhere"))
    response = consumer.heartbeat()
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m1", 2, 5_000)
    assert consumer.assignment == coordinator.partitions("t", "u")
    assert coordinator.group.state_name == "Stable"


def test_a_second_member_gets_a_partition_only_when_the_first_has_told_that_it_gave_it_up() -> None:
    coordinator = Coordinator(t=4)
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    first.settle()
    second.settle()
    assert (second.epoch, second.owned) == (3, frozenset())
    assert coordinator.group.state_name == "Reconciling"
    first.heartbeat()
    assert (first.epoch, len(first.assignment)) == (2, 2)
    assert coordinator.group.members["m1"].state is ModernMemberState.UNREVOKED_PARTITIONS
    second.settle()
    assert second.owned == frozenset()
    first.reconcile()
    first.settle()
    assert first.epoch == 3
    second.settle()
    assert (len(first.owned), len(second.owned)) == (2, 2)
    assert first.owned | second.owned == coordinator.partitions("t")
    assert coordinator.group.state_name == "Stable"


def test_a_member_that_leaves_frees_its_partitions_for_the_others() -> None:
    coordinator = Coordinator(t=4)
    first, second = settled_pair(coordinator)
    response = first.leave()
    assert (response.error, response.member_epoch) == (None, -1)
    assert coordinator.group.state_name == "Assigning"
    second.settle()
    assert second.owned == coordinator.partitions("t")
    second.leave()
    assert coordinator.group.is_empty
    assert coordinator.group.owners == {}


def settled_pair(coordinator: Coordinator, *topics: str) -> tuple[Consumer, Consumer]:
    pair = Consumer(coordinator, "m1", topics or ("t",)), Consumer(coordinator, "m2", topics or ("t",))
    for _ in range(3):
        for consumer in pair:
            consumer.settle()
    return pair


def test_a_member_without_heartbeats_is_removed_after_its_session() -> None:
    coordinator = Coordinator(t=4)
    first, second = settled_pair(coordinator)
    coordinator.pass_time(44_999)
    first.heartbeat()
    coordinator.pass_time(1)
    assert list(coordinator.group.members) == ["m1"]
    first.settle()
    assert first.owned == coordinator.partitions("t")
    assert isinstance(second.heartbeat().error, UnknownMemberIdError)
    assert second.owned == frozenset()


def test_a_member_that_does_not_give_partitions_up_is_removed_after_its_rebalance_timeout() -> None:
    coordinator = Coordinator(t=4)
    slow, other = Consumer(coordinator, "m1", ("t",), rebalance_timeout_ms=20_000), Consumer(coordinator, "m2", ("t",))
    slow.settle()
    other.settle()
    slow.heartbeat()
    coordinator.pass_time(19_999)
    slow.heartbeat()
    other.heartbeat()
    assert "m1" in coordinator.group.members
    coordinator.pass_time(1)
    assert "m1" not in coordinator.group.members
    other.settle()
    assert other.owned == coordinator.partitions("t")


def test_giving_partitions_up_in_time_ends_the_rebalance_timeout() -> None:
    coordinator = Coordinator(t=4)
    first, second = settled_pair(coordinator)
    for _ in range(10):
        coordinator.pass_time(40_000)
        first.settle()
        second.settle()
    assert set(coordinator.group.members) == {"m1", "m2"}


def test_new_partitions_and_topics_are_assigned_at_the_next_heartbeat() -> None:
    coordinator = Coordinator(t=2)
    first, second = settled_pair(coordinator, "t", "later")
    coordinator.add_partitions("t", 2)
    coordinator.create_topic("later", 4)
    for _ in range(3):
        first.settle()
        second.settle()
    assert first.owned | second.owned == coordinator.partitions("t", "later")
    assert (len(first.owned), len(second.owned)) == (4, 4)


def test_a_topic_that_a_member_drops_is_given_up_before_the_target_is_computed_anew() -> None:
    coordinator = Coordinator(interval_ms=1_000, t=2, u=2)
    consumer = Consumer(coordinator, "m1", ("t", "u"))
    consumer.settle()
    consumer.topics, consumer.send_all = ("t",), True
    consumer.settle()
    assert consumer.owned == coordinator.partitions("t")
    assert coordinator.group.state_name == "Assigning"
    coordinator.pass_time(1_000)
    consumer.settle()
    assert coordinator.group.state_name == "Stable"


def test_targets_are_computed_at_most_once_in_an_interval() -> None:
    coordinator = Coordinator(interval_ms=1_000, t=4)
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    first.settle()
    coordinator.pass_time(999)
    second.settle()
    assert coordinator.group.target_epoch < coordinator.group.group_epoch
    coordinator.pass_time(1)
    second.settle()
    assert coordinator.group.target_epoch == coordinator.group.group_epoch


def test_a_groups_own_times_come_before_its_brokers() -> None:
    coordinator = Coordinator(interval_ms=1_000, t=4)
    for name, value in ((GROUP_ASSIGNMENT, "0"), (GROUP_HEARTBEAT, "7000"), (GROUP_SESSION, "60000")):
        coordinator.image = coordinator.image.fold(ConfigRecord(of_group(GROUP), name, value))
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    assert first.heartbeat().heartbeat_interval_ms == 7_000
    first.settle()
    second.settle()
    assert coordinator.group.target_epoch == coordinator.group.group_epoch
    coordinator.pass_time(59_999)
    assert list(coordinator.group.members) == ["m1", "m2"]
    coordinator.pass_time(1)
    assert list(coordinator.group.members) == []


def test_a_member_whose_answer_was_lost_may_come_with_its_epoch_before() -> None:
    coordinator = Coordinator(t=4)
    first, second = settled_pair(coordinator)
    second.leave()
    first.heartbeat(answer_lost=True)
    assert coordinator.group.members["m1"].member_epoch > first.epoch
    response = first.heartbeat()
    assert response.error is None
    assert first.assignment == coordinator.partitions("t")


@pytest.mark.parametrize(
    ("epoch", "owned", "word"), [(9, None, "greater"), (1, None, "smaller"), (2, None, "smaller"), (2, (9,), "smaller")]
)
def test_any_other_epoch_is_fenced(epoch: int, owned: tuple[int, ...] | None, word: str) -> None:
    """2 is the epoch before: allowed only to who says what it owns, and that is its own."""
    coordinator = Coordinator(t=4)
    settled_pair(coordinator)
    topic_id = coordinator.image.topic_ids["t"]
    partitions = None if owned is None else (TopicPartitions(topic_id, owned),)
    request = ConsumerGroupHeartbeatRequest(GROUP, "m1", epoch, topic_partitions=partitions)
    before = len(coordinator.log)
    error = coordinator.heartbeat(request).error
    assert isinstance(error, FencedMemberEpochError)
    assert error.code == 110
    assert f"{word} member epoch ({epoch}) than the one known by the group coordinator (3)" in str(error)
    assert len(coordinator.log) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": (TopicPartitions("0" * 32, (1,)),)}, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": None}, "must be non-null when (re-)joining."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
    ],
)
def test_requests_that_say_what_no_member_may_say_are_invalid(changes: dict[str, Any], message: str) -> None:
    coordinator = Coordinator(t=1)
    error = coordinator.heartbeat(joining(**changes)).error
    assert isinstance(error, InvalidRequestError)
    assert message in str(error)
    assert coordinator.log == []


@pytest.mark.parametrize(
    ("request_", "error", "code"),
    [
        (joining(server_assignor="sticky"), UnsupportedAssignorError, 112),
        (joining(subscribed_topic_regex="t("), InvalidRegularExpressionError, 128),
        (joining(subscribed_topic_regex="(?=t).*"), InvalidRegularExpressionError, 128),
        (joining(member_id="m3"), GroupMaxSizeReachedError, 81),
        (joining(member_epoch=5, member_id="m3", group_id="other"), GroupIdNotFoundError, 69),
        (joining(member_epoch=-1, member_id="m3", group_id="other"), GroupIdNotFoundError, 69),
        (joining(member_epoch=-1, member_id="m3"), UnknownMemberIdError, 25),
    ],
)
def test_refusals_have_kafkas_codes_and_change_nothing(
    request_: ConsumerGroupHeartbeatRequest, error: type[StratalogError], code: int
) -> None:
    coordinator = Coordinator(max_size=2, t=1)
    settled_pair(coordinator)
    before = len(coordinator.log)
    refused = coordinator.heartbeat(request_).error
    assert isinstance(refused, error)
    assert (refused.code, len(coordinator.log)) == (code, before)


def test_a_full_group_still_hears_its_members() -> None:
    coordinator = Coordinator(max_size=2, t=1)
    first, _second = settled_pair(coordinator)
    first.abandon()
    assert first.heartbeat().error is None


def test_old_clients_get_a_member_id() -> None:
    coordinator = Coordinator(t=1)
    response = coordinator.heartbeat(joining(member_id="", generates_member_id=False))
    assert response.error is None
    assert response.member_id in coordinator.group.members


# Static members


def test_a_static_member_that_comes_back_has_its_partitions_and_moves_nothing() -> None:
    coordinator = Coordinator(t=4)
    static, other = Consumer(coordinator, "m1", ("t",), "i1"), Consumer(coordinator, "m2", ("t",))
    for _ in range(3):
        static.settle()
        other.settle()
    had, epoch = static.owned, coordinator.group.group_epoch
    assert static.leave(-2).member_epoch == -2
    other.settle()
    assert coordinator.group.members["m1"].member_epoch == -2
    back = Consumer(coordinator, "m3", ("t",), "i1")
    back.settle()
    assert back.owned == had
    assert coordinator.group.group_epoch == epoch
    assert set(coordinator.group.members) == {"m2", "m3"}
    assert {coordinator.group.owners[partition] for partition in had} == {"m3"}


def test_a_static_member_may_come_back_under_its_old_member_id() -> None:
    coordinator = Coordinator(t=2)
    static = Consumer(coordinator, "m1", ("t",), "i1")
    static.settle()
    static.leave(-2)
    static.settle()
    assert static.owned == coordinator.partitions("t")


@pytest.mark.parametrize("member_id", ["m1", "m3"])
def test_a_static_member_whose_join_was_not_answered_joins_again(member_id: str) -> None:
    """A coordinator that is slow to replicate answers COORDINATOR_NOT_AVAILABLE, and the join counts all the same."""
    coordinator = Coordinator(t=2)
    first = Consumer(coordinator, "m1", ("t",), "i1")
    first.settle()
    first.leave(-2)
    back = Consumer(coordinator, member_id, ("t",), "i1")
    back.heartbeat(answer_lost=True)
    epoch = coordinator.group.group_epoch
    back.settle()
    assert back.errors == []
    assert back.owned == coordinator.partitions("t")
    assert (coordinator.group.group_epoch, set(coordinator.group.members)) == (epoch, {member_id})


def test_a_static_member_that_stays_away_is_removed_after_its_session() -> None:
    coordinator = Coordinator(t=2)
    static = Consumer(coordinator, "m1", ("t",), "i1")
    static.settle()
    static.leave(-2)
    coordinator.pass_time(45_000)
    assert coordinator.group.is_empty
    assert coordinator.group.static_members == {}


def test_an_instance_id_belongs_to_one_member_until_it_leaves() -> None:
    coordinator = Coordinator(t=2)
    Consumer(coordinator, "m1", ("t",), "i1").settle()
    unreleased = coordinator.heartbeat(joining(member_id="m2", instance_id="i1")).error
    assert isinstance(unreleased, UnreleasedInstanceIdError)
    assert unreleased.code == 111
    fenced = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m2", 2, "i1")).error
    assert isinstance(fenced, FencedInstanceIdError)
    unknown = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m2", 2, "i2")).error
    assert isinstance(unknown, UnknownMemberIdError)
    left = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m2", -2, "i1")).error
    assert isinstance(left, FencedInstanceIdError)


# Records


def test_a_coordinator_that_takes_over_has_the_group_and_starts_its_sessions() -> None:
    coordinator = Coordinator(t=4)
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    first.settle()
    second.settle()
    first.heartbeat()
    group = replace(coordinator.group)
    for log in (None, coordinator.compacted()):
        coordinator.fail_over(log)
        assert coordinator.group == group
    first.reconcile()
    first.settle()
    second.settle()
    assert coordinator.group.state_name == "Stable"
    coordinator.fail_over()
    coordinator.pass_time(45_000)
    assert coordinator.group.is_empty


def test_tombstones_remove_a_group_without_a_trace() -> None:
    coordinator = Coordinator(t=2)
    Consumer(coordinator, "m1", ("t",), regex="t").settle()
    for record in coordinator.group.tombstones():
        coordinator.kind.replay(record, 0)
    assert coordinator.table.groups == {}
    coordinator.log += ModernGroup(GROUP).tombstones()
    coordinator.fail_over(coordinator.log[-2:])
    assert coordinator.table.groups == {}


def test_an_empty_group_of_another_kind_gives_way_and_one_with_members_does_not() -> None:
    coordinator = Coordinator(t=1)
    coordinator.table.groups[GROUP] = ClassicStandIn(is_empty=False)
    refused = coordinator.heartbeat(joining())
    assert isinstance(refused.error, GroupIdNotFoundError)
    coordinator.table.groups[GROUP] = ClassicStandIn(is_empty=True)
    assert coordinator.heartbeat(joining()).error is None
    assert isinstance(coordinator.group, ModernGroup)


class ClassicStandIn:
    group_id, group_type = GROUP, CLASSIC

    def __init__(self, *, is_empty: bool) -> None:
        self.is_empty = is_empty

    def tombstones(self) -> tuple[Any, ...]:
        return ()


def test_timers_of_groups_and_members_that_are_gone_do_nothing() -> None:
    coordinator = Coordinator(t=1)
    consumer = Consumer(coordinator, "m1", ("t",))
    consumer.settle()
    keys = list(coordinator.table.timers.pop_due(coordinator.now_ms + 10**9))
    consumer.leave()
    decision = DecisionBuilder(coordinator.now_ms)
    for key in keys:
        coordinator.kind.expire(key, decision)
        coordinator.kind.expire(key._replace(group_id="gone"), decision)
    assert (len(keys), decision.records) == (1, [])


def test_a_hundred_members_over_a_thousand_partitions_end_up_with_ten_each() -> None:
    coordinator = Coordinator(t=1000)
    consumers = [Consumer(coordinator, f"m{at:03}", ("t",)) for at in range(100)]
    for consumer in consumers:
        consumer.settle()
    for _ in range(4):
        for consumer in consumers:
            consumer.settle()
    assert coordinator.group.state_name == "Stable"
    assert {len(consumer.owned) for consumer in consumers} == {10}
    assert frozenset().union(*(consumer.owned for consumer in consumers)) == coordinator.partitions("t")
