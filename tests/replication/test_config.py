"""Cluster settings: Kafka's names and defaults, ranges and wording, and conf/ in step with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.replication.conf_files import cluster_toml, topics_toml
from stratalog.replication.config import BROKER_CONFIGS, CLUSTER_TOML, TOPICS_TOML, BrokerConfig, flatten_toml
from stratalog.replication.log_configs import UNCLEAN_ELECTION
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import TOPIC_CONFIGS, LogConfig


def test_defaults_are_those_of_the_design() -> None:
    config = BrokerConfig()
    assert (config.replica_lag_time_max_ms, config.broker_session_timeout_ms) == (10_000, 9_000)
    assert (config.broker_heartbeat_interval_ms, config.num_replica_fetchers) == (2_000, 1)
    assert (config.stratalog_fetch_session_ms, config.stratalog_fetch_sessions) == (300_000, 2)


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("num.partitions", 6, 6),
        ("num.partitions", " 6 ", 6),
        ("delete.topic.enable", False, False),
        ("delete.topic.enable", "FALSE", False),
        ("log.dir", "text", "text"),
    ],
)
def test_a_value_comes_from_toml_or_from_a_command_line(name: str, value: object, parsed: object) -> None:
    assert BrokerConfig.from_properties({name: value}).properties()[name] == parsed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitons", 6, "Unknown broker config name: num.partitons"),
        ("num.partitions", 0, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("num.partitions", "six", "Invalid value six for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", True, "Invalid value True for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", 1.5, "Invalid value 1.5 for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", 2**31, "Not a number of type INT"),
        ("delete.topic.enable", "yes", "Expected value to be either true or false"),
        ("delete.topic.enable", 1, "Expected value to be either true or false"),
        ("log.dir", "", "configuration log.dir: String must be non-empty"),
        ("log.dir", 7, "configuration log.dir: Expected value to be a string"),
        ("broker.heartbeat.interval.ms", 9_001, "at most broker.session.timeout.ms, which is 9000"),
        ("group.consumer.session.timeout.ms", 44_999, "group.consumer.min.session.timeout.ms: Value must be at most"),
        ("group.consumer.session.timeout.ms", 60_001, "at most group.consumer.max.session.timeout.ms, which is 60000"),
        ("group.consumer.heartbeat.interval.ms", 4_999, "group.consumer.heartbeat.interval.ms, which is 4999"),
        ("group.consumer.heartbeat.interval.ms", 15_001, "at most group.consumer.max.heartbeat.interval.ms"),
        ("group.consumer.assignment.interval.ms", 15_001, "at most group.consumer.max.assignment.interval.ms"),
        ("group.consumer.min.assignment.interval.ms", 1_001, "at most group.consumer.assignment.interval.ms"),
        ("stratalog.progress.poll.min.ms", 501, "at most stratalog.progress.poll.max.ms, which is 500"),
    ],
)
def test_a_wrong_name_or_value_is_refused_by_name(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(message)):
        BrokerConfig.from_properties({name: value})


def test_a_modern_groups_heartbeats_come_more_often_than_its_session_ends() -> None:
    settings = {
        "group.consumer.heartbeat.interval.ms": 6_000,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.session.timeout.ms": 6_000,
    }
    with pytest.raises(InvalidConfigError, match=r"less than group.consumer.session.timeout.ms, which is 6000"):
        BrokerConfig.from_properties(settings)
    assert BrokerConfig.from_properties(settings | {"group.consumer.heartbeat.interval.ms": 5_999})


def test_a_range_holds_for_a_config_made_in_code_too() -> None:
    with pytest.raises(InvalidConfigError, match=r"replica\.lag\.time\.max\.ms: Value must be at least 1"):
        BrokerConfig(replica_lag_time_max_ms=-1)


def test_toml_tables_and_dotted_names_say_the_same() -> None:
    table = "[replica.lag]\ntime.max.ms = 1\n[num]\npartitions = 6\n"
    assert flatten_toml(table) == flatten_toml("replica.lag.time.max.ms = 1\nnum.partitions = 6\n")


def test_an_override_comes_before_the_file() -> None:
    assert BrokerConfig.from_toml("num.partitions = 6", {"num.partitions": "12"}).num_partitions == 12


def test_text_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidConfigError, match="line 2"):
        BrokerConfig.from_toml("num.partitions = 6\nnum.replica.fetchers =\n")


@pytest.mark.parametrize(("path", "text"), [(CLUSTER_TOML, cluster_toml()), (TOPICS_TOML, topics_toml())])
def test_conf_is_what_the_code_says(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "make conf"


def test_cluster_toml_is_read_as_the_defaults() -> None:
    parsed = {name: BROKER_CONFIGS.key(name).parse(value) for name, value in flatten_toml(cluster_toml()).items()}
    assert parsed == {key.name: key.default for key in BROKER_CONFIGS}


def test_topics_toml_is_read_as_the_defaults() -> None:
    listed = LogConfig.from_properties(flatten_toml(topics_toml()))
    assert listed.overrides == {key.name: spelled(key.default) for key in TOPIC_CONFIGS if key.name != UNCLEAN_ELECTION}
