"""What lies in the folder of a typed table, for whoever reads it without Spark. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

TOPIC, TOPIC_ID, MODE = "stratalog.topic", "stratalog.topic.id", "stratalog.write.mode"
"""Table properties: of which topic the table is, and how records become rows."""
CHECKPOINT_FOLDER = "_stratalog_checkpoint"
LOG_FILE = re.compile(r"(?:\d{20}\.)?(\d{20})\.(json|crc|compacted\.json|checkpoint\..*(?:parquet|json))")
"""A file of Delta's log with its version."""
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


def parse_offsets(text: str, topic: str) -> dict[int, int]:
    """The offsets of a topic in a plan: version, metadata, and a line for each source.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"orders":{"0":7},"@ids":{"orders":"x"}}', "orders")
    {0: 7}
    """
    last = text.rstrip("\n").rsplit("\n", 1)[-1]
    return {int(partition): int(offset) for partition, offset in json.loads(last).get(topic, {}).items()}
