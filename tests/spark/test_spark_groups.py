"""`kafka.group.id` on streaming queries: the group's offsets follow the query, a query starts where its group stands.

Real brokers with a listener, which the queries' planners call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.coordinator_calls import InProcessCalls, ask
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.jobs.records import groups
from stratalog.replication.requests.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from stratalog.replication.requests.groups import DescribeGroupsRequest, DescribeGroupsResponse
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import decode_assignment
from tests.waiting import wait_until

ALONE = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
}
LISTENER = {"listeners": "PLAINTEXT://localhost:0"}
LAG_MS_MAX = 1_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("groups")
    with Cluster.start(folder, brokers=1, fetcher="thread", config=ALONE | LISTENER) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions, and the name of a group, of this test alone."""
    name = request.node.name.split("[")[0][:60]
    Admin(cluster).create_topic(name, 4, 1)
    return name


def send(cluster: Cluster, topic: str, *numbers: int) -> None:
    with Producer(cluster) as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % 4)


def frame(spark: SparkSession, cluster: Cluster, topic: str, **options: Any) -> DataFrame:
    given = {
        "stratalog.root": cluster.root,
        "subscribe": topic,
        "kafka.group.id": topic,
        "startingOffsets": "group",
        "stratalog.auto.offset.reset": "earliest",
        **options,
    }
    return spark.readStream.format("stratalog").options(**given).load().selectExpr("int(string(value)) AS number")


def started(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "out"))


def read_now(frame: DataFrame, folder: Path) -> None:
    """What there is, then the query ends."""
    query = started(frame, folder, availableNow=True)
    query.awaitTermination()


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.number for row in spark.read.parquet(str(folder / "out")).collect())


def committed(cluster: Cluster, group_id: str) -> dict[int, int]:
    """Partition -> the group's offset."""
    view = ClusterView(cluster.root)
    found = GroupAdmin(StoredGroups(view), view).committed(group_id)
    return {tp.partition: each.offset for tp, each in found.items()}


def owners(cluster: Cluster, group_id: str, protocol: str) -> dict[int, str]:
    """Partition -> the member that has it."""
    clock = SystemClock()
    is_modern = protocol == "consumer"
    request = ConsumerGroupDescribeRequest((group_id,)) if is_modern else DescribeGroupsRequest((group_id,))
    answer = ask(InProcessCalls(cluster, clock), group_id, request, clock, 10_000)
    if isinstance(answer, ConsumerGroupDescribeResponse):
        shares = ((each.member_id, each.assignment.topic_partitions) for each in answer.groups[0].members)
        return {n: member for member, topics in shares for topic in topics for n in topic.partitions}
    assert isinstance(answer, DescribeGroupsResponse)
    return {
        tp.partition: each.member_id
        for each in answer.groups[0].members
        if each.member_assignment
        for tp in decode_assignment(each.member_assignment).partitions
    }


def test_a_new_checkpoint_goes_on_where_the_group_stood(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    send(cluster, topic, *range(8))
    stream = frame(spark, cluster, topic)
    read_now(stream, tmp_path / "first")
    assert numbers(spark, tmp_path / "first") == list(range(8))
    assert committed(cluster, topic) == {0: 2, 1: 2, 2: 2, 3: 2}
    send(cluster, topic, 8, 9)
    read_now(stream, tmp_path / "second")
    assert numbers(spark, tmp_path / "second") == [8, 9]
    reset = [
        *("--root", cluster.root, "--group", topic, "--topic", f"{topic}:1", "--reset-offsets"),
        *("--to-offset", "1", "--execute"),
    ]
    assert groups.main.call(reset, cluster) == 0
    read_now(stream, tmp_path / "third")
    assert numbers(spark, tmp_path / "third") == [5, 9]
    assert committed(cluster, topic) == {0: 3, 1: 3, 2: 2, 3: 2}


def test_lag_is_gone_within_a_second_on_an_idle_topic(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    query = started(frame(spark, cluster, topic), tmp_path, processingTime="0 seconds")
    try:
        for ends in ({0: 1, 1: 1, 2: 1, 3: 1}, {0: 2, 1: 2, 2: 2, 3: 2}):
            send(cluster, topic, *range(4))
            wait_until(lambda: _ends(tmp_path) == ends, "the batch is committed")  # noqa: B023
            began = time.monotonic()
            wait_until(lambda: committed(cluster, topic) == ends, "no lag", timeout_s=LAG_MS_MAX / 1000)  # noqa: B023
            print(f"no lag after {time.monotonic() - began:.3f} s")
    finally:
        query.stop()


def _ends(folder: Path) -> dict[int, int] | None:
    """Where the newest batch ended, once Spark's commit log has it."""
    commits, offsets = folder / "checkpoint" / "commits", folder / "checkpoint" / "offsets"
    batches = [int(path.name) for path in commits.glob("[0-9]*")] if commits.exists() else []
    if not batches:
        return None
    ends = json.loads((offsets / str(max(batches))).read_text().splitlines()[-1])
    return {int(partition): end for name, each in ends.items() if "@" not in name for partition, end in each.items()}


def test_a_query_goes_on_from_its_checkpoint_and_commits_from_there(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    send(cluster, topic, *range(8))
    without = frame(spark, cluster, topic, startingOffsets="earliest")
    read_now(without, tmp_path)
    send(cluster, topic, *range(8, 12))
    read_now(frame(spark, cluster, topic, startingOffsets="latest"), tmp_path)
    assert numbers(spark, tmp_path) == list(range(12))
    assert committed(cluster, topic) == {0: 3, 1: 3, 2: 3, 3: 3}


LEAVES_S_MAX = 15
"""A query that is stopped leaves its group; without that its partitions would wait for the session timeout of 45 s."""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_queries_of_one_group_share_partitions(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    topic = f"shared-{protocol}"
    Admin(cluster).create_topic(topic, 4, 1)
    send(cluster, topic, *range(8))
    stream = frame(spark, cluster, topic, **{"stratalog.group.mode": "share", "kafka.group.protocol": protocol})
    folders = [tmp_path / "first", tmp_path / "second"]
    first = started(stream, folders[0], processingTime="0 seconds")
    try:
        wait_until(lambda: _ends(folders[0]) == {0: 2, 1: 2, 2: 2, 3: 2}, "the first query reads everything")
        second = started(stream, folders[1], processingTime="0 seconds")
        try:
            wait_until(lambda: len(set(owners(cluster, topic, protocol).values())) == 2, "they share")
            send(cluster, topic, *range(8, 16))
            wait_until(lambda: committed(cluster, topic) == {0: 4, 1: 4, 2: 4, 3: 4}, "both read")
        finally:
            second.stop()
        wait_until(lambda: len(set(owners(cluster, topic, protocol).values())) == 1, "it left", timeout_s=LEAVES_S_MAX)
        send(cluster, topic, *range(16, 20))
        wait_until(lambda: committed(cluster, topic) == {0: 5, 1: 5, 2: 5, 3: 5}, "the first query goes on")
    finally:
        first.stop()
    parts = [numbers(spark, folder) for folder in folders]
    assert sorted(parts[0] + parts[1]) == list(range(20))
    assert set(parts[1]) < set(range(8, 16))
    assert parts[1] != []


def _with_state(key: Any, _: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    state.update((0,))
    yield pd.DataFrame({"number": [key[0]]})


def _of_time(stream: DataFrame) -> DataFrame:
    return stream.selectExpr("number", "timestamp_seconds(number) AS time").withWatermark("time", "1 minute")


def _own_state(stream: DataFrame) -> DataFrame:
    return stream.groupBy("number").applyInPandasWithState(_with_state, "number int", "n int", "update", "NoTimeout")


SHAPES: list[tuple[str, bool, Callable[[DataFrame], DataFrame]]] = [
    ("aggregation", True, lambda stream: stream.groupBy("number").count()),
    ("deduplication", True, lambda stream: _of_time(stream).dropDuplicatesWithinWatermark(["number"])),
    ("limit", True, lambda stream: stream.limit(3)),
    ("join", True, lambda stream: stream.join(stream.selectExpr("number AS other"), expr("number = other"))),
    ("own", True, _own_state),
    ("rows", False, lambda stream: _of_time(stream).repartition(2)),
    ("table", False, lambda stream: stream.join(stream.sparkSession.range(8), expr("number = id"))),
]
"""Queries by name, and whether they have state."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_state_is_refused_where_another_member_has_had_a_partition(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    send(cluster, topic, *range(8))

    def start(name: str, frame_of: Callable[[DataFrame], DataFrame]) -> StreamingQuery:
        options = {"kafka.group.id": f"{topic}-{name}", "stratalog.group.mode": "share"}
        mode = "update" if name in ("alone", "aggregation", "own") else "append"
        writer = frame_of(frame(spark, cluster, topic, **options)).writeStream.outputMode(mode)
        query = writer.foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True)
        return query.option("checkpointLocation", str(tmp_path / name)).start()

    def is_refused(name: str, query: StreamingQuery) -> bool:
        try:
            query.awaitTermination()
        except StreamingQueryException as refusal:
            text = str(refusal)
            assert "A query with state cannot share partitions" in text
            assert f"{topic}-1 is, or was, another member's of group {topic}-{name}" in text
            return True
        return False

    for name, _, _ in SHAPES:
        with Consumer(cluster, group_id=f"{topic}-{name}", enable_auto_commit=False) as another:
            another.commit_sync({TopicPartition(topic, 1): OffsetAndMetadata(1, "a-member-of-another-query")})
    alone = start("alone", SHAPES[0][2])
    running = [(name, start(name, frame_of)) for name, _, frame_of in SHAPES]
    assert not is_refused("alone", alone)
    refused = {name: is_refused(name, query) for name, query in running}
    assert refused == {name: has_state for name, has_state, _ in SHAPES}
    assert is_refused("aggregation", start("aggregation", SHAPES[0][2])), "started again, it reads the same batch"


def test_a_member_reads_what_there_is_and_ends(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    send(cluster, topic, *range(8))
    stream = frame(spark, cluster, topic, **{"stratalog.group.mode": "share"})
    read_now(stream, tmp_path)
    assert numbers(spark, tmp_path) == list(range(8))
    assert committed(cluster, topic) == {0: 2, 1: 2, 2: 2, 3: 2}
    send(cluster, topic, *range(8, 12))
    read_now(stream, tmp_path)
    assert numbers(spark, tmp_path) == list(range(12))


def test_without_a_listener_the_coordinator_is_called_through_the_inbox(spark: SparkSession, tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=ALONE) as cluster:
        Admin(cluster).create_topic("t", 4, 1)
        send(cluster, "t", *range(8))
        read_now(frame(spark, cluster, "t"), tmp_path / "all")
        shared = {"kafka.group.id": "shared", "stratalog.group.mode": "share", "stratalog.transport": "inbox"}
        read_now(frame(spark, cluster, "t", **shared), tmp_path / "part")
        for folder, group_id in (("all", "t"), ("part", "shared")):
            assert numbers(spark, tmp_path / folder) == list(range(8))
            assert committed(cluster, group_id) == {0: 2, 1: 2, 2: 2, 3: 2}
        bound = frame(spark, cluster, "t", **{"stratalog.transport": "listener"})
        with pytest.raises(StreamingQueryException, match=r"Set `listeners` of the brokers, leave out the login"):
            read_now(bound, tmp_path / "bound")
