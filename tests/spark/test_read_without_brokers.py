"""Readers need no broker: after the whole cluster was stopped Spark reads what was committed (DESIGN §9)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from clients import Admin, Cluster, Producer
from clients.committed_view import committed


def test_a_stopped_cluster_is_read_by_the_source_and_by_the_committed_view(
    spark: SparkSession, cluster_root: Path
) -> None:
    with Cluster.start(cluster_root, brokers=3, fetcher="thread") as cluster:
        Admin(cluster).create_topic("orders", partitions=2, replication_factor=3, min_insync_replicas=2)
        with Producer(cluster) as producer:
            for number in range(50):
                producer.send("orders", key=f"k{number % 7}", value=str(number))
    source = spark.read.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "orders")
    expected = {str(number).encode() for number in range(50)}
    assert {bytes(row.value) for row in source.load().select("value").collect()} == expected
    assert {bytes(row.value) for row in committed(spark, cluster.root, "orders").select("value").collect()} == expected
