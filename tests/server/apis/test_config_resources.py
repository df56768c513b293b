"""Configs of brokers, groups and loggers by Kafka's requests, and what they do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.cluster_configs import start_cluster_configs
from stratalog.replication.follower.quota import ReplicationQuota
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, ConfigRecord, ControllerRecord
from stratalog.storage.records import TopicPartition
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

DESCRIBE, ALTER, INCREMENTAL, LIST, QUORUM = 32, 33, 44, 74, 55
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = range(3)
RATES = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def altered(
    client: KafkaClient, kind: int, name: str, *changes: tuple[str, int, str | None], broker: int = 1, **more: Any
) -> int:
    configs = [{"name": n, "config_operation": operation, "value": value} for n, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return code(client.ask(INCREMENTAL, 1, {"resources": [resource], **more}, broker=broker).responses[0])


def described(client: KafkaClient, kind: int, name: str, broker: int = 1) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (found,) = client.ask(DESCRIBE, 4, {"resources": [resource]}, broker=broker).results
    assert code(found) == 0
    return {each.name: (each.value, each.config_source) for each in found.configs}


def test_a_broker_has_rates_of_its_own(client: KafkaClient, cluster: MemoryCluster) -> None:
    """As `kafka-reassign-partitions --throttle` sets them, at the broker itself, and `--verify` removes them."""
    for broker in (1, 2, 3):
        assert altered(client, BROKER, str(broker), *((name, SET, "1000") for name in RATES), broker=broker) == 0
    assert altered(client, BROKER, "", (RATES[0], SET, "9")) == 0
    own = described(client, BROKER, "1")
    assert [own[name] for name in RATES] == [("1000", 2), ("1000", 2)]
    assert own["num.partitions"][1] == 5
    assert described(client, BROKER, "") == {RATES[0]: ("9", 3)}
    for broker in (1, 2, 3):
        removed = [(name, DELETE, None) for name in (*RATES, MOVE_RATE)]
        assert altered(client, BROKER, str(broker), *removed, broker=broker) == 0
    assert described(client, BROKER, "1")[RATES[0]] == ("9", 3)
    assert described(client, BROKER, "1")[RATES[1]][1] == 5


def test_a_rate_holds_back_the_copies_of_its_broker_alone(client: KafkaClient, cluster: MemoryCluster) -> None:
    named = TopicPartition("t", 0)
    cluster.commit(cluster.state(named).changed(isr=(1,), bump_leader_epoch=False))
    assert altered(client, TOPIC, "t", ("follower.replication.throttled.replicas", SET, "*")) == 0
    assert altered(client, BROKER, "2", ("follower.replication.throttled.rate", SET, "1000"), broker=2) == 0
    cluster.metadata.refresh()
    image = cluster.metadata.image
    assert [ReplicationQuota(b, 1).max_bytes(image, named, 1 << 20) for b in (2, 3)] == [1_000, 1 << 20]


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (BROKER, "2", (RATES[0], SET, "1"), 42),
        (BROKER, "x", (RATES[0], SET, "1"), 42),
        (BROKER, "1", (RATES[0], SET, "-1"), 42),
        (BROKER, "1", ("num.partitions", SET, "2"), 42),
        (BROKER, "1", ("min.insync.replicas", SET, "2"), 42),
        (BROKER, "1", ("broker.rack", SET, "a"), 42),
        (BROKER, "", ("log.retention.hours", SET, "1"), 42),
        (BROKER, "", ("log.retention.ms", SET, "soon"), 42),
        (BROKER, "1", ("listener.name.internal.ssl.keystore.location", SET, "k.pem"), 42),
        (BROKER, "1", ("no/such/config", SET, "2"), 42),
        (BROKER_LOGGER, "2", ("root", SET, "INFO"), 42),
        (BROKER_LOGGER, "1", ("root", SET, "LOUD"), 40),
        (BROKER_LOGGER, "1", ("root", DELETE, None), 40),
        (BROKER_LOGGER, "1", ("no.such.logger", SET, "INFO"), 40),
        (BROKER_LOGGER, "1", ("root", APPEND, "INFO"), 40),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), 42),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "0"), 40),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "44999"), 40),
        (GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "15001"), 40),
        (GROUP, "g", ("session.timeout.ms", SET, "50000"), 40),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), 42),
        (64, "x", ("y", SET, "z"), 42),
    ],
)
def test_what_cannot_be_altered_is_refused(
    client: KafkaClient, kind: int, name: str, change: tuple[str, int, str | None], error: int
) -> None:
    assert altered(client, kind, name, change) == error


def test_loggers_have_levels(client: KafkaClient) -> None:
    logger = logging.getLogger("stratalog.test.levels")
    before = described(client, BROKER_LOGGER, "1")
    assert before["root"][1] == 6
    assert altered(client, BROKER_LOGGER, "1", (logger.name, SET, "DEBUG"), validate_only=True) == 0
    assert logger.level == logging.NOTSET
    assert altered(client, BROKER_LOGGER, "1", (logger.name, SET, "ERROR")) == 0
    assert (logger.level, described(client, BROKER_LOGGER, "1")[logger.name]) == (logging.ERROR, ("ERROR", 6))
    assert altered(client, BROKER_LOGGER, "1", (logger.name, DELETE, None)) == 0
    assert logger.level == logging.NOTSET


def test_a_group_has_times_of_its_own(client: KafkaClient) -> None:
    assert described(client, GROUP, "g")["consumer.session.timeout.ms"] == ("45000", 5)
    assert altered(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    assert described(client, GROUP, "g")["consumer.session.timeout.ms"] == ("50000", 8)
    too_long = ("consumer.heartbeat.interval.ms", SET, "50000")
    assert altered(client, GROUP, "g", too_long) == 40
    assert altered(client, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)) == 0
    assert described(client, GROUP, "g")["consumer.session.timeout.ms"] == ("45000", 5)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_request_replaces_all_configs(client: KafkaClient, version: int) -> None:
    def replaced(kind: int, name: str, configs: dict[str, str | None]) -> int:
        rows = [{"name": each, "value": value} for each, value in configs.items()]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        return code(client.ask(ALTER, version, {"resources": [resource]}).responses[0])

    assert altered(client, TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "8")) == 0
    assert replaced(TOPIC, "t", {"segment.ms": "9"}) == 0
    found = described(client, TOPIC, "t")
    assert (found["segment.ms"], found["retention.ms"]) == (("9", 1), ("604800000", 5))
    assert replaced(TOPIC, "t", {"segment.ms": None}) == 42
    assert replaced(TOPIC, "t", {"segment.ms": "0"}) == 40
    assert replaced(TOPIC, "none", {"segment.ms": "9"}) == 3
    assert replaced(BROKER_LOGGER, "1", {"root": "INFO"}) == 42
    assert altered(client, BROKER, "1", *((name, SET, "5") for name in RATES)) == 0
    assert replaced(BROKER, "1", {RATES[0]: "6"}) == 0
    own = described(client, BROKER, "1")
    assert own[RATES[0]] == ("6", 2)
    assert own[RATES[1]][1] == 5


def test_resources_with_configs_are_listed(client: KafkaClient) -> None:
    altered(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))

    def listed(version: int, *kinds: int) -> set[tuple[int, str]]:
        answer = client.ask(LIST, version, {"resource_types": kinds} if version else {})
        assert code(answer) == 0
        found = answer.config_resources
        return {(getattr(each, "resource_type", CLIENT_METRICS), each.resource_name) for each in found}

    brokers = {(kind, broker) for kind in (BROKER, BROKER_LOGGER) for broker in ("1", "2", "3")}
    assert listed(0) == set()
    assert listed(1, TOPIC) == {(TOPIC, "t")}
    assert listed(1, GROUP, BROKER) == {(GROUP, "g"), *(each for each in brokers if each[0] == BROKER)}
    assert listed(1) == {(TOPIC, "t"), (GROUP, "g"), *brokers}
    assert code(client.ask(LIST, 1, {"resource_types": [99]})) == 35


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_metadata_log_has_a_leader_and_observers(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    def partition(topic: str, number: int) -> Any:
        topics = [{"topic_name": topic, "partitions": [{"partition_index": number}]}]
        return client.ask(QUORUM, version, {"topics": topics}).topics[0].partitions[0]

    assert code(partition("__cluster_metadata", 0)) == 5
    cluster.commit(ControllerRecord(2, 7))
    found = partition("__cluster_metadata", 0)
    cluster.metadata.refresh()
    end = cluster.metadata.log.log_end_offset
    assert (code(found), found.leader_id, found.leader_epoch, found.high_watermark) == (0, 2, 7, end)
    assert [(each.replica_id, each.log_end_offset) for each in found.current_voters] == [(2, end)]
    assert [(each.replica_id, each.log_end_offset) for each in found.observers] == [(1, end), (3, end)]
    assert code(partition("t", 0)) == 3


def test_a_topic_has_what_its_broker_was_given_for_all_logs(cluster: MemoryCluster) -> None:
    config = BrokerConfig.from_properties({"log.retention.hours": 2, "log.cleanup.policy": "compact"})
    cluster.commit(*start_cluster_configs(ClusterImage(), config).records)
    with KafkaClient(cluster, stores=cluster.stores) as client:
        found = described(client, TOPIC, "t")
        assert (found["retention.ms"], found["cleanup.policy"]) == (("7200000", 4), ("compact", 4))
        assert altered(client, TOPIC, "t", ("cleanup.policy", APPEND, "delete"), ("retention.ms", SET, "7")) == 0
        found = described(client, TOPIC, "t")
        assert (found["retention.ms"], found["cleanup.policy"]) == (("7", 1), ("compact,delete", 1))


def test_a_topic_without_configs_has_defaults_alone(client: KafkaClient, cluster: MemoryCluster) -> None:
    """A value that the brokers were started with counts only when it is not the default."""
    started = {"unclean.leader.election.enable": "false", "num.partitions": "2"}
    cluster.commit(*(ConfigRecord(CLUSTER_WIDE, name, value) for name, value in started.items()))
    assert {source for _, source in described(client, TOPIC, "t").values()} == {5}
    cluster.commit(ConfigRecord(CLUSTER_WIDE, "unclean.leader.election.enable", "true"))
    assert described(client, TOPIC, "t")["unclean.leader.election.enable"] == ("true", 4)
    assert described(client, BROKER, "1")["num.partitions"] == ("2", 4)


def test_defaults_of_topics_are_altered_while_brokers_run(client: KafkaClient, cluster: MemoryCluster) -> None:
    assert altered(client, BROKER, "", ("log.retention.ms", SET, "7"), ("message.max.bytes", SET, "2000")) == 0
    assert altered(client, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) == 0
    found = described(client, TOPIC, "t")
    names = ("retention.ms", "max.message.bytes", "cleanup.policy")
    assert [found[name] for name in names] == [("7", 3), ("2000", 3), ("delete,compact", 3)]
    assert described(client, BROKER, "2", broker=2)["log.cleanup.policy"] == ("delete,compact", 3)
    assert altered(client, BROKER, "1", ("message.max.bytes", SET, "1000")) == 0
    assert described(client, TOPIC, "t")["max.message.bytes"] == ("1000", 2)
    assert described(client, TOPIC, "t", broker=2)["max.message.bytes"] == ("2000", 3)
    cluster.metadata.refresh()
    image = cluster.metadata.image
    assert [image.topic_config("t", broker)["max.message.bytes"] for broker in (None, 1, 2)] == ["2000", "1000", "2000"]
    assert altered(client, TOPIC, "t", ("max.message.bytes", SET, "3000")) == 0
    assert described(client, TOPIC, "t")["max.message.bytes"] == ("3000", 1)


def test_a_config_that_is_not_known_is_kept_and_not_shown(client: KafkaClient) -> None:
    """As Kafka, where it may be a secret of a plug-in."""
    for name, broker in (("no.such.config", "1"), ("sasl.kerberos.min.time.before.relogin", "1"), ("other", "")):
        assert altered(client, BROKER, broker, (name, SET, "58000")) == 0
    own = described(client, BROKER, "1")
    assert [own[name] for name in ("no.such.config", "other")] == [(None, 2), (None, 3)]
    assert described(client, BROKER, "") == {"other": (None, 3)}
    assert altered(client, BROKER, "1", ("no.such.config", DELETE, None)) == 0
    assert "no.such.config" not in described(client, BROKER, "1")


def test_a_brokers_configs_name_its_place_and_the_cleaners(client: KafkaClient) -> None:
    assert altered(client, BROKER, "1", ("log.cleaner.backoff.ms", SET, "100")) == 0
    found = described(client, BROKER, "1")
    assert found["log.cleaner.backoff.ms"] == ("100", 2)
    assert found["log.cleaner.min.cleanable.ratio"] == ("0.5", 5)
    assert found["broker.id"] == ("1", 4)
    assert found["log.dirs"][0].endswith("/broker-1")
