"""Consumers in KIP-848 groups (`group.protocol=consumer`), against real group shards and over three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord, OffsetAndMetadata, SubscriptionPattern
from stratalog.replication.internal_topics import partition_of_key
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import InvalidConfigError, UnsupportedAssignorError, UnsupportedVersionError
from stratalog.storage.records import TopicPartition
from tests.clients.consumer.test_groups import Group, T, Told, leave_after_fail_over
from tests.clients.memory_cluster import MemoryCluster
from tests.clients.memory_coordinator import PARTITIONS, MemoryCoordinator

QUICK = {
    "group.consumer.heartbeat.interval.ms": 20,
    "group.consumer.min.heartbeat.interval.ms": 20,
    "group.consumer.assignment.interval.ms": 0,
}


class ConsumerProtocolGroup(Group):
    """Its consumers are assigned partitions by the coordinator."""

    settings = {"auto_offset_reset": "earliest", "group_protocol": "consumer"}  # noqa: RUF012

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.coordinator = MemoryCoordinator(cluster, **QUICK)

    def heartbeats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return [each for each in self.coordinator.requests if isinstance(each, ConsumerGroupHeartbeatRequest)]


@pytest.fixture
def group() -> Iterator[ConsumerProtocolGroup]:
    """Topic `t` of four partitions with the values 0, 1, 2 in each."""
    cluster = MemoryCluster()
    for topic_partition in cluster.create_topic("t", 4):
        cluster.append(topic_partition, b"0", b"1", b"2")
        cluster.publish(topic_partition)
    made = ConsumerProtocolGroup(cluster)
    yield made
    for consumer in made.consumers:
        consumer.close()
    made.coordinator.stop()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_the_rest_share_everything(group: ConsumerProtocolGroup, assignor: str) -> None:
    first = group.consumer(group_remote_assignor=assignor)
    told = Told()
    first.subscribe(["t"], listener=told)
    group.poll_until(lambda: group.settled(first))
    second = group.consumer(group_remote_assignor=assignor)
    second.subscribe(["t"])
    group.poll_until(lambda: group.settled(first, second))
    assert [name for name, _ in told.events][:2] == ["assigned", "revoked"]
    assert first.group_metadata().generation_id > 0
    second.close()
    group.consumers.remove(second)
    group.poll_until(lambda: group.settled(first))
    assert group.heartbeats()[0].server_assignor == assignor


def test_a_goodbye_reaches_the_coordinator_that_took_over(group: ConsumerProtocolGroup) -> None:
    leave_after_fail_over(group, group.coordinator)


def test_commits_name_the_epoch_and_the_next_member_goes_on_there(group: ConsumerProtocolGroup) -> None:
    first = group.consumer(enable_auto_commit=False)
    first.subscribe(["t"])
    group.poll_until(lambda: group.settled(first) and all(first.position(tp) == 3 for tp in T))
    first.commit_sync({T[0]: OffsetAndMetadata(2), T[1]: OffsetAndMetadata(1)})
    first.close()
    group.consumers.remove(first)
    second = group.consumer()
    second.subscribe(["t"])
    values = group.poll_until(lambda: group.settled(second) and all(second.position(tp) == 3 for tp in T))
    assert sorted(values)[:3] == [(0, b"2"), (1, b"1"), (1, b"2")]


def test_the_coordinator_matches_a_subscription_pattern_and_sees_new_topics(group: ConsumerProtocolGroup) -> None:
    consumer = group.consumer()
    consumer.subscribe(pattern=SubscriptionPattern("t|other"))
    group.poll_until(lambda: group.settled(consumer))
    assert consumer.subscription() == {"t"}
    classic = group.consumer("h", group_protocol="classic")
    with pytest.raises(UnsupportedVersionError, match="RE2/J regex is not supported when using the CLASSIC protocol"):
        classic.subscribe(pattern=SubscriptionPattern("t"))


def test_a_member_that_the_coordinator_fenced_loses_its_partitions_and_comes_back(group: ConsumerProtocolGroup) -> None:
    consumer, told = group.consumer(), Told()
    consumer.subscribe(["t"], listener=told)
    group.poll_until(lambda: group.settled(consumer))
    member_id = consumer.group_metadata().member_id
    request = ConsumerGroupHeartbeatRequest("g", member_id, -1)
    answers: list[object] = []
    group.coordinator.ask(partition_of_key("g", PARTITIONS), request, answers.append)
    group.poll_until(lambda: ("lost", T) in told.events and group.settled(consumer))
    assert [name for name, _ in told.events] == ["assigned", "lost", "assigned"]
    assert consumer.group_metadata().member_id == member_id


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_member_by_member(group: ConsumerProtocolGroup, strategy: str) -> None:
    """As in a rolling restart, there and back: each record is read once, and offsets go on."""
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 20}
    last, read, written = group.consumer(**classic), [], 12
    last.subscribe(["t"])
    for settings in ({}, {}, classic, classic):
        following = group.consumer(**settings)
        following.subscribe(["t"])
        read += group.poll_until(lambda both=(last, following): group.settled(*both))
        for topic_partition in T:
            group.cluster.append(topic_partition, b"new")
            group.cluster.publish(topic_partition)
        written += len(T)
        for _ in range(2_000):
            read += [(record.partition, record.value) for each in group.consumers for record in each.poll(5)]
            if len(read) >= written:
                break
        for each in group.consumers:
            each.commit_sync()
        last.close()
        group.consumers.remove(last)
        last = following
        read += group.poll_until(lambda last=last: group.settled(last))
    assert len(read) == written
    assert {last.committed([each])[each].offset for each in T} == {written // len(T)}


def test_a_static_member_gets_its_partitions_back(group: ConsumerProtocolGroup) -> None:
    first, other = group.consumer(group_instance_id="one"), group.consumer()
    for consumer in (first, other):
        consumer.subscribe(["t"])
    group.poll_until(lambda: group.settled(first, other))
    share = first.assignment()
    first.close()
    group.consumers.remove(first)
    assert any(each.member_epoch == -2 for each in group.heartbeats())
    again = group.consumer(group_instance_id="one")
    again.subscribe(["t"])
    group.poll_until(lambda: group.settled(again, other))
    assert again.assignment() == share


def test_an_assignor_that_the_coordinator_does_not_have_is_refused(group: ConsumerProtocolGroup) -> None:
    consumer = group.consumer(group_remote_assignor="clever")
    consumer.subscribe(["t"])
    with pytest.raises(UnsupportedAssignorError):
        group.poll_until(lambda: False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group.protocol": "new"}, "must be one of"),
        ({"group.protocol": "consumer", "session.timeout.ms": 6_000}, "session.timeout.ms cannot be set when"),
        ({"group.protocol": "Consumer", "partition.assignment.strategy": "range"}, "group.protocol=CONSUMER"),
        ({"group.remote.assignor": "uniform"}, "group.remote.assignor cannot be set when group.protocol=CLASSIC"),
    ],
)
def test_settings_of_the_other_protocol_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Consumer("nowhere", settings)


def test_a_group_reads_each_record_once_over_three_brokers(tmp_path: Path) -> None:
    quick = QUICK | {"group.consumer.heartbeat.interval.ms": 100, "offsets.topic.num.partitions": 5}
    with Cluster.start(tmp_path, fetcher="thread", config=quick) as cluster:
        Admin(cluster).create_topic("t", 6, 3)
        with Producer(cluster) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, key=b"%d" % (number % 10))
        settings = {"group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumers = [Consumer(cluster, settings) for _ in range(6)]
        records: list[ConsumerRecord] = []
        for consumer in consumers:
            consumer.subscribe(["t"])
        for _ in range(3_000):
            for consumer in consumers:
                records += consumer.poll(5)
            if len(records) >= 100 and all(len(each.assignment()) == 1 for each in consumers):
                break
        assert len({(each.partition, each.offset) for each in records}) == len(records) == 100
        assert {tp for each in consumers for tp in each.assignment()} == {TopicPartition("t", n) for n in range(6)}
        for consumer in consumers:
            consumer.commit_sync()
        for consumer in consumers:
            consumer.close()
