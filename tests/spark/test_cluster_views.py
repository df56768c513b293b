"""The cluster's tables as DataFrames and temporary views, in any session."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from stratalog import cluster_frame, create_cluster_views
from stratalog.clients.spark.sql.cluster_tables import CLUSTER_TABLES
from stratalog.storage.errors import InvalidRequestError
from tests.clients.still_cluster import StillCluster


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    """Two partitions; broker 2 leads the first of them from offset 2 on."""
    made = StillCluster(tmp_path)
    t0, t1 = made.create_topic("t", 2)
    made.commit(t0, ["a", "b"])
    made.commit(t1, ["c"])
    follower = made.log(t0, 2)
    follower.exists_or_create("id-of-t")
    follower.start_epoch(0, as_leader=False)
    follower.copy_from(made.log(t0, 1), 0, 1 << 20)
    made.lead(t0, 2, 1)
    made.commit(t0, ["d"])
    return made


@pytest.mark.any_session
def test_who_led_an_offset_is_a_question_in_sql(spark: SparkSession, cluster: StillCluster) -> None:
    assert create_cluster_views(spark, cluster.root, ["leader_epochs", "partitions"], "of_t_") == [
        "of_t_leader_epochs", "of_t_partitions",
    ]  # fmt: skip
    records = spark.read.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "t").load()
    records.createOrReplaceTempView("records")
    led = spark.sql("""
        SELECT r.partition, r.offset, e.leader, e.leader_epoch FROM records r JOIN of_t_leader_epochs e
        ON r.topic = e.topic AND r.partition = e.partition AND r.offset >= e.start_offset
        AND (r.offset < e.end_offset OR e.end_offset IS NULL)
    """)
    schema = "partition int, offset long, leader int, leader_epoch int"
    expected = spark.createDataFrame([(0, 0, 1, 0), (0, 1, 1, 0), (0, 2, 2, 1), (1, 0, 1, 0)], schema)
    assert_df_equality(led, expected, ignore_row_order=True, ignore_nullable=True)
    now = spark.sql("SELECT partition, leader, isr, high_watermark FROM of_t_partitions")
    schema = "partition int, leader int, isr array<int>, high_watermark long"
    expected = spark.createDataFrame([(0, 2, [1, 2], 3), (1, 1, [1, 2], 1)], schema)
    assert_df_equality(now, expected, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.any_session
def test_a_view_is_of_the_moment_at_which_it_was_made(spark: SparkSession, cluster: StillCluster) -> None:
    states = cluster_frame(spark, cluster.root, "partition_history")
    assert [(row.partition, row.leader, row.leader_epoch) for row in states.collect()] == [
        (0, 1, 0), (1, 1, 0), (0, 2, 1),
    ]  # fmt: skip
    cluster.lead(cluster.create_topic("u", 1)[0], 2, 1)
    assert states.count() == 3
    assert cluster_frame(spark, cluster.root, "partition_history").count() == 5


@pytest.mark.any_session
def test_every_table_can_be_empty(spark: SparkSession, tmp_path: Path) -> None:
    empty = StillCluster(tmp_path / "empty")
    names = create_cluster_views(spark, empty.root)
    assert names == list(CLUSTER_TABLES)
    assert [spark.table(name).count() for name in names] == [2, 0, 0, 0, 0]


def test_an_unknown_table_is_refused_by_name(spark: SparkSession, cluster: StillCluster) -> None:
    with pytest.raises(InvalidRequestError, match=r"no table .topics.\."):
        cluster_frame(spark, cluster.root, "topics")
