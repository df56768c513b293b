"""Damage of one replica's table: checks of a data file, and the note that is kept until it is repaired. Pure.

Errors name table and file and both values, so that their receiver knows whose file it is. The note is the object
`_damage.json` in the replica's directory. It outlives a restart, and the broker that begins to lead or follow with the
table reads it: the table must not lead while another member of the ISR can, and it is copied again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from stratalog.storage.errors import CorruptMessageError, DamagedFileError, ObjectNotFoundError, StratalogError
from stratalog.storage.files import batch_file
from stratalog.storage.files.data_file import DataFile, RowsWanted
from stratalog.storage.files.row_groups import Footers, ReadRange

DAMAGE_PATH = "_damage.json"
UNSETTLED = (1 << 31) - 1
"""The epoch of damage of which no last epoch is known yet."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One object of a table that cannot be read.

    reason        names the object and the values that were compared
    path          of the data file; empty: another object, as a commit or a producer state
    leader_epoch  the last one under which others may rely on the table's records; it may be repaired under a later one
    """

    reason: str
    path: str = ""
    leader_epoch: int = UNSETTLED

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(data: bytes) -> Damage:
        """The note; one that is unreadable itself is damage, too."""
        try:
            body = json.loads(data)
            return Damage(str(body["reason"]), str(body["path"]), int(body["leader_epoch"]))
        except (ValueError, KeyError, TypeError) as reason:
            return Damage(f"{DAMAGE_PATH} of {len(data)} bytes is unreadable: {reason}")


def damage_in(reason: StratalogError) -> Damage | None:
    """The damage that an error reports; None when it reports something else, as a foreign commit."""
    if isinstance(reason, DamagedFileError):
        return Damage(str(reason), reason.path)
    return Damage(str(reason)) if isinstance(reason, CorruptMessageError | ObjectNotFoundError) else None


def is_about(reason: StratalogError, table_name: str) -> bool:
    """Whether an error is about this table: its message begins with the table's name (or that name's path).

    >>> is_about(CorruptMessageError("file:///b-1/t-0 version 3: torn"), "file:///b-1/t-0")
    True
    >>> is_about(CorruptMessageError("file:///b-1/t-01 version 3: torn"), "file:///b-1/t-0")
    False
    """
    text = str(reason)
    names = (table_name, table_name.removeprefix("file://"))
    return any(text.startswith((f"{name}/", f"{name}:", f"{name} ")) for name in names)


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
    """As `check_footer`, by a file's last bytes; False when they do not hold the whole footer."""
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


def check_bits(read_range: ReadRange, table_name: str, file: DataFile) -> bool:
    """DamagedFileError for a wrong bit; False where the file has to be decoded to find one. Raises what `read_range`
    raises."""
    try:
        return batch_file.is_checked(read_range, file, f"{table_name}/{file.path}")
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason


def read_part(
    read_range: ReadRange,
    table_name: str,
    file: DataFile,
    wanted: RowsWanted,
    columns: Sequence[str] | None = None,
    footers: Footers | None = None,
) -> pa.Table:
    """As `read_whole`, but reads only the wanted rows. Raises what `read_range` raises, too."""
    try:
        return batch_file.decode_part(read_range, file, f"{table_name}/{file.path}", wanted, columns, footers)
    except CorruptMessageError as reason:
        raise DamagedFileError(str(reason), file.path) from reason
