"""The Delta log of a table of rows by day, which every engine reads: commits and checkpoints as bytes. Pure.

Reader version 1, writer version 2, one partition column: the day. The tables beside the log are such: the metadata's
history and past lags. An action is one line of a commit, its kind and its body.
Source: Delta's protocol, "Actions" and "Checkpoints".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

DATE = "date"
"""The partition column."""
_STRINGS = pa.map_(pa.string(), pa.string())
_MAPS = ("partitionValues", "configuration", "options")
_TYPES = {pa.int32(): "integer", pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
_METADATA = {
    "id": pa.string(),
    "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
    "schemaString": pa.string(),
    "partitionColumns": pa.list_(pa.string()),
    "configuration": _STRINGS,
    "createdTime": pa.int64(),
}
_ADD = {
    "path": pa.string(),
    "partitionValues": _STRINGS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
}
_CHECKPOINT_SCHEMA = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(_METADATA),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(_ADD),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
    }
)


def first_actions(table_id: str, now_ms: int, schema: pa.Schema, configuration: Mapping[str, str]) -> list[Action]:
    """What version 0 states before its files. `schema` has no partition column; `configuration`: the table's
    properties, as `{"delta.appendOnly": "true"}`."""
    fields = [{"name": each.name, "type": _type_of(each.type), "nullable": True, "metadata": {}} for each in schema]
    fields.append({"name": DATE, "type": "date", "nullable": True, "metadata": {}})
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [DATE],
        "configuration": dict(configuration),
        "createdTime": now_ms,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def add_action(path: str, date: str, size_bytes: int, now_ms: int, stats: str, *, data_change: bool = True) -> Action:
    """A data file joins the table. `stats`: its statistics as Delta's JSON."""
    add = {
        "path": path,
        "partitionValues": {DATE: date},
        "size": size_bytes,
        "modificationTime": now_ms,
        "dataChange": data_change,
        "stats": stats,
    }
    return {"add": add}


def remove_action(path: str, now_ms: int, *, data_change: bool) -> Action:
    """A data file leaves the table."""
    return {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": data_change}}


def encode_actions(operation: str, now_ms: int, actions: Iterable[Action]) -> bytes:
    """The commit file of these actions."""
    lines = [{"commitInfo": {"timestamp": now_ms, "operation": operation}}, *actions]
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()


def decode_lines(data: bytes) -> list[Action]:
    """The actions of a commit file. ValueError for a torn one."""
    return [json.loads(line) for line in data.decode().splitlines()]


def encode_plain_checkpoint(actions: Sequence[Action]) -> bytes:
    """The Parquet file of a checkpoint that stands for these actions."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_with_pairs(each) for each in actions], schema=_CHECKPOINT_SCHEMA), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_plain_checkpoint(data: bytes) -> list[Action]:
    """The actions of a checkpoint. OSError, ArrowException for a torn one."""
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    return [{kind: body for kind, body in row.items() if body is not None} for row in rows]


def date_of(add: Mapping[str, Any]) -> str:
    """The day of a data file, of the body of its `add`: a checkpoint has pairs where a commit has a map."""
    return str(dict(add["partitionValues"])[DATE])


def _with_pairs(body: Any) -> Any:
    """An action whose maps are lists of pairs, as Arrow makes maps of them."""
    if not isinstance(body, dict):
        return body
    return {name: list(dict(v).items()) if name in _MAPS else _with_pairs(v) for name, v in body.items()}


def _type_of(arrow: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_list(arrow):
        return {"type": "array", "elementType": "integer", "containsNull": True}
    return _TYPES[arrow]
