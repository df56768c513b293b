"""Commits as the lines of a Delta log file `_delta_log/<20 digits>.json`, both ways. Pure.

Besides Delta's actions our commits carry in `commitInfo` their own id, the id of the commit before them, and a CRC32C
of the whole file, by which a torn or changed file is recognized.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import crc32c
import pyarrow as pa

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import OPEN_WRITER_VERSION, REMOVED_FILES_PROPERTY, WRITER_VERSION, Commit
from stratalog.storage.errors import CorruptMessageError, UnsupportedTableFeatureError
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.producers import ProducerChanges
from stratalog.storage.records import DATA_SCHEMA

ENGINE_INFO = "stratalog/1"
ISO_MIN_MS, ISO_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
"""Timestamps of the years 1 to 9999; for others Delta has no text."""
PARTITION_COLUMNS = ("segment", "leader_epoch", "base_offset")
READER_VERSION = 1
WRITER_FEATURE = "stratalog"
"""Name of the writer feature of every table. No other engine knows it, so none that keeps Delta's protocol commits."""
WRITER_FEATURES = ("invariants", WRITER_FEATURE)
"""Names of the writer features of every table. Delta's older protocols imply `invariants`, and delta-spark does not
read a table with columns that are not nullable unless it is listed."""
_KNOWN_FEATURES = frozenset({*WRITER_FEATURES, "appendOnly"})
TABLE_PROPERTIES: Mapping[str, str] = {
    "delta.enableExpiredLogCleanup": "false",
    REMOVED_FILES_PROPERTY: "interval 1 hours",
}
"""Properties of every table: only stratalog cleans up its log, and removed files stay for an hour, unless the topic
said otherwise when the table was made."""

DELTA_ACTIONS = frozenset(
    (
        "commitInfo",
        "protocol",
        "metaData",
        "add",
        "remove",
        "txn",
        "cdc",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    )
)
"""The kinds of actions of Delta's protocol. A file with none of them is no commit, neither ours nor a foreign one: a
power cut may leave the content of another JSON file in it."""

_DELTA_TYPES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("ms", tz="UTC"): "timestamp",
}
_CRC_FIELD = b'"stratalogCrc32c":"'
_NO_CRC = b"00000000"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_TAG = "stratalog.minTimestampMs"
_MAX_TAG = "stratalog.maxTimestampMs"
_json = json.JSONEncoder(separators=(",", ":")).encode
_parsed = json.JSONDecoder().decode
_quoted = json.encoder.encode_basestring_ascii


def encode_commit(stored: StoredCommit) -> bytes:
    """The log file of a commit; with `properties` (version 0) also schema and partition columns."""
    commit = stored.commit
    info: dict[str, Any] = {
        "timestamp": commit.timestamp_ms,
        "operation": commit.operation,
        "engineInfo": ENGINE_INFO,
        "stratalogCommitId": commit.commit_id,
        "stratalogPreviousCommitId": stored.previous_id,
        "stratalogTableId": stored.named_table,
        "stratalogDataChange": commit.data_change,
        "stratalogCrc32c": _NO_CRC.decode(),
    }
    if commit.producers is not None:
        info["stratalogProducers"] = commit.producers.to_value()
    lines = [_json({"commitInfo": info})]
    if commit.writer_version is not None:
        lines.append(_json({"protocol": protocol_of(commit.writer_version)}))
    if stored.properties is not None:
        lines.append(_json({"metaData": _metadata(commit, stored.properties)}))
    lines.extend(f'{{"txn":{{"appId":{_quoted(name)},"version":{number}}}}}' for name, number in commit.txns.items())
    after = f',"deletionTimestamp":{commit.timestamp_ms},"dataChange":{_json(commit.data_change)}}}}}'
    lines.extend([f'{{"remove":{{"path":{_quoted(path)}{after}' for path in commit.removes])
    lines.extend(_json({"add": _add(entry, commit)}) for entry in commit.adds)
    data = "\n".join(lines).encode()
    return _with_crc(data, f"{crc32c.crc32c(data):08x}".encode())


def decode_commit(data: bytes, name: str) -> StoredCommit:
    """The commit in a log file; `name` is the table and version for messages.

    A file without our id is a foreign commit. Raises CorruptMessageError when the file is torn or changed,
    UnsupportedTableFeatureError as `check_protocol`.
    """
    try:
        bodies: dict[str, list[Any]] = {}
        lines = ",".join([line for line in data.decode().split("\n") if line])
        for action in _parsed(f"[{lines}]"):
            for kind, body in action.items():
                bodies.setdefault(kind, []).append(body)
        if DELTA_ACTIONS.isdisjoint(bodies):
            raise ValueError(f"no actions of Delta, but {sorted(bodies)[:3]}")
        info: dict[str, Any] = bodies.get("commitInfo", [{}])[0]
        if "stratalogCommitId" in info:
            _check_crc(data)
        return _stored(bodies, info, name)
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise CorruptMessageError(
            f"{name}: the commit of {len(data)} bytes is unreadable: {type(reason).__name__}: {reason}"
        ) from reason


def file_entry(
    path: str, size: int, partition_values: Mapping[str, str | None], stats: str, tags: Mapping[str, str] | None
) -> FileEntry:
    """A file from the fields of Delta's `add`. KeyError / TypeError / ValueError when one is missing or odd."""
    numbers = _parsed(stats)
    low, high = numbers["minValues"], numbers["maxValues"]
    file = DataFile(
        path,
        size,
        numbers["numRecords"],
        low["offset_delta"],
        high["offset_delta"],
        _timestamp_ms(low.get("timestamp"), tags, _MIN_TAG),
        _timestamp_ms(high.get("timestamp"), tags, _MAX_TAG),
    )
    segment, epoch, base = (partition_values[column] for column in PARTITION_COLUMNS)
    if segment is None or epoch is None or base is None:
        raise ValueError(f"{path} lacks a partition value: {dict(partition_values)}")
    return FileEntry(file, int(segment), int(epoch), int(base))


def check_protocol(protocol: Mapping[str, Any], name: str) -> None:
    """Raises UnsupportedTableFeatureError unless a table is reader 1 / writer 7 with our feature, or older."""
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    is_known = writer <= OPEN_WRITER_VERSION or (writer == WRITER_VERSION and features <= _KNOWN_FEATURES)
    if reader > READER_VERSION or not is_known:
        raise UnsupportedTableFeatureError(
            f"{name}: the table needs Delta reader {reader} / writer {writer} {sorted(features)}; "
            f"a log is reader {READER_VERSION} / writer {WRITER_VERSION} {list(WRITER_FEATURES)}"
        )


def protocol_of(writer_version: int) -> dict[str, Any]:
    """Delta's `protocol` of a table of this writer version."""
    versions = {"minReaderVersion": READER_VERSION, "minWriterVersion": writer_version}
    return {**versions, "writerFeatures": list(WRITER_FEATURES)} if writer_version >= WRITER_VERSION else versions


def own_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """The table properties without `TABLE_PROPERTIES`."""
    return {name: value for name, value in configuration.items() if name not in TABLE_PROPERTIES}


def iso_text(timestamp_ms: int) -> str:
    """A time between `ISO_MIN_MS` and `ISO_MAX_MS` as Delta's statistics have it.

    >>> iso_text(1_700_000_000_001)
    '2023-11-14T22:13:20.001Z'
    """
    return f"{_iso_seconds(timestamp_ms // 1000)}.{timestamp_ms % 1000:03}Z"


@lru_cache(maxsize=256)
def _iso_seconds(timestamp_s: int) -> str:
    moment = _EPOCH + timedelta(seconds=timestamp_s)
    return f"{moment:%Y}".zfill(4) + f"{moment:-%m-%dT%H:%M:%S}"


def delta_schema() -> str:
    """The table's schema as Delta writes it: partition columns, then the columns of `DATA_SCHEMA`."""
    partitions = pa.schema([("segment", pa.string()), ("leader_epoch", pa.int32()), ("base_offset", pa.int64())])
    return json.dumps({"type": "struct", "fields": [_field(field) for field in [*partitions, *DATA_SCHEMA]]})


def _stored(bodies: Mapping[str, list[Any]], info: Mapping[str, Any], name: str) -> StoredCommit:
    writer_version = None
    for protocol in bodies.get("protocol", ()):
        check_protocol(protocol, name)
        writer_version = protocol["minWriterVersion"]
    is_foreign = "stratalogCommitId" not in info
    operation = str(info.get("operation", "unknown operation"))
    # a foreign add need not have our stats: its commit takes the replica offline anyway
    adds = () if is_foreign else tuple([_entry(add) for add in bodies.get("add", ())])
    commit = Commit(
        commit_id="" if is_foreign else info["stratalogCommitId"],
        operation=f"{operation} by {info.get('engineInfo', 'an unknown engine')}" if is_foreign else operation,
        timestamp_ms=int(info.get("timestamp", 0)),
        adds=adds,
        removes=tuple([remove["path"] for remove in bodies.get("remove", ())]),
        txns={txn["appId"]: txn["version"] for txn in bodies.get("txn", ())},
        data_change=bool(info.get("stratalogDataChange", True)),
        is_foreign=is_foreign,
        producers=ProducerChanges.from_value(changes) if (changes := info.get("stratalogProducers")) else None,
        writer_version=writer_version,
    )
    metadata = bodies.get("metaData")
    properties = own_properties(metadata[0]["configuration"]) if metadata else None
    return StoredCommit(commit, info.get("stratalogPreviousCommitId"), properties, info.get("stratalogTableId"))


def _entry(add: Mapping[str, Any]) -> FileEntry:
    return file_entry(add["path"], add["size"], add["partitionValues"], add["stats"], add.get("tags"))


def _metadata(commit: Commit, properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, commit.commit_id)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": delta_schema(),
        "partitionColumns": list(PARTITION_COLUMNS),
        "configuration": {**TABLE_PROPERTIES, **properties},
        "createdTime": commit.timestamp_ms,
    }


def partition_values(entry: FileEntry) -> tuple[str, str, str]:
    """A file's values of `PARTITION_COLUMNS`."""
    return f"{entry.segment:020}", str(entry.leader_epoch), str(entry.base_offset)


def file_stats(file: DataFile) -> str:
    """Delta's statistics of a file, a text of JSON."""
    least, greatest = file.min_timestamp_ms, file.max_timestamp_ms
    low = high = nulls = ""
    if least is None or greatest is None:
        nulls = f',"timestamp":{file.record_count}'
    elif least >= ISO_MIN_MS and greatest <= ISO_MAX_MS:
        low, high = f',"timestamp":"{iso_text(least)}"', f',"timestamp":"{iso_text(greatest)}"'
    return (
        f'{{"numRecords":{file.record_count},"minValues":{{"offset_delta":{file.first_delta}{low}}},'
        f'"maxValues":{{"offset_delta":{file.last_delta}{high}}},"nullCount":{{"offset_delta":0{nulls}}}}}'
    )


def time_tags(file: DataFile) -> dict[str, str] | None:
    """The timestamps of a file as Delta's tags, where its statistics have no text for them."""
    least, greatest = file.min_timestamp_ms, file.max_timestamp_ms
    if least is None or greatest is None or (least >= ISO_MIN_MS and greatest <= ISO_MAX_MS):
        return None
    return {_MIN_TAG: str(least), _MAX_TAG: str(greatest)}


def _add(entry: FileEntry, commit: Commit) -> dict[str, Any]:
    file = entry.file
    add = {
        "path": file.path,
        "partitionValues": dict(zip(PARTITION_COLUMNS, partition_values(entry), strict=True)),
        "size": file.size_bytes,
        "modificationTime": commit.timestamp_ms,
        "dataChange": commit.data_change,
    }
    if (tags := time_tags(file)) is not None:
        add["tags"] = tags
    return {**add, "stats": file_stats(file)}


def _timestamp_ms(text: str | None, tags: Mapping[str, str] | None, tag: str) -> int | None:
    if text is not None:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
    return int(tags[tag]) if tags and tag in tags else None


def _with_crc(data: bytes, crc: bytes) -> bytes:
    at = data.index(_CRC_FIELD) + len(_CRC_FIELD)
    return data[:at] + crc + data[at + len(crc) :]


def _check_crc(data: bytes) -> None:
    at = data.index(_CRC_FIELD) + len(_CRC_FIELD)
    expected = data[at : at + len(_NO_CRC)].decode()
    found = f"{crc32c.crc32c(_with_crc(data, _NO_CRC)):08x}"
    if found != expected:
        raise ValueError(f"CRC32C is {found}, expected {expected}")


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _delta_type(field.type), "nullable": field.nullable, "metadata": {}}


def _delta_type(arrow: pa.DataType) -> Any:
    if pa.types.is_list(arrow):
        element = arrow.value_field
        return {"type": "array", "elementType": _delta_type(element.type), "containsNull": element.nullable}
    if pa.types.is_struct(arrow):
        # Spark's Delta alters and clones no table with a required field inside a column
        return {
            "type": "struct",
            "fields": [_field(arrow.field(i).with_nullable(True)) for i in range(arrow.num_fields)],
        }
    return _DELTA_TYPES[arrow]
