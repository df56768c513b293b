"""Readers need no broker: after the whole cluster was stopped Spark reads what was committed (promise 19)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog import Admin, Cluster, Producer
from stratalog.clients.spark.sql.committed_view import committed


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


@pytest.mark.slow
@pytest.mark.long
def test_the_committed_view_ends_where_a_transaction_is_open_and_shows_none_that_was_aborted(
    spark: SparkSession, cluster_root: Path
) -> None:
    alone = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
    with Cluster.start(cluster_root, brokers=1, fetcher="thread", config=alone) as cluster:
        Admin(cluster).create_topic("orders", partitions=1, replication_factor=1)
        sends = (("a", "1", "abort"), ("b", "2", "commit"), ("a", "3", "commit"), ("a", "4", "abort"))
        producers = {name: Producer(cluster, transactional_id=name) for name in "ab"}
        for producer in producers.values():
            producer.init_transactions()
            producer.begin_transaction()
        for name, value, end in sends:
            producers[name].send("orders", value=value).result()
            if end == "abort":
                producers[name].abort_transaction()
            else:
                producers[name].commit_transaction()
            producers[name].begin_transaction()
        with Producer(cluster) as plain:
            plain.send("orders", value="5").result()
            view = committed(spark, cluster.root, "orders")
            assert [bytes(row.value) for row in view.orderBy("offset").collect()] == [b"2", b"3", b"5"]
            producers["a"].send("orders", value="6").result()
            plain.send("orders", value="7").result()
            while_open = committed(spark, cluster.root, "orders")
            producers["a"].abort_transaction()
            assert [row.offset for row in while_open.collect()] == [row.offset for row in view.collect()]
            later = committed(spark, cluster.root, "orders")
            assert [bytes(row.value) for row in later.orderBy("offset").collect()] == [b"2", b"3", b"5", b"7"]
        producers["b"].abort_transaction()
        for producer in producers.values():
            producer.close()
