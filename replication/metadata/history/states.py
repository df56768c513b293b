"""The history of partition states, as rows: leaders, their epochs, and where these began. Pure.

The metadata log is compacted to the newest state of each partition. The controller appends every state to the table
`__cluster_metadata_history` beside the log before compaction may remove it. Each commit has a `txn` with the end of the
offsets of the metadata log that the table has, so no state is there twice. Nothing is ever removed from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from stratalog.replication.metadata.records import (
    NO_LEADER,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

HISTORY_SCHEMA = pa.schema(
    [
        ("metadata_offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("start_offset", pa.int64()),
        ("isr", pa.list_(pa.field("element", pa.int32()))),
        ("replicas", pa.list_(pa.field("element", pa.int32()))),
        ("partition_epoch", pa.int32()),
        ("controller_epoch", pa.int32()),
    ]
)
"""The columns of a data file; the table has `date` as partition column besides. `start_offset`: where the leader epoch
began in the partition's log; null when it holds no record, or when the leader's table did not tell."""


class LeaderEpoch(NamedTuple):
    """One leader epoch of one partition of a topic that ever was."""

    topic_id: str
    partition: int
    leader_epoch: int


class PastState(NamedTuple):
    """One state of a partition, as the metadata log has it at `metadata_offset`."""

    metadata_offset: int
    timestamp_ms: int
    topic_id: str
    state: PartitionRecord

    @property
    def epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.topic_id, self.state.partition, self.state.leader_epoch)

    @property
    def date(self) -> str:
        """The day in UTC: 2026-03-01."""
        return datetime.fromtimestamp(self.timestamp_ms / 1_000, UTC).date().isoformat()


def past_states(rows: Iterable[tuple[int, int, MetadataRecord]], from_offset: int) -> list[PastState]:
    """The partition states at `from_offset` and above. `rows`: `(offset, timestamp in ms, record)` from the log start,
    since a topic's id is in an older record."""
    topic_ids: dict[str, str] = {}
    found: list[PastState] = []
    for offset, timestamp_ms, record in rows:
        match record:
            case TopicRecord():
                topic_ids[record.name] = record.topic_id
            case RemoveTopicRecord():
                topic_ids.pop(record.name, None)
            case PartitionRecord() if offset >= from_offset:
                found.append(PastState(offset, timestamp_ms, topic_ids.get(record.topic, ""), record))
    return found


def last_led(states: Iterable[PastState]) -> dict[tuple[str, int], PastState]:
    """The newest state with a leader of each partition, by topic id and number: that leader's table has the starts of
    all epochs before."""
    return {(each.topic_id, each.state.partition): each for each in states if each.state.leader != NO_LEADER}


def history_tables(states: Iterable[PastState], starts: Mapping[LeaderEpoch, int]) -> dict[str, pa.Table]:
    """The rows of each day, ordered by partition. `starts`: the known start offsets of leader epochs."""
    days: dict[str, list[PastState]] = {}
    for each in states:
        days.setdefault(each.date, []).append(each)
    return {date: _table(of_day, starts) for date, of_day in sorted(days.items())}


def _table(states: list[PastState], starts: Mapping[LeaderEpoch, int]) -> pa.Table:
    states.sort(key=lambda each: (each.state.topic, each.state.partition, each.metadata_offset))
    columns: dict[str, list[Any]] = {
        "metadata_offset": [each.metadata_offset for each in states],
        "timestamp": [each.timestamp_ms * 1_000 for each in states],
        "topic_id": [each.topic_id for each in states],
        "start_offset": [starts.get(each.epoch) for each in states],
    }
    of_state = [name for name in HISTORY_SCHEMA.names if name not in columns]
    columns |= {name: [getattr(each.state, name) for each in states] for name in of_state}
    return pa.table([pa.array(columns[field.name], field.type) for field in HISTORY_SCHEMA], schema=HISTORY_SCHEMA)
