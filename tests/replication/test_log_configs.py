"""Broker configs for logs: Kafka's names, their precedence, and what becomes of them."""

from __future__ import annotations

import re

import pytest

from stratalog.replication.config import BROKER_CONFIGS, BrokerConfig
from stratalog.replication.log_configs import DEFAULT_NAMES, LOG_CONFIGS, SYNONYMS, default_synonym, topic_defaults
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import TOPIC_CONFIGS, LogConfig

OURS = {
    "segment.files.max",
    "stratalog.commit.latency.ms",
    "stratalog.snapshot.retention.ms",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
}


def test_every_topic_config_of_kafka_has_a_broker_config() -> None:
    assert {key.name for key in TOPIC_CONFIGS} == {*SYNONYMS, *OURS, "unclean.leader.election.enable"}
    assert not LOG_CONFIGS & {key.name for key in BROKER_CONFIGS}


def test_a_default_is_named_as_kafka_names_it() -> None:
    """Of several synonyms Kafka's `KafkaConfig` gives the last one a default, in its own unit, and the others null."""
    several = {
        topic: default_synonym(DEFAULT_NAMES[topic], spelled(TOPIC_CONFIGS.key(topic).default)) for topic in SYNONYMS
    }
    assert {topic: named for topic, named in several.items() if len(SYNONYMS[topic]) > 1} == {
        "flush.ms": ("log.flush.scheduler.interval.ms", "9223372036854775807"),
        "retention.ms": ("log.retention.hours", "168"),
        "segment.jitter.ms": ("log.roll.jitter.hours", "0"),
        "segment.ms": ("log.roll.hours", "168"),
    }
    assert several["cleanup.policy"] == ("log.cleanup.policy", "delete")


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"log.retention.hours": "2"}, "retention.ms", "7200000"),
        ({"log.retention.minutes": 3, "log.retention.hours": 2}, "retention.ms", "180000"),
        ({"log.retention.ms": 4, "log.retention.minutes": 3, "log.retention.hours": 2}, "retention.ms", "4"),
        ({"log.retention.hours": -1}, "retention.ms", "-1"),
        ({"log.retention.ms": "-5"}, "retention.ms", "-1"),
        ({"log.roll.hours": 1}, "segment.ms", "3600000"),
        ({"log.roll.ms": 7, "log.roll.hours": 1}, "segment.ms", "7"),
        ({"log.roll.jitter.hours": 1}, "segment.jitter.ms", "3600000"),
        ({"log.flush.scheduler.interval.ms": 9}, "flush.ms", "9"),
        ({"log.flush.interval.ms": 8, "log.flush.scheduler.interval.ms": 9}, "flush.ms", "8"),
        ({"log.message.timestamp.type": "LogAppendTime"}, "message.timestamp.type", "LogAppendTime"),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", "compact,delete"),
        ({"message.max.bytes": 2_000_000}, "max.message.bytes", "2000000"),
        ({"min.insync.replicas": 2}, "min.insync.replicas", "2"),
    ],
)
def test_the_finest_unit_that_is_given_counts(given: dict[str, object], name: str, value: str) -> None:
    assert topic_defaults(given) == ((name, value),)
    config = BrokerConfig.from_properties({**given, "num.partitions": 6})
    assert (config.num_partitions, config.topic_defaults) == (6, ((name, value),))
    assert spelled(getattr(LogConfig.from_properties(dict(config.topic_defaults)), name.replace(".", "_"))) == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log.roll.hours", 0, "configuration log.roll.hours: Value must be at least 1"),
        ("log.retention.hours", "soon", "Invalid value soon for configuration log.retention.hours: Not a number"),
        ("log.segment.bytes", 13, "configuration log.segment.bytes: Value must be at least 14"),
        ("log.retention.hour", 1, "Unknown broker config name: log.retention.hour"),
    ],
)
def test_a_bad_value_is_refused_by_the_brokers_name(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(message)):
        BrokerConfig.from_properties({name: value})
