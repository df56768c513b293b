"""An Arrow table cut into batches per partition, and the future of the whole. Pure.

No row is copied by itself: partitions come from one hash of the key column, rows are gathered once, and
batches are slices. Rows without keys are not gathered at all: slices of the table go to one partition each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.producer.batch import check_times
from stratalog.clients.producer.partitioner import Partitioner, StickyPartitioner, check_partition, partitions_for_keys
from stratalog.clients.records import UNKNOWN_OFFSET, Delivery, OffsetRange, Piece, TableMetadata
from stratalog.storage.errors import InvalidRecordError, RecordTooLargeError, StratalogError
from stratalog.storage.records import PAYLOAD_SCHEMA, TopicPartition, record_sizes

NO_PARTITION = -1

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TablePart:
    """One batch of a table: rows of `PAYLOAD_SCHEMA` for one partition."""

    topic_partition: TopicPartition
    payload: pa.Table
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Target:
    """The topic of a table, and how its rows without a partition are spread; `available` partitions have a leader."""

    topic: str
    partition_count: int
    available: Sequence[int]
    partitioner: Partitioner
    max_request_size: int

    def stick(self, partitioner: StickyPartitioner, size_bytes: int) -> int:
        """The partition of a slice of rows without keys: one for all, since every further partition is a file more."""
        if size_bytes >= partitioner.batch_size:
            return partitioner.next_of_round(self.topic, self.partition_count, self.available)
        chosen = partitioner.partition(self.topic, None, self.partition_count, self.available)
        partitioner.appended(self.topic, chosen, size_bytes)
        return chosen


def table_parts(
    topic: str,
    payload: pa.Table,
    partition_column: pa.ChunkedArray | None,
    *,
    partition_count: int,
    available: Sequence[int],
    partitioner: Partitioner,
    max_request_size: int,
    now_ms: int,
) -> list[TablePart]:
    """Batches of at most about `max_request_size` bytes, in row order within a partition.

    Raises RecordTooLargeError naming the row, UnknownTopicOrPartitionError naming the partition,
    InvalidRecordError when `partition_column` holds no integers.
    """
    if payload.num_rows == 0:
        return []
    payload = _with_times(payload, now_ms)
    sizes = record_sizes(payload)
    _check_sizes(sizes, max_request_size)
    target = _Target(topic, partition_count, available, partitioner, max_request_size)
    if (
        isinstance(partitioner, StickyPartitioner)
        and partition_column is None
        and payload["key"].null_count == payload.num_rows
    ):
        return _whole_slices(payload, sizes, target, partitioner)
    partitions = _explicit_partitions(partition_column, payload.num_rows, partition_count)
    _choose_rest(partitions, payload, sizes, target)
    return _cut(topic, payload, sizes, partitions, max_request_size)


def _with_times(payload: pa.Table, now_ms: int) -> pa.Table:
    """InvalidTimestampError for a time that a single record could not have; a null one is now."""
    times = payload["timestamp"]
    check_times(times)
    if times.null_count == 0:
        return payload
    now = pa.scalar(now_ms, times.type)
    filled = pa.repeat(now, len(times)) if times.null_count == len(times) else pc.fill_null(times, now)
    return payload.set_column(0, PAYLOAD_SCHEMA.field(0), filled)


def _check_sizes(sizes: IntArray, max_request_size: int) -> None:
    largest = int(sizes.argmax())
    if sizes[largest] > max_request_size:
        raise RecordTooLargeError(
            f"row {largest}: The message is {sizes[largest]} bytes when serialized which is larger than "
            f"{max_request_size}, which is the value of the max.request.size configuration."
        )


def _explicit_partitions(column: pa.ChunkedArray | None, row_count: int, partition_count: int) -> IntArray:
    if column is None:
        return np.full(row_count, NO_PARTITION, np.int64)
    if not pa.types.is_integer(column.type):
        raise InvalidRecordError(f"column 'partition' is {column.type}, needed int32")
    bounds = pc.min_max(column)
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None:
            check_partition(bound, partition_count)
    partitions: IntArray = pc.fill_null(column.cast(pa.int64()), NO_PARTITION).to_numpy().copy()
    return partitions


def _choose_rest(partitions: IntArray, payload: pa.Table, sizes: IntArray, target: _Target) -> None:
    """Fill in the partitions that are not explicit: a column at a time by key hash, the rest by the partitioner."""
    keys, partitioner = payload["key"], target.partitioner
    open_rows = partitions == NO_PARTITION
    if isinstance(partitioner, StickyPartitioner) and keys.null_count < len(keys) and open_rows.any():
        np.copyto(partitions, partitions_for_keys(keys, target.partition_count), where=open_rows)
    rows = np.flatnonzero(partitions == NO_PARTITION)
    if not rows.size:
        return
    if isinstance(partitioner, StickyPartitioner):
        row_sizes_left = sizes[rows]
        for start, stop in _even_slices(row_sizes_left, target.max_request_size):
            partitions[rows[start:stop]] = target.stick(partitioner, int(row_sizes_left[start:stop].sum()))
        return
    for row in rows:
        key = keys[row].as_py()
        partitions[row] = partitioner.partition(target.topic, key, target.partition_count, target.available)
        partitioner.appended(target.topic, int(partitions[row]), int(sizes[row]))


def _whole_slices(
    payload: pa.Table, sizes: IntArray, target: _Target, partitioner: StickyPartitioner
) -> list[TablePart]:
    parts = []
    for start, stop in _even_slices(sizes, target.max_request_size):
        size_bytes = int(sizes[start:stop].sum())
        topic_partition = TopicPartition(target.topic, target.stick(partitioner, size_bytes))
        parts.append(TablePart(topic_partition, payload.slice(start, stop - start), size_bytes))
    return parts


def _cut(
    topic: str, payload: pa.Table, sizes: IntArray, partitions: IntArray, max_request_size: int
) -> list[TablePart]:
    order = np.argsort(partitions, kind="stable")
    if partitions[0] != partitions[-1] or (np.diff(partitions) != 0).any():
        payload, sizes, partitions = payload.take(pa.array(order)), sizes[order], partitions[order]
    firsts = np.flatnonzero(np.diff(partitions, prepend=-1))
    parts = []
    for first, end in zip(firsts, [*firsts[1:], len(partitions)], strict=True):
        topic_partition = TopicPartition(topic, int(partitions[first]))
        for start, stop in _slices(sizes[first:end], max_request_size):
            rows = payload.slice(int(first) + start, stop - start)
            parts.append(TablePart(topic_partition, rows, int(sizes[first + start : first + stop].sum())))
    return parts


def _even_slices(sizes: IntArray, max_bytes: int) -> list[tuple[int, int]]:
    """As `_slices`, about equally large: a large batch and a tiny one cost more than two halves."""
    total_bytes = int(sizes.sum())
    count = max(1, -(-total_bytes // max_bytes))
    return _slices(sizes, min(max_bytes, -(-total_bytes // count) + int(sizes.max())))


def _slices(sizes: IntArray, max_bytes: int) -> list[tuple[int, int]]:
    """Half-open row ranges of at most `max_bytes`; each holds a row at least."""
    ends = np.cumsum(sizes)
    slices, start = [], 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
        slices.append((start, stop))
        start = stop
    return slices


@dataclass(frozen=True, slots=True)
class _BatchRange:
    """The records `[start, end)` of a batch; a batch may hold rows of several tables."""

    partition: int
    delivery: Delivery
    start: int
    end: int

    def pieces(self) -> list[Piece]:
        """The outcomes of these records, in their order."""
        found = [p for p in self.delivery.pieces if p.first_index < self.end and self.start < p.first_index + p.count]
        return sorted(found, key=lambda piece: piece.first_index)

    def range_of(self, piece: Piece) -> OffsetRange:
        first, end = max(self.start, piece.first_index), min(self.end, piece.first_index + piece.count)
        known = piece.base_offset != UNKNOWN_OFFSET
        base_offset = piece.base_offset + first - piece.first_index if known else UNKNOWN_OFFSET
        return OffsetRange(self.partition, base_offset, base_offset + end - first - 1)


class TableDelivery:
    """Collects the outcomes of a table's batches into one future. Thread-safe."""

    def __init__(self, topic: str, record_count: int) -> None:
        self.future: Future[TableMetadata] = Future()
        self._topic = topic
        self._record_count = record_count
        self._lock = threading.Lock()
        self._batch_ranges: list[_BatchRange] = []
        self._error: StratalogError | None = None
        self._missing = 1

    def add(self, topic_partition: TopicPartition, delivery: Delivery, first_index: int, count: int) -> None:
        """Add `count` records of one more batch, from `first_index` on."""
        with self._lock:
            self._missing += 1
            part = _BatchRange(topic_partition.partition, delivery, first_index, first_index + count)
            self._batch_ranges.append(part)
        delivery.on_done(self.end)

    def fail(self, error: StratalogError) -> None:
        """The rest of the table cannot be sent; the future completes after what was sent."""
        self._error = error

    def end(self) -> None:
        """One batch is done, or the last one was added; with everything done the future completes."""
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        error = self._error or next((p.error for each in self._batch_ranges for p in each.pieces() if p.error), None)
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(TableMetadata(self._topic, self._record_count, self._ranges()))

    def _ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(each.range_of(piece) for each in self._batch_ranges for piece in each.pieces())
