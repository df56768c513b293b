"""Record batches as Arrow tables: the schema of a data file and the shape of a produce request. Pure.

A data file's rows are relative: `offset = base_offset + offset_delta`, and `base_offset` is given by the
commit, never written into the file (DESIGN §3). `batch_base` is the `offset_delta` of the first record
of the producer's batch, so batch boundaries survive group commits and merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRecordError, InvalidTimestampError

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

PAYLOAD_FIELDS = [
    pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
"""What a producer gives: timestamp (null = no timestamp), key, value, headers; in this order."""

PAYLOAD_SCHEMA = pa.schema(PAYLOAD_FIELDS)

DATA_SCHEMA = pa.schema(
    [
        pa.field("offset_delta", pa.int32(), nullable=False),
        *PAYLOAD_FIELDS,
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
        pa.field("batch_base", pa.int32(), nullable=False),
        pa.field("attributes", pa.int16(), nullable=False),
    ]
)
"""The columns of a data file, in order (DESIGN §11)."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
CREATE_TIME = 0
TIMESTAMP_MS_LIMIT = 9_223_372_036_854_775
"""Delta keeps microseconds in 64 bits, so a millisecond timestamp beyond this cannot be stored."""


class TopicPartition(NamedTuple):
    """`topic-partition`, Kafka's name for one log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Header(NamedTuple):
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class NewRecordBatch:
    """One producer's batch before it has offsets. `payload` has `PAYLOAD_SCHEMA` and at least one row."""

    payload: pa.Table
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    timestamp_type: int = CREATE_TIME
    attributes: int = 0

    @property
    def record_count(self) -> int:
        return int(self.payload.num_rows)

    @property
    def size_bytes(self) -> int:
        """Uncompressed size of the Arrow buffers that the rows use, the measure of `max.message.bytes`."""
        return int(self.payload.get_total_buffer_size() if self.payload.num_rows == 0 else self.payload.nbytes)


def payload_table(
    records: Iterable[tuple[int | None, bytes | None, bytes | None, Sequence[Header] | None]],
) -> pa.Table:
    """Rows `(timestamp_ms | None, key, value, headers | None)` as a payload table.

    Raises InvalidTimestampError when a timestamp cannot be stored, naming it and the limit.
    """
    rows = list(records)
    for timestamp_ms, _, _, _ in rows:
        if timestamp_ms is not None and not -TIMESTAMP_MS_LIMIT <= timestamp_ms <= TIMESTAMP_MS_LIMIT:
            raise InvalidTimestampError(f"timestamp {timestamp_ms} ms is outside ±{TIMESTAMP_MS_LIMIT} ms")
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in columns[3]]
    return pa.table(
        [
            pa.array(columns[0], pa.timestamp("ms", tz="UTC")),
            pa.array(columns[1], pa.binary()),
            pa.array(columns[2], pa.binary()),
            pa.array(headers, HEADERS_TYPE),
        ],
        schema=PAYLOAD_SCHEMA,
    )


def as_payload(table: pa.Table) -> pa.Table:
    """Any table with a `value` column as a payload table: missing columns become null, strings become UTF-8 bytes.

    Raises InvalidRecordError naming the column when a type cannot be taken.
    """
    if "value" not in table.column_names:
        raise InvalidRecordError(f"a record table needs the column 'value', found {table.column_names}")
    columns = []
    for field in PAYLOAD_FIELDS:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table[field.name].cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
            raise InvalidRecordError(
                f"column '{field.name}' is {table[field.name].type}, needed {field.type}: {reason}"
            ) from reason
    return pa.table(columns, schema=PAYLOAD_SCHEMA)


def data_table(batches: Sequence[NewRecordBatch]) -> pa.Table:
    """Batches as the rows of one data file: `offset_delta` counts from 0 over all of them.

    Two batches of 3 and 2 records give offset_delta 0 1 2 3 4 and batch_base 0 0 0 3 3.
    """
    parts, first_delta = [], 0
    for batch in batches:
        count = batch.record_count
        columns = [
            pa.array(np.arange(first_delta, first_delta + count, dtype=np.int32)),
            *batch.payload.columns,
            pa.repeat(pa.scalar(batch.timestamp_type, pa.int8()), count),
            pa.repeat(pa.scalar(batch.producer_id, pa.int64()), count),
            pa.repeat(pa.scalar(batch.producer_epoch, pa.int16()), count),
            _sequences(batch.base_sequence, count),
            pa.repeat(pa.scalar(first_delta, pa.int32()), count),
            pa.repeat(pa.scalar(batch.attributes, pa.int16()), count),
        ]
        parts.append(pa.table(columns, schema=DATA_SCHEMA))
        first_delta += count
    return pa.concat_tables(parts)


def _sequences(base_sequence: int, count: int) -> pa.Array:
    """Sequences from `base_sequence` on; after 2,147,483,647 comes 0."""
    if base_sequence == NO_SEQUENCE:
        return pa.repeat(pa.scalar(NO_SEQUENCE, pa.int32()), count)
    counted = np.arange(base_sequence, base_sequence + count, dtype=np.int64) & 0x7FFFFFFF
    return pa.array(counted.astype(np.int32))
