"""Whether replicas hold the same records: two reads of one range of offsets, compared row by row. Pure.

Replicas are equal on every offset that both hold (promise 22), though their files differ; compaction and erasure
make records absent, never different. Kafka's `ReplicaVerificationTool` compares checksums of batches; here the
records themselves are compared, and checksums are only shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import crc32c
import numpy as np
import pyarrow as pa

from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition

DIFFERENCES_MAX = 100
"""Limit of differences that one comparison reports."""


@dataclass(frozen=True, slots=True)
class UnmatchedRecord:
    """Two replicas hold different records at `offset`; the checksums (CRC32C) are of all that a reader gets."""

    topic_partition: TopicPartition
    offset: int
    first_replica: int
    first_checksum: int
    second_replica: int
    second_checksum: int

    def __str__(self) -> str:
        return (
            f"partition {self.topic_partition} has unmatched checksum at offset {self.offset}; replica "
            f"{self.first_replica}'s checksum {self.first_checksum}; replica {self.second_replica}'s checksum "
            f"{self.second_checksum}"
        )


@dataclass(frozen=True, slots=True)
class UnmatchedOffset:
    """One replica has a record at `first_offset`, the other's next one is at `second_offset`."""

    topic_partition: TopicPartition
    first_replica: int
    first_offset: int
    second_replica: int
    second_offset: int

    def __str__(self) -> str:
        return (
            f"partition {self.topic_partition}: replica {self.first_replica}'s offset {self.first_offset} doesn't "
            f"match replica {self.second_replica}'s offset {self.second_offset}"
        )


Difference = UnmatchedRecord | UnmatchedOffset


@dataclass(frozen=True, slots=True)
class ReplicaRows:
    """What one replica holds of a range of offsets: rows of `READ_SCHEMA`, ascending."""

    replica: int
    rows: pa.Table


def compare(
    topic_partition: TopicPartition, first: ReplicaRows, second: ReplicaRows, end_offset: int, absent_end: int = 0
) -> list[Difference]:
    """The differences between two replicas' records of one range that ends at `end_offset`, in order of offset.

    absent_end  below it a record may rightly be absent: compacted or erased on one replica, not yet on the other. There
                control records are left out: each replica's cleaner changes markers by itself.
    At most `DIFFERENCES_MAX` of each kind.
    """
    differences: list[Difference] = []
    first, second = _comparable(first, absent_end), _comparable(second, absent_end)
    ours, theirs = _offsets(first.rows), _offsets(second.rows)
    first_rows, second_rows = first.rows, second.rows
    if not np.array_equal(ours, theirs):
        for here, there in ((first, second), (second, first)):
            differences += _absences(topic_partition, here, there, end_offset, absent_end)
        _, rows, other_rows = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
        first_rows, second_rows = first_rows.take(rows), second_rows.take(other_rows)
    for row in differing_rows(first_rows, second_rows):
        one, other = first_rows.slice(row, 1), second_rows.slice(row, 1)
        offset = one["offset"][0].as_py()
        checksums = (first.replica, record_checksum(one), second.replica, record_checksum(other))
        differences.append(UnmatchedRecord(topic_partition, offset, *checksums))
    return sorted(differences, key=lambda each: each.offset if isinstance(each, UnmatchedRecord) else each.first_offset)


def _comparable(replica: ReplicaRows, absent_end: int) -> ReplicaRows:
    rows = replica.rows
    is_out = (_offsets(rows) < absent_end) & ((rows["attributes"].to_numpy() & CONTROL_ATTRIBUTE) != 0)
    return ReplicaRows(replica.replica, rows.filter(pa.array(~is_out))) if is_out.any() else replica


def _absences(
    topic_partition: TopicPartition, here: ReplicaRows, there: ReplicaRows, end_offset: int, absent_end: int
) -> list[UnmatchedOffset]:
    """Records of `here` that `there` lacks."""
    offsets = _offsets(there.rows)
    lacking = np.setdiff1d(_offsets(here.rows), offsets, assume_unique=True)
    lacking = lacking[lacking >= absent_end][:DIFFERENCES_MAX]
    following = np.append(offsets, end_offset)[np.searchsorted(offsets, lacking)]
    pairs = zip(lacking.tolist(), following.tolist(), strict=True)
    return [UnmatchedOffset(topic_partition, here.replica, a, there.replica, b) for a, b in pairs]


def differing_rows(first: pa.Table, second: pa.Table, limit: int = DIFFERENCES_MAX) -> list[int]:
    """The first `limit` rows in which two tables of one length differ, by halves: comparing equal halves is cheap.

    >>> differing_rows(pa.table({"a": [1, 2, 3, None]}), pa.table({"a": [1, 5, 3, 4]}))
    [1, 3]
    """
    found: list[int] = []
    ranges = [(0, first.num_rows)]
    while ranges and len(found) < limit:
        start, count = ranges.pop()
        if first.slice(start, count).equals(second.slice(start, count)):
            continue
        if count == 1:
            found.append(start)
            continue
        half = count // 2
        ranges += [(start + half, count - half), (start, half)]
    return found


def record_checksum(row: pa.Table) -> int:
    """CRC32C of one record with its offset, epoch, time, key, value, headers and producer."""
    position = row.schema.get_field_index("timestamp")
    # As numbers: a timestamp may be outside the range of Python's dates.
    plain = row.set_column(position, "timestamp", row["timestamp"].cast(pa.int64()))
    return crc32c.crc32c(repr(plain.to_pylist()[0]).encode())


def _offsets(rows: pa.Table) -> np.ndarray:
    return np.asarray(rows["offset"].to_numpy())
