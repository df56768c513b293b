"""Commits survive their way through Delta log files, and foreign or torn files are recognized."""

from __future__ import annotations

import json
import random

import pytest

from stratalog.storage.delta.commit_json import decode_commit, encode_commit
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import LOG_END, Commit
from stratalog.storage.errors import CorruptMessageError, UnsupportedTableFeatureError
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.records import TIMESTAMP_MS_LIMIT


def stored(least: int | None = 5, greatest: int | None = 9, data_change: bool = True) -> StoredCommit:
    file = DataFile("segment=00000000000000000007/ab.00000000.parquet", 100, 3, 1, 4, least, greatest)
    commit = Commit("id1", "APPEND", 77, (FileEntry(file, 7, 2, 10),), ("old",), {LOG_END: 15}, data_change)
    return StoredCommit(commit, "id0")


@pytest.mark.parametrize(
    ("least", "greatest"),
    [
        (None, None),
        (0, 0),
        (-1, 1),
        (1_700_000_000_001, 1_700_000_000_999),
        (-62_135_596_800_000, 253_402_300_799_999),
        (-TIMESTAMP_MS_LIMIT, TIMESTAMP_MS_LIMIT),
    ],
)
@pytest.mark.parametrize("data_change", [True, False])
def test_a_commit_reads_back(least: int | None, greatest: int | None, data_change: bool) -> None:
    given = stored(least, greatest, data_change)
    assert decode_commit(encode_commit(given), "t") == given


def test_stats_and_partition_values_are_deltas_own() -> None:
    lines = [json.loads(line) for line in encode_commit(stored(1_700_000_000_001, 1_700_000_000_010)).splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    assert add["partitionValues"] == {"segment": "00000000000000000007", "leader_epoch": "2", "base_offset": "10"}
    assert json.loads(add["stats"]) == {
        "numRecords": 3,
        "minValues": {"offset_delta": 1, "timestamp": "2023-11-14T22:13:20.001Z"},
        "maxValues": {"offset_delta": 4, "timestamp": "2023-11-14T22:13:20.010Z"},
        "nullCount": {"offset_delta": 0},
    }


def test_every_cut_and_every_flipped_bit_is_noticed() -> None:
    data = encode_commit(stored())
    for kept in range(len(data)):
        with pytest.raises(CorruptMessageError, match="version 3"):
            decode_commit(data[:kept], "t version 3")
    flips = random.Random(3)
    for _ in range(500):
        at, bit = flips.randrange(len(data)), flips.randrange(8)
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        try:
            found = decode_commit(bytes(flipped), "t").commit
        except (CorruptMessageError, UnsupportedTableFeatureError):
            continue
        assert found.is_foreign, f"byte {at} bit {bit}"  # our mark itself was hit: refused all the same


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"{", b"[]", b'"text"', b"\xff\xfe", b'{"producers":{}}'])
def test_garbage_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMessageError, match=r"^t: "):
        decode_commit(data, "t")


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 2},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", "stratalog"]},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", "stratalog"]},
    ],
)
def test_known_protocols_are_read(protocol: dict[str, object]) -> None:
    found = decode_commit(json.dumps({"protocol": protocol}).encode(), "t").commit
    assert found.writer_version == protocol["minWriterVersion"]


def test_a_foreign_commit_names_its_engine() -> None:
    info = {"commitInfo": {"timestamp": 1, "operation": "DELETE", "engineInfo": "Apache-Spark/4.2.0"}}
    add = {"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    commit = decode_commit(f"{json.dumps(info)}\n{json.dumps(add)}".encode(), "t").commit
    assert commit.is_foreign
    assert commit.operation == "DELETE by Apache-Spark/4.2.0"


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": []},
        {"minReaderVersion": 1, "minWriterVersion": 4},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["stratalog", "changeDataFeed"]},
        {"minReaderVersion": 2, "minWriterVersion": 5},
    ],
)
def test_unknown_features_are_refused_by_name(protocol: dict[str, object]) -> None:
    with pytest.raises(UnsupportedTableFeatureError, match=r"reader \d / writer \d"):
        decode_commit(json.dumps({"protocol": protocol}).encode(), "t")
