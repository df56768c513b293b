"""The demo's Structured Streaming queries: one feeds the web log into the topic, two of one group read what comes out.

I/O: Spark, and the folder of line files that the feed reads.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.jobs.demo.log import SPARK_TIME_FORMAT, STATUS_PATTERN, TIME_PATTERN, Hit, chunks

LINES_PER_FILE = 250
FEED_INTERVAL = "1 second"
HITS_INTERVAL = "2 seconds"
GROUP = "hits"
HITS = "partition int, offset bigint, minute timestamp, status int"


def write_line_files(lines: Sequence[str], folder: Path) -> None:
    """The log as files of a few seconds each, one micro-batch of the feed: `lines-0000.log` …"""
    folder.mkdir(parents=True)
    for number, part in enumerate(chunks(lines, LINES_PER_FILE)):
        path = folder / f"lines-{number:04}.log"
        path.write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
        # Spark reads the oldest file first; a second apart suits the resolution of every file system.
        os.utime(path, (number, number))


def start_feed(spark: SparkSession, root: str, topic: str, lines: Path, checkpoint: Path) -> StreamingQuery:
    """Feed the line files into the topic, one a micro-batch, keyed by client address. A file is read by one
    task, so the lines keep their order."""
    stream = spark.readStream.option("lineSep", "\n").option("maxFilesPerTrigger", 1).text(str(lines))
    records = stream.select(f.substring_index("value", " ", 1).alias("key"), "value")
    return (
        records.writeStream.format("stratalog")
        .queryName("feed")
        .option("stratalog.root", root)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=FEED_INTERVAL)
        .start()
    )


def create_hits(spark: SparkSession, table: Path) -> None:
    """Make the empty Delta table of hits, before several queries write to it."""
    spark.createDataFrame([], HITS).write.format("delta").save(str(table))


def start_hits(
    spark: SparkSession, root: str, topic: str, table: Path, checkpoint: Path, member: int
) -> StreamingQuery:
    """Append to the table a row for each record of the partitions that the group gives to this member. A query that
    shares a group keeps no state, so that a partition can move to another one: the counting comes after."""
    stream = (
        spark.readStream.format("stratalog")
        .option("stratalog.root", root)
        .option("subscribe", topic)
        .option("kafka.group.id", GROUP)
        .option("stratalog.group.mode", "share")
        .option("stratalog.auto.offset.reset", "earliest")
        .load()
    )
    line = f.col("value").cast("string")
    time = f.to_timestamp(f.regexp_extract(line, TIME_PATTERN, 1), SPARK_TIME_FORMAT)
    status = f.regexp_extract(line, STATUS_PATTERN, 1).cast("int")
    hits = stream.select("partition", "offset", f.date_trunc("minute", time).alias("minute"), status.alias("status"))
    return (
        hits.writeStream.format("delta")
        .queryName(f"{GROUP}-{member}")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=HITS_INTERVAL)
        .start(str(table))
    )


class BatchCount:
    """Rows of the finished micro-batches of a query. A sink's batch is finished when it was acknowledged."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._rows: dict[int, int] = {}

    def rows(self) -> int:
        """The count so far. Raises the query's error if it has failed."""
        error = self._query.exception()
        if error is not None:
            raise error
        newest = self._query.lastProgress
        if newest is not None:
            # All reports are fetched only when one was missed, for they are large.
            is_next = newest.batchId <= max(self._rows, default=-1) + 1
            for progress in [newest] if is_next else self._query.recentProgress:
                # An idle query reports its next batch repeatedly, with no rows.
                self._rows[progress.batchId] = max(progress.numInputRows, self._rows.get(progress.batchId, 0))
        return sum(self._rows.values())


def read_counts(spark: SparkSession, table: Path) -> Counter[Hit]:
    """Hits by minute and status. A record that was read twice, as a partition changed hands, is one row by its
    offset."""
    hits = spark.read.format("delta").load(str(table)).dropDuplicates(["partition", "offset"])
    rows = hits.groupBy("minute", "status").count().selectExpr("unix_seconds(minute) at", "status", "count").collect()
    return Counter({Hit(datetime.fromtimestamp(row["at"], UTC), row["status"]): row["count"] for row in rows})
