"""Record batches as rows of a log, as a consumer reads them. Pure. Source: Kafka's `CompletedFetch`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stratalog.storage.files.codecs import NO_COMPRESSION
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import CONTROL_ATTRIBUTE, NO_SEQUENCE, PAYLOAD_SCHEMA, TRANSACTIONAL_ATTRIBUTE
from stratalog.wire.batches.columns import Longs, read_records
from stratalog.wire.batches.compression import DECOMPRESSED_BYTES_MAX, decompressed
from stratalog.wire.batches.headers import HEADER_BYTES, BatchHeader, Buffer, batches_in
from stratalog.wire.batches.record_batches import NO_TIMESTAMP

RECORD_BYTES_MAX = 1 << 30
"""Bytes of records that are read as one column."""
SEQUENCE_MASK = 0x7FFFFFFF
KEPT_ATTRIBUTES = TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE


def decode_rows(data: Buffer, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> pa.Table:
    """The records of a fetch response as rows of `READ_SCHEMA`, control records included.

    Raises as `batches_in`; InvalidRecordError for records that do not fit into their batch; as `decode_produced` for
    bytes that do not decompress.
    """
    groups: list[list[tuple[BatchHeader, bytes]]] = [[]]
    group_bytes = 0
    for header, batch in batches_in(data):
        if header.record_count == 0:
            continue
        records = _plain(header, batch, decompressed_bytes_max)
        if groups[-1] and group_bytes + len(records) > RECORD_BYTES_MAX:
            groups.append([])
            group_bytes = 0
        groups[-1].append((header, records))
        group_bytes += len(records)
    parts = [_rows([header for header, _ in group], [records for _, records in group]) for group in groups if group]
    return pa.concat_tables(parts) if parts else READ_SCHEMA.empty_table()


def _plain(header: BatchHeader, batch: memoryview, decompressed_bytes_max: int) -> bytes:
    records = batch[HEADER_BYTES:]
    if header.compression_type == NO_COMPRESSION:
        return bytes(records)
    return decompressed(records, header.compression_type, decompressed_bytes_max)


def _timestamps(times: Longs) -> pa.Array:
    return pa.array(times, mask=times == NO_TIMESTAMP).cast(PAYLOAD_SCHEMA.field("timestamp").type)


def _rows(headers: list[BatchHeader], buffers: list[bytes]) -> pa.Table:
    """The rows of some batches, read as if they were one."""
    columns = (np.array(values) for values in zip(*headers, strict=True))
    fields = dict(zip(BatchHeader._fields, columns, strict=True))
    counts = fields["record_count"]
    found = read_records(buffers, counts.tolist())
    base_offsets, base_sequences = np.repeat(fields["base_offset"], counts), np.repeat(fields["base_sequence"], counts)
    times = np.repeat(fields["base_timestamp_ms"], counts) + found.timestamp_deltas_ms
    is_append_time = (fields["attributes"] >> 3 & 1).astype(np.bool_)
    if is_append_time.any():
        times = np.where(np.repeat(is_append_time, counts), np.repeat(fields["max_timestamp_ms"], counts), times)
    cells = {
        "offset": base_offsets + found.offset_deltas,
        "leader_epoch": np.repeat(fields["leader_epoch"], counts),
        "timestamp": _timestamps(times),
        "key": found.keys,
        "value": found.values,
        "headers": found.headers,
        "timestamp_type": np.repeat(is_append_time, counts).astype(np.int8),
        "producer_id": np.repeat(fields["producer_id"], counts),
        "producer_epoch": np.repeat(fields["producer_epoch"], counts),
        "sequence": np.where(base_sequences < 0, NO_SEQUENCE, (base_sequences + found.offset_deltas) & SEQUENCE_MASK),
        "batch_base_offset": base_offsets,
        "attributes": np.repeat(fields["attributes"] & KEPT_ATTRIBUTES, counts),
    }
    arrays = [pa.array(cells[field.name], field.type) for field in READ_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=READ_SCHEMA)
