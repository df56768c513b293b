"""`kafka-get-offsets`: which partitions its patterns mean, what `--time` asks for, and what it prints."""

from __future__ import annotations

import pytest

from stratalog.jobs.command.arguments import offset_spec
from stratalog.jobs.command.partition_filter import PartitionFilter
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.topics.get_offsets import main, offsets_of, selected, shown
from stratalog.server.offset_spec import OffsetSpec
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    """Topics `a` and `ab` of four partitions and an internal one; partition a-1 has records of 100, 300 and 200 ms."""
    made = MemoryCluster()
    for topic in ("a", "ab", "__consumer_offsets"):
        made.create_topic(topic, 4 if topic in ("a", "ab") else 1)
    for time_ms in (100, 300, 200):
        made.append(TopicPartition("a", 1), b"v", time_ms=time_ms)
    made.publish(TopicPartition("a", 1))
    return made


def view_of(cluster: MemoryCluster) -> ClusterView:
    return ClusterView(ROOT, stores=cluster.stores, timeout_ms=0)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("a", "a-0 a-1 a-2 a-3"),
        ("a.*:1", "a-1 ab-1"),
        ("a:1-3", "a-1 a-2"),
        ("a:2-", "a-2 a-3"),
        ("a:-2", "a-0 a-1"),
        ("a:", "a-0 a-1 a-2 a-3"),
        (":3", "a-3 ab-3"),
        ("a:0,ab:1-2", "a-0 ab-1"),
        ("__.*", "__consumer_offsets-0"),
    ],
)
def test_topic_partition_patterns(cluster: MemoryCluster, patterns: str, names: str) -> None:
    found = selected(view_of(cluster), PartitionFilter.from_patterns(patterns), exclude_internal=False)
    assert [str(partition) for partition in found] == names.split()


@pytest.mark.parametrize(
    ("topic", "partitions", "names"),
    [
        ("ab", None, "ab-0 ab-1 ab-2 ab-3"),
        ("a|ab", "3,0", "a-0 a-3 ab-0 ab-3"),
        (None, "1", "a-1 ab-1"),
    ],
)
def test_a_topic_and_its_partitions(
    cluster: MemoryCluster, topic: str | None, partitions: str | None, names: str
) -> None:
    found = selected(view_of(cluster), PartitionFilter.from_topic(topic, partitions), exclude_internal=True)
    assert [str(partition) for partition in found] == names.split()


def test_internal_topics_are_left_out_when_asked(cluster: MemoryCluster) -> None:
    everything = PartitionFilter.from_topic(None, None)
    assert len(selected(view_of(cluster), everything, exclude_internal=False)) == 9
    assert len(selected(view_of(cluster), everything, exclude_internal=True)) == 8
    with pytest.raises(UsageError, match="Could not match any topic-partitions with the specified filters"):
        selected(view_of(cluster), PartitionFilter.from_patterns("__.*"), exclude_internal=True)


@pytest.mark.parametrize(
    ("time", "lines"),
    [
        ("latest", ["a:1:3", "a:2:0"]),
        ("-1", ["a:1:3", "a:2:0"]),
        ("earliest", ["a:1:0", "a:2:0"]),
        ("-2", ["a:1:0", "a:2:0"]),
        ("-4", ["a:1:0", "a:2:0"]),
        ("max-timestamp", ["a:1:1"]),
        ("-3", ["a:1:1"]),
        ("150", ["a:1:1"]),
        ("0", ["a:1:0"]),
        ("301", []),
    ],
)
def test_lines_are_topic_partition_and_offset(cluster: MemoryCluster, time: str, lines: list[str]) -> None:
    """A partition without such a record has no line, as in Kafka."""
    partitions = [TopicPartition("a", 1), TopicPartition("a", 2)]
    spec = offset_spec(time)
    assert spec is not None
    found = offsets_of(view_of(cluster), partitions, spec, 0)
    assert [shown(*each, "text") for each in found] == lines


def test_nothing_is_tiered() -> None:
    assert [offset_spec(time) for time in ("-5", "latest-tiered", "-6", "earliest-pending-upload")] == [None] * 4


def test_a_partition_that_cannot_be_asked_is_named_and_passed_over(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1)]
    cluster.elect(partitions[0], 2)
    found = offsets_of(view_of(cluster), partitions, OffsetSpec.latest(), 0)
    assert [shown(*each, "json") for each in found] == ['{"topic":"a","partition":1,"offset":3}']
    assert "Skip getting offsets for topic-partition a-0 due to error: a-0: leader 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--topic-partitions a --topic a", "--topic-partitions cannot be used with --topic or --partitions"),
        ("--topic-partitions a --partitions 1", "--topic-partitions cannot be used with --topic or --partitions"),
        ("--topic-partitions a:x", "Invalid rule specification: a:x"),
        ("--topic a --partitions 1,x", "comma separated list of numeric partition ids, but received: 1,x"),
        ("--topic a --time soon", "Malformed time argument soon"),
        ("--topic a --time -7", "Malformed time argument -7"),
        ("--topics a", "topics is not a recognized option"),
        ("--topic a", r"Which cluster\? Give --root"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_answered_in_kafkas_words(arguments: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main.call(arguments.split())
