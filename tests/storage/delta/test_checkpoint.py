"""A checkpoint holds the fold that it was made of, as Delta's actions."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.storage.delta.checkpoint import decode_checkpoint, decode_metadata, encode_checkpoint
from stratalog.storage.delta.commit_json import delta_schema
from stratalog.storage.delta.table import LOG_END, RemovedObject, TableSnapshot
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.records import TIMESTAMP_MS_LIMIT

METADATA = {
    "id": "an id",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": delta_schema(),
    "partitionColumns": ["segment", "leader_epoch", "base_offset"],
    "configuration": {"stratalog.topic-id": "t1"},
    "createdTime": 7,
}
PATH = "segment=00000000000000000007/ab.00000000.parquet"


def entry(least: int | None, greatest: int | None, path: str = PATH) -> FileEntry:
    return FileEntry(DataFile(path, 1_300, 3, 1, 4, least, greatest), 7, 2, 10)


def snapshot(
    *files: FileEntry, removed: dict[str, RemovedObject] | None = None, txns: dict[str, int] | None = None
) -> TableSnapshot:
    return TableSnapshot(9, files, txns or {}, {"stratalog.topic-id": "t1"}, removed or {}, 9)


def actions(of: TableSnapshot) -> list[tuple[str, dict[str, Any]]]:
    data, count = encode_checkpoint(of, METADATA)
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    assert len(rows) == count
    return [(kind, body) for row in rows for kind, body in row.items() if body is not None]


@pytest.mark.parametrize(
    "given",
    [
        snapshot(),
        snapshot(txns={"stratalog": 1}),
        snapshot(entry(5, 9)),
        snapshot(entry(None, None), txns={LOG_END: 15, "stratalog.epoch.3": 2**62}),
        snapshot(entry(-TIMESTAMP_MS_LIMIT, TIMESTAMP_MS_LIMIT), entry(1, 2, "another"), entry(None, None, "a third")),
        snapshot(removed={"gone": RemovedObject(9, 0, 0), "ü": RemovedObject(9, 1_700_000_000_000, 2**60)}),
        snapshot(
            entry(0, 0), removed={f"gone-{n}": RemovedObject(9, n, 2 * n) for n in range(300)}, txns={"a": -1, "b": 2}
        ),
    ],
)
def test_a_checkpoint_reads_back(given: TableSnapshot) -> None:
    data, _ = encode_checkpoint(given, METADATA)
    assert decode_checkpoint(data, 9, "t") == given
    metadata, paths = decode_metadata(data, "t")
    again, _ = encode_checkpoint(given, metadata)
    assert decode_checkpoint(again, 9, "t") == given
    assert paths == {each.path for each in given.files}


@pytest.mark.parametrize(
    ("least", "greatest", "low", "high", "nulls", "tags", "modified_ms"),
    [
        (5, 9, "1970-01-01T00:00:00.005Z", "1970-01-01T00:00:00.009Z", None, None, 9),
        (-1, -1, "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z", None, None, 0),
        (None, None, None, None, 3, None, 0),
        (
            5,
            253_402_300_800_000,
            None,
            None,
            None,
            {"stratalog.minTimestampMs": "5", "stratalog.maxTimestampMs": "253402300800000"},
            253_402_300_800_000,
        ),
    ],
)
def test_a_file_is_an_add_with_its_partition_values_and_statistics(
    least: int | None,
    greatest: int | None,
    low: str | None,
    high: str | None,
    nulls: int | None,
    tags: dict[str, str] | None,
    modified_ms: int,
) -> None:
    adds = [body for kind, body in actions(snapshot(entry(1, 1, "first"), entry(least, greatest))) if kind == "add"]
    add = adds[1]
    stats = json.loads(add.pop("stats"))
    assert add == {
        "path": PATH,
        "partitionValues": [("segment", "00000000000000000007"), ("leader_epoch", "2"), ("base_offset", "10")],
        "size": 1_300,
        "modificationTime": modified_ms,
        "dataChange": False,
        "tags": None if tags is None else list(tags.items()),
    }
    of_time = [{} if text is None else {"timestamp": text} for text in (low, high)]
    assert stats == {
        "numRecords": 3,
        "minValues": {"offset_delta": 1, **of_time[0]},
        "maxValues": {"offset_delta": 4, **of_time[1]},
        "nullCount": {"offset_delta": 0, **({} if nulls is None else {"timestamp": nulls})},
    }


def test_what_left_the_log_is_a_tombstone_that_says_where_it_ended() -> None:
    removed = {"a": RemovedObject(3, 77, 15), "b": RemovedObject(4, 78, 0)}
    found = actions(snapshot(entry(1, 1), removed=removed, txns={"x": 5}))
    assert [kind for kind, _ in found] == ["protocol", "metaData", "txn", "remove", "remove", "add"]
    of_ours = {"dataChange": False, "extendedFileMetadata": None, "partitionValues": None, "size": None}
    assert [body for kind, body in found if kind in ("txn", "remove")] == [
        {"appId": "x", "version": 5, "lastUpdated": None},
        {"path": "a", "deletionTimestamp": 77, **of_ours, "tags": [("stratalog.endOffset", "15")]},
        {"path": "b", "deletionTimestamp": 78, **of_ours, "tags": [("stratalog.endOffset", "0")]},
    ]
    assert found[1][1]["configuration"] == [("stratalog.topic-id", "t1")]


def test_tombstones_that_are_not_ours_are_passed_over() -> None:
    data, _ = encode_checkpoint(snapshot(removed={name: RemovedObject(9, 1, 2) for name in "abc"}), METADATA)
    table = pq.read_table(pa.BufferReader(data))
    rows = [row for row in table.to_pylist() if row["remove"] is None or row["remove"]["path"] != "b"]
    tags = [None, [("engine", "1")], [("engine", "1"), ("stratalog.endOffset", "4")]]
    foreign = {"path": "f", "deletionTimestamp": None, "dataChange": True}
    rows += [{"remove": {**foreign, "path": f"f{number}", "tags": each}} for number, each in enumerate(tags)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, table.schema), sink)
    found = decode_checkpoint(sink.getvalue().to_pybytes(), 9, "t").removed
    assert found == {"a": RemovedObject(9, 1, 2), "c": RemovedObject(9, 1, 2), "f2": RemovedObject(9, 0, 4)}
