"""Reading a Delta checkpoint: one Parquet file that holds the fold of a table up to a version. Pure."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.delta_log import check_protocol, file_entry, own_properties
from storage.errors import CorruptMessageError
from storage.table import FileEntry, TableSnapshot

LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT_NAME = re.compile(r"(?:^|/)(\d{20})\.checkpoint\.parquet$")
_COMMIT_NAME = re.compile(r"(?:^|/)(\d{20})\.json$")


def checkpoint_file(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def commit_file(version: int) -> str:
    return f"{version:020}.json"


def checkpoint_versions(paths: Iterable[str]) -> list[int]:
    """The versions of the checkpoints among log paths, newest first."""
    found = (_CHECKPOINT_NAME.search(path) for path in paths)
    return sorted((int(match[1]) for match in found if match), reverse=True)


def commit_version(path: str) -> int | None:
    """The version of a commit's path, None for any other path."""
    match = _COMMIT_NAME.search(path)
    return int(match[1]) if match else None


def pointed_version(data: bytes | None) -> int:
    """The version that `_last_checkpoint` points at, -1 when it is absent or unreadable."""
    if data is None:
        return -1
    try:
        version = json.loads(data)["version"]
    except (ValueError, KeyError, TypeError):
        return -1
    return version if isinstance(version, int) else -1


def decode_checkpoint(data: bytes, version: int, name: str) -> TableSnapshot:
    """The snapshot in a checkpoint's bytes; `name` is the file for messages.

    Raises CorruptMessageError when unreadable, UnsupportedTableFeatureError by its protocol.
    """
    try:
        columns = ["add", "txn", "metaData", "protocol"]
        table = pq.ParquetFile(io.BytesIO(data)).read(columns=columns, use_threads=False)
        (protocol,) = _rows(table, "protocol").to_pylist()
        check_protocol(protocol, name)
        (metadata,) = _rows(table, "metaData").to_pylist()
        txns = {txn["appId"]: txn["version"] for txn in _rows(table, "txn").to_pylist()}
        properties = own_properties(dict(metadata["configuration"]))
        return TableSnapshot(version, _entries(_rows(table, "add")), txns, properties)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"{name}: the checkpoint is unreadable: {reason}") from reason


def _rows(table: pa.Table, action: str) -> pa.StructArray:
    column = table[action].combine_chunks()
    return column.filter(pc.is_valid(column))


def _entries(adds: pa.StructArray) -> tuple[FileEntry, ...]:
    fields: list[list[Any]] = [
        pc.struct_field(adds, name).to_pylist() for name in ("path", "size", "partitionValues", "stats", "tags")
    ]
    return tuple(
        file_entry(path, size, dict(values), stats, dict(tags) if tags else None)
        for path, size, values, stats, tags in zip(*fields, strict=True)
    )
