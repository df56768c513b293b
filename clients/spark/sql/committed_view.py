"""The committed records of a topic as a Spark DataFrame or SQL view. I/O: as `read_topic`, and Spark.

Plain SQL on a replica's table also shows records that are not committed yet, or of transactions that were aborted. The
view ends at the last stable offsets of the moment at which it is made, as a `read_committed` consumer would, without
records of aborted transactions and without control records; offsets are absolute. It is one plan over the source
`stratalog`, however many partitions the topic has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from stratalog.clients.spark.option_names import MORE_COLUMNS, SOURCE_COLUMNS
from stratalog.clients.spark.sql.read_topic import read_topic
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.read_committed import READ_COMMITTED

_COLUMNS = ",".join((*SOURCE_COLUMNS, *MORE_COLUMNS))


def committed(
    spark: SparkSession, cluster: Cluster, topic: str, options: Mapping[str, object] | None = None
) -> DataFrame:
    """`key, value, topic, partition, offset, timestamp, timestampType, headers, leaderEpoch` of all committed records.

    cluster  a running `Cluster`, or its metadata root
    options  further options of the source's batch reads, such as `columns` and `stratalog.storage.*`

    A later call sees more records: the last stable offsets are those of the call. Raises UnknownTopicOrPartitionError,
    LeaderNotAvailableError, ForeignCommitError.
    """
    given = {"columns": _COLUMNS, **(options or {}), "isolation.level": READ_COMMITTED}
    return read_topic(spark, cluster, topic, given).frame


def create_committed_view(
    spark: SparkSession, cluster: Cluster, topic: str, name: str, options: Mapping[str, object] | None = None
) -> None:
    """`CREATE OR REPLACE TEMPORARY VIEW name` over `committed`: make it again to see newer records."""
    committed(spark, cluster, topic, options).createOrReplaceTempView(name)
