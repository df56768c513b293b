"""Topics that a member of a KIP-848 group may not describe are to it as those that do not exist."""

from __future__ import annotations

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.metadata.acls import (
    AclBinding,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
    VisibleTopics,
)
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest
from stratalog.replication.requests.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.replication.consumer_groups import Consumer, Coordinator, joining
from tests.storage.logs import CountingIds


def sees(*topics: str) -> VisibleTopics:
    """Of a user who may describe these topics alone."""
    allowed = [
        AclBinding(ResourceType.TOPIC, each, PatternType.LITERAL, "User:u", "*", Operation.DESCRIBE, Permission.ALLOW)
        for each in topics
    ]
    return Authorizer(allowed).visible_topics(Principal("User:u"))


def test_an_expression_finds_what_its_member_may_describe() -> None:
    coordinator = Coordinator(plain=2, secret=3)
    consumer = Consumer(coordinator, "m1", (), regex=".*", visible=sees("plain"))
    consumer.settle()
    assert consumer.owned == coordinator.partitions("plain")
    assert coordinator.group.regexes[".*"].topics == {"plain"}


@pytest.mark.parametrize("first", ["all", "few"])
def test_members_of_one_expression_get_what_each_may_describe(first: str) -> None:
    coordinator = Coordinator(plain=2, secret=4)
    few = Consumer(coordinator, "few", (), regex=".*", visible=sees("plain"))
    everything = Consumer(coordinator, "all", (), regex=".*")
    for _ in range(3):
        for consumer in (few, everything) if first == "few" else (everything, few):
            consumer.settle()
        coordinator.pass_time(10_001)
    assert everything.owned | few.owned == coordinator.partitions("plain", "secret")
    assert few.owned
    assert few.owned <= coordinator.partitions("plain")
    epoch = coordinator.group.group_epoch
    for consumer in (few, everything):
        coordinator.pass_time(10_001)
        consumer.settle()
    assert coordinator.group.group_epoch == epoch, "neither of them takes topics from the other at a refresh"


def test_hidden_topics_that_come_and_go_are_not_noticed() -> None:
    """Not even by the group's epoch."""
    coordinator = Coordinator(plain=1)
    consumer = Consumer(coordinator, "m1", (), regex=".*", visible=sees("plain"))
    consumer.settle()
    epoch = coordinator.group.group_epoch
    coordinator.create_topic("secret", 3)
    coordinator.pass_time(10_001)
    consumer.settle()
    assert (coordinator.group.group_epoch, consumer.epoch) == (epoch, epoch)


def test_a_right_that_is_lost_or_given_counts_at_the_next_heartbeat() -> None:
    coordinator = Coordinator(plain=1, secret=1)
    consumer = Consumer(coordinator, "m1", ("plain", "secret"), visible=sees("plain", "secret"))
    consumer.settle()
    assert consumer.owned == coordinator.partitions("plain", "secret")
    consumer.visible = sees("plain")
    for _ in range(2):
        consumer.settle()
    assert consumer.owned == coordinator.partitions("plain")
    consumer.visible = sees("plain", "secret")
    for _ in range(2):
        consumer.settle()
    assert consumer.owned == coordinator.partitions("plain", "secret")


def test_the_next_coordinator_gives_a_member_no_more_than_it_may_describe() -> None:
    coordinator = Coordinator(plain=2, secret=4)
    few = Consumer(coordinator, "few", (), regex=".*", visible=sees("plain"))
    everything = Consumer(coordinator, "all", (), regex=".*")
    for _ in range(2):
        few.settle()
        everything.settle()
    coordinator.fail_over()
    for _ in range(3):
        everything.settle()  # computes a target while the rights of the other are not known
        coordinator.pass_time(10_001)
        few.settle()
        assert few.owned <= coordinator.partitions("plain")
    assert everything.owned | few.owned == coordinator.partitions("plain", "secret")


def test_what_is_refused_leaves_nothing_behind() -> None:
    coordinator = Coordinator(plain=1)
    Consumer(coordinator, "m1", ("plain",)).settle()
    coordinator.heartbeat(joining(member_id="m2", subscribed_topic_regex="(", visible=sees("plain")))
    assert coordinator.group.visible.keys() == {"m1"}


# Members of the classic protocol


class Mixed:
    """A shard of groups of both protocols, with topics `plain` and `secret`."""

    def __init__(self) -> None:
        self.topics = Coordinator(plain=1, secret=2)
        config = BrokerConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)
        self.shard = GroupShard(config, CountingIds(), [lambda table: ModernGroups(table, lambda: self.topics.image)])

    def ask(self, request: object) -> object:
        decisions = [self.shard.decide(request, 1, 1_000)]
        if not decisions[0].answers:
            decisions.append(self.shard.expire(1_000))  # the first rebalance is complete
        for record in (record for decision in decisions for record in decision.records):
            self.shard.replay(record, 1_000)
        return decisions[-1].answers[0].response

    def join(self, member_id: str = "", *topics: str, visible: VisibleTopics | None = None) -> object:
        protocol = JoinGroupRequestProtocol("range", encode_subscription(Subscription(topics), 1))
        return self.ask(
            JoinGroupRequest(
                "g", 30_000, member_id=member_id, protocols=(protocol,), requires_known_member_id=False, visible=visible
            )
        )

    def modern(self) -> None:
        names = ("plain",)
        self.ask(ConsumerGroupHeartbeatRequest("g", "new", 0, None, None, 60_000, names, topic_partitions=()))

    def assigned(self, member_id: str, generation_id: int, *sent: SyncGroupRequestAssignment) -> set[TopicPartition]:
        answer = self.ask(SyncGroupRequest("g", generation_id, member_id, assignments=sent))
        return set(decode_assignment(answer.assignment).partitions)  # type: ignore[attr-defined]


def test_a_classic_member_of_a_modern_group_gets_no_topics_that_it_may_not_describe() -> None:
    for visible, topics in ((sees("plain"), set()), (None, {"secret"})):
        mixed = Mixed()
        mixed.modern()
        joined = mixed.join("", "secret", visible=visible)
        found = mixed.assigned(joined.member_id, joined.generation_id)  # type: ignore[attr-defined]
        assert {each.topic for each in found} == topics


def test_a_classic_group_that_becomes_modern_says_nothing_of_hidden_topics() -> None:
    """Its members may have named them in their own assignments."""
    for visible, topics in ((sees("plain"), {"plain"}), (None, {"plain", "secret"})):
        mixed = Mixed()
        joined = mixed.join("", "plain", "secret", visible=visible)
        own = Assignment((TopicPartition("plain", 0), TopicPartition("secret", 0)))
        member_id = joined.member_id  # type: ignore[attr-defined]
        mixed.assigned(member_id, 1, SyncGroupRequestAssignment(member_id, encode_assignment(own, 1)))
        assert isinstance(mixed.shard.table.groups["g"], ClassicGroup)
        mixed.modern()
        group = mixed.shard.table.groups["g"]
        assert isinstance(group, ModernGroup)
        member = group.members[member_id]
        names = {topic_id: name for name, topic_id in mixed.topics.image.topic_ids.items()}
        assert {names[each.topic_id] for each in member.assigned} == topics
