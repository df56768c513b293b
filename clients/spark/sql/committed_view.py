"""The committed records of a topic as a Spark DataFrame or SQL view over the leaders' Delta tables.

I/O: the metadata log, the leaders' progress, and Delta tables through delta-spark and Spark. Plain SQL on a replica's
table also shows records that are not committed yet, or of transactions that were aborted. The view ends at the last
stable offsets of the moment at which it is made, as a `read_committed` consumer would, without records of aborted
transactions and without control records; offsets are absolute.

Which transactions were aborted is read from the leader's table at that moment. This holds for every later version,
too: below the last stable offset the outcome of a transaction never changes, and compaction only removes aborted
records.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from stratalog.clients.spark.read import CONTROL_ATTRIBUTE
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import ForeignCommitError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition


def committed(spark: SparkSession, root: str, topic: str) -> DataFrame:
    """`key, value, topic, partition, offset, timestamp, timestampType, headers, leaderEpoch` of all committed records.

    root   the metadata root. A later call sees more records: the last stable offsets are those of the call.
    Raises UnknownTopicOrPartitionError, LeaderNotAvailableError, ForeignCommitError.
    """
    view = ClusterView(root)
    return reduce(DataFrame.unionAll, [_partition(spark, view, tp) for tp in view.partitions(topic)])


def create_committed_view(spark: SparkSession, root: str, topic: str, name: str) -> None:
    """`CREATE OR REPLACE TEMPORARY VIEW name` over `committed`: make it anew to see newer records."""
    committed(spark, root, topic).createOrReplaceTempView(name)


def _partition(spark: SparkSession, view: ClusterView, topic_partition: TopicPartition) -> DataFrame:
    marks = view.watermarks(topic_partition)
    state = view.partition_state(topic_partition)
    # While the partition has no leader, every member of the ISR has what lies below the high watermark.
    leader = view.image.brokers[state.isr[0] if state.leader == NO_LEADER else state.leader].registration
    log = LogReader(view.stores.table(leader.root, topic_partition), view.clock)
    try:
        log.refresh()
    except ForeignCommitError as reason:
        raise ForeignCommitError(f"{log.name} cannot be read as a log: {reason}") from reason
    end = log.last_stable_offset(marks.high_watermark)
    offset = f.expr("base_offset + offset_delta")
    rows = spark.read.format("delta").load(f"{leader.root.rstrip('/')}/{topic_partition}")
    found = rows.where(
        # the first condition lets Delta leave out whole files: base_offset is a partition column
        (f.col("base_offset") < end)
        & (offset < end)
        & (offset >= marks.log_start_offset)
        & (f.col("attributes").bitwiseAND(CONTROL_ATTRIBUTE) == 0)
    )
    aborted = log.aborted_transactions(marks.log_start_offset, end)
    if aborted:
        ranges = spark.createDataFrame(aborted, "aborted_id long, first_offset long, last_offset long")
        is_aborted = (f.col("producer_id") == f.col("aborted_id")) & offset.between(
            f.col("first_offset"), f.col("last_offset")
        )
        found = found.join(f.broadcast(ranges), is_aborted, "left_anti")
    return found.select(
        "key",
        "value",
        f.lit(topic_partition.topic).alias("topic"),
        f.lit(topic_partition.partition).alias("partition"),
        offset.alias("offset"),
        "timestamp",
        f.col("timestamp_type").cast("int").alias("timestampType"),
        "headers",
        f.col("leader_epoch").alias("leaderEpoch"),
    )
