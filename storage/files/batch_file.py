"""One record batch file: an immutable Parquet file whose bits are checked when read. Pure (bytes in, bytes out).

Pages carry checksums; the footer does not, so its CRC32C stands in the file name: `<uuid>.<8 hex digits>.parquet`. The
directories name the file's partition values as Hive does, since some readers take them from there. The footer of a file
that was written as it grew states the CRC32C of all bytes before it, by which the file is checked without being
decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.batch_file_fast import encode_fast
from stratalog.storage.files.codecs import UNCOMPRESSED
from stratalog.storage.files.data_file import DataFile, PartitionValues, RowsWanted
from stratalog.storage.files.row_groups import (
    ROWS_MIN,
    TRAILER_BYTES,
    Footer,
    Footers,
    RangedFile,
    ReadRange,
    rows_per_group,
    wanted_groups,
)
from stratalog.storage.records import DATA_SCHEMA, FewRows, table_of_rows, timestamp_range

MAGIC = b"PAR1"
RANGED_BYTES = 256 << 10
"""Size of the smallest file of which parts are read: a smaller one takes one read, a part two."""
LARGE_BYTES = 3 << 20
"""Arrow bytes of a large file. A file in memory is moved, as it grows, into ever larger pieces of memory, which the
kernel zeroes first."""
PIECE_BYTES_MAX = 2 << 20
"""Bytes of a row group above which a file is not written piece by piece: its pages are the pieces."""
DICTIONARY_COLUMNS = ["timestamp_type", "producer_id", "producer_epoch", "sequence", "batch_base", "attributes"]
STATISTICS_COLUMNS = ["offset_delta", "timestamp"]
TIME_UNIT = "us"
"""Unit of timestamps in files, Delta's, since some readers convert no other. Records have milliseconds, and so have the
files of older releases."""
DICTIONARY_ROWS_MIN = 32
"""Rows from which a dictionary's page saves more than it takes."""
DATA_CRC_KEY = b"stratalog.data.crc32c"
"""The footer's metadata with the CRC32C, in 8 hex digits, of the bytes before the footer."""
SUMMED_BYTES = 1 << 20
"""Bytes that are read at once for a checksum."""
HANDED_DIRECTORY = "_handed"
"""Directory of the files that other processes hand over to the leader: what is below `_` is no data to Delta."""
DATA_DIRECTORIES = ("segment=", HANDED_DIRECTORY)
"""Beginnings of the paths of all data files."""
_TIME = DATA_SCHEMA.field("timestamp")
_STORED_TIME = pa.timestamp(TIME_UNIT, tz="UTC")
_PARQUET_CODECS = {UNCOMPRESSED: "none"}
_LEVELS = {"zstd": 1}
"""The level of codecs that have levels, for files whose writer an append waits for."""


def encode(rows: pa.Table | FewRows, codec: str = "zstd") -> tuple[memoryview, str]:
    """Rows of `DATA_SCHEMA` as (file bytes, CRC32C of the footer in 8 hex digits).

    codec  uncompressed, zstd, lz4, snappy or gzip; with a level: zstd:6
    """
    name = codec.partition(":")[0]
    if name == UNCOMPRESSED and (small := encode_fast(rows)) is not None:
        return memoryview(small), footer_crc(small, "a new file")
    sink = pa.BufferOutputStream()
    write(table_of_rows(rows) if isinstance(rows, tuple) else rows, sink, codec)
    data = memoryview(sink.getvalue()).cast("B")
    return data, footer_crc(data, "a new file")


def write(table: pa.Table, sink: pa.NativeFile, codec: str, written: ReadRange | None = None) -> None:
    """Rows of `DATA_SCHEMA` into `sink`, as `encode` without what it does for few rows.

    written  reads what `sink` has written: the footer states the CRC32C of what is before it
    """
    name, _, level = codec.partition(":")
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=_PARQUET_CODECS.get(name, name),
        compression_level=int(level) if level else _LEVELS.get(name),
        use_dictionary=DICTIONARY_COLUMNS if table.num_rows >= DICTIONARY_ROWS_MIN else False,
        write_statistics=STATISTICS_COLUMNS,
        write_page_checksum=True,
        coerce_timestamps=TIME_UNIT,
        store_schema=False,
    ) as writer:
        writer.write_table(table, rows_per_group(table))
        if written is not None:
            sink.flush()
            writer.add_key_value_metadata({DATA_CRC_KEY: data_crc(written, sink.tell())})


def is_large(rows: pa.Table | FewRows) -> bool:
    """Whether to `write` a file piece by piece instead of to `encode` it, which has it whole in memory.

    False where a row group may be of `PIECE_BYTES_MAX` or more, as with few large rows: its pages are the pieces.
    """
    if isinstance(rows, tuple) or rows.num_rows <= ROWS_MIN:
        return False
    size_bytes = rows.nbytes
    return bool(size_bytes >= LARGE_BYTES and size_bytes * rows_per_group(rows) < PIECE_BYTES_MAX * rows.num_rows)


def written_crc(read_range: ReadRange, size_bytes: int) -> str:
    """`footer_crc` of a file that was written. Raises what `read_range` raises."""
    (footer_bytes,) = struct.unpack("<I", read_range(size_bytes - TRAILER_BYTES, 4))
    length = footer_bytes + TRAILER_BYTES
    return f"{crc32c.crc32c(read_range(size_bytes - length, length)):08x}"


def data_crc(read_range: ReadRange, end: int) -> str:
    """CRC32C (8 hex digits) of a file's bytes `[0, end)`. Raises what `read_range` raises."""
    crc = 0
    for start in range(0, end, SUMMED_BYTES):
        crc = crc32c.crc32c(read_range(start, min(SUMMED_BYTES, end - start)), crc)
    return f"{crc:08x}"


def is_checked(read_range: ReadRange, file: DataFile, name: str) -> bool:
    """Whether all bits of a file are right, by the checksum in its footer; False where that states none.

    CorruptMessageError naming file and both values. Raises what `read_range` raises.
    """
    data = RangedFile(read_range, file.size_bytes, name).footer()
    metadata = _checked_footer(data, file, name).metadata
    stated = (metadata.metadata or {}).get(DATA_CRC_KEY)
    if stated is None:
        return False
    found, expected = data_crc(read_range, file.size_bytes - len(data)), stated.decode()
    if found != expected:
        raise CorruptMessageError(f"{name}: CRC32C of its data is {found}, expected {expected}")
    return True


def footer_crc(data: bytes | memoryview, name: str) -> str:
    """CRC32C (8 hex digits) of footer, footer length and magic. CorruptMessageError when there is no footer."""
    if len(data) < len(MAGIC) + TRAILER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise CorruptMessageError(f"{name}: {len(data)} bytes that do not begin as a Parquet file")
    (footer_bytes,) = struct.unpack_from("<I", data, len(data) - TRAILER_BYTES)
    start = len(data) - TRAILER_BYTES - footer_bytes
    if start < len(MAGIC):
        raise CorruptMessageError(f"{name}: its footer claims {footer_bytes} bytes of {len(data)}")
    return f"{crc32c.crc32c(memoryview(data)[start:]):08x}"


def file_path(values: PartitionValues | None, file_id: str, crc: str) -> str:
    """The path of a file below its table.

    >>> file_path(PartitionValues(7, 3, 12), "ab", "0000ffff")
    'segment=00000000000000000007/leader_epoch=3/base_offset=12/ab.0000ffff.parquet'
    """
    return f"{data_directory(values)}/{file_id}.{crc}.parquet"


def data_directory(values: PartitionValues | None) -> str:
    """The directory of files with these partition values below their table; None: of files that are handed over, which
    have none yet."""
    if values is None:
        return HANDED_DIRECTORY
    return f"segment={values.segment:020}/leader_epoch={values.leader_epoch}/base_offset={values.base_offset}"


def placed_path(path: str, values: PartitionValues) -> str:
    """The path of the file at `path` once it has these partition values: its name stays.

    >>> placed_path("_handed/ab.0000ffff.parquet", PartitionValues(7, 3, 12))
    'segment=00000000000000000007/leader_epoch=3/base_offset=12/ab.0000ffff.parquet'
    """
    return f"{data_directory(values)}/{name_of(path)}"


def name_of(path: str) -> str:
    """The name of a file without its directories: no two files have the same."""
    return path.rpartition("/")[2]


def crc_of_path(path: str) -> str:
    """The footer's CRC32C that a path names. CorruptMessageError when it names none."""
    parts = path.rsplit(".", 2)
    if len(parts) != 3 or len(parts[1]) != 8 or parts[2] != "parquet":
        raise CorruptMessageError(f"{path}: its name has no footer CRC32C")
    return parts[1]


def check(data: bytes | memoryview, path: str) -> None:
    """Compare the footer with the CRC32C in the path. CorruptMessageError naming file and both values."""
    expected = crc_of_path(path)
    found = footer_crc(data, path)
    if found != expected:
        raise CorruptMessageError(f"{path}: footer CRC32C is {found}, expected {expected}")


def check_tail(tail: bytes, path: str) -> bool:
    """As `check`, by a file's last bytes alone; False when they do not hold the whole footer."""
    (footer_bytes,) = struct.unpack_from("<I", tail, len(tail) - TRAILER_BYTES)
    start = len(tail) - TRAILER_BYTES - footer_bytes
    if start < 0:
        return False
    expected, found = crc_of_path(path), f"{crc32c.crc32c(memoryview(tail)[start:]):08x}"
    if found != expected:
        raise CorruptMessageError(f"{path}: footer CRC32C is {found}, expected {expected}")
    return True


def decode(data: bytes | memoryview, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of a file's bytes, all columns of `DATA_SCHEMA` or those named. CorruptMessageError when a bit is wrong."""
    check(data, path)
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(
            columns=list(columns) if columns is not None else None, use_threads=False
        )
    except (OSError, pa.ArrowException) as reason:
        raise CorruptMessageError(f"{path}: {reason}") from reason
    return _of_records(table, path, columns)


def is_read_in_parts(file: DataFile, wanted: RowsWanted) -> bool:
    """Whether a part of a file is read or decoded: of a small file all is, which takes less than to find the part."""
    has_groups = file.record_count > ROWS_MIN
    return file.size_bytes >= RANGED_BYTES or (has_groups and wanted.decoded_bytes_max is not None)


def decode_part(
    read_range: ReadRange,
    file: DataFile,
    name: str,
    wanted: RowsWanted,
    columns: Sequence[str] | None = None,
    footers: Footers | None = None,
) -> pa.Table:
    """The wanted rows of a file, as `RowsWanted` says, of which only its footer and their row groups are read.

    name     of the file, for messages
    footers  may hold the footer already; else it is added

    CorruptMessageError when a bit of what was read is wrong, or the file's length or number of records is another one.
    Raises what `read_range` raises.
    """
    ranged = RangedFile(read_range, file.size_bytes, name)
    footer = footers.get(file.path) if footers is not None else None
    try:
        if footer is None:
            if wanted.bytes_max is not None and file.size_bytes <= wanted.bytes_max:
                ranged.fetch(0, file.size_bytes)  # one request instead of two
            footer = _checked_footer(ranged.footer(), file, name)
            if footers is not None:
                footers.put(file.path, footer)
        groups = wanted_groups(footer, wanted)
        span = footer.span(groups, columns)
        if span is not None:
            ranged.fetch(*span)
        parts = pq.ParquetFile(
            pa.PythonFile(ranged, mode="r"),
            metadata=footer.metadata,
            pre_buffer=span is None,  # by threads, which have nothing to do where all is here
            page_checksum_verification=True,
        )
        named = list(columns) if columns is not None else None
        table = parts.read_row_groups(groups, columns=named, use_threads=False)
    except (OSError, pa.ArrowException) as reason:
        raise CorruptMessageError(f"{name}: {reason}") from reason
    return _of_records(table, name, columns)


def _checked_footer(data: bytes, file: DataFile, name: str) -> Footer:
    if not check_tail(data, name):
        raise CorruptMessageError(f"{name}: its footer is incomplete")
    metadata = pq.read_metadata(pa.BufferReader(data))
    if metadata.num_rows != file.record_count:
        raise CorruptMessageError(f"{name}: {metadata.num_rows} records, expected {file.record_count}")
    return Footer(metadata)


def _of_records(table: pa.Table, name: str, columns: Sequence[str] | None) -> pa.Table:
    """Rows as they were read with the types of `DATA_SCHEMA`. CorruptMessageError for other columns."""
    wanted = DATA_SCHEMA if columns is None else pa.schema([DATA_SCHEMA.field(column) for column in columns])
    at = table.schema.get_field_index(_TIME.name)
    if at >= 0 and table.schema.field(at).type == _STORED_TIME:
        table = table.set_column(at, _TIME, table.column(at).cast(_TIME.type, safe=False))
    if not table.schema.equals(wanted):
        raise CorruptMessageError(f"{name}: its columns are {table.schema}, expected {wanted}")
    return table


def describe(rows: pa.Table | FewRows, path: str, size_bytes: int) -> DataFile:
    """A file with these rows, ordered by offset, as a commit names it: counts, deltas, timestamps (ms)."""
    if isinstance(rows, tuple):
        times = [row.timestamp_ms for row in rows if row.timestamp_ms is not None]
        first, last = rows[0].offset_delta, rows[-1].offset_delta
        bounds = min(times, default=None), max(times, default=None)
        return DataFile(path, size_bytes, len(rows), first, last, *bounds)
    deltas = rows["offset_delta"]
    first, last = deltas[0].as_py(), deltas[-1].as_py()
    return DataFile(path, size_bytes, rows.num_rows, first, last, *timestamp_range(rows["timestamp"]))


def codec_of(data: bytes | memoryview) -> str:
    """The codec of a file's pages by Kafka's names: none, zstd, lz4, snappy or gzip."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    if metadata.num_row_groups == 0:
        return "none"
    name = str(metadata.row_group(0).column(0).compression).lower().removesuffix("_raw")
    return "none" if name == "uncompressed" else name
