"""How far a streaming query is, from its checkpoint. I/O: Spark's file systems.

A checkpoint has `metadata` (the query's id), `offsets/N` (the plan of batch N: what it reads up to) and `commits/N`
(batch N is done). Source: `org.apache.spark.sql.execution.streaming.checkpointing.{OffsetSeqLog,CommitLog}`.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from stratalog.clients.typed_tables.layout import NO_BATCH, QueryProgress, parse_offsets
from stratalog.clients.typed_tables.sessions import files_of


def query_progress(spark: SparkSession, checkpoint: str, topic: str) -> QueryProgress:
    """The progress that a checkpoint shows; that of a query that never started if there is none."""
    files, url = files_of(spark), checkpoint.rstrip("/")
    metadata = files.text(f"{url}/metadata")
    if metadata is None:
        return QueryProgress()
    planned, done = (
        [int(each.name) for each in files.files(f"{url}/{folder}") if each.name.isdigit()]
        for folder in ("offsets", "commits")
    )
    done_batch = max(done, default=NO_BATCH)
    positions = planned_positions(spark, checkpoint, done_batch, topic)
    return QueryProgress(json.loads(metadata)["id"], max(planned, default=NO_BATCH), done_batch, positions)


def planned_positions(spark: SparkSession, checkpoint: str, batch_id: int, topic: str) -> dict[int, int]:
    """Up to where a batch reads each partition; empty for a batch that was never planned."""
    offsets = files_of(spark).text(f"{checkpoint.rstrip('/')}/offsets/{batch_id}") if batch_id >= 0 else None
    return {} if offsets is None else parse_offsets(offsets, topic)
