"""Internal topics: which partition a key belongs to, how they are made, who coordinates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.find_coordinator import (
    coordinator_partition,
    create_internal_topic,
    find_coordinators,
)
from stratalog.replication.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    internal_topic,
    is_internal,
    partition_of_key,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, FenceBrokerRecord, RegisterBrokerRecord
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest
from stratalog.storage.errors import CoordinatorNotAvailableError
from stratalog.storage.records import TopicPartition

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION
CONFIG = BrokerConfig()


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("Aa", 12),
        ("BB", 12),
        ("hello", 22),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("connect-cluster", 13),
        ("transactional-id-0", 40),
        ("polygenelubricants", 0),
        ("GydZG_", 0),
        ("группа", 8),
        ("日本", 47),
        ("\U0001f600", 49),
        ("a\U0001f680b", 12),
        ("\U0010ffff", 32),
        ("\ud800", 46),
    ],
)
def test_a_key_belongs_to_the_partition_that_java_computes(key: str, partition: int) -> None:
    """Recorded from `String.hashCode` of Java 17: hash codes of both signs, 2^31 - 1 below 0 (two of them), and pairs
    of surrogates, which Java counts as two."""
    assert partition_of_key(key, 50) == partition


def image_of(brokers: int) -> ClusterImage:
    image = ClusterImage()
    for broker_id in range(1, brokers + 1):
        image = image.fold(RegisterBrokerRecord(broker_id, broker_id, f"run-{broker_id}", f"root-{broker_id}"))
    return image


def with_topic(brokers: int, name: str, config: BrokerConfig = CONFIG) -> ClusterImage:
    image = image_of(brokers)
    for record in create_internal_topic(image, internal_topic(name, config), "id").records:
        image = image.fold(record)
    return image


def test_the_offsets_topic_is_made_as_kafka_makes_it() -> None:
    image = with_topic(3, GROUP_METADATA_TOPIC)
    assert len(image.partitions_of(GROUP_METADATA_TOPIC)) == 50
    assert {len(state.replicas) for state in image.partitions.values()} == {3}
    assert image.topic_config(GROUP_METADATA_TOPIC) == {
        "cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600",
    }  # fmt: skip


def test_the_transaction_topic_is_made_as_kafka_makes_it() -> None:
    image = with_topic(3, TRANSACTION_STATE_TOPIC)
    assert len(image.partitions_of(TRANSACTION_STATE_TOPIC)) == 50
    assert image.topic_config(TRANSACTION_STATE_TOPIC) == {
        "cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2",
        "segment.bytes": "104857600", "unclean.leader.election.enable": "false",
    }  # fmt: skip


def test_settings_say_how_they_are_made() -> None:
    config = BrokerConfig.from_properties(
        {
            "offsets.topic.num.partitions": 7,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.segment.bytes": 1_000,
            "transaction.state.log.num.partitions": 5,
            "transaction.state.log.replication.factor": 2,
            "transaction.state.log.segment.bytes": 2_000,
            "transaction.state.log.min.isr": 1,
        }
    )
    groups, transactions = (with_topic(2, name, config) for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))
    assert (len(groups.partitions), len(transactions.partitions)) == (7, 5)
    assert {len(state.replicas) for state in transactions.partitions.values()} == {2}
    assert groups.topic_config(GROUP_METADATA_TOPIC)["segment.bytes"] == "1000"
    configs = transactions.topic_config(TRANSACTION_STATE_TOPIC)
    assert (configs["segment.bytes"], configs["min.insync.replicas"]) == ("2000", "1")


def test_too_few_brokers_are_an_error_that_names_the_setting() -> None:
    image = image_of(3)
    image = image.fold(FenceBrokerRecord(3, 3))
    topic = internal_topic(GROUP_METADATA_TOPIC, CONFIG)
    with pytest.raises(CoordinatorNotAvailableError) as refusal:
        create_internal_topic(image, topic, "id")
    assert str(refusal.value) == (
        "Number of alive brokers '2' does not meet the required replication factor '3' for __consumer_offsets "
        "(configured via 'offsets.topic.replication.factor')"
    )


def test_a_topic_that_is_there_is_not_made_again() -> None:
    """Two brokers may be asked for the first coordinator at once."""
    image = with_topic(3, GROUP_METADATA_TOPIC)
    again = create_internal_topic(image, internal_topic(GROUP_METADATA_TOPIC, CONFIG), "another id")
    assert (again.records, again.response) == ((), "id")


def test_the_coordinator_is_the_live_leader_of_the_keys_partition() -> None:
    image = with_topic(3, GROUP_METADATA_TOPIC)
    topic_partition = coordinator_partition(image, GROUP, "my-group")
    assert topic_partition == TopicPartition(GROUP_METADATA_TOPIC, 12)
    state = image.partitions[topic_partition]
    request = FindCoordinatorRequest(GROUP, ("my-group", "Aa"))
    assert [each.node_id for each in find_coordinators(image, request).coordinators] == [state.leader] * 2
    for without in (replace(state, leader=NO_LEADER), replace(state, leader=9)):
        image = image.fold(without)
        (found, _) = find_coordinators(image, request).coordinators
        assert (found.node_id, found.error and found.error.name) == (-1, "COORDINATOR_NOT_AVAILABLE")
    image = image.fold(state)
    image = image.fold(FenceBrokerRecord(state.leader, state.leader))
    (found, _) = find_coordinators(image, request).coordinators
    assert "has no live leader" in str(found.error)


def test_nobody_coordinates_while_the_topic_does_not_exist() -> None:
    request = FindCoordinatorRequest(TRANSACTION, ("id",))
    (found,) = find_coordinators(image_of(3), request).coordinators
    assert (found.key, found.node_id, found.error and found.error.name) == ("id", -1, "COORDINATOR_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("__consumer_offsets", True), ("__transaction_state", True), ("__share_group_state", True), ("_x", False)],
)
def test_internal_topics_are_known_by_name(topic: str, expected: bool) -> None:
    assert is_internal(topic) is expected
