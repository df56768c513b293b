"""A data file of one table as it was found: whole, or damaged. Pure (bytes in, rows out).

Errors name table and file and both values, so that whoever catches one knows whose file it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from stratalog.storage.delta.table import DataFile, RowsWanted
from stratalog.storage.errors import CorruptMessageError, DamagedFileError
from stratalog.storage.files import batch_file
from stratalog.storage.files.row_groups import Footers, ReadRange


def check_whole(size_bytes: int | None, table_name: str, file: DataFile) -> None:
    """DamagedFileError unless `size_bytes`, which was found, is the file's size; None: there is no such file."""
    if size_bytes == file.size_bytes:
        return
    found = "is gone" if size_bytes is None else f"has {size_bytes} bytes"
    raise DamagedFileError(f"{table_name}/{file.path}: {found}, expected {file.size_bytes} bytes", file.path)


def check_footer(data: bytes | memoryview, table_name: str, file: DataFile) -> None:
    """DamagedFileError unless a file's bytes end with the footer that its name states."""
    try:
        batch_file.check(data, f"{table_name}/{file.path}")
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason


def has_sound_footer(tail: bytes, table_name: str, file: DataFile) -> bool:
    """The same by a file's last bytes; False when they do not hold the whole footer."""
    try:
        return batch_file.check_tail(tail, f"{table_name}/{file.path}")
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason


def read_whole(data: bytes, table_name: str, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file's bytes. DamagedFileError when a bit is wrong or rows are missing."""
    where = f"{table_name}/{file.path}"
    try:
        rows = batch_file.decode(data, where, columns)
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason
    if rows.num_rows != file.record_count:
        raise DamagedFileError(f"{where}: {rows.num_rows} records, expected {file.record_count}", file.path)
    return rows


def read_part(
    read_range: ReadRange,
    table_name: str,
    file: DataFile,
    wanted: RowsWanted,
    columns: Sequence[str] | None = None,
    footers: Footers | None = None,
) -> pa.Table:
    """As `read_whole`, but only what is wanted is read. Raises what `read_range` raises, too."""
    try:
        return batch_file.decode_part(read_range, file, f"{table_name}/{file.path}", wanted, columns, footers)
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason
