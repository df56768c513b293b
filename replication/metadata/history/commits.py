"""The commits and checkpoints of the table of the metadata's history, and the statistics of its data files. Pure.

A commit names the end of the offsets that the table has, so that of two controllers that append the same offsets one
loses. A data file has the least and the greatest value of the columns that queries ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.replication.metadata.history.states import HISTORY_SCHEMA
from stratalog.storage.delta.plain_log import (
    Action,
    add_action,
    date_of,
    decode_lines,
    decode_plain_checkpoint,
    encode_actions,
    first_actions,
)
from stratalog.storage.errors import CorruptMessageError

HISTORY_DIRECTORY = "__cluster_metadata_history"
"""The table's directory below the metadata root."""
APP_ID = "stratalog.metadata.history"
"""The application id of the `txn` whose version is the end of the offsets that the table has."""
CHECKPOINT_INTERVAL = 10
"""Number of versions from one checkpoint to the next."""
COLUMNS_WITH_STATS = ("metadata_offset", "topic", "partition", "leader", "leader_epoch", "start_offset")


class HistoryFile(NamedTuple):
    """A data file of one day: its path below the table's directory, its size and its statistics as Delta's JSON."""

    path: str
    date: str
    size_bytes: int
    stats: str

    def may_have(self, topic: str, partition: int) -> bool:
        """Whether the statistics allow a state of this partition; a file without them may have any."""
        stats = json.loads(self.stats or "{}")
        least, greatest = stats.get("minValues", {}), stats.get("maxValues", {})
        return all(
            name not in least or least[name] <= value <= greatest[name]
            for name, value in (("topic", topic), ("partition", partition))
        )


def stats_of(rows: pa.Table) -> str:
    """The statistics of a data file with these rows, as the JSON text that Delta stores."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in COLUMNS_WITH_STATS:
        bounds = pc.min_max(rows[name]).as_py()
        if bounds["min"] is not None:
            least[name], greatest[name] = bounds["min"], bounds["max"]
    nulls = {name: rows[name].null_count for name in COLUMNS_WITH_STATS}
    return json.dumps({"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def encode_history_commit(
    version: int, files: Iterable[HistoryFile], end_offset: int, now_ms: int, table_id: str
) -> bytes:
    """The commit file of this version; version 0 also states protocol and schema."""
    first = first_actions(table_id, now_ms, HISTORY_SCHEMA, {"delta.appendOnly": "true"}) if version == 0 else []
    txn = {"txn": {"appId": APP_ID, "version": end_offset, "lastUpdated": now_ms}}
    adds = [add_action(file.path, file.date, file.size_bytes, now_ms, file.stats) for file in files]
    return encode_actions("WRITE", now_ms, [*first, txn, *adds])


def decode_actions(data: bytes, name: str) -> list[Action]:
    """The actions of a commit file. CorruptMessageError for a torn one."""
    try:
        actions = decode_lines(data)
        if not any(each.get("txn", {}).get("appId") == APP_ID for each in actions):
            raise ValueError(f"no txn of {APP_ID}")
    except (ValueError, AttributeError) as reason:
        raise CorruptMessageError(f"{name}: not a commit of the history: {reason}") from reason
    return actions


def end_offset_of(actions: Iterable[Action]) -> int:
    """The end of the offsets that the table has after these actions, in their order."""
    return max(int(each["txn"]["version"]) for each in actions if each.get("txn"))


def files_of(actions: Iterable[Action]) -> Iterator[HistoryFile]:
    """The data files that these actions add, in their order."""
    for each in actions:
        add = each.get("add")
        if add:
            yield HistoryFile(add["path"], date_of(add), add["size"], add.get("stats") or "")


def folded(actions: Iterable[Action]) -> list[Action]:
    """The actions of a checkpoint that stands for these: the newest `txn` only, and no `commitInfo`."""
    kept: list[Action] = []
    txn: Action = {}
    for each in actions:
        if each.get("txn"):
            txn = {"txn": each["txn"]}
        elif not each.get("commitInfo"):
            kept.append(each)
    return [*kept, txn]


def decode_history_checkpoint(data: bytes, name: str) -> list[Action]:
    """The actions of a checkpoint. CorruptMessageError for a torn one."""
    try:
        actions = decode_plain_checkpoint(data)
        end_offset_of(actions)
    except (OSError, pa.ArrowException, ValueError, KeyError) as reason:
        raise CorruptMessageError(f"{name}: not a checkpoint of the history: {reason}") from reason
    return actions
