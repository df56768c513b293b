"""Shared settings altered while the cluster runs: they come before what it was started with, and are checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.cluster_configs import alter_cluster_configs
from stratalog.replication.controller.topics import alter_config, create_topic
from stratalog.replication.metadata.configs import (
    CLUSTER_WIDE_CONFIGS,
    GROUP_ASSIGNMENT,
    GROUP_HEARTBEAT,
    GROUP_SESSION,
    alter_broker_config,
    alter_cluster_config,
    alter_group_config,
    group_config_ms,
    record_cluster_wide_configs,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    DYNAMIC_DEFAULT,
    ConfigRecord,
    MetadataRecord,
    TombstoneRecord,
    TopicRecord,
    of_broker,
    record_from_json,
    record_to_json,
)
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import image_of, partition

LAG = "log.cleaner.max.compaction.lag.ms"


def started(**settings: object) -> ClusterImage:
    """Three brokers, and what the cluster was started with."""
    image = image_of((1, 2, 3))
    for record in record_cluster_wide_configs(image, BrokerConfig(**settings)).records:  # type: ignore[arg-type]
        image = image.fold(record)
    return image


def altered(image: ClusterImage, **changes: str | None) -> ClusterImage:
    for record in alter_cluster_config(image, {k.replace("_", "."): v for k, v in changes.items()}).records:
        image = image.fold(record)
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
        image = image.fold(record)
    assert image.cluster_config("num.partitions", "1") == "5"
    assert altered(image, num_partitions=None).cluster_config("num.partitions", "1") == "3"


def test_a_new_topic_has_the_altered_numbers() -> None:
    image = altered(started(), num_partitions="4", default_replication_factor="3")
    records = create_topic(image, "t", "id", check_configs=LogConfig.validated).records
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
        ("log.retention.hours", "1", "Cannot update these configs dynamically: log.retention.hours"),
        ("broker.rack", "a", "Cannot update these configs dynamically: broker.rack"),
        ("log.retention.ms", "-2", "Invalid value -2 for configuration log.retention.ms: Value must be at least -1"),
    ],
)
def test_what_cannot_be_altered_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        alter_cluster_config(started(), {name: value})


# -- defaults of topics' configs


def replayed(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    return image.fold(*records)


def test_defaults_are_recorded_by_brokers_names_where_they_are_not_kafkas() -> None:
    config = BrokerConfig.from_properties({"log.retention.hours": 2, "log.segment.bytes": 1 << 30, "num.partitions": 3})
    records = record_cluster_wide_configs(
        image_of((1,)), config, {**dict(config.topic_defaults), "segment.files.max": 7}
    )
    recorded = {each.name: each.value for each in records.records if isinstance(each, ConfigRecord)}
    assert recorded.keys() - set(CLUSTER_WIDE_CONFIGS) == {"log.retention.ms", "segment.files.max"}
    assert recorded["log.retention.ms"] == "7200000"


def test_a_topics_configs_are_its_own_then_a_brokers_then_all_brokers_then_what_they_were_started_with() -> None:
    image = replayed(image_of((1, 2)), (ConfigRecord(CLUSTER_WIDE, "log.retention.ms", "1"),))
    kept: list[object] = [image.topic_config("t", 1)]
    for topic, name in (
        (DYNAMIC_DEFAULT, "log.retention.ms"),
        (of_broker(1), "log.retention.ms"),
        ("t", "retention.ms"),
    ):
        image = image.fold(ConfigRecord(topic, name, str(len(kept) + 1)))
        kept.append(image.topic_config("t", 1))
    assert kept == [{"retention.ms": str(number)} for number in (1, 2, 3, 4)]
    assert (image.topic_config("u", 1), image.topic_config("u", 2), image.topic_config("u")) == (
        {"retention.ms": "3"},
        {"retention.ms": "2"},
        {"retention.ms": "2"},
    )
    assert image.topic_overrides("u") == {}
    for key in (f"config/{DYNAMIC_DEFAULT}/log.retention.ms", f"config/{CLUSTER_WIDE}/log.retention.ms"):
        image = image.fold(TombstoneRecord(key))
    assert (image.topic_config("u"), image.topic_config("u", 1)) == ({}, {"retention.ms": "3"})


def test_a_value_that_is_kafkas_default_comes_before_another_that_brokers_were_started_with() -> None:
    image = replayed(image_of((1,)), (ConfigRecord(CLUSTER_WIDE, "log.cleanup.policy", "compact"),))
    image = image.fold(ConfigRecord(of_broker(1), "log.segment.bytes", "1073741824"))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "log.segment.bytes", "14"))
    image = image.fold(ConfigRecord(DYNAMIC_DEFAULT, "log.cleanup.policy", "delete"))
    assert image.topic_config("t") == {"segment.bytes": "14"}
    assert LogConfig.from_properties(image.topic_config("t", 1)).segment_bytes == 1_073_741_824


def test_a_broker_that_is_started_with_other_values_is_told_what_it_replaces() -> None:
    given = {"log.cleanup.policy": "compact", "num.partitions": 3}
    first = record_cluster_wide_configs(image_of((1, 2)), BrokerConfig.from_properties(given))
    assert first.response == []
    image = replayed(image_of((1, 2)), first.records)
    replaced = record_cluster_wide_configs(image, BrokerConfig(num_partitions=4)).response
    assert sorted(map(str, replaced)) == ["log.cleanup.policy=delete (was compact)", "num.partitions=4 (was 3)"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unclean.leader.election.enable": "true"}, "it stands in cluster.toml"),
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}, "conflict topic setting"),
    ],
)
def test_a_bad_default_of_topics_toml_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        record_cluster_wide_configs(image_of((1,)), BrokerConfig(), given)


def test_a_topics_configs_must_not_contradict_the_defaults() -> None:
    image = replayed(image_of((1,)), (TopicRecord("t", "id"), ConfigRecord(CLUSTER_WIDE, LAG, "60000")))
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms \(60001\) > max.compaction.lag.ms \(60000\)"):
        alter_config(image, "t", {"min.compaction.lag.ms": "60001"}, check_configs=LogConfig.validated)
    alter_config(image, "t", {"min.compaction.lag.ms": "60000"}, check_configs=LogConfig.validated)


def test_names_that_are_not_known_are_kept_only_when_asked_for() -> None:
    image = image_of((1,))
    kept = alter_cluster_config(image, {"x.y": " as it is "}, keeps_unknown=True)
    assert kept.records == (ConfigRecord(DYNAMIC_DEFAULT, "x.y", " as it is "),)
    removed = alter_cluster_config(replayed(image, kept.records), {"x.y": None})
    assert removed.records == (ConfigRecord(DYNAMIC_DEFAULT, "x.y", None),)
    for name in ("x/y", "", "x" * 250, "ssl.keystore.location", "sasl.jaas.config", "listener.name.a.ssl.key.password"):
        with pytest.raises(InvalidConfigError):
            alter_broker_config(image, 1, {name: "1"}, keeps_unknown=True)


@pytest.mark.parametrize(
    ("before", "after", "keeps"), [("2", "1", False), ("2", None, False), ("2", "3", True), ("2", "2", True)]
)
def test_a_lower_default_of_min_insync_replicas_ends_eligibility(before: str, after: str | None, keeps: bool) -> None:
    image = image_of((1, 2, 3), replace(partition((1, 2, 3), 1, (1,)), elr=(2,)))
    image = image.fold(TopicRecord("own", "id"))
    image = image.fold(replace(partition((1, 2, 3), 1, (1,)), topic="own", elr=(2,)))
    image = image.fold(ConfigRecord("own", "min.insync.replicas", "2"))
    image = image.fold(ConfigRecord(DYNAMIC_DEFAULT, "min.insync.replicas", before))
    image = replayed(image, alter_cluster_configs(image, {"min.insync.replicas": after}).records)
    elrs = [state.elr for _, state in sorted(image.partitions.items(), key=lambda each: each[0].topic != "own")]
    assert elrs == [(2,), (2,) if keeps else ()]


# -- configs of groups


def group_altered(image: ClusterImage, **changes: str | None) -> ClusterImage:
    for record in alter_group_config(image, "g", {k.replace("_", "."): v for k, v in changes.items()}).records:
        image = image.fold(record)
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
    image = group_altered(image, consumer_session_timeout_ms="6000")
    with pytest.raises(InvalidConfigError, match=r"group.consumer.min.session.timeout.ms: 5999 < 6000"):
        group_altered(image, consumer_session_timeout_ms="5999")
    with pytest.raises(InvalidConfigError, match=r"must be greater than consumer.heartbeat.interval.ms: 6000 <= 6000"):
        group_altered(image, consumer_heartbeat_interval_ms="6000")
    image = group_altered(image, consumer_session_timeout_ms=None, consumer_heartbeat_interval_ms="49999")
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
