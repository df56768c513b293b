"""`spark.read` and `spark.readStream` of the format stratalog behave as Kafka's source does.

The cluster changes only by the test's calls: Spark reads tables and progress objects from disk, as everywhere.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from stratalog.clients.spark.option_names import OF_SOURCE, STORAGE
from stratalog.clients.spark.sql.committed_view import committed
from stratalog.storage.errors import ForeignCommitError
from stratalog.storage.records import Header, TopicPartition
from tests.clients.spark.test_later_reads import compact, keyed_topic
from tests.clients.still_cluster import StillCluster
from tests.lab.real.test_bad_storage import append_foreign_commit

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    return StillCluster(tmp_path)


@pytest.fixture
def read(spark: SparkSession, cluster: StillCluster) -> Callable[..., DataFrame]:
    def read(**options: object) -> DataFrame:
        given: dict[str, Any] = {"stratalog.root": cluster.root, "subscribe": "t", **options}
        wanted = {name: value for name, value in given.items() if value is not None}
        return spark.read.format("stratalog").options(**wanted).load()

    return read


def rows(frame: DataFrame) -> list[tuple[int, int, str]]:
    return sorted((r.partition, r.offset, r.value.decode()) for r in frame.collect())


def task_count(frame: DataFrame) -> int:
    """The tasks that read at least one record; over Spark Connect, too, where a frame has no RDD."""
    return len(set(frame.select(spark_partition_id()).collect()))


@pytest.mark.any_session
def test_batch_schema_columns_and_bounds(cluster: StillCluster, read: Callable[..., DataFrame]) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a", "b"], first_ms=1_500_000_000_000)
    cluster.commit(t1, ["c"])
    cluster.append(t1, [(1, None, b"not committed", None)])
    frame = read()
    assert frame.schema.simpleString() == SCHEMA
    assert rows(frame) == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]
    first = frame.where("partition = 0 and offset = 0").selectExpr("*", "unix_millis(timestamp) as ms").first()
    assert first is not None
    assert (first.key, first.topic, first.ms, first.timestampType) == (bytearray(b"a"), "t", 1_500_000_000_000, 0)
    specific = {"startingOffsets": '{"t":{"0":1,"1":-2}}', "endingOffsets": '{"t":{"0":-1,"1":0}}'}
    assert rows(read(**specific)) == [(0, 1, "b")]
    assert rows(read(startingTimestamp=1_500_000_000_001, startingOffsetsByTimestampStrategy="latest")) == [(0, 1, "b")]


def test_batch_of_nothing_and_split_ranges(cluster: StillCluster, read: Callable[..., DataFrame]) -> None:
    t0, _ = cluster.create_topic("t", 2)
    assert read().count() == 0
    cluster.commit(t0, [str(i) for i in range(10)])
    split = read(minPartitions=4)
    assert task_count(split) == 4
    assert split.count() == 10
    assert task_count(read(maxRecordsPerPartition=4)) == 3


@pytest.mark.any_session
@pytest.mark.parametrize("options", [{}, {"client.rack": "a"}])  # with a rack tasks find the files, not the planner
def test_a_session_reads_again_without_what_compaction_removed_meanwhile(
    cluster: StillCluster, read: Callable[..., DataFrame], options: dict[str, str]
) -> None:
    t0 = keyed_topic(cluster)
    assert [value for _, _, value in rows(read(**options))] == list("1234567")
    compact(cluster, t0)
    assert [value for _, _, value in rows(read(**options))] == list("4567")


@pytest.mark.any_session
def test_a_session_reads_a_topic_that_was_created_again(cluster: StillCluster, read: Callable[..., DataFrame]) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a", "b"])
    assert rows(read()) == [(0, 0, "a"), (0, 1, "b")]
    cluster.create_again("t", 1, "another-id")
    assert rows(read()) == []
    cluster.commit(t0, ["c"])
    assert rows(read()) == [(0, 0, "c")]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_where_narrows_what_a_batch_reads(
    ours: SparkSession, cluster: StillCluster, read: Callable[..., DataFrame], spark: SparkSession, zone: str
) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    for partition in (t0, t1):
        cluster.commit(partition, [str(i) for i in range(10)], first_ms=1_500_000_000_000)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        every = read(maxRecordsPerPartition=1)  # so each record that is read is a task
        for condition, tasks, found in (
            ("partition = 1", 10, 10),
            ("offset >= 7 and topic = 't'", 6, 6),
            ("partition in (0, 5) and offset between 2 and 4 and value <> '3'", 3, 2),
            ("timestamp >= timestamp_millis(1500000000008)", 4, 4),
            ("timestamp > timestamp_millis(1500000000008)", 4, 2),
            ("timestamp < timestamp_millis(1500000000001)", 20, 2),
            ("partition = 0 or offset = 9", 20, 11),
            ("partition = 7", 0, 0),
        ):
            frame = every.where(condition)
            assert (condition, len(frame.collect())) == (condition, found)
            assert (condition, frame.rdd.getNumPartitions()) == (condition, max(tasks, 1))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.any_session
def test_a_where_finds_the_same_with_and_without_filters_for_the_source(
    cluster: StillCluster, read: Callable[..., DataFrame], spark: SparkSession
) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    for partition in (t0, t1):
        cluster.commit(partition, [str(i) for i in range(10)])
    before = spark.conf.get(PUSHDOWN)
    try:
        for pushed in ("false", "true"):
            spark.conf.set(PUSHDOWN, pushed)
            found = read().where("partition = 1 and offset > 7 and value <> '9'")
            assert (pushed, rows(found)) == (pushed, [(1, 8, "8")])
            assert (pushed, read().count()) == (pushed, 20)
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_batch_headers_patterns_and_assignment(cluster: StillCluster, read: Callable[..., DataFrame]) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    (other,) = cluster.create_topic("tea", 1)
    cluster.append(t0, [(1, None, b"a", [Header("h", b"1")])])
    cluster.publish(t0, 1)
    cluster.commit(t1, ["b"])
    cluster.commit(other, ["c"])
    with_headers = read(includeHeaders=True).where("partition = 0").first()
    assert with_headers is not None
    assert [h.asDict() for h in with_headers.headers] == [{"key": "h", "value": bytearray(b"1")}]
    assert rows(read(subscribe=None, subscribePattern="^te")) == [(0, 0, "c")]
    assert rows(read(subscribe=None, assign='{"t":[1]}')) == [(1, 0, "b")]


BATCH_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"startingOffsets": '{"t":{"0":1,"1":-2}}', "endingOffsets": '{"t":{"0":-1,"1":0}}'}, "bc"),
    ({"subscribe": None, "assign": '{"t":[0]}', "startingTimestamp": 1_001, "endingTimestamp": 1_002}, "b"),
    (
        {
            "startingOffsetsByTimestamp": '{"t":{"0":1002,"1":9000}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": '{"t":{"0":9000,"1":9000}}',
        },
        "c",
    ),
    ({"subscribe": None, "subscribePattern": "^t$", "isolation.level": "read_committed", "minPartitions": 2}, "abcd"),
    (
        {
            "kafka.isolation.level": "read_committed",
            "maxRecordsPerPartition": 1,
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "kafkaConsumer.pollTimeoutMs": 9_000,
            "fetchOffset.numRetries": 1,
            "fetchOffset.retryIntervalMs": 1,
            "client.rack": "east",
        },
        "abcd",
    ),
    ({"columns": "offset,value,partition", "kafka.client.rack": "west"}, "abcd"),
]
STREAM_OPTIONS = {
    "maxOffsetsPerTrigger": 3,
    "minOffsetsPerTrigger": 1,
    "maxTriggerDelay": "1s",
    "maxBytesPerTrigger": "1m",
}


def test_every_option_of_a_batch_read(cluster: StillCluster, read: Callable[..., DataFrame]) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a", "b", "c"])
    cluster.commit(t1, ["d"])
    for options, found in BATCH_OPTIONS:
        assert (options, "".join(value for _, _, value in rows(read(**options)))) == (options, found)


def test_every_option_of_the_source_is_tried() -> None:
    tried = {name.lower() for options, _ in BATCH_OPTIONS for name in options} | {n.lower() for n in STREAM_OPTIONS}
    of_stores = {name for name in OF_SOURCE.taken if name.startswith(STORAGE)}  # see test_storage_options
    assert tried | {"stratalog.root"} == OF_SOURCE.taken - of_stores


def test_columns_are_the_schema_of_batches_and_streams(
    cluster: StillCluster, read: Callable[..., DataFrame], stream: Stream
) -> None:
    t0, _ = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a", "b"])
    narrow = read(columns="value, offset")
    assert narrow.schema.simpleString() == "struct<value:binary,offset:bigint>"
    assert sorted((row.offset, bytes(row.value)) for row in narrow.collect()) == [(0, b"a"), (1, b"b")]
    stream.run(startingOffsets="earliest", columns="value")
    assert stream.values() == ["a", "b"]


def test_a_topic_that_was_created_again_fails_the_query_unless_the_option_is_false(
    cluster: StillCluster, stream: Stream
) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream.run(startingOffsets="earliest")
    cluster.create_again("t", 1, "another-id")
    cluster.commit(t0, ["b", "c"])
    with pytest.raises(StreamingQueryException, match=r"(?s)KAFKA_DATA_LOSS.TOPIC_RECREATED.*another-id"):
        stream.run()
    stream.run(failOnDataLoss=False)
    assert stream.values() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"subscribe": "nowhere", "fetchOffset.retryIntervalMs": 1}, "topic 'nowhere' does not exist"),
        ({"startingOffsets": '{"t":{"0":0}}'}, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ({"startingOffsets": '{"t":{"0":9,"1":0}}'}, "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"),
        ({"startingTimestamp": 99_999}, "No offset matched from request of topic-partition t-0 and timestamp 99999."),
    ],
)
def test_batch_refusals_reach_the_user(
    cluster: StillCluster, read: Callable[..., DataFrame], options: dict[str, Any], text: str
) -> None:
    t0, _ = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a"])
    with pytest.raises(AnalysisException) as refusal:
        read(**options).collect()
    assert text in str(refusal.value)


@pytest.mark.any_session
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": None}, "One of the following options must be specified for Kafka source"),
        ({"subscribe": "tt"}, "topic 'tt' does not exist (did you mean t?). Create it, or correct the name."),
        ({"subscribe": None, "assign": '{"t":[0,2]}'}, "t-2 does not exist: the topic has 2 partitions."),
        ({"stratalog.root": "/nowhere"}, "stratalog.root=/nowhere: /nowhere is not a directory"),
        ({"stratalog.root": None}, "Option 'stratalog.root' must be specified"),
        ({"startingOffsets": "first"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got first'),
        ({"startingOffset": "latest"}, "Unknown option startingoffset (did you mean startingOffsets?)"),
        ({"kafka.group.id": "g", "stratalog.group.mode": "shared"}, "Invalid value shared for configuration stratalog"),
    ],
)
def test_load_refuses_in_its_first_line_what_no_query_could_read(
    spark: SparkSession, cluster: StillCluster, options: dict[str, Any], text: str
) -> None:
    cluster.create_topic("t", 2)
    given = {"stratalog.root": cluster.root, "subscribe": "t", **options}
    wanted = {name: value for name, value in given.items() if value is not None}
    for reader in (spark.readStream, spark.read):
        with pytest.raises(AnalysisException) as refusal:
            reader.format("stratalog").options(**wanted).load()
        assert text in str(refusal.value).splitlines()[0]
        assert "Traceback" not in str(refusal.value)


@pytest.mark.any_session
def test_what_only_a_stream_refuses_is_in_the_first_line_of_its_error(cluster: StillCluster, stream: Stream) -> None:
    cluster.create_topic("t", 2)
    with pytest.raises(StreamingQueryException) as refusal:
        stream.run(endingOffsets="latest")
    assert "ending offset not valid in streaming queries" in str(refusal.value).splitlines()[0]
    assert "Traceback" not in str(refusal.value)


def test_a_table_with_a_foreign_commit_is_refused_by_name_in_a_query(
    ours: SparkSession, cluster: StillCluster, read: Callable[..., DataFrame]
) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    append_foreign_commit(Path(cluster.roots[1]) / "t-0")
    with pytest.raises(ForeignCommitError, match="t-0: version 3 was committed by another writer"):
        committed(ours, cluster.root, "t")
    with pytest.raises(PySparkException, match="t-0 cannot be read as a log"):
        read().collect()


class Stream:
    """A query from the topic `t` into a list of the driver, restartable on one checkpoint."""

    def __init__(self, spark: SparkSession, cluster: StillCluster, folder: Path) -> None:
        self._spark, self._cluster = spark, cluster
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"

    def run(self, **options: object) -> None:
        """Run with AvailableNow to the end."""
        query = self.start(**options).trigger(availableNow=True).start()
        query.awaitTermination(90)

    def start(self, **options: object) -> Any:
        given: dict[str, Any] = {"stratalog.root": self._cluster.root, "subscribe": "t", **options}
        stream = self._spark.readStream.format("stratalog").options(**given).load()
        writer = stream.writeStream.format("json").option("path", str(self.output))
        return writer.option("checkpointLocation", str(self.checkpoint))

    def values(self) -> list[str]:
        if not self.output.exists():
            return []
        found = self._spark.read.schema("value binary").json(str(self.output)).collect()
        return sorted(r.value.decode() for r in found)

    def logged_offsets(self) -> list[Any]:
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
        return [json.loads(f.read_text().splitlines()[2]) for f in files]


@pytest.fixture
def stream(spark: SparkSession, cluster: StillCluster, tmp_path: Path) -> Stream:
    return Stream(spark, cluster, tmp_path)


@pytest.mark.any_session
def test_available_now_reads_all_in_limited_batches_and_resumes(cluster: StillCluster, stream: Stream) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, list("abcdef"))
    cluster.commit(t1, list("gh"))
    stream.run(startingOffsets="earliest", **STREAM_OPTIONS | {"maxOffsetsPerTrigger": 4})
    assert stream.values() == list("abcdefgh")
    # the first batch's end puts the start into the checkpoint
    ids = {"@ids": {"t": "id-of-t"}}
    assert stream.logged_offsets() == [
        {"t": {"0": 3, "1": 1}, "t@start": {"0": 0, "1": 0}, **ids},
        {"t": {"0": 6, "1": 2}, **ids},
    ]
    cluster.commit(t0, ["i"])
    stream.run(startingOffsets="latest")
    assert stream.values() == list("abcdefghi")


def test_records_that_arrive_after_a_query_started_are_not_skipped_when_its_first_batch_died(
    cluster: StillCluster, stream: Stream
) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abc"))
    stream.run(startingOffsets="latest")
    cluster.commit(t0, list("de"))
    # as after a crash: batch 0 is planned, not committed, and the query's start is recorded nowhere else
    shutil.rmtree(stream.checkpoint / "commits")
    stream.run(startingOffsets="latest")
    assert stream.values() == ["d", "e"]


def test_a_new_partition_is_read_from_its_start(cluster: StillCluster, stream: Stream) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream.run(startingOffsets="earliest")
    new = TopicPartition("t", 1)
    cluster.lead(new, 1, 0)
    cluster.commit(new, ["b"])
    stream.run()
    assert stream.values() == ["a", "b"]


def test_a_leader_change_under_a_running_query(cluster: StillCluster, stream: Stream) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    query = stream.start(startingOffsets="earliest").start()
    try:
        query.processAllAvailable()
        follower = cluster.log(t0, 2)
        follower.exists_or_create("id-of-t")
        follower.start_epoch(0, as_leader=False)
        follower.copy_from(cluster.log(t0, 1), 0, 1 << 20)
        cluster.lead(t0, 2, 1)
        cluster.commit(t0, ["b"])
        query.processAllAvailable()
        assert stream.values() == ["a", "b"]
        assert json.loads(query.lastProgress["sources"][0]["latestOffset"]) == {"t": {"0": 2}}
    finally:
        query.stop()


def test_lost_data_fails_the_query_unless_the_option_is_false(cluster: StillCluster, stream: Stream) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream.run(startingOffsets="earliest")
    cluster.commit(t0, ["b"])
    cluster.commit(t0, ["c"])
    cluster.log(t0, 1).start_epoch(0, as_leader=True, log_start=2)
    with pytest.raises(StreamingQueryException, match=r"(?s)KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"):
        stream.run()
    stream.run(failOnDataLoss=False)
    assert stream.values() == ["a", "c"]
