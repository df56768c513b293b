"""The topics tool: which flags go together, what it reads and what it prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.jobs.command.arguments import timeout_ms
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.text.topics import (
    deletion_line,
    is_at_min_isr,
    is_unavailable,
    is_under_min_isr,
    is_under_replicated,
    kafka_uuid,
    parse_replica_assignment,
    parse_topic_configs,
    partition_line,
    topic_line,
)
from stratalog.jobs.topics.topics import main
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metadata.states import ReplicaState
from stratalog.server.admin.admin import TopicDescription
from stratalog.storage.errors import InvalidConfigError, InvalidReplicaAssignmentError

PARTITION = PartitionRecord("t", 0, (1, 2, 3), 1, 4, (1, 2), 7, 1)
MIN_ISR_2 = {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        (["--list"], "list"),
        (["--list", "--exclude-internal"], "list"),
        (["--describe"], "describe"),
        (["--describe", "--topic", "t", "--under-replicated-partitions"], "describe"),
        (["--create", "--topic", "t", "--config", "a=b", "--partitions", "3"], "create"),
        (["--alter", "--topic", "t", "--partitions", "3", "--if-exists"], "alter"),
        (["--delete", "--topic", "t"], "delete"),
    ],
)
def test_flags_that_go_together(arguments: list[str], action: str) -> None:
    assert main.checked(arguments).action == action


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t"], "exactly one action"),
        (["--list", "--create"], "exactly one action"),
        (["--create"], r'Missing required argument "\[topic\]"'),
        (["--alter", "--topic", "t"], r'Missing required argument "\[partitions\]"'),
        (["--alter", "--topic", "t", "--config", "a=b"], r'"\[config\]" can\'t be used with option "\[alter\]"'),
        (
            ["--delete", "--topic", "t", "--partitions", "1"],
            r'"\[partitions\]" can\'t be used with option "\[delete\]"',
        ),
        (["--create", "--topic", "t", "--if-exists"], r'"\[if-exists\]" can\'t be used with option "\[create\]"'),
        (["--describe", "--if-exists"], "--topic or --topic-id is required to describe a topic"),
        (
            ["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"],
            r'"\[replica-assignment\]" can\'t be used with option "\[partitions\]"',
        ),
        (
            ["--describe", "--unavailable-partitions", "--topics-with-overrides"],
            r'"\[unavailable-partitions\]" can\'t be used with option "\[topics-with-overrides\]"',
        ),
    ],
)
def test_flags_that_do_not_go_together(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main.checked(arguments)


def test_a_described_topic_in_kafkas_columns() -> None:
    topic = TopicDescription("t", "0" * 31 + "1", (PARTITION,), {"retention.ms": "1", "cleanup.policy": "compact"})
    assert topic_line(topic) == (
        "Topic: t\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 1\tReplicationFactor: 3"
        "\tConfigs: cleanup.policy=compact,retention.ms=1"
    )
    assert kafka_uuid("ff" * 16) == "_____________________w"


@pytest.mark.parametrize(
    ("partition", "line"),
    [
        (PARTITION, "Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\tElr: \tLastKnownElr: "),
        (
            replace(PARTITION, leader=NO_LEADER),
            "Partition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1,2\tElr: \tLastKnownElr: ",
        ),
        (
            replace(PARTITION, isr=(1,), elr=(2,), last_known_elr=(3,)),
            "Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1\tElr: 2\tLastKnownElr: 3",
        ),
        (
            replace(PARTITION, adding=(3,), removing=(1,)),
            (
                "Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 1"
                "\tElr: \tLastKnownElr: "
            ),
        ),
    ],
)
def test_a_described_partition_in_kafkas_columns(partition: PartitionRecord, line: str) -> None:
    assert partition_line(partition) == f"\tTopic: t\t{line}"


def test_a_deleted_topic_tells_who_still_has_replicas_of_it() -> None:
    states = {2: ReplicaState.DELETION_STARTED, 3: ReplicaState.DELETION_INELIGIBLE}
    assert deletion_line(TopicDeletion("t", "0" * 31 + "1", 4, states)) == (
        "Topic: t\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 4\tMarkedForDeletion: true"
        "\tReplicas: 2:ReplicaDeletionStarted,3:ReplicaDeletionIneligible"
    )


def test_the_reports_pick_the_partitions_they_are_about() -> None:
    whole, lone = replace(PARTITION, isr=(1, 2, 3)), replace(PARTITION, isr=(1,))
    assert [is_under_replicated(p) for p in (whole, PARTITION, replace(PARTITION, adding=(3,)))] == [False, True, False]
    assert [is_under_min_isr(p, MIN_ISR_2) for p in (PARTITION, lone)] == [False, True]
    assert [is_at_min_isr(p, MIN_ISR_2) for p in (whole, PARTITION)] == [False, True]
    assert [is_unavailable(p, [1, 2]) for p in (PARTITION, replace(PARTITION, leader=3))] == [False, True]
    assert is_unavailable(replace(PARTITION, leader=NO_LEADER), [1, 2, 3])


def test_a_replica_assignment_names_brokers_by_partition() -> None:
    assert parse_replica_assignment("1:2, 2:3") == {0: (1, 2), 1: (2, 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:1", "Partition replica lists may not contain duplicate entries: 1"),
        ("1:2,3", r"Partition 1 has different replication factor: \[3\]"),
        ("1:x", "'x' is not a broker id"),
    ],
)
def test_a_wrong_replica_assignment_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=message):
        parse_replica_assignment(text)


def test_topic_configs_are_checked_before_anything_is_asked() -> None:
    assert parse_topic_configs(["retention.ms = 5", "cleanup.policy=compact"]) == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
    }
    with pytest.raises(UsageError, match='in the format "key=val"'):
        parse_topic_configs(["retention.ms"])
    with pytest.raises(InvalidConfigError, match=r"Unknown topic config name: retention\.msec"):
        parse_topic_configs(["retention.msec=5"])


def test_the_admin_configs_say_how_long_to_wait() -> None:
    assert timeout_ms({}) == 60_000
    assert timeout_ms({"request.timeout.ms": "5", "client.id": "x"}) == 5
    with pytest.raises(InvalidConfigError, match=r"Unknown admin config name: default\.timeout"):
        timeout_ms({"default.timeout": "5"})
    with pytest.raises(InvalidConfigError, match="Not a number of type INT"):
        timeout_ms({"request.timeout.ms": "soon"})
