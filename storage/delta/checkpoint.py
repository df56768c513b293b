"""A Delta checkpoint: one Parquet file that holds the fold of a table up to a version, both ways. Pure.

Written here and not by deltalake, which reads all commits since the last checkpoint again and keeps tombstones for an
hour. Here a tombstone stays as long as its object is on storage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.storage.delta.commit_json import (
    PARTITION_COLUMNS,
    check_protocol,
    file_entry,
    file_stats,
    own_properties,
    partition_values,
    protocol_of,
    time_tags,
)
from stratalog.storage.delta.table import RemovedObject, TableSnapshot
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.data_file import FileEntry

LAST_CHECKPOINT = "_last_checkpoint"
_END_OFFSET_TAG = "stratalog.endOffset"
_STRINGS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _STRINGS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _STRINGS,
                "size": pa.int64(),
                "tags": _STRINGS,
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _STRINGS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _STRINGS,
            }
        ),
    }
)
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


def stray_versions(versions: Collection[int], newest_checkpoint: int) -> list[int]:
    """Those of the commits that there are which lead to no checkpoint: clean-up had deleted a version above each.

    >>> stray_versions({3, 5, 7, 8, 9}, newest_checkpoint=8), stray_versions({7, 8, 9}, 8), stray_versions({0, 2}, -1)
    ([3, 5], [], [])
    """
    oldest = newest_checkpoint
    while oldest - 1 in versions:
        oldest -= 1
    return sorted(version for version in versions if version < oldest)


def covered_count(written: Iterable[str], version: int) -> int:
    """The number of a table's paths, in the order in which they were written, that a checkpoint of `version` covers:
    those up to its last commit, as a commit is written after the objects that it names.

    A path that follows a commit above `version` is not counted. A file that only a later commit names may be.
    """
    count = 0
    for number, path in enumerate(written, 1):
        committed = commit_version(path)
        if committed is not None and committed > version:
            break
        if committed is not None:
            count = number
    return count


def pointed_version(data: bytes | None) -> int:
    """The version in `_last_checkpoint`, -1 when it is absent or unreadable."""
    if data is None:
        return -1
    try:
        version = json.loads(data)["version"]
    except (ValueError, KeyError, TypeError):
        return -1
    return version if isinstance(version, int) else -1


Metadata = dict[str, Any]
"""The body of a table's `metaData`, which each checkpoint repeats unchanged."""


def commit_metadata(data: bytes, name: str) -> Metadata:
    """The metadata in the first commit. Raises CorruptMessageError when it lacks one."""
    try:
        actions = [json.loads(line) for line in data.split(b"\n") if line]
        found = {kind: body for action in actions for kind, body in action.items()}
        metadata: Metadata = found["metaData"]
        return metadata
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise CorruptMessageError(f"{name}: version 0 defines no table: {reason}") from reason


def decode_metadata(data: bytes, name: str) -> tuple[Metadata, set[str]]:
    """The metadata in a checkpoint, and the paths of its files. Raises CorruptMessageError when it lacks one."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(columns=["metaData", "add.path"], use_threads=False)
        (metadata,) = _rows(table, "metaData").to_pylist()
        paths = pc.struct_field(_rows(table, "add"), "path").to_pylist()
        return metadata, set(paths)
    except (OSError, pa.ArrowException, ValueError, KeyError) as reason:
        raise CorruptMessageError(f"{name}: the checkpoint defines no table: {reason}") from reason


def encode_checkpoint(snapshot: TableSnapshot, metadata: Metadata) -> tuple[bytes, int]:
    """(bytes of the checkpoint, number of its actions).

    Made column by column: thousands of tombstones as Python objects would take longer, and cause garbage collections.
    """
    txns = snapshot.txns
    actions = {
        "protocol": pa.array([protocol_of(snapshot.writer_version)], _type_of("protocol")),
        "metaData": pa.array([metadata], _type_of("metaData")),
        "txn": _bodies("txn", len(txns), {"appId": list(txns), "version": list(txns.values())}),
        "remove": _tombstones(snapshot.removed),
        "add": _adds(snapshot.files),
    }
    count = sum(len(bodies) for bodies in actions.values())
    columns, before = [], 0
    for bodies in actions.values():
        after = count - before - len(bodies)
        columns.append(pa.chunked_array([pa.nulls(before, bodies.type), bodies, pa.nulls(after, bodies.type)]))
        before += len(bodies)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns, schema=_SCHEMA),
        sink,
        compression="snappy",
        use_dictionary=False,
        write_statistics=False,  # it is read as a whole
        store_schema=False,
    )
    return sink.getvalue().to_pybytes(), count


def action_count_of(data: bytes, name: str) -> int:
    """The number of actions in a checkpoint's bytes. Raises CorruptMessageError."""
    try:
        count: int = pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows
    except (OSError, pa.ArrowException) as reason:
        raise CorruptMessageError(f"{name}: the checkpoint is unreadable: {reason}") from reason
    return count


def encode_pointer(version: int, action_count: int, size_bytes: int) -> bytes:
    """The content of `_last_checkpoint`, by which readers find the newest checkpoint."""
    pointer = {"version": version, "size": action_count, "sizeInBytes": size_bytes}
    return json.dumps(pointer, separators=(",", ":")).encode()


def decode_checkpoint(data: bytes, version: int, name: str) -> TableSnapshot:
    """The snapshot in a checkpoint's bytes; `name` is the file for messages.

    Raises CorruptMessageError when unreadable, UnsupportedTableFeatureError by its protocol.
    """
    try:
        columns = ["add", "remove", "txn", "metaData", "protocol"]
        table = pq.ParquetFile(pa.BufferReader(data)).read(columns=columns, use_threads=False)
        (protocol,) = _rows(table, "protocol").to_pylist()
        check_protocol(protocol, name)
        (metadata,) = _rows(table, "metaData").to_pylist()
        txns = {txn["appId"]: txn["version"] for txn in _rows(table, "txn").to_pylist()}
        properties = own_properties(dict(metadata["configuration"]))
        removed = _removed(_rows(table, "remove"), version)
        files, writer_version = _entries(_rows(table, "add")), protocol["minWriterVersion"]
        return TableSnapshot(version, files, txns, properties, removed, version, writer_version=writer_version)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"{name}: the checkpoint is unreadable: {reason}") from reason


def _rows(table: pa.Table, action: str) -> pa.StructArray:
    column = table[action].combine_chunks()
    return column.filter(pc.is_valid(column))


def _type_of(action: str) -> pa.StructType:
    return _SCHEMA.field(action).type


def _bodies(action: str, count: int, columns: Mapping[str, pa.Array | Sequence[Any]]) -> pa.StructArray:
    """`count` bodies of an action by their fields; a field that is not in `columns` is absent in each of them."""
    arrays = []
    for field in _type_of(action):
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.StructArray.from_arrays(arrays, fields=list(_type_of(action)))


def _maps(count: int, names: Sequence[str], values: pa.Array) -> pa.MapArray:
    """`count` maps, each of the same names; `values` are those of the first one, then those of the second one ..."""
    offsets = pa.array(range(0, (count + 1) * len(names), len(names)), pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(list(names) * count, pa.string()), values)


def _tombstones(removed: Mapping[str, RemovedObject]) -> pa.StructArray:
    ends = pa.array([each.end_offset for each in removed.values()], pa.int64())
    columns = {
        "path": list(removed),
        "deletionTimestamp": [each.removed_ms for each in removed.values()],
        "dataChange": pa.repeat(False, len(removed)),
        "tags": _maps(len(removed), [_END_OFFSET_TAG], ends.cast(pa.string())),
    }
    return _bodies("remove", len(removed), columns)


def _adds(entries: Sequence[FileEntry]) -> pa.StructArray:
    """Files as Delta's `add`, dated by their newest record: the fold does not know when a file was committed."""
    files = [entry.file for entry in entries]
    places = [value for entry in entries for value in partition_values(entry)]
    tags = [time_tags(file) for file in files]
    columns = {
        "path": [file.path for file in files],
        "partitionValues": _maps(len(files), PARTITION_COLUMNS, pa.array(places, pa.string())),
        "size": [file.size_bytes for file in files],
        "modificationTime": [max(file.max_timestamp_ms or 0, 0) for file in files],
        "dataChange": pa.repeat(False, len(files)),
        "stats": [file_stats(file) for file in files],
        "tags": [None if each is None else list(each.items()) for each in tags],
    }
    return _bodies("add", len(files), columns)


def _entries(adds: pa.StructArray) -> tuple[FileEntry, ...]:
    fields: list[list[Any]] = [
        pc.struct_field(adds, name).to_pylist() for name in ("path", "size", "partitionValues", "stats", "tags")
    ]
    return tuple(
        file_entry(path, size, dict(values), stats, dict(tags) if tags else None)
        for path, size, values, stats, tags in zip(*fields, strict=True)
    )


def _removed(tombstones: pa.StructArray, version: int) -> dict[str, RemovedObject]:
    """The objects that left the log before the checkpoint; foreign tombstones lack the end offset and are skipped."""
    paths, times, tags = (pc.struct_field(tombstones, name) for name in ("path", "deletionTimestamp", "tags"))
    ends = pc.map_lookup(tags, _END_OFFSET_TAG, "first").cast(pa.int64())
    return {
        path: RemovedObject(version, removed_ms or 0, end_offset)
        for path, removed_ms, end_offset in zip(paths.to_pylist(), times.to_pylist(), ends.to_pylist(), strict=True)
        if end_offset is not None
    }
