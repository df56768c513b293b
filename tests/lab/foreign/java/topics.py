"""Kafka's tools for topics, configs and replicas."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import domains
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.jvm import tool
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

TOPICS, CONFIGS = "TopicCommand", "kafka.admin.ConfigCommand"
REASSIGN, ELECTION, LOG_DIRS = "reassign.ReassignPartitionsCommand", "LeaderElectionCommand", "LogDirsCommand"
WAIT_S = 60
THROTTLE = 50_000_000


@contextmanager
def json_file(content: object) -> Iterator[str]:
    """A file with this, for tools that read one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.json"
        file.write_text(json.dumps(content))
        yield str(file)


# -- topics ------------------------------------------------------------------------------------------------


def make_topics(served: Served) -> None:
    """Create, list, describe, add partitions, delete."""
    topic = fresh("made")
    text = tool(
        served, TOPICS, "--create", "--topic", topic, "--partitions", 3, "--replication-factor", 3,
        "--config", "min.insync.replicas=2", "--config", "retention.ms=3600000",
    )  # fmt: skip
    assert f"Created topic {topic}." in text, text
    tool(served, TOPICS, "--create", "--topic", topic, "--if-not-exists")
    text = tool(served, TOPICS, "--create", "--topic", topic, code=1)
    assert f"Topic '{topic}' already exists." in text, text
    assert topic in tool(served, TOPICS, "--list", "--exclude-internal").splitlines()
    text = tool(served, TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 3\t" in text, text
    assert {"min.insync.replicas=2", "retention.ms=3600000"} <= set(re.split(r"[,\s]", text)), text
    tool(served, TOPICS, "--alter", "--topic", topic, "--partitions", 5)
    assert replicas_of(served, topic).keys() == set(range(5))
    text = tool(served, TOPICS, "--alter", "--topic", topic, "--partitions", 4, code=1)
    assert "InvalidPartitionsException" in text, text
    tool(served, TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(served, TOPICS, "--list").splitlines()
    text = tool(served, TOPICS, "--describe", "--topic", topic, code=1)
    assert f"Topic '{topic}' does not exist as expected" in text, text
    tool(served, TOPICS, "--delete", "--topic", topic, "--if-exists")


def place_replicas(served: Served) -> None:
    """Create by a replica assignment; describe what is under-replicated, unavailable, with configs of its own."""
    topic = fresh("placed")
    tool(served, TOPICS, "--create", "--topic", topic, "--replica-assignment", "3:1:2,1:2:3")
    assert replicas_of(served, topic) == {0: [3, 1, 2], 1: [1, 2, 3]}
    wait_until(lambda: leaders_of(served, topic) == {0: 3, 1: 1}, f"leaders of {topic}", WAIT_S)
    for option in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in tool(served, TOPICS, "--describe", option)
    text = tool(served, TOPICS, "--describe", "--topics-with-overrides")
    assert topic not in text or domains.IS_ON, text  # the cluster's default of a config is one, as in Kafka
    found = re.findall(r"TopicId: (\S+)", tool(served, TOPICS, "--describe", "--topic", topic))
    assert topic in tool(served, TOPICS, "--describe", "--topic-id", found[0])


def replicas_of(served: Served, topic: str) -> dict[int, list[int]]:
    """Replicas of each partition, as `kafka-topics --describe` prints them."""
    text = tool(served, TOPICS, "--describe", "--topic", topic)
    found = re.findall(r"Partition: (\d+)\t.*Replicas: ([\d,]+)", text)
    return {int(partition): [int(each) for each in replicas.split(",")] for partition, replicas in found}


def leaders_of(served: Served, topic: str) -> dict[int, int]:
    text = tool(served, TOPICS, "--describe", "--topic", topic)
    return {int(number): int(leader) for number, leader in re.findall(r"Partition: (\d+)\tLeader: (\d+)", text)}


# -- configs -----------------------------------------------------------------------------------------------


def alter_configs(served: Served, entity: Sequence[str], configs: Mapping[str, str]) -> None:
    """Alter, describe and delete configs of a thing."""
    given = ",".join(f"{name}={value}" for name, value in configs.items())
    text = tool(served, CONFIGS, "--alter", *entity, "--add-config", given)
    assert "Completed updating" in text, text
    shown = {f"{name}={value}" for name, value in configs.items()}

    def described() -> set[str]:
        return shown & set(re.split(r"[,\s]+", tool(served, CONFIGS, "--describe", *entity)))

    wait_until(lambda: described() == shown, f"{given} of {entity}", WAIT_S)
    tool(served, CONFIGS, "--alter", *entity, "--delete-config", ",".join(configs))
    wait_until(lambda: not described(), f"no more {given} of {entity}", WAIT_S)


def configs_of_topics(served: Served) -> None:
    topic = topic_of(served)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    alter_configs(served, entity, {"retention.ms": "1200000", "max.message.bytes": "2000000"})
    tool(served, CONFIGS, "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete]")
    assert "cleanup.policy=compact,delete" in tool(served, CONFIGS, "--describe", *entity)
    assert "segment.bytes=" in tool(served, CONFIGS, "--describe", *entity, "--all")
    text = tool(served, CONFIGS, "--alter", *entity, "--add-config", "retention.ms=long", code=1)
    assert "InvalidConfigurationException" in text, text
    text = tool(served, CONFIGS, "--alter", *entity, "--add-config", "no.such.config=1", code=1)
    assert "InvalidConfigurationException" in text, text


def configs_of_brokers(served: Served) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "2"), ("--entity-type", "brokers", "--entity-default")
    rates = {"leader.replication.throttled.rate": "9000000", "follower.replication.throttled.rate": "9000000"}
    alter_configs(served, one, rates)
    alter_configs(served, every, {"unclean.leader.election.enable": "true"})
    text = tool(served, CONFIGS, "--describe", *one, "--all")
    assert "num.io.threads=8" in text.split(), text
    text = tool(served, CONFIGS, "--alter", *one, "--add-config", "listeners=PLAINTEXT://:1", code=1)
    assert "Exception" in text, text


def configs_of_users(served: Served) -> None:
    """SCRAM credentials, and quotas of users, client ids and both."""
    user, client_id = fresh("user"), fresh("client")
    entity = ("--entity-type", "users", "--entity-name", user)
    tool(served, CONFIGS, "--alter", *entity, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    text = tool(served, CONFIGS, "--describe", *entity)
    assert f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192" in text, text
    tool(served, CONFIGS, "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tool(served, CONFIGS, "--describe", *entity)
    client = ("--entity-type", "clients", "--entity-name", client_id)
    rates = {"producer_byte_rate": "1048576.0", "consumer_byte_rate": "2097152.0"}
    for each in (entity, client, (*entity, *client)):
        alter_configs(served, each, rates)


def configs_of_groups(served: Served) -> None:
    entity = ("--entity-type", "groups", "--entity-name", fresh("group"))
    alter_configs(served, entity, {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"})


# -- replicas ----------------------------------------------------------------------------------------------


def describe_log_dirs(served: Served) -> None:
    topic = topic_of(served)
    text = tool(served, LOG_DIRS, "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert {each["broker"] for each in found["brokers"]} == {1, 2, 3}
    for broker in found["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        assert {each["partition"] for each in directory["partitions"]} == {f"{topic}-{n}" for n in range(3)}
        assert {each["isFuture"] for each in directory["partitions"]} == {False}
    text = tool(served, LOG_DIRS, "--describe", "--broker-list", "2", "--topic-list", topic)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert [each["broker"] for each in found["brokers"]] == [2]


def reassign(served: Served) -> None:
    """Generate a plan; execute it with a throttle, list, verify until it is complete; the throttles are gone then."""
    topic = fresh("moved")
    tool(served, TOPICS, "--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    tool(served, "ProducerPerformance", "--topic", topic, "--num-records", 1_000, "--record-size", 100,
         "--throughput", -1)  # fmt: skip
    with json_file({"version": 1, "topics": [{"topic": topic}]}) as named:
        text = tool(served, REASSIGN, "--generate", "--topics-to-move-json-file", named, "--broker-list", "1,2,3")
        assert "Proposed partition reassignment configuration" in text, text
    wanted = {0: [3, 2], 1: [3, 1]}
    parts = [{"topic": topic, "partition": number, "replicas": each} for number, each in wanted.items()]
    with json_file({"version": 1, "partitions": parts}) as plan:
        text = tool(served, REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", THROTTLE)
        assert f"The inter-broker throttle limit was set to {THROTTLE} B/s" in text, text
        assert "Successfully started partition reassignments" in text, text
        tool(served, REASSIGN, "--list")
        outputs: list[str] = []

        def is_complete() -> bool:
            outputs.append(tool(served, REASSIGN, "--verify", "--reassignment-json-file", plan))
            return "in progress" not in outputs[-1]

        wait_until(is_complete, "the reassignment", WAIT_S)
    for number in wanted:
        assert f"Reassignment of partition {topic}-{number} is completed." in outputs[-1], outputs[-1]
    assert "Clearing broker-level throttles on brokers 1,2,3" in outputs[-1], outputs[-1]
    assert f"Clearing topic-level throttles on topic {topic}" in outputs[-1], outputs[-1]
    assert replicas_of(served, topic) == wanted
    for entity in (("topics", topic), ("brokers", "3")):
        text = tool(served, CONFIGS, "--describe", "--entity-type", entity[0], "--entity-name", entity[1])
        assert "throttled" not in text, text
    assert "No partition reassignments found." in tool(served, REASSIGN, "--list")


def cancel_reassignment(served: Served) -> None:
    """A reassignment that its throttle slows down is cancelled. In a storage domain none takes any time."""
    topic = fresh("stays")
    tool(served, TOPICS, "--create", "--topic", topic, "--replica-assignment", "1:2")
    tool(served, "ProducerPerformance", "--topic", topic, "--num-records", 10_000, "--record-size", 1_000,
         "--throughput", -1)  # fmt: skip
    part = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    with json_file({"version": 1, "partitions": [part]}) as plan:
        tool(served, REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", 1_000)
        assert f"{topic}-0: replicas: " in tool(served, REASSIGN, "--list")
        text = tool(served, REASSIGN, "--cancel", "--reassignment-json-file", plan)
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in text, text
    assert sorted(replicas_of(served, topic)[0]) == [1, 2]
    text = tool(served, CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert "throttled" not in text, text


def elect_leaders(served: Served) -> None:
    """A preferred election moves leaderships to the first replica; one where there is a leader says so."""
    topic = fresh("elected")
    tool(served, TOPICS, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
    wait_until(lambda: leaders_of(served, topic) == {0: 1}, f"leader of {topic}", WAIT_S)
    part = {"topic": topic, "partition": 0}
    with json_file({"version": 1, "partitions": [{**part, "replicas": [2, 3, 1]}]}) as plan:
        tool(served, REASSIGN, "--execute", "--reassignment-json-file", plan)
    place = ("--topic", topic, "--partition", 0)
    text = tool(served, ELECTION, "--election-type", "preferred", *place)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in text, text
    wait_until(lambda: leaders_of(served, topic) == {0: 2}, f"new leader of {topic}", WAIT_S)
    assert "Valid replica already elected" in tool(served, ELECTION, "--election-type", "preferred", *place)
    assert "Valid replica already elected" in tool(served, ELECTION, "--election-type", "unclean", *place)
    with json_file({"partitions": [part]}) as named:
        tool(served, ELECTION, "--election-type", "preferred", "--path-to-json-file", named)
    tool(served, ELECTION, "--election-type", "preferred", "--all-topic-partitions")


CHECKS = {
    "kafka-topics: create, list, describe, more partitions, delete; refusals": make_topics,
    "kafka-topics: create by a replica assignment; describe by state and id": place_replicas,
    "kafka-configs: of a topic": configs_of_topics,
    "kafka-configs: of one broker and of all": configs_of_brokers,
    "kafka-configs: of users and client ids: SCRAM, quotas": configs_of_users,
    "kafka-configs: of a group": configs_of_groups,
    "kafka-log-dirs": describe_log_dirs,
    "kafka-reassign-partitions: generate, execute with a throttle, list, verify": reassign,
    **({} if domains.IS_ON else {"kafka-reassign-partitions: cancel": cancel_reassignment}),
    "kafka-leader-election: preferred, unclean, all partitions": elect_leaders,
}
