"""What `--describe` shows with each of its reports, and which topics the tool means, on a cluster in every state."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.topics.topics import main
from stratalog.replication.metadata.records import CLUSTER_WIDE, NO_LEADER, ConfigRecord, PartitionRecord, TopicRecord
from tests.clients.still_cluster import StillCluster

TOPIC_ID = "0" * 31 + "1"
STATES = {
    "whole": (1, (1, 2)),
    "shrunk": (1, (1,)),
    "under": (1, (1,)),
    "dead": (NO_LEADER, (2,)),
    "fenced": (3, (3,)),
}
"""Leader and ISR of each topic's one partition, on brokers 1 and 2; broker 3 is not registered."""


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    made = StillCluster(tmp_path)
    for topic, (leader, isr) in STATES.items():
        replicas = (3, 1) if topic == "fenced" else (1, 2)
        made.commit_metadata(TopicRecord(topic, TOPIC_ID), PartitionRecord(topic, 0, replicas, leader, 0, isr, 0, 1))
    made.commit_metadata(*(ConfigRecord(topic, "min.insync.replicas", "2") for topic in ("under", "whole")))
    made.commit_metadata(TopicRecord("__consumer_offsets", TOPIC_ID))
    made.commit_metadata(PartitionRecord("__consumer_offsets", 0, (1, 2), 1, 0, (1, 2), 0, 1))
    return made


def printed(cluster: StillCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["--root", cluster.root, *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def partitions_in(lines: list[str]) -> set[str]:
    """Topics of the lines on partitions; with a report there are no others."""
    assert all(line.startswith("\tTopic: ") for line in lines)
    return {line.split()[1] for line in lines}


@pytest.mark.parametrize(
    ("report", "topics"),
    [
        ("--under-replicated-partitions", {"shrunk", "under", "dead", "fenced"}),
        ("--unavailable-partitions", {"dead", "fenced"}),
        ("--under-min-isr-partitions", {"under", "dead"}),
        ("--at-min-isr-partitions", {"shrunk", "whole", "dead", "fenced"}),
    ],
)
def test_a_report_shows_the_partitions_that_it_is_about(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], report: str, topics: set[str]
) -> None:
    assert partitions_in(printed(cluster, capsys, "--describe", "--exclude-internal", report)) == topics
    assert partitions_in(printed(cluster, capsys, "--describe", "--topic", "d.*|sh.*", report)) == topics & {
        "dead",
        "shrunk",
    }


def test_a_report_knows_the_default_of_all_topics(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.commit_metadata(ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", "2"))
    found = partitions_in(printed(cluster, capsys, "--describe", "--exclude-internal", "--under-min-isr-partitions"))
    assert found == {"shrunk", "under", "dead", "fenced"}


def test_topics_with_overrides_are_a_line_each(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(cluster, capsys, "--describe", "--topics-with-overrides")
    assert [line.split()[1] for line in lines] == ["under", "whole"]
    assert all(line.endswith("Configs: min.insync.replicas=2") for line in lines)


def test_a_description_is_in_kafkas_columns(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = printed(cluster, capsys, "--describe", "--topic", "dead")
    assert first == ("Topic: dead\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: ")
    assert second.startswith("\tTopic: dead\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 2\tElr: ")


def test_internal_topics_are_left_out_when_asked(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    everything = printed(cluster, capsys, "--list")
    assert everything == ["__consumer_offsets", *sorted(STATES)]
    assert printed(cluster, capsys, "--list", "--exclude-internal") == sorted(STATES)
    assert printed(cluster, capsys, "--list", "--topic", "d.*,w.*") == ["dead", "whole"]


@pytest.mark.parametrize("action", ["--describe", "--delete", "--alter"])
def test_a_topic_that_is_not_there_is_an_error_unless_that_may_be(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    flags = [
        "--root",
        cluster.root,
        action,
        "--topic",
        "absent",
        *(["--partitions", "3"] if action == "--alter" else []),
    ]
    assert main(flags) == 1
    shown = capsys.readouterr()
    assert shown.out == "Error while executing topic command : Topic 'absent' does not exist as expected\n"
    assert shown.err.startswith("ERROR UNKNOWN_TOPIC_OR_PARTITION")
    assert main([*flags, "--if-exists"]) == 0


def test_a_topic_that_is_there_already_is_an_error_unless_that_may_be(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--root", cluster.root, "--create", "--topic", "whole", "--partitions", "1"]
    assert main(flags) == 1
    assert "Topic 'whole' already exists." in capsys.readouterr().out
    assert main([*flags, "--if-not-exists"]) == 0
