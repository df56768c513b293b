"""The cluster's state as Arrow tables: brokers, partitions, their past, leader epochs, group lag.

I/O: the metadata log and its history, leaders' progress and tables, `__consumer_offsets`. No broker is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.replication.metadata.history.states import HISTORY_SCHEMA, LeaderEpoch, history_tables, past_states
from stratalog.replication.metadata.history.table import all_history_rows, metadata_rows
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.errors import StoreError
from stratalog.storage.log.reader import LogReader

_TIME = pa.timestamp("us", tz="UTC")
_BROKER_IDS = HISTORY_SCHEMA.field("isr").type

BROKERS_SCHEMA = pa.schema(
    {
        "broker_id": pa.int32(),
        "broker_epoch": pa.int64(),
        "is_fenced": pa.bool_(),
        "is_controller": pa.bool_(),
        "rack": pa.string(),
        "root": pa.string(),
        "listeners": pa.string(),
    }
)
PARTITIONS_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "topic_id": pa.string(),
        "partition": pa.int32(),
        "leader": pa.int32(),
        "leader_epoch": pa.int32(),
        "replicas": _BROKER_IDS,
        "isr": _BROKER_IDS,
        "is_under_replicated": pa.bool_(),
        "partition_epoch": pa.int32(),
        "log_start_offset": pa.int64(),
        "high_watermark": pa.int64(),
    }
)
"""`leader` is -1 without one. The offsets are null while the leader has published none."""
LEADER_EPOCHS_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "topic_id": pa.string(),
        "partition": pa.int32(),
        "leader_epoch": pa.int32(),
        "leader": pa.int32(),
        "start_offset": pa.int64(),
        "end_offset": pa.int64(),
        "since": _TIME,
        "until": _TIME,
        "isr": _BROKER_IDS,
    }
)
"""The records `[start_offset, end_offset)` were written under `leader`. No start: the epoch has no record, or where it
began is not known. No end: it is the newest with records. `isr` is that of the epoch's last state."""
GROUP_LAG_SCHEMA = pa.schema(
    {
        "group_id": pa.string(),
        "group_state": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "committed_offset": pa.int64(),
        "high_watermark": pa.int64(),
        "lag": pa.int64(),
    }
)
"""A row for each offset that a group has committed. The last two are null for a partition that is gone."""


class LedRow(NamedTuple):
    """One state of a partition, as its row in the history: `HISTORY_SCHEMA` without what no leader epoch needs."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    metadata_offset: int
    timestamp: int
    leader: int
    start_offset: int | None
    isr: tuple[int, ...]

    @property
    def epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.topic_id, self.partition, self.leader_epoch)


def brokers(view: ClusterView) -> pa.Table:
    """Every registered broker as `BROKERS_SCHEMA`, by id."""
    view.refresh()
    image = view.image
    rows = [
        {
            "broker_id": broker_id,
            "broker_epoch": known.registration.broker_epoch,
            "is_fenced": known.fenced,
            "is_controller": broker_id == image.controller_id,
            "rack": known.registration.rack,
            "root": known.registration.root,
            "listeners": known.registration.endpoint,
        }
        for broker_id, known in sorted(image.brokers.items())
    ]
    return pa.Table.from_pylist(rows, BROKERS_SCHEMA)


def partitions(view: ClusterView) -> pa.Table:
    """Every partition as it is now, as `PARTITIONS_SCHEMA`, by topic and number."""
    view.refresh()
    rows = []
    for topic_partition, marks in view.watermarks.published_now(sorted(view.image.partitions)).items():
        state = view.image.partitions[topic_partition]
        rows.append(
            {
                **{name: getattr(state, name) for name in PARTITIONS_SCHEMA.names if hasattr(state, name)},
                "topic_id": view.image.topic_ids.get(state.topic, ""),
                "is_under_replicated": len(state.isr) < len(state.replicas),
                "log_start_offset": None if marks is None else marks.log_start_offset,
                "high_watermark": None if marks is None else marks.high_watermark,
            }
        )
    return pa.Table.from_pylist(rows, PARTITIONS_SCHEMA)


def partition_history(view: ClusterView) -> pa.Table:
    """Every state that a partition ever had, as `HISTORY_SCHEMA`, in the order of the metadata log.

    Those that are in the metadata log only have no `start_offset` yet.
    """
    view.refresh()
    log = view.metadata.log
    # in this order: compaction removes from the log only what the history has
    recent = past_states(metadata_rows(log, log.log_end_offset), 0)
    kept = pa.concat_tables([HISTORY_SCHEMA.empty_table(), *all_history_rows(view.stores.objects(view.root))])
    known = set(kept["metadata_offset"].to_pylist())
    days = history_tables([each for each in recent if each.metadata_offset not in known], {})
    return pa.concat_tables([kept, *days.values()]).sort_by("metadata_offset").combine_chunks()


def leader_epochs(view: ClusterView) -> pa.Table:
    """Every leader epoch with its leader and its offsets, as `LEADER_EPOCHS_SCHEMA`.

    Where an epoch began is what the leader's table says, as far as it goes back, else the history.
    """
    history = partition_history(view)
    history = history.set_column(1, "timestamp", history["timestamp"].cast(pa.int64()))
    rows = zip(*(history[name].to_pylist() for name in LedRow._fields), strict=True)
    states = [LedRow._make((*row[:-1], tuple(row[-1]))) for row in rows]
    return pa.Table.from_pylist(epoch_rows(states, _starts_in_logs(view)), LEADER_EPOCHS_SCHEMA)


def epoch_rows(states: Iterable[LedRow], starts: Mapping[LeaderEpoch, int]) -> list[dict[str, Any]]:
    """Rows of `LEADER_EPOCHS_SCHEMA`, by partition and epoch. `starts` overrules the start offsets of the states."""
    epochs: dict[LeaderEpoch, list[LedRow]] = {}
    for state in sorted(states):
        epochs.setdefault(state.epoch, []).append(state)
    rows: list[dict[str, Any]] = []
    following: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    for epoch, of_epoch in reversed(epochs.items()):
        place = (epoch.topic_id, epoch.partition)
        end_offset, until = following.get(place, (None, None))
        known = [state.start_offset for state in of_epoch if state.start_offset is not None]
        start_offset = starts.get(epoch, known[-1] if known else None)
        leaders = [state.leader for state in of_epoch if state.leader != NO_LEADER]
        rows.append(
            {
                **{name: getattr(of_epoch[-1], name) for name in ("topic", "topic_id", "partition", "leader_epoch")},
                "leader": leaders[-1] if leaders else NO_LEADER,
                "start_offset": start_offset,
                "end_offset": None if start_offset is None else end_offset,
                "since": of_epoch[0].timestamp,
                "until": until,
                "isr": of_epoch[-1].isr,
            }
        )
        following[place] = (end_offset if start_offset is None else start_offset, of_epoch[0].timestamp)
    return rows[::-1]


def group_lag(view: ClusterView) -> pa.Table:
    """What every group has committed, and how far it is behind, as `GROUP_LAG_SCHEMA`.

    Raises LeaderNotAvailableError while a partition of `__consumer_offsets` cannot be read.
    """
    view.refresh()
    admin = GroupAdmin(StoredGroups(view), view)
    rows = [
        {
            "group_id": group.group_id,
            "group_state": group.group_state,
            "topic": each.topic_partition.topic,
            "partition": each.topic_partition.partition,
            "committed_offset": each.committed_offset,
            "high_watermark": each.high_watermark,
            "lag": each.lag,
        }
        for group in admin.list_groups()
        for each in admin.lag(group.group_id).partitions
    ]
    return pa.Table.from_pylist(rows, GROUP_LAG_SCHEMA)


CLUSTER_TABLES: Mapping[str, Callable[[ClusterView], pa.Table]] = {
    made.__name__: made for made in (brokers, partitions, partition_history, leader_epochs, group_lag)
}
"""The tables by name."""


def cluster_table(view: ClusterView, name: str) -> pa.Table:
    """The table of this name as of now. InvalidRequestError for another name."""
    made = CLUSTER_TABLES.get(name)
    if made is None:
        raise errors.InvalidRequestError(f"The cluster has no table {name!r}. Name one of {', '.join(CLUSTER_TABLES)}.")
    return made(view)


def _starts_in_logs(view: ClusterView) -> dict[LeaderEpoch, int]:
    """The start offsets of leader epochs, as the leaders' tables have them; what cannot be read now is left out."""

    def look(log: LogReader) -> dict[LeaderEpoch, int]:
        log.refresh()
        entries = log.epochs.entries
        return {LeaderEpoch(log.topic_id, topic_partition.partition, each.epoch): each.start_offset for each in entries}

    starts: dict[LeaderEpoch, int] = {}
    for topic_partition in sorted(view.image.partitions):
        with suppress(StoreError, errors.LeaderNotAvailableError, errors.UnknownTopicOrPartitionError):
            starts |= view.records.read_from_log(topic_partition, look, 0)
    return starts
