"""`write` and `writeStream` of the format stratalog: Kafka's columns and errors, exactly once, over leader changes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.partitioner import partition_for_key
from stratalog.clients.spark.option_names import OF_SINK, STORAGE
from stratalog.clients.spark.sink.batches import Noted
from stratalog.clients.spark.sink.hand_over import decode_manifest, manifest_path
from stratalog.clients.spark.sql.committed_view import committed, create_committed_view
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition

FAST_FAILOVER = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 400}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("sink") / "cluster"
    with Cluster.start(path, brokers=3, fetcher="thread", config=FAST_FAILOVER) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.split("[")[0].removeprefix("test_")[:60]
    Admin(cluster).create_topics([NewTopic(name, 3, 3, {"retention.ms": -1})])
    return str(name)


def write(cluster: Cluster, frame: DataFrame, **options: object) -> None:
    given: dict[str, Any] = {"stratalog.root": cluster.root, **options}
    frame.write.format("stratalog").options(**given).mode("append").save()


def read(spark: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    options = {"stratalog.root": cluster.root, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("stratalog").options(**options).load()


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[str]:
    return sorted(r.value.decode() for r in read(spark, cluster, topic).collect())


@pytest.mark.any_session
def test_batch_write_columns(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql(
        """select * from values
           ('k', 'a', null, array(named_struct('key', 'h', 'value', binary('1')))),
           (null, 'b', 2, null),
           ('k', null, null, null) as (key, value, partition, headers)"""
    )
    before_ms = int(time.time() * 1000)
    write(cluster, frame.withColumn("noise", frame.key), topic=topic)
    stored = {
        r.value and r.value.decode(): r
        for r in read(spark, cluster, topic).selectExpr("*", "unix_millis(timestamp) ms").collect()
    }
    keyed = partition_for_key(b"k", 3)
    assert {value: r.partition for value, r in stored.items()} == {"a": keyed, "b": 2, None: keyed}
    assert [(h.key, bytes(h.value)) for h in stored["a"].headers] == [("h", b"1")]
    assert stored["b"].headers is None
    assert all(before_ms <= r.ms <= int(time.time() * 1000) for r in stored.values())


def test_batch_write_by_topic_column_and_with_given_times(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql(f"select '{topic}' topic, 'a' value, timestamp_millis(1500000000000) at")
    write(cluster, frame, **{"stratalog.timestamp.column": "at"})
    first = read(spark, cluster, topic).selectExpr("unix_millis(timestamp) ms").first()
    assert first is not None
    assert first.ms == 1_500_000_000_000


def test_every_option_of_a_write(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    options = {
        "topic": topic,
        "stratalog.timestamp.column": "at",
        "txnAppId": topic,
        "txnVersion": 1,
        "kafka.acks": "1",
        "kafka.delivery.timeout.ms": 60_000,
        "kafka.max.block.ms": 30_000,
        "kafka.batch.size": 100,
        "kafka.buffer.memory": 100_000,
        "kafka.compression.type": "lz4",
    }
    of_streams = {"stratalog.root", "checkpointlocation", "queryname"}
    of_stores = {name for name in OF_SINK.taken if name.startswith(STORAGE)}  # see test_storage_options
    assert {name.lower() for name in options} == OF_SINK.taken - of_streams - of_stores
    write(cluster, spark.range(100).selectExpr("string(id) value", "timestamp_millis(1500000000000) at"), **options)
    (row,) = read(spark, cluster, topic).selectExpr("count(*) n", "max(unix_millis(timestamp)) ms").collect()
    assert (row.n, row.ms) == (100, 1_500_000_000_000)


def test_many_tasks_write_every_record_once(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    write(cluster, spark.range(0, 20_000, 1, 5).selectExpr("cast(id as string) value"), topic=topic)
    found = read(spark, cluster, topic)
    assert found.count() == found.selectExpr("value").distinct().count() == 20_000
    counts = [r["count"] for r in found.groupBy("partition").count().collect()]
    assert len(counts) == 3
    assert min(counts) > 3_000


@pytest.mark.parametrize(
    ("sql", "options", "text"),
    [
        ("select 'a' value", {}, "topic option required when no 'topic' attribute is present"),
        ("select 'a' key", {"topic": "x"}, "Required attribute 'value' not found"),
        ("select 1 value", {"topic": "x"}, "value attribute unsupported type int. value must be a(n) string or binary"),
        ("select 'a' value, cast(null as string) topic", {}, "KAFKA_NULL_TOPIC_IN_DATA"),
        (
            "select 'a' value, 'nowhere' topic",
            {"kafka.max.block.ms": 100},
            "Topic nowhere not present in metadata after 100 ms.",
        ),
        ("select 'a' value", {"topic": "nowhere"}, "topic 'nowhere' does not exist. Create it, or correct the name."),
        ("select 'a' value", {"topic": "x", "kafka.batch.sizes": "1"}, "(did you mean kafka.batch.size?)"),
    ],
)
def test_refusals(spark: SparkSession, cluster: Cluster, sql: str, options: dict[str, object], text: str) -> None:
    with pytest.raises(PySparkException) as refusal:
        write(cluster, spark.sql(sql), **options)
    assert text in str(refusal.value)
    assert "Traceback" not in str(refusal.value)


def test_a_log_is_not_overwritten(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql("select 'a' value").write.format("stratalog").option("stratalog.root", cluster.root)
    with pytest.raises(AnalysisException, match=r'Overwrite not allowed .* \.mode\("append"\)'):
        frame.option("topic", topic).mode("overwrite").save()


@pytest.mark.any_session
def test_a_write_without_a_mode_names_the_one_that_works(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql("select 'a' value").write.format("stratalog").option("stratalog.root", cluster.root)
    with pytest.raises(AnalysisException, match=r'(?s)UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*"Append"'):
        frame.option("topic", topic).save()


@pytest.mark.any_session
def test_an_idempotent_batch_write_is_stored_once(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql("select 'a' value")
    for version in (7, 7, 6, 8):
        write(cluster, frame, topic=topic, txnAppId=f"app of {topic}", txnVersion=version)
    assert values(spark, cluster, topic) == ["a", "a"]


def start(spark: SparkSession, cluster: Cluster, topic: str, folder: Path) -> Any:
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    writer = stream.writeStream.format("stratalog").option("stratalog.root", cluster.root).option("topic", topic)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def put_file(folder: Path, name: str, lines: list[str]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / f".{name}").write_text("\n".join(lines))
    (folder / f".{name}").rename(folder / "in" / name)


def test_a_stream_whose_commits_are_lost_writes_nothing_twice(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    put_file(tmp_path, "1", [f"a{i}" for i in range(50)])
    start(spark, cluster, topic, tmp_path).trigger(availableNow=True).start().awaitTermination(60)
    assert len(values(spark, cluster, topic)) == 50
    shutil.rmtree(tmp_path / "checkpoint" / "commits")  # as after a driver's death before the batch's commit
    put_file(tmp_path, "2", [f"b{i}" for i in range(50)])
    start(spark, cluster, topic, tmp_path).trigger(availableNow=True).start().awaitTermination(60)
    assert values(spark, cluster, topic) == sorted([f"a{i}" for i in range(50)] + [f"b{i}" for i in range(50)])


def test_a_stream_keeps_a_manifest_of_its_newest_batch(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    put_file(tmp_path, "1", ["a"])
    query = start(spark, cluster, topic, tmp_path).trigger(availableNow=True).start()
    query.awaitTermination(60)
    view = ClusterView(cluster.root)
    note = view.stores.objects(cluster.root).get_optional(manifest_path(str(query.id), Noted(0)))
    assert note is not None
    noted, files = decode_manifest(note)
    assert (noted, len(files)) == (Noted(0), 1)


def test_a_stream_outlives_its_leaders(spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    put_file(tmp_path, "0", ["0"])
    query = start(spark, cluster, topic, tmp_path).start()
    sent = ["0"]
    victim = ClusterView(cluster.root).leader(TopicPartition(topic, 0))
    killer = threading.Timer(1.0, lambda: cluster.kill(victim))
    killer.start()
    try:
        for number in range(1, 12):
            lines = [f"{number}-{i}" for i in range(20)]
            put_file(tmp_path, str(number), lines)
            sent += lines
            time.sleep(0.3)
        query.processAllAvailable()
        assert ClusterView(cluster.root).leader(TopicPartition(topic, 0)) != victim
    finally:
        killer.join()
        query.stop()
        cluster.restart(victim)
    assert values(spark, cluster, topic) == sorted(sent)


@pytest.mark.slow
def test_the_committed_view_is_plain_sql(ours: SparkSession, spark: SparkSession, cluster: Cluster, topic: str) -> None:
    write(cluster, spark.range(100).selectExpr("cast(id as string) value"), topic=topic)
    create_committed_view(spark, cluster.root, topic, "records")
    row = spark.sql("select count(*) n, count(distinct partition, offset) positions, max(topic) t from records").first()
    assert row is not None
    assert (row.n, row.positions, row.t) == (100, 100, topic)
    write(cluster, spark.sql("select 'later' value"), topic=topic)
    assert spark.table("records").count() == 100
    assert committed(spark, cluster.root, topic).count() == 101
    plain = committed(spark, cluster.root, topic).select("partition", "offset", "value", "timestamp")
    assert plain.exceptAll(read(spark, cluster, topic).select(*plain.columns)).count() == 0
