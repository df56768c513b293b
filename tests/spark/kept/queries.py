"""Queries from one topic to another whose checkpoints are kept beside the cluster's storage, as a release left them.

Each kind of query has two checkpoints. Both queries ended in their last batch: `stored` between the sink's commit and
Spark's commit log, `begun` before the sink had anything of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CONFIG = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    # groups' offsets and the notes of sinks outlive the time between two releases
    "offsets.retention.minutes": 2_147_483_647,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
SOURCE, PARTITIONS = "input", 2
COUNT, COUNT_OF_BATCH, COUNT_LATER = 12, 4, 6
"""Records that a release's queries have read, those of a batch, and records that were written after their end."""
LAST_BATCH = COUNT // COUNT_OF_BATCH - 1
POISON = str(COUNT - 1)
"""The value at which the query of a checkpoint that is only begun fails in its last batch."""
STORED, BEGUN = "stored", "begun"
_IN_GROUP = {"startingOffsets": "group", "stratalog.auto.offset.reset": "earliest"}
_SOURCES: dict[str, dict[str, str]] = {
    "plain": {"startingOffsets": "earliest"},
    "group": _IN_GROUP,
    "transactional": _IN_GROUP,
    "shared": {"stratalog.group.mode": "share", "stratalog.auto.offset.reset": "earliest"},
}
KINDS = tuple(_SOURCES)


@dataclass(frozen=True)
class KeptQuery:
    """A query of one kind with its checkpoint; its name is that of its topic, its group and its transactions."""

    kind: str
    state: str

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.state}"

    @property
    def has_group(self) -> bool:
        return self.kind != "plain"

    @property
    def is_transactional(self) -> bool:
        return self.kind in ("transactional", "shared")

    def checkpoint(self, folder: Path) -> Path:
        return folder / "checkpoints" / self.name

    def start(self, spark: SparkSession, root: str, folder: Path, value: str = "value") -> StreamingQuery:
        """Copy what there is, a few records a batch, from the checkpoint below the folder."""
        given: dict[str, Any] = {"stratalog.root": root, "subscribe": SOURCE, "maxOffsetsPerTrigger": COUNT_OF_BATCH}
        if self.has_group:
            given["kafka.group.id"] = self.name
        stream = spark.readStream.format("stratalog").options(**given, **_SOURCES[self.kind]).load()
        sink = {"stratalog.root": root, "topic": self.name}
        if self.is_transactional:
            sink["kafka.transactional.id"] = self.name
        writer = stream.selectExpr("key", f"{value} AS value").writeStream.format("stratalog").options(**sink)
        return writer.option("checkpointLocation", str(self.checkpoint(folder))).trigger(availableNow=True).start()


QUERIES = tuple(KeptQuery(kind, state) for kind in KINDS for state in (STORED, BEGUN))
