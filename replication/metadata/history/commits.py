"""The Delta log of the table of the metadata's history: commits, checkpoints, and the statistics of data files. Pure.

The table has reader version 1 and writer version 2, so that every engine reads it. Its partition column is the day. A
data file has the least and the greatest value of the columns that queries ask for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.replication.metadata.history.states import HISTORY_SCHEMA
from stratalog.storage.errors import CorruptMessageError

HISTORY_DIRECTORY = "__cluster_metadata_history"
"""The table's directory below the metadata root."""
APP_ID = "stratalog.metadata.history"
"""The application id of the `txn` whose version is the end of the offsets that the table has."""
CHECKPOINT_INTERVAL = 10
"""Number of versions from one checkpoint to the next."""
COLUMNS_WITH_STATS = ("metadata_offset", "topic", "partition", "leader", "leader_epoch", "start_offset")
_DELTA_TYPES = {pa.int32(): "integer", pa.int64(): "long", pa.string(): "string"}
_STRINGS = pa.map_(pa.string(), pa.string())
_CHECKPOINT_SCHEMA = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _STRINGS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _STRINGS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
    }
)

Action = dict[str, Any]
"""One line of a commit: the kind and its body."""


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
    lines: list[Action] = [{"commitInfo": {"timestamp": now_ms, "operation": "WRITE"}}]
    if version == 0:
        lines.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        lines.append({"metaData": _metadata(table_id, now_ms)})
    lines.append({"txn": {"appId": APP_ID, "version": end_offset, "lastUpdated": now_ms}})
    for file in files:
        add = {
            "path": file.path,
            "partitionValues": {"date": file.date},
            "size": file.size_bytes,
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": file.stats,
        }
        lines.append({"add": add})
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()


def decode_actions(data: bytes, name: str) -> list[Action]:
    """The actions of a commit file. CorruptMessageError for a torn one."""
    try:
        actions = [json.loads(line) for line in data.decode().splitlines()]
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
            date = dict(add["partitionValues"])["date"]
            yield HistoryFile(add["path"], date, add["size"], add.get("stats") or "")


def folded(actions: Iterable[Action]) -> list[Action]:
    """The actions of a checkpoint that stands for these: the newest `txn` only, and no `commitInfo`."""
    kept: list[Action] = []
    txn: Action = {}
    for each in actions:
        if each.get("txn"):
            txn = {"txn": each["txn"]}
        elif not each.get("commitInfo"):
            kept.append({kind: body for kind, body in each.items() if body is not None})
    return [*kept, txn]


def encode_history_checkpoint(actions: Sequence[Action]) -> bytes:
    """The Parquet file of a checkpoint of these folded actions."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(map(_with_pairs, actions)), schema=_CHECKPOINT_SCHEMA), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_history_checkpoint(data: bytes, name: str) -> list[Action]:
    """The actions of a checkpoint. CorruptMessageError for a torn one."""
    try:
        actions: list[Action] = pq.read_table(pa.BufferReader(data)).to_pylist()
        end_offset_of(actions)
    except (OSError, pa.ArrowException, ValueError, KeyError) as reason:
        raise CorruptMessageError(f"{name}: not a checkpoint of the history: {reason}") from reason
    return actions


def _with_pairs(body: Any) -> Any:
    """An action whose maps are lists of pairs, as Arrow makes maps of them."""
    if not isinstance(body, dict):
        return body
    maps = ("partitionValues", "configuration", "options")
    return {name: list(dict(v).items()) if name in maps else _with_pairs(v) for name, v in body.items()}


def _metadata(table_id: str, now_ms: int) -> dict[str, Any]:
    fields = [{"name": f.name, "type": _delta_type(f.type), "nullable": True, "metadata": {}} for f in HISTORY_SCHEMA]
    fields.append({"name": "date", "type": "date", "nullable": True, "metadata": {}})
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["date"],
        "configuration": {"delta.appendOnly": "true"},
        "createdTime": now_ms,
    }


def _delta_type(arrow: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_list(arrow):
        return {"type": "array", "elementType": "integer", "containsNull": True}
    return _DELTA_TYPES[arrow]
