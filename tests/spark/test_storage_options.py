"""`stratalog.storage.*` reaches the planner and every task of source and sink, and no secret is shown.

The processes of Spark have no settings of stores in their environment: a request that arrives was made by the options.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stratalog.clients.admin.admin import Admin
from stratalog.clients.spark.registration import register_data_source
from stratalog.clients.spark.sql.cluster_views import cluster_frame
from stratalog.clients.spark.sql.committed_view import committed
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.objects.store_settings import StoreSettings
from tests.clients.still_cluster import StillCluster
from tests.spark import sessions
from tests.stores.s3_double import BUCKET, S3Double, s3_double

KEY_ID, SECRET = "key-of-the-options", "hush-hush"


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


def settings(double: S3Double) -> dict[str, str]:
    return {
        "aws.endpoint.url": double.endpoint,
        "aws.allow.http": "true",
        "aws.region": "eu-west-1",
        "aws.access.key.id": KEY_ID,
        "aws.secret.access.key": SECRET,
    }


def options(double: S3Double, root: str) -> dict[str, str]:
    return {"stratalog.root": root} | {f"stratalog.storage.{name}": text for name, text in settings(double).items()}


def executed_plans(spark: SparkSession) -> str:
    """What Spark's page shows of every query so far; nothing over Spark Connect, whose page is the server's."""
    if sessions.kind() == "connect":
        return ""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return "\n".join(
        f"{each.details()}\n{each.physicalPlanDescription()}\n{each.modifiedConfigs().toString()}"
        for each in (executions.apply(number) for number in range(executions.size()))
    )


def test_a_batch_and_a_stream_are_read_by_the_settings_of_the_options(
    spark: SparkSession, double: S3Double, tmp_path: Path
) -> None:
    cluster = StillCluster(f"s3://{BUCKET}/c", StoreSettings.of(settings(double)))
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a", "b"])
    cluster.commit(t1, ["c"])
    given = {**options(double, cluster.root), "subscribe": "t", "startingOffsets": "earliest"}
    batch = spark.read.format("stratalog").options(**given).load()
    assert sorted(row.value.decode() for row in batch.collect()) == ["a", "b", "c"]
    stream = spark.readStream.format("stratalog").options(**given).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination(90)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3
    assert double.signers == {KEY_ID}
    assert SECRET not in executed_plans(spark)


def test_a_write_and_its_plan(spark: SparkSession, double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in double.environment().items():  # of the brokers, which run in this process
        monkeypatch.setenv(name, value)
    with Cluster.start(f"s3://{BUCKET}/w", brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topic("t", partitions=1, replication_factor=1)
        given = options(double, cluster.root)
        rows = spark.range(500).selectExpr("string(id) AS key", "string(id) AS value")
        rows.repartition(2).write.format("stratalog").mode("append").options(**given, topic="t").save()
        read = spark.read.format("stratalog").options(**given, subscribe="t").load()
        assert read.count() == 500
    assert KEY_ID in double.signers
    plans = executed_plans(spark)
    assert "AppendData" in plans or sessions.kind() == "connect"
    assert SECRET not in plans


@pytest.mark.any_session
def test_an_error_of_a_query_shows_no_secret(spark: SparkSession, double: S3Double) -> None:
    given = options(double, f"s3://{BUCKET}/nowhere/metadata") | {"subscribe": "t"}
    with pytest.raises(PySparkException, match="no cluster metadata here") as failure:
        spark.read.format("stratalog").options(**given).load().collect()
    assert SECRET not in "".join(traceback.format_exception(failure.value))
    with pytest.raises(PySparkException, match=r"did you mean aws.region") as refusal:
        spark.read.format("stratalog").options(**given, **{"stratalog.storage.aws.regoin": "x"}).load().collect()
    assert SECRET not in "".join(traceback.format_exception(refusal.value))


@pytest.fixture
def set_in_session(spark: SparkSession, double: S3Double) -> Iterator[SparkSession]:
    """The session with the settings, which no test after this one sees."""
    names = {f"spark.stratalog.storage.{name}": text for name, text in settings(double).items()}
    for name, text in names.items():
        spark.conf.set(name, text)
    register_data_source(spark)
    yield spark
    for name in names:
        spark.conf.unset(name)
    register_data_source(spark)


@pytest.mark.any_session
def test_settings_of_the_session_reach_source_sink_and_views(
    set_in_session: SparkSession, double: S3Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark = set_in_session
    for name, value in double.environment().items():  # of the brokers, which run in this process
        monkeypatch.setenv(name, value)
    with Cluster.start(f"s3://{BUCKET}/s", brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topic("t", partitions=2, replication_factor=1)
        root = cluster.root
        rows = spark.range(500).selectExpr("string(id) AS key", "string(id) AS value")
        rows.write.format("stratalog").mode("append").options(**{"stratalog.root": root, "topic": "t"}).save()
        cluster.stop()
    for name in double.environment():
        monkeypatch.delenv(name)
    double.signers.clear()
    given = {"stratalog.root": root, "subscribe": "t"}
    assert spark.read.format("stratalog").options(**given).load().count() == 500
    stream = spark.readStream.format("stratalog").options(**given, startingOffsets="earliest").load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(90)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 500
    assert committed(spark, root, "t").count() == 500
    assert cluster_frame(spark, root, "partitions").count() > 1
    assert double.signers == {KEY_ID}
    of_reader = {"stratalog.storage.aws.access.key.id": "key-of-the-reader"}
    assert spark.read.format("stratalog").options(**given, **of_reader).load().count() == 500
    assert double.signers == {KEY_ID, "key-of-the-reader"}
    assert SECRET not in executed_plans(spark)
    with pytest.raises(PySparkException, match="no cluster metadata here") as failure:
        spark.read.format("stratalog").options(**given | {"stratalog.root": f"s3://{BUCKET}/x/metadata"}).load().count()
    assert SECRET not in "".join(traceback.format_exception(failure.value))


def test_a_misspelled_setting_of_the_session_is_refused_by_its_name(spark: SparkSession) -> None:
    spark.conf.set("spark.stratalog.storage.aws.regoin", "hush-hush")
    try:
        with pytest.raises(InvalidConfigError, match=r"spark.stratalog.storage.\*.*did you mean aws.region") as refusal:
            register_data_source(spark)
        assert SECRET not in str(refusal.value)
    finally:
        spark.conf.unset("spark.stratalog.storage.aws.regoin")
