"""One data file as a commit names it, and the rows wanted of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DataFile:
    """An immutable data file on storage that no commit names yet. Offsets are still relative."""

    path: str
    size_bytes: int
    record_count: int
    first_delta: int
    last_delta: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None

    def as_json(self) -> dict[str, object]:
        """Its fields; `dataclasses.asdict` copies each value, which is slow."""
        return {name: getattr(self, name) for name in DataFile.__slots__}


class PartitionValues(NamedTuple):
    """The columns by which the table is partitioned, of one data file: its place in the log."""

    segment: int
    leader_epoch: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A data file that a commit placed in the log: Delta's `add` action.

    It covers the half-open offsets `[start_offset, end_offset)`; a file with base_offset 100 and deltas
    0..9 covers [100, 110). Compaction may leave gaps inside.
    """

    file: DataFile
    segment: int
    leader_epoch: int
    base_offset: int

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def partition_values(self) -> PartitionValues:
        return PartitionValues(self.segment, self.leader_epoch, self.base_offset)

    @property
    def start_offset(self) -> int:
        return self.base_offset + self.file.first_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.file.last_delta + 1


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """The rows that a reader wants of a data file; deltas count from the file's base offset.

    first_delta, end_delta  rows with `offset_delta` in `[first_delta, end_delta)`; None = to the file's end
    from_timestamp_ms       they begin with the first of these that has this timestamp or a later one
    bytes_max               at most `bytes_max` bytes on storage, but one row group in any case; None = all
    decoded_bytes_max       no further row group once so many bytes are decoded, about; None = all

    A read returns neighbouring rows that begin at or before the first one wanted. Row groups are returned whole, so
    there may be other rows before and behind.
    """

    first_delta: int = 0
    end_delta: int | None = None
    from_timestamp_ms: int | None = None
    bytes_max: int | None = None
    decoded_bytes_max: int | None = None
