"""What the tasks of a source in a group leave for the sink of their query: where their batch ends. Pure.

Spark passes nothing from a source to a sink, and neither knows whether the other is of this format. But all tasks of a
micro-batch know the query, its run and the batch. So the first task of a source in a group writes an object below the
metadata root, `sinks/<query id>/<run id>/<batch id>-<planner>.json`, and a sink in transactions reads those of its
batch. Each batch has objects of its own: a copy of an earlier batch's task that is killed may still write late. With a
batch's object that of two batches before is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from stratalog.clients.records import ConsumerGroupMetadata
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """The end of a batch in the partitions that it reads, by the source that `planner` plans, a member of `group`.

    `metadata` of the commit: the member that planned the batch, as in all commits of a query that shares partitions.
    """

    planner: str
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    metadata: str = ""


def positions_prefix(query_id: str, run_id: str, batch_id: int) -> str:
    """What the paths of a batch's objects begin with, below the metadata root."""
    return f"sinks/{quote(query_id, safe='')}/{quote(run_id, safe='')}/{batch_id}-"


def positions_path(query_id: str, run_id: str, batch_id: int, planner: str) -> str:
    return f"{positions_prefix(query_id, run_id, batch_id)}{quote(planner, safe='')}.json"


def encode_positions(batch_id: int, positions: GroupPositions) -> bytes:
    group = positions.group
    offsets = [[*topic_partition, offset] for topic_partition, offset in sorted(positions.offsets.items())]
    return json.dumps(
        {
            "batch_id": batch_id,
            "planner": positions.planner,
            "group": [group.group_id, group.generation_id, group.member_id, group.group_instance_id],
            "offsets": offsets,
            "metadata": positions.metadata,
        }
    ).encode()


def decode_positions(data: bytes) -> tuple[int, GroupPositions]:
    """`(batch_id, positions)`. CorruptMessageError when it is not such an object."""
    try:
        body = json.loads(data)
        offsets = {TopicPartition(topic, number): offset for topic, number, offset in body["offsets"]}
        group = ConsumerGroupMetadata(*body["group"])
        return int(body["batch_id"]), GroupPositions(body["planner"], group, offsets, body["metadata"])
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"not the positions of a source: {data[:200]!r} ({reason})") from reason
