"""A producer's batch for one partition, from the first record appended to its final outcome. Pure.

Single records are collected in lists and become an Arrow payload at the first send, but for a batch of one record
without headers; rows of tables come as payloads and are concatenated without a copy. The sequence is assigned at the
first send and stays with the batch, so that the broker recognises a retry (promise 20).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.records import UNKNOWN_OFFSET, Delivery, Piece
from stratalog.replication.requests.groups import NO_LEADER_EPOCH
from stratalog.storage.errors import InvalidTimestampError, StratalogError
from stratalog.storage.records import (
    HEADER_OVERHEAD_BYTES,
    HEADERS_TYPE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PAYLOAD_SCHEMA,
    RECORD_OVERHEAD_BYTES,
    TIMESTAMP_MS_LIMIT,
    Header,
    OneRecord,
    TopicPartition,
)

Headers = Sequence[Header]


def checked_time(timestamp_ms: int) -> int:
    """The time of a record, as every way into a topic takes it. InvalidTimestampError, in Kafka's words.

    Source: `org.apache.kafka.clients.producer.ProducerRecord`.
    """
    if timestamp_ms < 0:
        raise InvalidTimestampError(
            f"Invalid timestamp: {timestamp_ms}. Timestamp should always be non-negative or null."
        )
    if timestamp_ms > TIMESTAMP_MS_LIMIT:
        raise InvalidTimestampError(f"timestamp {timestamp_ms} ms is outside ±{TIMESTAMP_MS_LIMIT} ms")
    return timestamp_ms


def check_times(times: pa.Array | pa.ChunkedArray) -> None:
    """The same of a column of timestamps of any unit. InvalidTimestampError."""
    bounds = pc.min_max(times.cast(pa.int64()))
    per_ms = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[times.type.unit]
    factor = 1_000 if times.type.unit == "s" else 1
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None:
            checked_time(bound * factor // per_ms)


_Rows = tuple[list[int | None], list[bytes | None], list[bytes | None], list[Headers | None]]
"""Timestamps, keys, values and headers."""

_TIMESTAMP = PAYLOAD_SCHEMA.field("timestamp").type
_BINARY = PAYLOAD_SCHEMA.field("value").type


def record_size_bytes(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """The size of a record as `batch.size`, `max.request.size` and `buffer.memory` count it, and brokers do."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        size += sum(HEADER_OVERHEAD_BYTES + len(k.encode()) + (len(v) if v else 0) for k, v in headers)
    return size


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """A batch under way. `number` orders the batches of one partition; `attempts` counts sends, the last of them to the
    leader of `leader_epoch`."""

    topic_partition: TopicPartition
    number: int
    created_ms: int
    delivery: Delivery = field(default_factory=Delivery)
    first_index: int = 0
    record_count: int = 0
    size_bytes: int = 0
    payload: pa.Table | OneRecord | None = None
    closed: bool = False
    done: bool = False
    sequence: int = NO_SEQUENCE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    attempts: int = 0
    sent_ms: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    stored_before: int = 0
    retry_at_ms: int = 0
    _tables: list[pa.Table] = field(default_factory=list)
    _rows: _Rows = field(default_factory=lambda: ([], [], [], []))

    @property
    def order(self) -> tuple[int, int]:
        """Batches of one partition are stored in this order."""
        return self.number, self.first_index

    @property
    def is_of_tables(self) -> bool:
        """True when it holds rows of tables: it does not linger, and single records do not join it."""
        return bool(self._tables)

    def has_room(self, size_bytes: int, limit_bytes: int) -> bool:
        """True when a record of `size_bytes` may still join; the first one always may."""
        return not self.closed and (self.record_count == 0 or self.size_bytes + size_bytes <= limit_bytes)

    def append_payload(self, payload: pa.Table, size_bytes: int) -> int:
        """Add rows of `PAYLOAD_SCHEMA`; the index of the first in the batch."""
        first = self.record_count
        self._tables.append(payload)
        self.record_count = self.delivery.record_count = first + payload.num_rows
        self.size_bytes += size_bytes
        return first

    def append(
        self, timestamp_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers | None, size_bytes: int
    ) -> int:
        """Add a record; its index in the batch."""
        timestamps, keys, values, header_lists = self._rows
        timestamps.append(timestamp_ms)
        keys.append(key)
        values.append(value)
        header_lists.append(headers)
        self.record_count += 1
        self.size_bytes += size_bytes
        self.delivery.record_count = self.record_count
        return self.record_count - 1

    def close(self) -> None:
        """No more records: build the payload. Does nothing the second time."""
        self.closed = True
        if self.payload is None:
            self.payload = pa.concat_tables(self._tables) if self._tables else _payload(*self._rows)
            self._tables, self._rows = [], ([], [], [], [])

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Two halves of a batch that the broker refused as too large; sequences and the delivery carry over."""
        middle = self.record_count // 2
        return self._part(0, middle), self._part(middle, self.record_count)

    def _part(self, start: int, end: int) -> ProducerBatch:
        assert isinstance(self.payload, pa.Table)
        has_sequence = self.sequence != NO_SEQUENCE
        return ProducerBatch(
            self.topic_partition,
            self.number,
            self.created_ms,
            self.delivery,
            self.first_index + start,
            record_count=end - start,
            size_bytes=self.size_bytes * end // self.record_count - self.size_bytes * start // self.record_count,
            payload=self.payload.slice(start, end - start),
            closed=True,
            sequence=(self.sequence + start) & 0x7FFFFFFF if has_sequence else NO_SEQUENCE,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            attempts=self.attempts,
        )

    def outcome(self, base_offset: int, error: StratalogError | None) -> Piece:
        """The outcome of this batch, as a piece of its delivery."""
        return Piece(self.first_index, self.record_count, UNKNOWN_OFFSET if error else base_offset, error)


def _payload(
    timestamps: list[int | None], keys: list[bytes | None], values: list[bytes | None], headers: list[Headers | None]
) -> pa.Table | OneRecord:
    if len(values) == 1 and not headers[0]:
        return OneRecord(timestamps[0], keys[0], values[0])
    columns = [
        _timestamps(timestamps),
        pa.array(keys, _BINARY),
        pa.array(values, _BINARY),
        _headers(headers) if any(headers) else pa.nulls(len(headers), HEADERS_TYPE),
    ]
    return pa.Table.from_arrays(columns, schema=PAYLOAD_SCHEMA)


def _timestamps(cells: list[int | None]) -> pa.Array:
    try:
        return pa.Array.from_buffers(_TIMESTAMP, len(cells), [None, pa.py_buffer(np.array(cells, np.int64))])
    except TypeError:  # one of them is absent
        return pa.array(cells, _TIMESTAMP)


def _headers(headers: list[Headers | None]) -> pa.Array:
    return pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS_TYPE)
