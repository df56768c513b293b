"""The cluster's tables as DataFrames and temporary views. I/O: as `cluster_tables`, and Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from stratalog.clients.spark.registration import session_stores
from stratalog.clients.spark.sql.cluster_tables import CLUSTER_TABLES, cluster_table
from stratalog.replication.stores import client_stores
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds


def cluster_frame(spark: SparkSession, cluster: Cluster, name: str) -> DataFrame:
    """One table of the cluster as of now: `brokers`, `partitions`, `partition_history`, `leader_epochs`, `group_lag`.

    cluster  a running `Cluster`, or its metadata root

    InvalidRequestError for another name.
    """
    return _frame(spark, _view(spark, cluster), name)


def create_cluster_views(
    spark: SparkSession, cluster: Cluster, names: Iterable[str] = tuple(CLUSTER_TABLES), prefix: str = ""
) -> list[str]:
    """`CREATE OR REPLACE TEMPORARY VIEW` for each of the cluster's tables; the names of the views.

    They hold what is true now: create them again to see later states. `prefix` is put before each name.
    """
    view = _view(spark, cluster)
    frames = {f"{prefix}{name}": _frame(spark, view, name) for name in names}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return list(frames)


def _view(spark: SparkSession, cluster: Cluster) -> ClusterView:
    return ClusterView(cluster, stores=client_stores(RandomIds(), session_stores(spark)))


def _frame(spark: SparkSession, view: ClusterView, name: str) -> DataFrame:
    table = cluster_table(view, name)
    if not table.num_rows:  # Spark passes an Arrow table on in batches, of which an empty one has none
        return spark.createDataFrame([], from_arrow_schema(table.schema))
    return spark.createDataFrame(table)
