"""Topics are created, grown, configured and deleted with Kafka's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stratalog.replication.controller.topics import (
    alter_config,
    check_topic_name,
    create_partitions,
    create_topic,
    delete_topic,
)
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from stratalog.storage.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    StratalogError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicOrPartitionError,
)
from tests.replication.coordinator.runtime.test_find_coordinator import with_topic
from tests.replication.images import CONTROLLER_EPOCH, TOPIC, commit, image_of, partition


def check_configs(overrides: Mapping[str, str]) -> None:
    if "no.such.config" in overrides:
        raise InvalidConfigError("Unknown topic config name: no.such.config")


def create(image: ClusterImage, name: str = "logs", topic_id: str = "id", **kwargs: Any) -> str:
    return commit(image, create_topic(image, name, topic_id, check_configs=check_configs, **kwargs))


def leaders_and_isrs(image: ClusterImage, name: str) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    states = [image.partitions[tp] for tp in image.partitions_of(name)]
    return [(s.replicas, s.leader, s.isr) for s in states]


def test_a_new_topic_is_led_by_its_preferred_replicas_and_fully_in_sync() -> None:
    image = image_of([1, 2, 3])
    assert create(image, partitions=3, replication_factor=2, configs={"segment.bytes": "1024"}) == "id"
    assert image.topic_ids == {"logs": "id"}
    assert image.topic_config("logs") == {"segment.bytes": "1024"}
    assert leaders_and_isrs(image, "logs") == [((1, 2), 1, (1, 2)), ((2, 3), 2, (2, 3)), ((3, 1), 3, (3, 1))]
    for state in image.partitions.values():
        assert (state.leader_epoch, state.partition_epoch, state.controller_epoch) == (0, 0, CONTROLLER_EPOCH)


def test_the_callers_random_numbers_shift_the_placement() -> None:
    image = image_of([1, 2, 3])
    create(image, partitions=2, replication_factor=2, start_index=1, shift=1)
    assert [replicas for replicas, _, _ in leaders_and_isrs(image, "logs")] == [(2, 1), (3, 2)]


def test_only_live_brokers_are_taken_and_there_must_be_enough() -> None:
    image = image_of([1, 2, 3], fenced={1: True})
    with pytest.raises(InvalidReplicationFactorError, match="Replication factor: 3 larger than available brokers: 2"):
        create(image, partitions=1, replication_factor=3)
    create(image, partitions=4, replication_factor=2)
    assert all(1 not in replicas for replicas, _, _ in leaders_and_isrs(image, "logs"))


def test_racks_are_spread() -> None:
    image = image_of([1, 2, 3, 4], racks={1: "a", 2: "a", 3: "b", 4: "b"})
    create(image, partitions=8, replication_factor=2)
    assert all({r in (1, 2) for r in replicas} == {True, False} for replicas, _, _ in leaders_and_isrs(image, "logs"))


def test_an_assignment_by_hand_leads_with_its_first_live_replica() -> None:
    image = image_of([1, 2, 3], fenced={1: False})
    create(image, assignment={0: [1, 3], 1: [2, 1]})
    assert leaders_and_isrs(image, "logs") == [((1, 3), 3, (3,)), ((2, 1), 2, (2,))]


def test_asking_again_under_the_same_topic_id_is_the_same_success() -> None:
    image = image_of([1])
    create(image, partitions=1, replication_factor=1)
    again = create_topic(image, "logs", "id", 1, 1, check_configs=check_configs)
    assert (again.records, again.response) == ((), "id")


def test_numbers_not_given_are_the_clusters_defaults() -> None:
    image = image_of([1, 2, 3])
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "num.partitions", "2"))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "default.replication.factor", "3"))
    create(image)
    assert [len(replicas) for replicas, _, _ in leaders_and_isrs(image, "logs")] == [3, 3]


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        ("logs", {"partitions": 1, "replication_factor": 1}, TopicAlreadyExistsError, "Topic 'logs' already exists."),
        ("my.logs", {"partitions": 1, "replication_factor": 1}, InvalidTopicError,
         "Topic 'my.logs' collides with existing topic: my_logs"),
        ("__cluster_metadata", {"partitions": 1, "replication_factor": 1}, InvalidRequestError,
         "Creation of internal topic __cluster_metadata is prohibited."),
        ("new", {"partitions": 0, "replication_factor": 1}, InvalidPartitionsError, "larger than 0."),
        ("new", {"partitions": 2**31 - 1, "replication_factor": 1}, PolicyViolationError,
         "Excessively large number of partitions per request: 2147483647 new ones, at most 10000."),
        ("new", {"partitions": 1, "replication_factor": 0}, InvalidReplicationFactorError, "larger than 0."),
        ("new", {"partitions": 1, "replication_factor": 1, "configs": {"no.such.config": "1"}}, InvalidConfigError,
         "Unknown topic config name"),
        ("new", {"replication_factor": 1, "assignment": {0: [1]}}, InvalidRequestError,
         "A manual partition assignment was specified, but replication factor was not set to -1."),
        ("new", {"partitions": 1, "assignment": {0: [1]}}, InvalidRequestError,
         "A manual partition assignment was specified, but numPartitions was not set to -1."),
        ("new", {"assignment": {0: [2]}}, InvalidReplicaAssignmentError,
         "All brokers specified in the manual partition assignment for partition 0 are fenced"),
        ("new", {"assignment": {0: [7]}}, InvalidReplicaAssignmentError, "no such broker is registered."),
    ],
)  # fmt: skip
def test_create_is_refused(name: str, arguments: dict[str, Any], error: type[StratalogError], words: str) -> None:
    image = image_of([1, 2], fenced={2: True})
    create(image, "logs", "other", partitions=1, replication_factor=1)
    create(image, "my_logs", partitions=1, replication_factor=1)
    with pytest.raises(error) as refusal:
        create(image, name, **arguments)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "is longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("naïve", "other than ASCII alphanumerics"),
        ("logs\n", "other than ASCII alphanumerics"),
    ],
)
def test_illegal_names_are_refused_in_kafkas_words(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicError) as refusal:
        check_topic_name(name)
    assert str(refusal.value).startswith("Topic name is invalid: ")
    assert reason in str(refusal.value)


@pytest.mark.parametrize("name", ["a", "a" * 249, "Access-log_2.x", "..."])
def test_legal_names_are_taken(name: str) -> None:
    check_topic_name(name)


def test_a_topic_grows_and_its_old_partitions_stay() -> None:
    image = image_of([1, 2, 3])
    create(image, partitions=2, replication_factor=2)
    old = leaders_and_isrs(image, "logs")
    assert commit(image, create_partitions(image, "logs", 4)) == 2
    assert leaders_and_isrs(image, "logs")[:2] == old
    assert [len(replicas) for replicas, _, _ in leaders_and_isrs(image, "logs")] == [2, 2, 2, 2]
    assert commit(image, create_partitions(image, "logs", 5, {4: [3, 1]})) == 1
    assert leaders_and_isrs(image, "logs")[4] == ((3, 1), 3, (3, 1))


@pytest.mark.parametrize(
    ("name", "count", "assignment", "error", "words"),
    [
        ("logs", 2, None, InvalidPartitionsError, "Topic already has 2 partition(s)."),
        ("logs", 1, None, InvalidPartitionsError,
         "The topic logs currently has 2 partition(s); 1 would not be an increase."),
        ("logs", 10_003, None, PolicyViolationError,
         "Excessively large number of partitions per request: 10001 new ones, at most 10000."),
        ("logs", 4, {2: [1]}, InvalidReplicaAssignmentError,
         "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        ("logs", 3, {2: [1, 2]}, InvalidReplicaAssignmentError, "which have 1 replica(s)."),
        ("nope", 3, None, UnknownTopicOrPartitionError, "Topic 'nope' does not exist."),
    ],
)  # fmt: skip
def test_growth_is_refused(
    name: str, count: int, assignment: dict[int, list[int]] | None, error: type[StratalogError], words: str
) -> None:
    image = image_of([1, 2])
    create(image, partitions=2, replication_factor=1)
    with pytest.raises(error) as refusal:
        create_partitions(image, name, count, assignment)
    assert words in str(refusal.value)


def test_delete_removes_the_topic_when_it_is_enabled() -> None:
    image = image_of([1])
    create(image, partitions=2, replication_factor=1, configs={"segment.bytes": "1024"})
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "delete.topic.enable", "false"))
    with pytest.raises(TopicDeletionDisabledError, match="Topic deletion is disabled"):
        delete_topic(image, "logs")
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "delete.topic.enable", None))
    decision = delete_topic(image, "logs")
    deletion = TopicDeletionRecord("logs", "id", partitions=2, brokers=(1,))
    assert decision.records == (RemoveTopicRecord("logs", "id"), deletion)
    commit(image, decision)
    assert image.deletions == {"id": deletion}
    assert (image.topic_ids, image.partitions, image.topic_config("logs")) == ({}, {}, {})
    with pytest.raises(UnknownTopicOrPartitionError):
        delete_topic(image, "logs")
    assert create(image, topic_id="id2", partitions=1, replication_factor=1) == "id2"


def test_internal_topics_are_neither_deleted_nor_grown() -> None:
    """Kafka before KRaft refuses the first, its documentation advises against the second."""
    image = with_topic(3, GROUP_METADATA_TOPIC)
    with pytest.raises(InvalidTopicError, match="__consumer_offsets is a kafka internal topic and is not allowed"):
        delete_topic(image, GROUP_METADATA_TOPIC)
    with pytest.raises(InvalidPartitionsError, match="internal topic __consumer_offsets cannot be changed"):
        create_partitions(image, GROUP_METADATA_TOPIC, 60)


def test_configs_are_set_removed_and_checked_as_a_whole() -> None:
    image = image_of([1])
    create(image, partitions=1, replication_factor=1, configs={"a": "1", "b": "2"})
    decision = alter_config(image, "logs", {"a": None, "b": "2", "c": "3"}, check_configs=check_configs)
    assert decision.records == (ConfigRecord("logs", "a", None), ConfigRecord("logs", "c", "3"))
    assert commit(image, decision) == {"b": "2", "c": "3"} == image.topic_config("logs")
    assert alter_config(image, "logs", {"a": None, "c": "3"}, check_configs=check_configs).records == ()
    with pytest.raises(InvalidConfigError):
        alter_config(image, "logs", {"no.such.config": "1"}, check_configs=check_configs)
    with pytest.raises(UnknownTopicOrPartitionError):
        alter_config(image, "nope", {}, check_configs=check_configs)


def test_lowering_min_insync_replicas_ends_eligibility_in_the_same_commit() -> None:
    """From then on the ISR alone commits what the others lack (KIP-966)."""
    state = partition((1, 2, 3), 1, (1,), elr=(2,), last_known_elr=(3,))
    image = image_of([1, 2, 3], state, min_isr=2)
    raised = alter_config(image, TOPIC, {"min.insync.replicas": "3"}, check_configs=check_configs)
    assert raised.records == (ConfigRecord(TOPIC, "min.insync.replicas", "3"),), "who was eligible stays so"
    for value in ("1", None):
        lowered = alter_config(image, TOPIC, {"min.insync.replicas": value}, check_configs=check_configs)
        assert [record.type for record in lowered.records] == ["Config", "Partition"]
        after = lowered.records[1]
        assert isinstance(after, PartitionRecord)
        assert (after.elr, after.last_known_elr, after.isr, after.leader_epoch) == ((), (), (1,), state.leader_epoch)
        assert after.partition_epoch == state.partition_epoch + 1


def test_the_topic_is_announced_before_its_partitions() -> None:
    decision = create_topic(image_of([1]), "logs", "id", 1, 1, configs={"a": "1"}, check_configs=check_configs)
    assert [type(r).__name__ for r in decision.records] == ["TopicRecord", "ConfigRecord", "PartitionRecord"]
    assert decision.records[0] == TopicRecord("logs", "id")
