"""Record batches as Arrow tables: the schema of a data file and the shape of a produce request. Pure.

A data file's rows are relative: `offset = base_offset + offset_delta`. The commit holds `base_offset`, never the
file. `batch_base` is the `offset_delta` of the first record of the producer's batch, so batch boundaries survive group
commits and merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.errors import InvalidRecordError, InvalidTimestampError

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

PAYLOAD_FIELDS = [
    pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
"""The columns that a producer fills, in order; a null timestamp means none."""

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
"""The columns of a data file, in order."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""Kafka's `TimestampType`: a record's time is its producer's, or that of the append."""
TRANSACTIONAL_ATTRIBUTE = 0x10
CONTROL_ATTRIBUTE = 0x20
"""Kafka's attribute bits: a record of a transaction, and a record that consumers do not receive."""
TIMESTAMP_MS_LIMIT = 9_223_372_036_854_775
"""The largest timestamp that can be stored: Delta keeps microseconds in 64 bits."""
SMALL_BATCH_RECORDS = 64
"""Up to this size the constant columns of a batch are cached: to make them is most of the cost of a tiny batch."""
RECORD_OVERHEAD_BYTES, HEADER_OVERHEAD_BYTES = 24, 16
"""What a record counts beside its key and value, and each header beside its name and value."""
COMBINED_ROWS = 4_096
"""Rows a batch on average below which batches are copied together before they are written."""
SEQUENCE_MASK = 0x7FFFFFFF
"""The bits of a sequence number: after 2,147,483,647 comes 0."""


class TopicPartition(NamedTuple):
    """`topic-partition`, Kafka's name for one log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class IdentifiedPartition(NamedTuple):
    """A partition of the topic with this id, not of a later topic of the same name (KIP-516).

    What is decided about a partition and acted on later carries this. A name alone is resolved once, where a request
    enters.
    """

    topic_id: str
    topic_partition: TopicPartition

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    def __str__(self) -> str:
        return str(self.topic_partition)


class Header(NamedTuple):
    """A header of a record. Several headers of one record may have the same key."""

    key: str
    value: bytes | None


class OneRecord(NamedTuple):
    """A record without headers that is a batch by itself: as columns of one cell each it would cost several times as
    much."""

    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """The size of its cells in a payload table: 8 bytes of timestamp, two offsets for each bytes cell, and 1 of
        validity for each null.

        >>> OneRecord(0, None, b"value").size_bytes
        39
        """
        absent = (self.key is None) + (self.value is None) + 1
        return 32 + absent + len(self.key or b"") + len(self.value or b"")


class DataRow(NamedTuple):
    """A row of a small data file, with the columns of `DATA_SCHEMA` but headers."""

    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    sequence: int
    attributes: int
    offset_delta: int = 0
    batch_base: int = 0


FewRows = tuple[DataRow, ...]
"""All rows of a data file, at least one, in order."""


@dataclass(frozen=True)
class NewRecordBatch:
    """One producer's batch before it has offsets. `content` has `PAYLOAD_SCHEMA` and at least one row, or is a record.

    compression_type  the producer's, in Kafka's words: none, gzip, snappy, lz4, zstd; a wish
    verified_offset   of a transactional batch: the log end when its coordinator verified that the partition is in the
                      transaction (KIP-890); -1: not verified. Never stored.
    verified_leader_epoch  the leader epoch of that log end, in which alone it counts; -1: it is a high watermark, which
                      every leader has. Never stored.
    transaction_version  of a marker: 2 when it must bump the producer's epoch (KIP-890). Never stored.
    sent_bytes        size of a batch that was received as Kafka's bytes, as compressed; 0 of any other
    """

    content: pa.Table | OneRecord
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    timestamp_type: int = CREATE_TIME
    attributes: int = 0
    compression_type: str = "none"
    verified_offset: int = -1
    transaction_version: int = 0
    sent_bytes: int = 0
    verified_leader_epoch: int = -1

    def is_measured(self, size_bytes: int, timestamp_range: tuple[int | None, int | None]) -> None:
        """Set `size_bytes` and `timestamp_range`, which a caller that made many batches at once has computed."""
        self.__dict__.update(size_bytes=size_bytes, timestamp_range=timestamp_range)

    def appended_at(self, time_ms: int) -> NewRecordBatch:
        """The batch with this time for each record, as the broker's clock gives it (`LogAppendTime`)."""
        content = self.content
        if isinstance(content, OneRecord):
            stamped: pa.Table | OneRecord = content._replace(timestamp_ms=time_ms)
        else:
            times = pa.repeat(pa.scalar(time_ms, PAYLOAD_FIELDS[0].type), content.num_rows)
            stamped = content.set_column(0, PAYLOAD_FIELDS[0], times)
        return replace(self, content=stamped, timestamp_type=LOG_APPEND_TIME)

    @cached_property
    def payload(self) -> pa.Table:
        """The records as a table."""
        return self.content if isinstance(self.content, pa.Table) else payload_table([(*self.content, None)])

    @property
    def first(self) -> OneRecord:
        """Timestamp, key and value of the first record."""
        content = self.content
        if isinstance(content, OneRecord):
            return content
        timestamp, key, value = (content[name][0] for name in ("timestamp", "key", "value"))
        return OneRecord(timestamp.value, key.as_py(), value.as_py())

    @property
    def record_count(self) -> int:
        return int(self.content.num_rows) if isinstance(self.content, pa.Table) else 1

    @property
    def lacks_a_key(self) -> bool:
        """Whether any record is without a key."""
        content = self.content
        return bool(content["key"].null_count) if isinstance(content, pa.Table) else content.key is None

    @cached_property
    def size_bytes(self) -> int:
        """Uncompressed size of the Arrow buffers that the rows use."""
        payload = self.content
        if isinstance(payload, OneRecord):
            return payload.size_bytes
        return int(payload.nbytes if payload.num_rows else payload.get_total_buffer_size())

    @cached_property
    def record_bytes(self) -> int:
        """What its records count against a limit, which does not depend on how columns hold them."""
        content = self.content
        if isinstance(content, OneRecord):
            return RECORD_OVERHEAD_BYTES + len(content.key or b"") + len(content.value or b"")
        return int(record_sizes(content).sum())

    @property
    def message_bytes(self) -> int:
        """The size that `max.message.bytes` limits: what was sent, as in Kafka, where that is known."""
        return self.sent_bytes or self.record_bytes

    def is_above(self, limit_bytes: int) -> bool:
        """Whether its records count more than a limit. Columns have at least half of it: near it alone is counted."""
        return 2 * self.size_bytes > limit_bytes and self.record_bytes > limit_bytes

    @cached_property
    def timestamp_range(self) -> tuple[int | None, int | None]:
        """The smallest and largest timestamp in milliseconds; None when no record has one."""
        if isinstance(self.content, OneRecord):
            return self.content.timestamp_ms, self.content.timestamp_ms
        return timestamp_range(self.content["timestamp"])


def record_sizes(payload: pa.Table) -> npt.NDArray[np.int64]:
    """What every row of a payload counts against limits, in bytes.

    >>> record_sizes(payload_table([(0, b"k", None, [Header("h", b"xy")]), (0, None, b"v", None)])).tolist()
    [44, 25]
    """
    sizes: npt.NDArray[np.int64] = np.full(payload.num_rows, RECORD_OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        column = payload[name]
        if column.null_count < payload.num_rows:
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    headers = payload["headers"]
    if headers.null_count < payload.num_rows:
        whole = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
        cells = whole.flatten()
        lengths = pc.add(pc.binary_length(cells.field("key")), pc.fill_null(pc.binary_length(cells.field("value")), 0))
        rows = pc.list_parent_indices(whole).to_numpy()
        np.add.at(sizes, rows, lengths.to_numpy() + HEADER_OVERHEAD_BYTES)
    return sizes


def timestamp_range(column: pa.ChunkedArray) -> tuple[int | None, int | None]:
    """The smallest and largest of a column of timestamps, in milliseconds; None if all are null."""
    if len(column) == 1:
        only = column[0].value
        return only, only
    bounds = pc.min_max(column)
    return bounds["min"].value, bounds["max"].value


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

    Raises InvalidRecordError naming the column when its type cannot be cast, and for a header that is null.
    """
    if "value" not in table.column_names:
        raise InvalidRecordError(f"a record table needs the column 'value', found {table.column_names}")
    columns = []
    for wanted in PAYLOAD_FIELDS:
        if wanted.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, wanted.type))
            continue
        try:
            columns.append(table[wanted.name].cast(wanted.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
            raise InvalidRecordError(
                f"column '{wanted.name}' is {table[wanted.name].type}, needed {wanted.type}: {reason}"
            ) from reason
    payload = pa.table(columns, schema=PAYLOAD_SCHEMA)
    headers = payload["headers"]
    if headers.null_count < len(headers) and any(each.flatten().null_count for each in headers.chunks):
        raise InvalidRecordError("column 'headers' has a header that is null: leave it out, or give it a key")
    return payload


def data_rows(batches: Sequence[NewRecordBatch]) -> pa.Table | FewRows:
    """The rows of `data_table`; a few single records as tuples, without a table."""
    rows = []
    for delta, batch in enumerate(batches):
        if not isinstance(batch.content, OneRecord) or delta == SMALL_BATCH_RECORDS:
            return data_table(batches)
        producer = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        rows.append(DataRow(*batch.content, batch.timestamp_type, *producer, batch.attributes, delta, delta))
    return tuple(rows)


def table_of_rows(rows: Sequence[DataRow]) -> pa.Table:
    """Rows as a table of `DATA_SCHEMA`."""
    times, keys, values, types, producer_ids, epochs, sequences, attributes, deltas, bases = zip(*rows, strict=True)
    headers = [None] * len(rows)
    cells = [deltas, times, keys, values, headers, types, producer_ids, epochs, sequences, bases, attributes]
    columns = [pa.array(column, field.type) for column, field in zip(cells, DATA_SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=DATA_SCHEMA)


def data_table(batches: Sequence[NewRecordBatch]) -> pa.Table:
    """Batches as the rows of one data file: `offset_delta` counts from 0 over all of them.

    Two batches of 3 and 2 records give offset_delta 0 1 2 3 4 and batch_base 0 0 0 3 3.
    """
    if len(batches) == 1 and batches[0].record_count <= SMALL_BATCH_RECORDS:
        return _small_data_table(batches[0])
    of_batches = np.array(
        [
            (b.record_count, b.timestamp_type, b.producer_id, b.producer_epoch, b.base_sequence, b.attributes)
            for b in batches
        ]
    )
    counts, types, producer_ids, epochs, base_sequences, attributes = of_batches.T
    deltas = np.arange(counts.sum(), dtype=np.int32)
    batch_bases = (np.cumsum(counts) - counts).astype(np.int32).repeat(counts)
    base_sequences = base_sequences.astype(np.int32).repeat(counts)
    sequences = (base_sequences + (deltas - batch_bases)) & SEQUENCE_MASK  # right after an overflow, too
    sequences[base_sequences == NO_SEQUENCE] = NO_SEQUENCE
    payload = pa.concat_tables([batch.payload for batch in batches])
    if len(batches) > 1 and len(deltas) < COMBINED_ROWS * len(batches):
        payload = payload.combine_chunks()  # a Parquet writer takes several times as long for many small chunks
    columns = [
        pa.array(deltas),
        *payload.columns,
        pa.array(types.astype(np.int8).repeat(counts)),
        pa.array(producer_ids.repeat(counts)),
        pa.array(epochs.astype(np.int16).repeat(counts)),
        pa.array(sequences),
        pa.array(batch_bases),
        pa.array(attributes.astype(np.int16).repeat(counts)),
    ]
    return pa.Table.from_arrays(columns, schema=DATA_SCHEMA)


def _small_data_table(batch: NewRecordBatch) -> pa.Table:
    count = batch.record_count
    sequences = _small_repeated(NO_SEQUENCE, pa.int32(), count)
    if batch.base_sequence != NO_SEQUENCE:
        sequences = pa.array([(batch.base_sequence + i) & SEQUENCE_MASK for i in range(count)], pa.int32())
    columns = [
        _small_counted(count),
        *batch.payload.columns,
        _small_repeated(batch.timestamp_type, pa.int8(), count),
        _small_repeated(batch.producer_id, pa.int64(), count),
        _small_repeated(batch.producer_epoch, pa.int16(), count),
        sequences,
        _small_repeated(0, pa.int32(), count),
        _small_repeated(batch.attributes, pa.int16(), count),
    ]
    return pa.Table.from_arrays(columns, schema=DATA_SCHEMA)


@lru_cache(maxsize=1_024)
def _small_counted(count: int) -> pa.Array:
    return pa.array(range(count), pa.int32())


@lru_cache(maxsize=1_024)
def _small_repeated(value: int, number_type: pa.DataType, count: int) -> pa.Array:
    return pa.array([value] * count, number_type)
