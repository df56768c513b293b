"""Two reads of one range: equal whatever their chunks, different by record, absent only where that is allowed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stratalog.clients.admin.replica_comparison import (
    ReplicaRows,
    UnmatchedOffset,
    UnmatchedRecord,
    compare,
    differing_rows,
    record_checksum,
)
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition

TP = TopicPartition("t", 0)


def rows(values: dict[int, bytes], *, epoch: int = 3) -> pa.Table:
    """Records by offset."""
    columns = {
        "offset": list(values),
        "leader_epoch": [epoch] * len(values),
        "timestamp": list(values),
        "key": [b"k"] * len(values),
        "value": list(values.values()),
        "headers": [None] * len(values),
        "timestamp_type": [0] * len(values),
        "producer_id": [-1] * len(values),
        "producer_epoch": [-1] * len(values),
        "sequence": [-1] * len(values),
        "batch_base_offset": list(values),
        "attributes": [0] * len(values),
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in READ_SCHEMA], schema=READ_SCHEMA)


def compared(first: pa.Table, second: pa.Table, end: int = 10, absent_end: int = 0) -> list[tuple[int, ...]]:
    found = compare(TP, ReplicaRows(1, first), ReplicaRows(2, second), end, absent_end)
    return [
        (each.first_replica, each.offset, each.second_replica)
        if isinstance(each, UnmatchedRecord)
        else (each.first_replica, each.first_offset, each.second_replica, each.second_offset)
        for each in found
    ]


ALL = {offset: b"%d" % offset for offset in range(10)}


@pytest.mark.parametrize(
    ("second", "absent_end", "expected"),
    [
        (ALL, 0, []),
        (ALL | {7: b"8"}, 0, [(1, 7, 2)]),
        (ALL | {0: b"", 9: b"x"}, 0, [(1, 0, 2), (1, 9, 2)]),
        ({o: v for o, v in ALL.items() if o != 4}, 0, [(1, 4, 2, 5)]),
        ({o: v for o, v in ALL.items() if o < 8}, 0, [(1, 8, 2, 10), (1, 9, 2, 10)]),
        ({o: v for o, v in ALL.items() if o != 4}, 5, []),
        ({o: v for o, v in ALL.items() if o not in (4, 6)}, 5, [(1, 6, 2, 7)]),
        ({o: v for o, v in ALL.items() if o != 4} | {6: b"y"}, 0, [(1, 4, 2, 5), (1, 6, 2)]),
        ({}, 0, [(1, offset, 2, 10) for offset in range(10)]),
        ({}, 10, []),
    ],
)
def test_what_differs_is_named_by_offset(
    second: dict[int, bytes], absent_end: int, expected: list[tuple[int, ...]]
) -> None:
    assert compared(rows(ALL), rows(second), absent_end=absent_end) == expected


def test_what_only_the_second_replica_has_is_named_from_its_side() -> None:
    assert compared(rows({1: b"1"}), rows({1: b"1", 2: b"2"})) == [(2, 2, 1, 10)]


@pytest.mark.parametrize(("absent_end", "expected"), [(0, [(1, 4, 2)]), (4, [(1, 4, 2)]), (5, [])])
def test_what_a_cleaner_emptied_or_marked_is_no_difference(absent_end: int, expected: list[tuple[int, ...]]) -> None:
    position = READ_SCHEMA.get_field_index("attributes")
    attributes = pa.array([CONTROL_ATTRIBUTE if offset == 4 else 0 for offset in ALL], pa.int16())
    emptied = rows(ALL | {4: b""}).set_column(position, READ_SCHEMA.field(position), attributes)
    assert compared(rows(ALL), emptied, absent_end=absent_end) == expected


def test_the_layout_of_files_makes_no_difference() -> None:
    whole = rows(ALL)
    assert compared(whole, pa.concat_tables([whole.slice(0, 3), whole.slice(3, 6), whole.slice(9)])) == []


@pytest.mark.parametrize("column", [name for name in READ_SCHEMA.names if name not in ("offset", "headers")])
def test_every_column_counts(column: str) -> None:
    changed = rows(ALL)
    position = changed.schema.get_field_index(column)
    kind = READ_SCHEMA.field(column).type
    other = pa.array([b"?"] * 10 if kind == pa.binary() else [99] * 10, kind)
    changed = changed.set_column(position, READ_SCHEMA.field(column), other)
    assert compared(rows(ALL), changed) == [(1, offset, 2) for offset in range(10)]


def test_the_checksum_is_of_the_whole_record_and_the_same_on_both_replicas() -> None:
    one, other = rows({5: b"a"}), rows({5: b"b"})
    assert record_checksum(one) == record_checksum(rows({5: b"a"})) != record_checksum(other)
    (found,) = compare(TP, ReplicaRows(1, one), ReplicaRows(3, other), 6)
    assert str(found) == (
        f"partition t-0 has unmatched checksum at offset 5; replica 1's checksum {record_checksum(one)}; "
        f"replica 3's checksum {record_checksum(other)}"
    )


def test_a_missing_record_is_told_in_kafkas_words() -> None:
    (found,) = compare(TP, ReplicaRows(1, rows({5: b"a", 6: b"b"})), ReplicaRows(3, rows({6: b"b"})), 7)
    assert found == UnmatchedOffset(TP, 1, 5, 3, 6)
    assert str(found) == "partition t-0: replica 1's offset 5 doesn't match replica 3's offset 6"


def test_a_replica_with_another_log_altogether_is_not_told_record_by_record() -> None:
    count = 10_000
    first = pa.table({"a": list(range(count))})
    second = pa.table({"a": list(range(1, count + 1))})
    assert differing_rows(first, second, limit=100) == list(range(100))
