"""Rows of data files by absolute offset: as a read, cut, merged, and as batches of producers. Pure.

A data file's rows ascend in `offset_delta`, so a range is a slice found by binary search, not a filter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.producers import BatchMetadata, StoredBatch
from stratalog.storage.records import CONTROL_ATTRIBUTE, DATA_SCHEMA, NO_PRODUCER_ID, SEQUENCE_MASK
from stratalog.storage.transactions import change_of

READ_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        *[
            pa.field("batch_base_offset", pa.int64(), nullable=False) if field.name == "batch_base" else field
            for field in DATA_SCHEMA
            if field.name != "offset_delta"
        ],
    ]
)
"""The columns of a read: absolute offsets, the leader epoch, and the other columns of a data file."""

_FILE_COLUMNS = {"offset": "offset_delta", "batch_base_offset": "batch_base"}
"""The columns that are absolute in a read, and their relative ones in a data file."""

TIME_COLUMNS = ("offset_delta", "timestamp")
PRODUCER_COLUMNS = ("offset_delta", "producer_id", "producer_epoch", "sequence", "batch_base", "attributes")
MARKER_COLUMNS = (*PRODUCER_COLUMNS, "key", "value")
CHUNK_ROWS_MIN = 1_000
"""Rows a part below which parts are copied together first: each chunk has a fixed cost at each step."""
SMALL_FILE_RECORDS = 512
"""Records a file on average below which the files of a read are copied together."""


def no_rows() -> pa.Table:
    """A read that found nothing."""
    return READ_SCHEMA.empty_table()


def read_schema(columns: Sequence[str] | None) -> pa.Schema:
    """`READ_SCHEMA`, or the named columns of it in that order."""
    return READ_SCHEMA if columns is None else pa.schema([READ_SCHEMA.field(name) for name in columns])


def file_columns(columns: Sequence[str] | None) -> list[str] | None:
    """The columns of a data file, in its order, from which these of a read are made; None: all.

    >>> file_columns(["value", "offset"])
    ['offset_delta', 'value']
    """
    if columns is None:
        return None
    needed = {_FILE_COLUMNS.get(name, name) for name in columns}
    return [name for name in DATA_SCHEMA.names if name in needed]


def as_read(parts: Sequence[tuple[pa.Table, FileEntry]], columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of data files, in order of offset, as one table of `read_schema(columns)`.

    parts  rows with at least `file_columns(columns)`, each with its file

    Computed over all files at once, since a log may consist of one-record files.
    """
    schema = read_schema(columns)
    rows = pa.concat_tables([part for part, _ in parts])
    if rows.num_rows < len(parts) * SMALL_FILE_RECORDS:
        rows = rows.combine_chunks()
    counts = [part.num_rows for part, _ in parts]
    made = {name: rows[name] for name in rows.column_names}
    for name in schema.names:
        if name in _FILE_COLUMNS:
            bases = np.repeat(np.array([entry.base_offset for _, entry in parts], np.int64), counts)
            bases += rows[_FILE_COLUMNS[name]].to_numpy()
            made[name] = pa.chunked_array([pa.array(bases)])
    if "leader_epoch" in schema.names:
        epochs = np.repeat(np.array([entry.leader_epoch for _, entry in parts], np.int32), counts)
        made["leader_epoch"] = pa.chunked_array([pa.array(epochs)])
    return pa.Table.from_arrays([made[name] for name in schema.names], schema=schema)


def rows_between(table: pa.Table, entry: FileEntry, start_offset: int, end_offset: int) -> pa.Table:
    """The rows of a data file with offsets in `[start_offset, end_offset)`, without a copy."""
    if table.num_rows == 0 or (start_offset <= entry.start_offset and entry.end_offset <= end_offset):
        return table
    first = _row_at(table, start_offset - entry.base_offset)
    last = _row_at(table, end_offset - entry.base_offset)
    return table.slice(first, max(0, last - first))


def is_read_to(table: pa.Table, entry: FileEntry, end_offset: int) -> bool:
    """Whether rows of a data file, perhaps only its first ones, reach its end or `end_offset`."""
    if table.num_rows == 0:
        return True
    last_delta = table["offset_delta"][-1].as_py()
    return bool(last_delta >= min(entry.file.last_delta, end_offset - 1 - entry.base_offset))


def rows_before_cut(table: pa.Table, entry: FileEntry, cut_offset: int) -> pa.Table:
    """The rows that stay when the log is cut to end at `cut_offset`: whole batches below it, as in Kafka."""
    row = _row_at(table, cut_offset - entry.base_offset)
    bases = table["batch_base"]
    if 0 < row < table.num_rows and bases[row] == bases[row - 1]:
        row = _row_at(table, bases[row].as_py())
    return table.slice(0, row)


def first_at_or_after(
    table: pa.Table, entry: FileEntry, timestamp_ms: int, log_start_offset: int
) -> tuple[int, int] | None:
    """The first row of a data file, from the log start on, with this timestamp or a later one: (offset, ms)."""
    rows = rows_between(table, entry, log_start_offset, entry.end_offset)
    times = rows["timestamp"].cast(pa.int64())
    row = pc.index(pc.fill_null(pc.greater_equal(times, timestamp_ms), False), True).as_py()
    if row < 0:
        return None
    return entry.base_offset + rows["offset_delta"][row].as_py(), times[row].as_py()


def has_control_records(table: pa.Table) -> bool:
    """Whether rows hold a control record: a marker, or a record that compaction emptied."""
    return bool(table.num_rows) and pc.max(table["attributes"]).as_py() >= CONTROL_ATTRIBUTE


def producer_batches(table: pa.Table, base_offset: int, now_ms: int) -> list[StoredBatch]:
    """The batches of producers in a data file, in order.

    table  rows with `MARKER_COLUMNS`, or `PRODUCER_COLUMNS` when none of them is a control record

    A batch keeps its base sequence when compaction removed its first rows.
    """
    batches: list[StoredBatch] = []
    if table.num_rows == 0 or pc.max(table["producer_id"]).as_py() == NO_PRODUCER_ID:
        return batches
    runs = pc.run_end_encode(table["batch_base"].combine_chunks())
    first, has_keys = 0, "key" in table.column_names
    for end in runs.run_ends.to_pylist():
        if (producer_id := table["producer_id"][first].as_py()) != NO_PRODUCER_ID:
            epoch = table["producer_epoch"][first].as_py()
            batch = _batch(table, first, end - 1, base_offset, now_ms)
            key, value = (table[name][first].as_py() if has_keys else None for name in ("key", "value"))
            change = change_of(producer_id, table["attributes"][first].as_py(), batch.base_offset, key, value)
            batches.append(StoredBatch(producer_id, epoch, batch, change))
        first = end
    return batches


def merged_rows(parts: list[tuple[pa.Table, int]], base_offset: int) -> pa.Table:
    """Data files `(rows, base_offset)` in order of offset as one, its deltas relative to `base_offset`."""
    merged = pa.concat_tables([rows for rows, _ in parts])
    return rebased_rows(merged, [(rows.num_rows, base) for rows, base in parts], base_offset)


def rebased_rows(rows: pa.Table, counts_and_bases: Sequence[tuple[int, int]], base_offset: int) -> pa.Table:
    """Rows of several data files, each given by row count and base offset, with deltas relative to `base_offset`."""
    counts, bases = zip(*counts_and_bases, strict=True)
    merged = rows.combine_chunks() if rows.num_rows < len(counts) * CHUNK_ROWS_MIN else rows
    shifts = pa.array(np.repeat(np.array(bases, np.int64) - base_offset, counts).astype(np.int32))
    for name in ("offset_delta", "batch_base"):
        position = merged.schema.get_field_index(name)
        shifted = pc.add_checked(merged[name].combine_chunks(), shifts)
        merged = merged.set_column(position, merged.schema.field(position), pa.chunked_array([shifted]))
    return merged


def _batch(table: pa.Table, first: int, last: int, base_offset: int, now_ms: int) -> BatchMetadata:
    first_delta, last_delta = table["offset_delta"][first].as_py(), table["offset_delta"][last].as_py()
    first_sequence, last_sequence = table["sequence"][first].as_py(), table["sequence"][last].as_py()
    batch_base = table["batch_base"][first].as_py()
    if first_sequence >= 0:
        first_sequence = (first_sequence - (first_delta - batch_base)) & SEQUENCE_MASK
    return BatchMetadata(first_sequence, last_sequence, base_offset + batch_base, base_offset + last_delta, now_ms)


def _row_at(table: pa.Table, delta: int) -> int:
    """The first row whose offset_delta is at or above `delta`."""
    deltas = table["offset_delta"]
    return bisect_left(range(table.num_rows), delta, key=lambda row: deltas[row].as_py())
