"""What a KIP-848 group subscribes to and tells: regular expressions, assignors, descriptions, offsets."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.coordinator.groups.modern.group import NAMES_MAX
from stratalog.replication.metadata.records import RemoveTopicRecord
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest, TopicPartitions
from stratalog.replication.requests.groups import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from stratalog.storage.errors import (
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from tests.replication.consumer_groups import GROUP, Consumer, Coordinator, joining


def test_a_regular_expression_follows_topics_that_come_and_whole_names_only() -> None:
    coordinator = Coordinator(**{"log-a": 2, "log-b": 2, "old-log-a": 1})
    consumer = Consumer(coordinator, "m1", (), regex="log-.*")
    consumer.settle()
    assert consumer.owned == coordinator.partitions("log-a", "log-b")
    coordinator.create_topic("log-c", 1)
    consumer.settle()
    assert len(consumer.owned) == 4
    coordinator.pass_time(10_001)
    consumer.settle()
    assert consumer.owned == coordinator.partitions("log-a", "log-b", "log-c")
    consumer.regex, consumer.topics, consumer.send_all = "", ("old-log-a",), True
    for _ in range(2):
        consumer.settle()
    assert consumer.owned == coordinator.partitions("old-log-a")
    assert coordinator.group.regexes == {}


def test_a_regular_expression_goes_with_its_last_member() -> None:
    coordinator = Coordinator(t=1)
    first, second = Consumer(coordinator, "m1", (), regex="t.*"), Consumer(coordinator, "m2", (), regex="t.*")
    first.settle()
    second.settle()
    first.leave()
    assert set(coordinator.group.regexes) == {"t.*"}
    second.leave()
    assert coordinator.group.regexes == {}


def test_sessions_that_end_at_once_leave_nothing_of_their_members() -> None:
    coordinator = Coordinator(t=2, u=2)
    gone = [Consumer(coordinator, f"m{at}", ("u",), regex="t") for at in range(3)]
    stays = Consumer(coordinator, "stays", ("u",))
    for consumer in (*gone, stays):
        consumer.settle()
    coordinator.pass_time(40_000)
    stays.settle()
    coordinator.pass_time(5_000)
    assert set(coordinator.group.members) == {"stays"}
    assert coordinator.group.regexes == {}
    epoch = coordinator.group.group_epoch
    stays.settle()
    assert (coordinator.group.group_epoch, stays.owned) == (epoch, coordinator.partitions("u"))


@pytest.mark.parametrize(
    "regex", ["(?!a)b", "(?<=a)b", r"(a)\1", "(?P<n>a)(?P=n)", "(?>a)b", "a++", "(a)(?(1)b|c)", "[", "*"]
)
def test_what_re2_does_not_know_is_refused(regex: str) -> None:
    error = Coordinator(t=1).heartbeat(joining(subscribed_topic_regex=regex)).error
    assert isinstance(error, InvalidRegularExpressionError)
    assert f"`{regex}`" in str(error)


@pytest.mark.parametrize("regex", [r"a\\1", r"a\++", "(?:a|b)+", "(?i)a", "(?P<n>a)", "a{2,3}", r"\d+", r"\pL"])
def test_what_re2_knows_is_taken(regex: str) -> None:
    assert Coordinator(t=1).heartbeat(joining(subscribed_topic_regex=regex)).error is None


def test_classes_of_re2_match_whole_names() -> None:
    coordinator = Coordinator(orders=1, bills2=1)
    coordinator.heartbeat(joining(subscribed_topic_regex="[[:alpha:]]+"))
    assert coordinator.group.regexes["[[:alpha:]]+"].topics == {"orders"}


def test_no_expression_takes_long() -> None:
    """One that Python's `re` would try in 2 ** 249 ways."""
    coordinator = Coordinator(**{"a" * 249: 1})
    coordinator.heartbeat(joining(subscribed_topic_regex="(a+)+b"))
    assert coordinator.group.regexes["(a+)+b"].topics == set()


# Assignors, descriptions, offsets


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    coordinator = Coordinator(t=3, u=3)
    for member_id, assignor in (("m1", "range"), ("m2", "range"), ("m3", "uniform")):
        names = ("t", "u")
        coordinator.heartbeat(joining(member_id=member_id, server_assignor=assignor, subscribed_topic_names=names))
    assert {tuple(sorted(tp.partition for tp in target)) for target in coordinator.group.targets.values()} == {
        (0, 0),
        (1, 1),
        (2, 2),
    }
    assert coordinator.describe().assignor_name == "range"


def test_of_assignors_that_equally_many_ask_for_the_default_one_is_used() -> None:
    coordinator = Coordinator(t=4)
    for member_id, assignor in (("m1", "range"), ("m2", "uniform"), ("m3", None)):
        coordinator.heartbeat(joining(member_id=member_id, server_assignor=assignor))
    assert coordinator.describe().assignor_name == "uniform"


def test_a_description_tells_what_a_member_has_with_what_it_is_still_to_give_up_and_its_target() -> None:
    coordinator = Coordinator(t=4)
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    first.settle()
    second.settle()
    first.heartbeat()
    described = coordinator.describe()
    topic_id = coordinator.image.topic_ids["t"]
    by_id = {member.member_id: member for member in described.members}
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert (described.assignor_name, described.error) == ("uniform", None)
    assert by_id["m1"].assignment.topic_partitions == (TopicPartitions(topic_id, (0, 1, 2, 3), "t"),)
    assert by_id["m1"].target_assignment.topic_partitions == (TopicPartitions(topic_id, (0, 1), "t"),)
    assert by_id["m2"].assignment.topic_partitions == ()
    assert by_id["m1"].subscribed_topic_names == ("t",)
    assert (by_id["m1"].client_id, by_id["m1"].client_host, by_id["m1"].member_epoch) == ("client", "/127.0.0.1", 2)


def test_a_group_that_is_not_there_is_described_as_not_found() -> None:
    described = Coordinator().describe("nobody")
    assert isinstance(described.error, GroupIdNotFoundError)
    assert (described.group_id, described.members) == ("nobody", ())


def test_a_commit_that_is_under_way_while_the_epoch_moves_counts_for_what_the_member_keeps() -> None:
    """KIP-1251: m1 has partitions 0 to 3 of t since epoch 2; m2 joins, and is given two of them in epoch 3."""
    coordinator = Coordinator(t=4)
    first, second = Consumer(coordinator, "m1", ("t",)), Consumer(coordinator, "m2", ("t",))
    first.settle()
    assert coordinator.group.members["m1"].member_epoch == 2
    for _ in range(4):
        second.settle()
        first.settle()
    group = coordinator.group
    assert {member.member_epoch for member in group.members.values()} == {3}

    def commit(*partitions: int, topic: str = "t") -> list[OffsetCommitRequestTopic]:
        return [OffsetCommitRequestTopic(topic, tuple(OffsetCommitRequestPartition(each, 7) for each in partitions))]

    kept, given_up = ([each.partition for each in group.members[name].assigned] for name in ("m1", "m2"))
    assert (len(kept), len(given_up)) == (2, 2)
    group.validate_offset_commit("m1", None, 2, False, commit(*kept))
    group.validate_offset_commit("m1", None, 2, True, commit(*kept))
    for member_id, epoch, topics in (
        ("m1", 2, commit(*given_up)),
        ("m1", 2, commit(*kept, given_up[0])),
        ("m1", 1, commit(*kept)),
        ("m1", 4, commit(*kept)),
        ("m1", -1, commit(*kept)),
        ("m2", 2, commit(*given_up)),
        ("m1", 2, commit(0, topic="nowhere")),
    ):
        with pytest.raises(StaleMemberEpochError):
            group.validate_offset_commit(member_id, None, epoch, False, topics)


def test_offsets_are_committed_by_members_in_their_epoch() -> None:
    coordinator = Coordinator(t=1)
    consumer = Consumer(coordinator, "m1", ("t",))
    consumer.settle()
    group = coordinator.group
    group.validate_offset_commit("m1", None, 2, is_transactional=False)
    group.validate_offset_commit("", None, -1, is_transactional=True)
    group.validate_offset_fetch(None, -1)
    group.validate_offset_fetch("m1", 2)
    for member_id, epoch, error in (("m1", 1, StaleMemberEpochError), ("m2", 2, UnknownMemberIdError)):
        with pytest.raises(error):
            group.validate_offset_commit(member_id, None, epoch, is_transactional=False)
        with pytest.raises(error):
            group.validate_offset_fetch(member_id, epoch)
    with pytest.raises(UnknownMemberIdError):
        group.validate_offset_commit("", None, -1, is_transactional=False)
    with pytest.raises(NonEmptyGroupError):
        group.validate_delete()
    assert group.is_subscribed_to("t")
    consumer.leave()
    group.validate_offset_commit("", None, -1, is_transactional=False)
    group.validate_delete()
    assert not group.is_subscribed_to("t")
    assert (group.listed().group_type, group.listed().group_state) == ("consumer", "Empty")
    assert group.described().group_state == "Dead"


def test_topics_of_an_expression_that_takes_long_come_with_a_later_heartbeat() -> None:
    coordinator = Coordinator(orders=2, other=1)
    at_once, coordinator.matches = coordinator.matches, lambda _regex, _names: None
    joined = coordinator.heartbeat(joining(subscribed_topic_names=(), subscribed_topic_regex="ord.*"))
    assert (joined.error, joined.assignment.topic_partitions) == (None, ())
    coordinator.matches = at_once
    found = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", joined.member_epoch))
    assert found.assignment.topic_partitions == (TopicPartitions(coordinator.image.topic_ids["orders"], (0, 1)),)
    coordinator.matches = lambda _regex, _names: None
    coordinator.now_ms += 2 * cadence.EXPRESSIONS_MATCHED.ms
    assert coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", found.member_epoch)).assignment is None
    assert coordinator.group.regexes["ord.*"].topics == {"orders"}


def test_a_group_names_a_limited_number_of_topics() -> None:
    """All names are compared whenever one of them changes."""
    coordinator = Coordinator(t=1)
    names = tuple(f"t-{number}" for number in range(NAMES_MAX - 1))
    joined = coordinator.heartbeat(joining(subscribed_topic_names=names))
    assert joined.error is None
    assert coordinator.heartbeat(joining(member_id="m2", subscribed_topic_names=("t",))).error is None
    refused = coordinator.heartbeat(joining(member_id="m3", subscribed_topic_names=("t",)))
    assert isinstance(refused.error, GroupMaxSizeReachedError)
    assert coordinator.heartbeat(joining(subscribed_topic_names=("t",))).error is None
    assert coordinator.heartbeat(joining(member_id="m3", subscribed_topic_names=("t",))).error is None


def test_a_heartbeat_without_changes_looks_at_no_names() -> None:
    """They are looked at again when topics come or go, or members or expressions change."""
    coordinator = Coordinator(t=1)
    joined = coordinator.heartbeat(joining(subscribed_topic_names=("t", "u")))
    asked = ConsumerGroupHeartbeatRequest(GROUP, "m1", joined.member_epoch)
    assert coordinator.group.checked_topics is None
    coordinator.heartbeat(asked)
    assert coordinator.group.checked_topics == coordinator.image.topic_changes
    coordinator.create_topic("v", 1)
    assert coordinator.heartbeat(asked).assignment is None
    coordinator.create_topic("u", 1)
    found = coordinator.heartbeat(asked)
    assert found.assignment is not None
    assert len(found.assignment.topic_partitions) == 2
    coordinator.add_partitions("t", 1)
    grown = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", found.member_epoch))
    assert grown.assignment is not None
    assert sum(len(each.partitions) for each in grown.assignment.topic_partitions) == 3
    coordinator.image = coordinator.image.fold(RemoveTopicRecord("u", coordinator.image.topic_ids["u"]))
    left = coordinator.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", grown.member_epoch))
    assert left.assignment.topic_partitions == (TopicPartitions(coordinator.image.topic_ids["t"], (0, 1)),)
