"""How far a streaming query is, from its checkpoint. I/O: Spark's file systems.

A checkpoint has `metadata` (the query's id), `offsets/N` (the plan of batch N: what it reads up to) and `commits/N`
(batch N is done). Source: `org.apache.spark.sql.execution.streaming.checkpointing.{OffsetSeqLog,CommitLog}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from stratalog.clients.typed_tables.sessions import files_of

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is.

    query_id       empty if the query never started
    planned_batch  the newest batch that was planned; -1 if none
    done_batch     the newest batch that is done; -1 if none
    positions      partition -> offset up to which all is in the table
    """

    query_id: str = ""
    planned_batch: int = NO_BATCH
    done_batch: int = NO_BATCH
    positions: Mapping[int, int] = field(default_factory=dict)

    def is_done(self, query_id: str, batch_id: int) -> bool:
        """Whether no run writes this batch any more; those of queries with another checkpoint never come again."""
        return query_id != self.query_id or batch_id <= self.done_batch


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


def parse_offsets(text: str, topic: str) -> dict[int, int]:
    """The offsets of a topic in a plan: version, metadata, and a line for each source.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"orders":{"0":7},"@ids":{"orders":"x"}}', "orders")
    {0: 7}
    """
    last = text.rstrip("\n").rsplit("\n", 1)[-1]
    return {int(partition): int(offset) for partition, offset in json.loads(last).get(topic, {}).items()}
