"""Shared settings altered while the cluster runs: they come before what it was started with, and are checked."""

from __future__ import annotations

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.topics import create_topic
from stratalog.replication.metadata.configs import (
    CLUSTER_WIDE_CONFIGS,
    GROUP_ASSIGNMENT,
    GROUP_HEARTBEAT,
    GROUP_SESSION,
    alter_cluster_config,
    alter_group_config,
    group_config_ms,
    record_cluster_wide_configs,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import DYNAMIC_DEFAULT, ConfigRecord, record_from_json, record_to_json
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import image_of


def started(**settings: object) -> ClusterImage:
    """Three brokers, and what the cluster was started with."""
    image = image_of((1, 2, 3))
    for record in record_cluster_wide_configs(image, BrokerConfig(**settings)).records:  # type: ignore[arg-type]
        image.replay(record)
    return image


def altered(image: ClusterImage, **changes: str | None) -> ClusterImage:
    for record in alter_cluster_config(image, {k.replace("_", "."): v for k, v in changes.items()}).records:
        image.replay(record)
    return image


def test_all_shared_settings_are_stated_once() -> None:
    image = image_of((1,))
    records = record_cluster_wide_configs(image, BrokerConfig()).records
    assert {r.name for r in records if isinstance(r, ConfigRecord)} == set(CLUSTER_WIDE_CONFIGS)
    assert record_cluster_wide_configs(started(), BrokerConfig()).records == ()
    changed = record_cluster_wide_configs(started(), BrokerConfig(num_partitions=4)).records
    assert changed == (ConfigRecord("", "num.partitions", "4"),)


def test_what_is_altered_comes_first_and_outlives_a_restart_with_other_settings() -> None:
    image = altered(started(num_partitions=2), num_partitions="5")
    assert image.cluster_config("num.partitions", "1") == "5"
    for record in record_cluster_wide_configs(image, BrokerConfig(num_partitions=3)).records:
        image.replay(record)
    assert image.cluster_config("num.partitions", "1") == "5"
    assert altered(image, num_partitions=None).cluster_config("num.partitions", "1") == "3"


def test_a_new_topic_has_the_altered_numbers() -> None:
    image = altered(started(), num_partitions="4", default_replication_factor="3")
    records = create_topic(image, "t", "id", check_configs=LogConfig.from_properties).records
    replicas = [record.replicas for record in records if hasattr(record, "replicas")]
    assert len(replicas) == 4
    assert all(len(each) == 3 for each in replicas)


def test_the_answer_is_all_that_is_altered_and_asking_again_changes_nothing() -> None:
    image = altered(started(), num_partitions="4")
    result = alter_cluster_config(image, {"num.partitions": " 4 ", "delete.topic.enable": "FALSE"})
    assert result.response == {"num.partitions": "4", "delete.topic.enable": "false"}
    assert result.records == (ConfigRecord(DYNAMIC_DEFAULT, "delete.topic.enable", "false"),)
    assert record_from_json(record_to_json(result.records[0])[1]) == result.records[0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such.thing", "1", "Unknown broker config name: no.such.thing"),
        ("replica.lag.time.max.ms", "1", "Cannot update these configs dynamically: replica.lag.time.max.ms"),
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("num.partitions", "many", "Not a number of type INT"),
        ("delete.topic.enable", "maybe", "Expected value to be either true or false"),
    ],
)
def test_what_cannot_be_altered_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        alter_cluster_config(started(), {name: value})


# -- configs of groups


def group_altered(image: ClusterImage, **changes: str | None) -> ClusterImage:
    for record in alter_group_config(image, "g", {k.replace("_", "."): v for k, v in changes.items()}).records:
        image.replay(record)
    return image


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (GROUP_SESSION, "44999", "greater than or equal to group.consumer.min.session.timeout.ms: 44999 < 45000"),
        (GROUP_SESSION, "60001", "less than or equal to group.consumer.max.session.timeout.ms: 60001 > 60000"),
        (GROUP_HEARTBEAT, "4999", "greater than or equal to group.consumer.min.heartbeat.interval.ms: 4999 < 5000"),
        (GROUP_HEARTBEAT, "15001", "less than or equal to group.consumer.max.heartbeat.interval.ms: 15001 > 15000"),
        (GROUP_ASSIGNMENT, "15001", "less than or equal to group.consumer.max.assignment.interval.ms: 15001 > 15000"),
        (GROUP_ASSIGNMENT, "-1", "Value must be at least 0"),
        (GROUP_SESSION, "0", "Value must be at least 1"),
        ("share.session.timeout.ms", "45000", "Unknown group config name: share.session.timeout.ms"),
    ],
)
def test_a_groups_times_are_held_to_kafkas_bounds(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        alter_group_config(started(), "g", {name: value})


def test_a_groups_times_are_held_to_the_bounds_that_the_cluster_was_started_with() -> None:
    image = started(
        group_consumer_min_session_timeout_ms=6_000,
        group_consumer_max_heartbeat_interval_ms=50_000,
        group_consumer_session_timeout_ms=50_000,
    )
    group_altered(image, consumer_session_timeout_ms="6000")
    with pytest.raises(InvalidConfigError, match=r"group.consumer.min.session.timeout.ms: 5999 < 6000"):
        group_altered(image, consumer_session_timeout_ms="5999")
    with pytest.raises(InvalidConfigError, match=r"must be greater than consumer.heartbeat.interval.ms: 6000 <= 6000"):
        group_altered(image, consumer_heartbeat_interval_ms="6000")
    group_altered(image, consumer_session_timeout_ms=None, consumer_heartbeat_interval_ms="49999")
    with pytest.raises(InvalidConfigError, match=r"than consumer.heartbeat.interval.ms: 50000 <= 50000"):
        group_altered(image, consumer_heartbeat_interval_ms="50000")
    ended = record_cluster_wide_configs(image, BrokerConfig()).records
    assert {record.name: record.value for record in ended if isinstance(record, ConfigRecord)} == {
        "group.consumer.min.session.timeout.ms": None,
        "group.consumer.max.heartbeat.interval.ms": None,
        "group.consumer.session.timeout.ms": None,
    }


def test_a_broker_keeps_a_groups_times_within_its_own_bounds() -> None:
    image = group_altered(started(), consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="6000")
    narrower = BrokerConfig(
        group_consumer_max_session_timeout_ms=50_000,
        group_consumer_min_heartbeat_interval_ms=7_000,
        group_consumer_heartbeat_interval_ms=8_000,
    )
    assert group_config_ms(image, "g", GROUP_SESSION, BrokerConfig()) == 60_000
    assert group_config_ms(image, "g", GROUP_SESSION, narrower) == 50_000
    assert group_config_ms(image, "g", GROUP_HEARTBEAT, narrower) == 7_000
    assert group_config_ms(image, "other", GROUP_HEARTBEAT, narrower) == 8_000
    assert group_config_ms(image, "other", GROUP_ASSIGNMENT, narrower) == 1_000
