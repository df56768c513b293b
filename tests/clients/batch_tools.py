"""Common parts of the tests of Kafka's record batches: records as columns and back, batches with given headers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from stratalog.storage.records import Header, NewRecordBatch, payload_table
from stratalog.wire.batches.headers import BatchHeader, batch_bytes

Record = tuple[int | None, bytes | None, bytes | None, tuple[Header, ...] | None]
"""A record: timestamp [ms], key, value, headers."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER = BatchHeader(0, 0, -1, 2, 0, 0, 0, 1_000, 1_000, -1, -1, -1, 1)
ONE_RECORD = b"\x10\0\0\0\x01\x04ok\0"
"""A record at its batch's own timestamp and offset, without key and headers, value `ok`."""

_contents = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 200])
_headers = st.none() | st.lists(st.builds(Header, st.text(max_size=6), _contents), min_size=1, max_size=3).map(tuple)
_timestamps = st.none() | st.integers(0, 1 << 41) | st.integers(-(1 << 45), -2)
_records = st.tuples(_timestamps, _contents, _contents, _headers)
record_lists: st.SearchStrategy[list[Record]] = st.lists(_records, min_size=1, max_size=40) | st.builds(
    lambda record, count, last: [record] * count + [last], _records, st.integers(1, 300), _records
)
"""Records of a batch: few different ones, which are decoded one by one, or many equal ones, decoded at once."""


def new_batch(rows: Iterable[Record], **fields: Any) -> NewRecordBatch:
    return NewRecordBatch(payload_table(rows), **fields)


def records_of(table: pa.Table) -> list[Record]:
    """The rows of a payload, or of a read."""
    headers = [h and tuple(Header(pair["key"], pair["value"]) for pair in h) for h in table["headers"].to_pylist()]
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return list(zip(times, table["key"].to_pylist(), table["value"].to_pylist(), headers, strict=True))


def raw_batch(section: bytes, record_count: int, codec: str = "none", **fields: int) -> bytes:
    """A batch with these records and a right CRC, whatever they are; `fields` of its header."""
    whole = {"last_offset_delta": record_count - 1, **fields, "record_count": record_count}
    return batch_bytes(HEADER._replace(**whole), memoryview(section), codec)


def kafka_batches() -> dict[str, bytes]:
    """Batches that Kafka's classes wrote (KafkaBatches.java): one of 40 records by codec, and a commit marker."""
    lines = (Path(__file__).parent / "kafka_batches.txt").read_text(encoding="ascii").splitlines()
    return {name: base64.b64decode(text) for name, text in (line.split() for line in lines)}


def kafka_records() -> list[Record]:
    """The 40 records that KafkaBatches.java writes."""
    return [
        (
            1_700_000_000_000 + i * 37 % 11 * 1_000,
            None if i % 3 == 0 else f"key-{i}".encode(),
            None if i % 7 == 0 else b"value " * i,
            None if i % 5 else (Header("trace", bytes([1, 2, i])), Header("größe", None)),
        )
        for i in range(40)
    ]
