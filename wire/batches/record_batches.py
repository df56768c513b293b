"""Kafka's record batches and stratalog's values: what producers send, and rows of a log. Pure.

Records are columns all the way (`columns`). The batches of a read are written all at once, so small ones cost little
more than large ones. `aiokafka.record` makes an object of each record, decompresses without a bound and reads beyond a
broken record; so it is only what the tests compare with. Figures: docs/measurements.md.

Source: Kafka's `LogValidator`, `DefaultRecordBatch`. A header's key that is not UTF-8 is refused, since Arrow's strings
are UTF-8; Kafka keeps it and Java clients read it with replacements. So is a batch that decompresses beyond a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.codecs import NO_COMPRESSION
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PAYLOAD_SCHEMA,
    TRANSACTIONAL_ATTRIBUTE,
    NewRecordBatch,
)
from stratalog.storage.topic_config import INT_MAX
from stratalog.wire.batches.columns import Longs, Mask, RecordColumns, read_records, written_records
from stratalog.wire.batches.compression import DECOMPRESSED_BYTES_MAX, decompressed
from stratalog.wire.batches.headers import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    EncodedBatch,
    batch_bytes,
    batches_in,
    header_of,
)

NO_TIMESTAMP: Final = -1
SPLIT_BYTES: Final = 4 << 20
"""The bytes of keys and values above which a batch is encoded in pieces: a Spark sink's batch has any size, and a
consumer reads whole batches."""

_KEPT_ATTRIBUTES: Final = TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE
_RECORD_BYTES_MAX: Final = 1 << 30
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_TIMESTAMP: Final = PAYLOAD_SCHEMA.field("timestamp").type


def decode_produced(data: Buffer, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> NewRecordBatch:
    """The one batch that a producer sent for a partition.

    Raises as Kafka's broker answers: CorruptMessageError (CRC, or it does not decompress), InvalidRecordError (not one
    batch, magic 0 or 1, counts that disagree, control records, a producer id without sequence), InvalidTimestampError
    (LogAppendTime), UnsupportedCompressionTypeError, RecordTooLargeError (decompresses to more than the limit).
    """
    header = produced_header(data)
    records = _plain(header, memoryview(data), decompressed_bytes_max)
    return _new_batch(header, _payload([header], [records])[0])


def produced_header(data: Buffer) -> BatchHeader:
    """The header of a producer's batch, checked as by `decode_produced`; the records are not read."""
    try:
        headers = [header for header, _ in batches_in(data)]
    except errors.UnsupportedForMessageFormatError as reason:
        raise errors.InvalidRecordError(f"produce requests have batches of magic {MAGIC} only: {reason}") from reason
    if len(headers) != 1 or headers[0].size_bytes != len(data):
        raise errors.InvalidRecordError(
            f"a produce request has one whole batch a partition, found {len(headers)} "
            f"with {sum(header.size_bytes for header in headers)} of {len(data)} bytes"
        )
    _check_produced(headers[0])
    return headers[0]


def decode_group(group: Sequence[Buffer]) -> list[NewRecordBatch | StratalogError]:
    """As `decode_produced`, for several batches whose headers `produced_header` has checked; refused one by one.

    Their payloads are slices of one table.
    """
    headers = [header_of(data) for data in group]
    try:
        buffers = [_plain(h, memoryview(data), DECOMPRESSED_BYTES_MAX) for h, data in zip(headers, group, strict=True)]
        payload, times = _payload(headers, buffers)
    except StratalogError:
        return [_decoded_or_refused(data) for data in group]
    ends = list(accumulate(header.record_count for header in headers))
    starts = [0, *ends[:-1]]
    least, most = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
    bytes_per_sent = payload.nbytes / sum(map(len, buffers))
    decoded: list[NewRecordBatch | StratalogError] = []
    for header, buffer, start, first, last in zip(headers, buffers, starts, least.tolist(), most.tolist(), strict=True):
        batch = _new_batch(header, payload.slice(start, header.record_count))
        size_bytes = round(bytes_per_sent * len(buffer))
        if NO_TIMESTAMP not in (first, last):
            batch.is_measured(size_bytes, (first, last))
        elif first == last:
            batch.is_measured(size_bytes, (None, None))
        decoded.append(batch)
    return decoded


def _decoded_or_refused(data: Buffer) -> NewRecordBatch | StratalogError:
    try:
        return decode_produced(data)
    except StratalogError as refusal:
        return refusal.as_value()


def _payload(headers: list[BatchHeader], buffers: list[bytes]) -> tuple[pa.Table, Longs]:
    """The records of some batches as one payload, and their timestamps in ms, -1 for none."""
    counts = [header.record_count for header in headers]
    columns = read_records(buffers, counts)
    times = columns.timestamp_deltas_ms + np.repeat([header.base_timestamp_ms for header in headers], counts)
    contents = [columns.keys, columns.values, columns.headers]
    return pa.Table.from_arrays([_timestamps(times), *contents], schema=PAYLOAD_SCHEMA), times


def _new_batch(header: BatchHeader, payload: pa.Table) -> NewRecordBatch:
    return NewRecordBatch(
        payload,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        attributes=header.attributes & _KEPT_ATTRIBUTES,
        compression_type=header.compression_type,
        sent_bytes=header.size_bytes,
    )


def _check_produced(header: BatchHeader) -> None:
    """Kafka's `LogValidator.validateBatch` for batches of clients."""
    count = header.last_offset_delta + 1
    if not 0 < header.record_count == count:
        raise errors.InvalidRecordError(
            f"offsets 0 to {header.last_offset_delta} and {header.record_count} records disagree"
        )
    if header.is_control:
        raise errors.InvalidRecordError("clients do not write control records")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise errors.InvalidRecordError(f"producer {header.producer_id}: sequence {header.base_sequence} < 0")
    if header.timestamp_type == LOG_APPEND_TIME:
        raise errors.InvalidTimestampError("a producer does not set the timestamp type LogAppendTime")


def _plain(header: BatchHeader, batch: memoryview, decompressed_bytes_max: int) -> bytes:
    compression_type = header.compression_type
    if compression_type == NO_COMPRESSION:
        return bytes(batch[HEADER_BYTES:])
    return decompressed(batch[HEADER_BYTES:], compression_type, decompressed_bytes_max)


def _timestamps(times: Longs) -> pa.Array:
    absent = times == NO_TIMESTAMP
    if absent.any():
        return pa.array(times, mask=absent).cast(_TIMESTAMP)
    return pa.Array.from_buffers(_TIMESTAMP, len(times), [None, pa.py_buffer(times)])


def encode_batch(batch: NewRecordBatch) -> bytes:
    """A batch as a producer sends it: base offset 0, no leader epoch, compressed as it says.

    Raises UnsupportedCompressionTypeError, and RecordTooLargeError for 1 GiB or more.
    """
    payload, count = batch.payload, batch.record_count
    if count == 0:
        raise errors.InvalidRecordError("a batch has at least one record")
    times = _milliseconds(payload["timestamp"])
    if batch.size_bytes >= _RECORD_BYTES_MAX:
        raise errors.RecordTooLargeError(f"a batch of {batch.size_bytes} bytes is not below {_RECORD_BYTES_MAX}")
    contents = [_whole(payload[name]) for name in ("key", "value", "headers")]
    offset_deltas = np.arange(count, dtype=np.int64)
    written = _record_bytes(written_records(RecordColumns(times - times[0], offset_deltas, *contents)))
    header = BatchHeader(
        0, 0, NO_LEADER_EPOCH, MAGIC, 0, batch.attributes & _KEPT_ATTRIBUTES | batch.timestamp_type << 3, count - 1,
        int(times[0]), int(times.max()), batch.producer_id, batch.producer_epoch, batch.base_sequence, count,
    )  # fmt: skip
    return batch_bytes(header, written.data, batch.compression_type)


def encode_rows(
    rows: pa.Table, compression_type: str = NO_COMPRESSION, split_bytes: int = SPLIT_BYTES
) -> list[EncodedBatch]:
    """Rows of a log, of `READ_SCHEMA` and in order of offset, in the batches that they were appended in.

    A batch keeps its base offset, base sequence and leader epoch when rows at its beginning were compacted away or not
    read. A row that the cleaner emptied, to keep a producer's last sequence, is no record; a batch of such rows has no
    records, as in Kafka. Rows 5, 6 and 9 of a batch of 4 to 9 give base offset 4 and last offset delta 5.
    A batch with more than `split_bytes` of keys and values becomes several, each with a base offset of its own.
    """
    if rows.num_rows == 0:
        return []
    size_bytes = rows.nbytes
    if size_bytes >= _RECORD_BYTES_MAX and rows.num_rows > 1:
        middle = rows.num_rows // 2
        halves = (rows.slice(0, middle), rows.slice(middle))
        return [batch for half in halves for batch in encode_rows(half, compression_type, split_bytes)]
    return _RowBatches.of(rows, split_bytes if size_bytes > split_bytes else None).encoded(rows, compression_type)


def part_of(rows: pa.Table, max_bytes: int) -> pa.Table:
    """The first rows, of about `max_bytes` and up to the end of a batch: a read returns whole files.

    1,000 rows of 100,000 bytes in batches of 100, of which 25,000 bytes are wanted: the first 300 rows.
    """
    size_bytes = rows.nbytes
    if size_bytes <= 2 * max_bytes:
        return rows
    last = min(rows.num_rows - 1, max(0, rows.num_rows * max_bytes // size_bytes))
    bases = rows["batch_base_offset"].to_numpy()
    return rows.slice(0, int(np.searchsorted(bases, bases[last], side="right")))


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> EncodedBatch:
    """A batch without records that stands for the offsets `[base_offset, end_offset)`, at most 2^31 - 1 of them."""
    end_offset = min(end_offset, base_offset + INT_MAX)
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, 0, end_offset - 1 - base_offset,
        NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip
    return EncodedBatch(base_offset, end_offset - 1, batch_bytes(header, memoryview(b""), NO_COMPRESSION))


@dataclass(frozen=True, slots=True, eq=False)
class _RowBatches:
    """The batches of some rows.

    starts     the first row of each batch
    bases      the base offset of each batch
    offsets    the offset of each row
    is_record  of each row: not emptied by the cleaner
    """

    starts: Longs
    bases: Longs
    offsets: Longs
    is_record: Mask

    @staticmethod
    def of(rows: pa.Table, split_bytes: int | None) -> _RowBatches:
        batch_bases = _numbers(rows["batch_base_offset"])
        is_first = np.ones(rows.num_rows, np.bool_)
        is_first[1:] = batch_bases[1:] != batch_bases[:-1]
        offsets, begins = _numbers(rows["offset"]), is_first
        if split_bytes is not None:
            begins = _split(rows, is_first, split_bytes)
        starts = np.flatnonzero(begins)
        bases = np.where(is_first[starts], batch_bases[starts], offsets[starts])
        is_control = (_numbers(rows["attributes"]) & CONTROL_ATTRIBUTE) != 0
        is_record = ~is_control
        if is_control.any():
            is_record |= rows["key"].is_valid().to_numpy()
        return _RowBatches(starts, bases, offsets, is_record)

    def encoded(self, rows: pa.Table, compression_type: str) -> list[EncodedBatch]:
        counts = np.diff(self.starts, append=rows.num_rows)
        record_ends = np.cumsum(np.add.reduceat(self.is_record, self.starts, dtype=np.int64))
        times = _milliseconds(rows["timestamp"])
        first_times, last_times = self._times(times)
        timestamp_deltas = times - np.repeat(first_times, counts)
        offset_deltas = self.offsets - np.repeat(self.bases, counts)
        contents = [_whole(rows[name]) for name in ("key", "value", "headers")]
        columns = RecordColumns(timestamp_deltas, offset_deltas, *contents)
        if not self.is_record.all():
            kept = pa.array(self.is_record)
            deltas = timestamp_deltas[self.is_record], offset_deltas[self.is_record]
            columns = RecordColumns(*deltas, *[cells.filter(kept) for cells in contents])
        records = _record_bytes(written_records(columns))
        headers = self._headers(rows, first_times, last_times, record_ends)
        encoded, first = [], 0
        for header, end in zip(headers, record_ends.tolist(), strict=True):
            data = records.data[records.offsets[first] : records.offsets[end]]
            batch = batch_bytes(header, data, compression_type if header.record_count else NO_COMPRESSION)
            encoded.append(EncodedBatch(header.base_offset, header.last_offset, batch))
            first = end
        return encoded

    def _times(self, times: Longs) -> tuple[Longs, Longs]:
        """Base and largest timestamp of each batch; those of records alone, where there are any."""
        if self.is_record.all():
            return times[self.starts], np.maximum.reduceat(times, self.starts)
        ends = np.append(self.starts[1:], len(times))
        first_times, last_times = [], []
        for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True):
            of_records = times[start:end][self.is_record[start:end]]
            first_times.append(of_records[0] if len(of_records) else NO_TIMESTAMP)
            last_times.append((of_records if len(of_records) else times[start:end]).max())
        return np.array(first_times, np.int64), np.array(last_times, np.int64)

    def _headers(self, rows: pa.Table, first_times: Longs, last_times: Longs, record_ends: Longs) -> list[BatchHeader]:
        starts = self.starts
        lasts = np.append(starts[1:], rows.num_rows) - 1
        sequences = _numbers(rows["sequence"])[starts].astype(np.int64)
        before = self.offsets[starts] - self.bases
        base_sequences = np.where(sequences < 0, NO_SEQUENCE, (sequences - before) & _SEQUENCE_MASK)
        attributes = _numbers(rows["attributes"])
        record_counts = np.diff(record_ends, prepend=0)
        if not self.is_record.all():  # an emptied row is marked as control, its batch is not
            attributes = np.where(self.is_record, attributes, attributes & ~CONTROL_ATTRIBUTE)
        of_batches = np.bitwise_or.reduceat(attributes, starts).astype(np.int64)
        types = _numbers(rows["timestamp_type"])[starts].astype(np.int64)
        fields = (
            self.bases,
            np.zeros(len(starts), np.int64),
            _numbers(rows["leader_epoch"])[starts],
            np.full(len(starts), MAGIC),
            np.zeros(len(starts), np.int64),
            (of_batches & _KEPT_ATTRIBUTES) | (types << 3),
            self.offsets[lasts] - self.bases,
            first_times,
            last_times,
            _numbers(rows["producer_id"])[starts],
            _numbers(rows["producer_epoch"])[starts],
            base_sequences,
            record_counts,
        )
        return [BatchHeader._make(row) for row in zip(*[field.tolist() for field in fields], strict=True)]


class _RecordBytes(NamedTuple):
    """Records one after the other; record i lies at `[offsets[i], offsets[i + 1])`."""

    data: memoryview
    offsets: npt.NDArray[np.int32]


def _record_bytes(written: pa.Array) -> _RecordBytes:
    _, offsets, data = written.buffers()
    return _RecordBytes(memoryview(data or b""), np.frombuffer(offsets, np.int32)[written.offset :])


def _split(rows: pa.Table, is_first: Mask, split_bytes: int) -> Mask:
    """The rows at which batches begin, when those of more than `split_bytes` of keys and values are cut there."""
    sizes = sum(pc.binary_length(rows[name]).fill_null(0).to_numpy().astype(np.int64) for name in ("key", "value"))
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(is_first)
    in_batch = before - np.repeat(before[starts], np.diff(starts, append=len(before)))
    begins: Mask = is_first | (np.diff(in_batch // split_bytes, prepend=0) > 0)
    return begins


def _milliseconds(column: pa.ChunkedArray) -> Longs:
    times = column.cast(pa.int64())
    return _numbers(times.fill_null(NO_TIMESTAMP) if times.null_count else times)


def _numbers(column: pa.ChunkedArray) -> Longs:
    numbers: Longs = _whole(column).to_numpy()
    return numbers


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
