"""A table is cut into batches by partition and size, and its future tells where every row went."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from stratalog.clients.producer.batch import check_times
from stratalog.clients.producer.partitioner import RoundRobinPartitioner, StickyPartitioner, partition_for_key
from stratalog.clients.producer.table_batches import TableDelivery, TablePart, table_parts
from stratalog.clients.records import Delivery, OffsetRange, Piece
from stratalog.storage.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import PAYLOAD_SCHEMA, TopicPartition, as_payload

NOW_MS = 1_700_000_000_000


def parts_of(table: pa.Table, max_request_size: int = 1_000_000, partitioner: object = None) -> list[TablePart]:
    column = table["partition"] if "partition" in table.column_names else None
    return table_parts(
        "t",
        as_payload(table),
        column,
        partition_count=3,
        available=(0, 1, 2),
        partitioner=partitioner or StickyPartitioner(16_384, random.Random(1)),  # type: ignore[arg-type]
        max_request_size=max_request_size,
        now_ms=NOW_MS,
    )


def values(parts: list[TablePart], partition: int) -> list[bytes]:
    found = [p.payload["value"].to_pylist() for p in parts if p.topic_partition == TopicPartition("t", partition)]
    return [value for chunk in found for value in chunk]


def test_keys_choose_partitions_and_rows_keep_their_order() -> None:
    keys = [f"k{i % 10}" for i in range(1000)]
    parts = parts_of(pa.table({"key": keys, "value": [str(i) for i in range(1000)]}), max_request_size=2_000)
    assert all(p.payload.schema == PAYLOAD_SCHEMA and p.size_bytes <= 2_000 for p in parts)
    for partition in range(3):
        expected = [str(i).encode() for i, k in enumerate(keys) if partition_for_key(k.encode(), 3) == partition]
        assert values(parts, partition) == expected


def test_an_explicit_partition_wins_and_null_falls_back_to_the_key() -> None:
    table = pa.table({"key": ["a", "a", None], "value": ["1", "2", "3"], "partition": pa.array([2, None, 0])})
    parts = parts_of(table)
    by_key = partition_for_key(b"a", 3)
    assert values(parts, 2)[0] == b"1"
    assert b"2" in values(parts, by_key)
    assert values(parts, 0)[-1] == b"3"


def test_rows_without_a_key_go_to_one_partition_as_a_whole_without_a_copy() -> None:
    table = pa.table({"value": [b"x" * 100] * 1000})
    (part,) = parts_of(table)
    assert part.payload["value"].chunk(0).buffers()[2].address == table["value"].chunk(0).buffers()[2].address


def test_slices_of_a_large_table_are_even_and_take_the_partitions_in_turn() -> None:
    parts = parts_of(pa.table({"value": [b"x" * 100] * 1000}), max_request_size=124 * 190)
    assert [p.payload.num_rows for p in parts] == [167] * 5 + [165]
    assert all(p.size_bytes <= 124 * 190 for p in parts)
    assert [sorted(p.topic_partition.partition for p in parts[i : i + 3]) for i in (0, 3)] == [[0, 1, 2]] * 2


def test_small_tables_stick_to_a_partition_until_a_batch_is_full() -> None:
    partitioner = StickyPartitioner(16_384, random.Random(1))
    chosen = [parts_of(pa.table({"value": [b"x" * 100] * 10}), partitioner=partitioner)[0] for _ in range(14)]
    assert len({part.topic_partition for part in chosen}) == 1


def test_another_partitioner_is_asked_row_by_row() -> None:
    parts = parts_of(pa.table({"value": [str(i) for i in range(7)]}), partitioner=RoundRobinPartitioner())
    assert [values(parts, p) for p in range(3)] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_missing_timestamps_become_now() -> None:
    given = pa.array([5, None], pa.timestamp("ms", tz="UTC"))
    (part,) = parts_of(pa.table({"value": ["a", "b"], "timestamp": given}))
    assert part.payload["timestamp"].cast(pa.int64()).to_pylist() == [5, NOW_MS]


def test_a_table_without_rows_needs_no_batch() -> None:
    assert parts_of(pa.table({"value": pa.array([], pa.binary())})) == []


BAD: list[tuple[dict[str, object], type[StratalogError], str]] = [
    ({"value": [b"a", b"x" * 2_000_000]}, RecordTooLargeError, "row 1: The message is 2000024 bytes"),
    ({"value": ["a"], "partition": [3]}, UnknownTopicOrPartitionError, "3 is not in the range"),
    ({"value": ["a"], "partition": [-1]}, UnknownTopicOrPartitionError, "-1 is not in the range"),
    ({"value": ["a"], "partition": ["0"]}, InvalidRecordError, "column 'partition' is string"),
    ({"value": [1.5]}, InvalidRecordError, "column 'value' is double"),
    ({"key": ["a"]}, InvalidRecordError, "needs the column 'value'"),
]


@pytest.mark.parametrize(("columns", "kind", "text"), BAD)
def test_a_bad_table_is_refused_before_anything_is_sent(
    columns: dict[str, object], kind: type[StratalogError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        parts_of(pa.table(columns))


def test_the_future_completes_with_the_last_batch_and_knows_the_offsets() -> None:
    table = TableDelivery("t", 30)
    first, second = Delivery(20), Delivery(10)
    table.add(TopicPartition("t", 0), first, 0, first.record_count)
    table.add(TopicPartition("t", 2), second, 0, second.record_count)
    first.complete(Piece(10, 10, 110, None))
    first.complete(Piece(0, 10, 100, None))
    table.end()
    assert not table.future.done()
    second.complete(Piece(0, 10, 7, None))
    stored = table.future.result(0)
    assert stored.record_count == 30
    assert stored.ranges == (OffsetRange(0, 100, 109), OffsetRange(0, 110, 119), OffsetRange(2, 7, 16))


def test_tables_that_share_a_batch_know_their_own_offsets() -> None:
    shared = Delivery(30)
    first, second = TableDelivery("t", 12), TableDelivery("t", 18)
    first.add(TopicPartition("t", 0), shared, 0, 12)
    second.add(TopicPartition("t", 0), shared, 12, 18)
    first.end()
    second.end()
    shared.complete(Piece(0, 15, 100, None))
    shared.complete(Piece(15, 15, 200, None))
    assert first.future.result(0).ranges == (OffsetRange(0, 100, 111),)
    assert second.future.result(0).ranges == (OffsetRange(0, 112, 114), OffsetRange(0, 200, 214))


def test_a_refused_piece_fails_only_the_tables_in_it() -> None:
    shared = Delivery(30)
    first, second = TableDelivery("t", 12), TableDelivery("t", 18)
    first.add(TopicPartition("t", 0), shared, 0, 12)
    second.add(TopicPartition("t", 0), shared, 12, 18)
    first.end()
    second.end()
    shared.complete(Piece(0, 12, 100, None))
    shared.complete(Piece(12, 18, -1, NotLeaderOrFollowerError("gone")))
    assert first.future.result(0).record_count == 12
    with pytest.raises(NotLeaderOrFollowerError):
        second.future.result(0)


def test_one_failed_batch_fails_the_table_after_all_are_done() -> None:
    table = TableDelivery("t", 20)
    first, second = Delivery(10), Delivery(10)
    table.add(TopicPartition("t", 0), first, 0, first.record_count)
    table.add(TopicPartition("t", 1), second, 0, second.record_count)
    table.end()
    first.complete(Piece(0, 10, -1, NotLeaderOrFollowerError("gone")))
    assert not table.future.done()
    second.complete(Piece(0, 10, 0, None))
    with pytest.raises(NotLeaderOrFollowerError):
        table.future.result(0)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_column_of_times_is_checked_as_a_single_time(unit: str) -> None:
    check_times(pa.array([0, None, 5], pa.timestamp(unit, "UTC")))
    check_times(pa.array([None], pa.timestamp(unit)))
    with pytest.raises(InvalidTimestampError, match="should always be non-negative or null"):
        check_times(pa.array([5, -1], pa.timestamp(unit)))


def test_a_header_that_is_null_is_refused() -> None:
    kind = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]))
    for headers in ([[None]], [[{"key": "a", "value": None}, None]]):
        with pytest.raises(InvalidRecordError, match="a header that is null"):
            as_payload(pa.table({"value": ["v"], "headers": pa.array(headers, kind)}))
    assert as_payload(pa.table({"value": ["v"], "headers": pa.array([[]], kind)})).num_rows == 1
