"""Rows of a sink task as records of partitions: checked columns, chosen partitions, batches of a legal size. Pure.

Partitions are chosen deterministically: the same rows in the same order go to the same partitions when Spark runs a
task again. A null key sticks to a partition for `batch.size` bytes, then to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.producer.batch import check_times
from stratalog.clients.producer.partitioner import check_partition, partitions_for_keys
from stratalog.clients.spark.conditions import null_topic_in_data
from stratalog.storage.errors import InvalidRecordError, RecordTooLargeError
from stratalog.storage.records import (
    CREATE_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PAYLOAD_FIELDS,
    TIMESTAMP_MS_LIMIT,
    TRANSACTIONAL_ATTRIBUTE,
    DataRow,
    FewRows,
    NewRecordBatch,
    as_payload,
    record_sizes,
)

IntArray = npt.NDArray[np.int64]


class ProducerIdAndEpoch(NamedTuple):
    """The transactional producer of a batch's records; they have no sequences, since several tasks write them."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def attributes(self) -> int:
        """Those of the records."""
        return 0 if self == NO_PRODUCER else TRANSACTIONAL_ATTRIBUTE


NO_PRODUCER = ProducerIdAndEpoch()

HEADERS_SQL_TYPE = "array<struct<key:string,value:binary>>"
SINK_COLUMNS: Mapping[str, Sequence[str]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_SQL_TYPE,),
    "partition": ("int",),
}
"""Columns that the sink reads, with their legal SQL types. Other columns are ignored."""


def check_columns(types: Mapping[str, str], topic: str | None, timestamp_column: str | None = None) -> None:
    """Check a query's columns (name -> SQL type) in the connector's order. Raises InvalidRecordError, in its words."""
    if topic is None and "topic" not in types:
        raise InvalidRecordError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise InvalidRecordError("Required attribute 'value' not found. Give one column the name value.")
    if timestamp_column is not None and timestamp_column not in types:
        raise InvalidRecordError(
            f"Required attribute '{timestamp_column}' not found. Add the column, or leave out "
            "stratalog.timestamp.column."
        )
    for name, allowed in SINK_COLUMNS.items():
        if name == "topic" and topic is not None:
            continue
        _check_type(name, types.get(name), allowed)
    if timestamp_column is not None:
        _check_type(timestamp_column, types[timestamp_column], ("timestamp",))


def _check_type(name: str, found: str | None, allowed: Sequence[str]) -> None:
    if found is not None and found not in allowed:
        raise InvalidRecordError(
            f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(allowed)}. Cast it."
        )


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Rows for one topic. `partition` is the explicit choice (null: none); `payload` has `PAYLOAD_SCHEMA`."""

    topic: str
    payload: pa.Table
    partition: pa.Array


def rows_by_topic(
    batch: pa.RecordBatch, topic: str | None, timestamp_column: str | None, now_ms: int
) -> Iterator[SinkRows]:
    """A record batch of the query, by topic in order of first appearance.

    A null topic or header raises InvalidRecordError, a time before 1970 InvalidTimestampError; a null time is now.
    """
    payload = _payload(pa.Table.from_batches([batch]), timestamp_column, now_ms)
    names = batch.schema.names
    explicit = batch["partition"] if "partition" in names else pa.nulls(batch.num_rows)
    explicit = explicit.cast(pa.int64())
    if topic is not None:
        yield SinkRows(topic, payload, explicit)
        return
    topics = batch["topic"]
    if topics.null_count:
        raise null_topic_in_data()
    for each in pc.unique(topics).to_pylist():
        rows = pc.equal(topics, each)
        yield SinkRows(each, payload.filter(rows), explicit.filter(rows))


def _payload(table: pa.Table, timestamp_column: str | None, now_ms: int) -> pa.Table:
    names = [name for name in ("key", "value", "headers") if name in table.column_names]
    payload = as_payload(table.select(names))  # a producer checks cells before times, too
    kind = PAYLOAD_FIELDS[0].type
    if timestamp_column is None:
        times = pa.repeat(pa.scalar(now_ms, kind), table.num_rows)
    else:
        check_times(table[timestamp_column])
        times = table[timestamp_column].cast(kind, safe=False)
        times = times.fill_null(pa.scalar(now_ms, kind)) if times.null_count else times
    return payload.set_column(0, PAYLOAD_FIELDS[0], times)


class StickyPartitions:
    """Partitions for the null keys of one task: one after the other, `batch_size` bytes each, from `first` on."""

    def __init__(self, batch_size: int, first: int) -> None:
        self._batch_size = max(1, batch_size)
        self._first = first
        self._sent_bytes: dict[str, int] = {}

    def choose(self, rows: SinkRows, sizes: IntArray, partition_count: int) -> IntArray:
        """The partition of every row: the explicit one, the key's hash, or the sticky one.

        Raises UnknownTopicOrPartitionError when an explicit one does not exist.
        """
        chosen = partitions_for_keys(rows.payload["key"], partition_count).copy()
        without_key = np.flatnonzero(chosen < 0)
        if rows.partition.null_count < len(rows.partition):
            explicit = rows.partition.fill_null(-1).to_numpy()
            given = rows.partition.is_valid().to_numpy(zero_copy_only=False)
            for partition in np.unique(explicit[given]):
                check_partition(int(partition), partition_count)
            chosen[given] = explicit[given]
            without_key = np.flatnonzero((chosen < 0) & ~given)
        if len(without_key):
            chosen[without_key] = self._stick(rows.topic, sizes[without_key], partition_count)
        return chosen

    def _stick(self, topic: str, sizes: IntArray, partition_count: int) -> IntArray:
        before = self._sent_bytes.get(topic, 0)
        after = before + np.cumsum(sizes)
        self._sent_bytes[topic] = int(after[-1])
        turns: IntArray = (after - sizes) // self._batch_size
        return (self._first + turns) % partition_count


def split_by_partition(payload: pa.Table, partitions: IntArray) -> Iterator[tuple[int, pa.Table]]:
    """The rows of every partition, in their order: (partition, payload)."""
    if len(partitions) == 0:
        return
    # numpy sorts 16-bit numbers by radix, which is faster
    keys = partitions.astype(np.int16) if int(partitions.max()) <= np.iinfo(np.int16).max else partitions
    order = np.argsort(keys, kind="stable")
    ordered = partitions[order]
    taken = payload if ordered[0] == ordered[-1] else payload.take(pa.array(order))
    starts: list[int] = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        yield int(ordered[start]), taken.slice(start, end - start)


def few_rows_of(payload: pa.Table, counts: Sequence[int], of: ProducerIdAndEpoch) -> list[FewRows | None]:
    """The next `counts[0]` rows, then the next `counts[1]` and so on, each as the rows of one batch's file.

    None for those with headers or a timestamp that cannot be stored.
    """
    headers, keys, values = payload["headers"], payload["key"].to_pylist(), payload["value"].to_pylist()
    times: list[int | None] = payload["timestamp"].cast(pa.int64()).to_pylist()
    producer = (CREATE_TIME, *of, NO_SEQUENCE, of.attributes)
    found: list[FewRows | None] = []
    start = 0
    for count in counts:
        at, start = start, start + count
        has_headers = headers.null_count < len(headers) and headers.slice(at, count).null_count < count
        is_wrong = any(abs(at_ms) > TIMESTAMP_MS_LIMIT for at_ms in times[at:start] if at_ms is not None)
        if has_headers or is_wrong:
            found.append(None)
        else:
            cells = zip(times[at:start], keys[at:start], values[at:start], strict=True)
            found.append(tuple([DataRow(*row, *producer, delta) for delta, row in enumerate(cells)]))
    return found


def record_batches(payload: pa.Table, max_bytes: int, producer: ProducerIdAndEpoch) -> list[NewRecordBatch]:
    """Rows of one partition as batches of at most `max_bytes`. A record above that raises RecordTooLargeError."""
    sizes = record_sizes(payload)
    largest = int(sizes.max(initial=0))
    if largest > max_bytes:
        raise RecordTooLargeError(
            f"The message is {largest} bytes when serialized which is larger than {max_bytes}, which is the value of "
            "the max.message.bytes configuration. Raise it for the topic, or write smaller records."
        )
    ends = np.cumsum(sizes)
    batches, start, sent = [], 0, 0
    while start < payload.num_rows:
        end = int(np.searchsorted(ends, sent + max_bytes, side="right"))
        rows = payload.slice(start, end - start)
        batches.append(NewRecordBatch(rows, *producer, attributes=producer.attributes))
        start, sent = end, int(ends[end - 1])
    return batches
