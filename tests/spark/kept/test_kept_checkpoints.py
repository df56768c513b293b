"""A checkpoint that an earlier release has left goes on: each record of its source is in its topic once.

The cluster's storage and the checkpoints are unpacked into a new folder, and nothing in them is rewritten. A checkpoint
names topics and offsets, no path, and a broker registers its new root when it starts. The manifest of a sink without
transactions names the root of its files, which is gone here: the logs know the batches that they have.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from tests.spark.kept.queries import (
    CONFIG,
    COUNT,
    COUNT_LATER,
    COUNT_OF_BATCH,
    KINDS,
    LAST_BATCH,
    PARTITIONS,
    QUERIES,
    SOURCE,
    STORED,
    KeptQuery,
)
from tests.waiting import wait_until

RELEASES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.fixture(scope="module", params=RELEASES, ids=[path.name.removesuffix(".tar.xz") for path in RELEASES])
def restored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the storage and the checkpoints of a release stand."""
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(request.param) as file:
        file.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def cluster(restored: Path) -> Iterator[Cluster]:
    with Cluster.start(restored / "cluster", brokers=1, fetcher="thread", config=CONFIG) as running:
        yield running


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[str]:
    options = {"stratalog.root": cluster.root, "subscribe": topic, "isolation.level": "read_committed"}
    frame = spark.read.format("stratalog").options(**options).load()
    return sorted(row.text for row in frame.selectExpr("string(value) AS text").collect())


def committed(cluster: Cluster, group_id: str) -> dict[int, int]:
    view = ClusterView(cluster.root)
    found = GroupAdmin(StoredGroups(view), view).committed(group_id)
    return {tp.partition: each.offset for tp, each in found.items() if tp.topic == SOURCE}


def numbers(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_checkpoint_goes_on(spark: SparkSession, restored: Path, cluster: Cluster, kind: str) -> None:
    for query in (each for each in QUERIES if each.kind == kind):
        goes_on(query, spark, restored, cluster)


def goes_on(query: KeptQuery, spark: SparkSession, restored: Path, cluster: Cluster) -> None:
    assert values(spark, cluster, query.name) == numbers(COUNT if query.state == STORED else COUNT - COUNT_OF_BATCH)
    again = query.start(spark, cluster.root, restored)
    assert again.awaitTermination(60)
    ids = [progress["batchId"] for progress in again.recentProgress]
    assert ids[0] == LAST_BATCH, "the batch that Spark's commit log lacks is run again"
    assert values(spark, cluster, query.name) == numbers(COUNT + COUNT_LATER)
    if query.has_group:
        ends = dict.fromkeys(range(PARTITIONS), (COUNT + COUNT_LATER) // PARTITIONS)
        wait_until(lambda: committed(cluster, query.name) == ends, "the group stands at the end", timeout_s=10)
