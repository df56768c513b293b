"""Queries and a cluster of an earlier release go on from where it left them, each input once."""

from __future__ import annotations

import tarfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark import kept_checkpoint as kept


def values(spark: SparkSession, root: str, topic: str) -> list[int]:
    given = {"stratalog.root": root, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    rows = spark.read.format("stratalog").options(**given).load().selectExpr("int(string(value)) AS number").collect()
    return sorted(row.number for row in rows)


def test_a_checkpoint_of_an_earlier_release_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with tarfile.open(kept.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    stored = kept.BATCHES * 10
    for target in (kept.PLAIN, kept.IN_TRANSACTIONS):
        assert (tmp_path / target / "offsets" / str(kept.BATCHES - 1)).exists()
        assert not (tmp_path / target / "commits" / str(kept.BATCHES - 1)).exists()
    with kept.cluster_in(tmp_path) as cluster:
        kept.send(cluster, stored, stored + 10)
        for target in (kept.PLAIN, kept.IN_TRANSACTIONS):
            assert values(spark, cluster.root, target) == list(range(stored))
            kept.copy_now(spark, cluster.root, tmp_path, target)
            assert values(spark, cluster.root, target) == list(range(stored + 10))
