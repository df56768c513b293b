"""Rows of the sink: checked columns in the connector's words, deterministic partitions, legal batches."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from stratalog.clients.producer.partitioner import partition_for_key
from stratalog.clients.spark.sink.rows import (
    HEADERS_SQL_TYPE,
    NO_PRODUCER,
    ProducerIdAndEpoch,
    StickyPartitions,
    check_columns,
    few_rows_of,
    record_batches,
    record_sizes,
    rows_by_topic,
    split_by_partition,
)
from stratalog.storage.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.files.batch_file_fast import few_rows
from stratalog.storage.records import (
    NO_SEQUENCE,
    PAYLOAD_SCHEMA,
    TRANSACTIONAL_ATTRIBUTE,
    NewRecordBatch,
    data_table,
    payload_table,
    table_of_rows,
)


@pytest.mark.parametrize(
    ("types", "topic", "text"),
    [
        (
            {"value": "string"},
            None,
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
        ),
        ({"key": "binary"}, "t", "Required attribute 'value' not found"),
        ({"value": "int"}, "t", "value attribute unsupported type int. value must be a(n) string or binary"),
        (
            {"value": "string", "key": "bigint"},
            "t",
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        ({"value": "string", "topic": "int"}, None, "topic attribute unsupported type int. topic must be a(n) string"),
        (
            {"value": "string", "partition": "bigint"},
            "t",
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            {"value": "string", "headers": "string"},
            "t",
            f"headers attribute unsupported type string. headers must be a(n) {HEADERS_SQL_TYPE}",
        ),
    ],
)
def test_columns_are_refused_in_the_connectors_words(types: dict[str, str], topic: str | None, text: str) -> None:
    with pytest.raises(InvalidRecordError) as refusal:
        check_columns(types, topic)
    assert str(refusal.value).startswith(text)  # then what to do


def test_extra_columns_and_an_overridden_topic_column_are_ignored() -> None:
    check_columns({"value": "binary", "topic": "int", "noise": "map<string,int>"}, "t")


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_strings_become_bytes_and_the_topic_option_wins() -> None:
    rows = list(rows_by_topic(batch(value=["a", None], topic=["x", "y"]), "t", None, 7))
    assert [r.topic for r in rows] == ["t"]
    assert rows[0].payload["value"].to_pylist() == [b"a", None]
    assert rows[0].payload["timestamp"].cast(pa.int64()).to_pylist() == [7, 7]


def test_rows_are_grouped_by_topic() -> None:
    rows = list(rows_by_topic(batch(value=[b"1", b"2", b"3"], topic=["x", "y", "x"]), None, None, 7))
    assert [(r.topic, r.payload["value"].to_pylist()) for r in rows] == [("x", [b"1", b"3"]), ("y", [b"2"])]


def test_a_null_topic_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="KAFKA_NULL_TOPIC_IN_DATA"):
        list(rows_by_topic(batch(value=[b"1"], topic=pa.array([None], pa.string())), None, None, 7))


def test_headers_and_times_come_through() -> None:
    spark_headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    headers = pa.array([[{"key": "k", "value": b"v"}], None], spark_headers)
    times = pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", tz="UTC"))
    source = pa.RecordBatch.from_arrays([pa.array([b"1", b"2"]), headers, times], ["value", "headers", "at"])
    (rows,) = rows_by_topic(source, "t", "at", 7)
    assert rows.payload["headers"].to_pylist() == [[{"key": "k", "value": b"v"}], None]
    assert rows.payload["timestamp"].cast(pa.int64()).to_pylist() == [1_577_836_800_000, 7], "null: now"
    assert record_sizes(rows.payload).tolist() == [24 + 1 + 16 + 2, 24 + 1]


def test_a_header_without_a_name_is_refused_before_a_time_as_by_a_producer() -> None:
    headers = pa.array(
        [[{"key": None, "value": None}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    times = pa.array([-1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    source = pa.RecordBatch.from_arrays([pa.array([b"1"]), headers, times], ["value", "headers", "at"])
    with pytest.raises(InvalidRecordError, match="headers"):
        list(rows_by_topic(source, "t", "at", 7))


def test_partitions_explicit_hashed_and_sticky() -> None:
    source = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", None, b"k", None, None]),
            pa.array([b"v"] * 5),
            pa.array([2, None, None, None, 0], pa.int32()),
        ],
        ["key", "value", "partition"],
    )
    (rows,) = rows_by_topic(source, "t", None, 7)
    chosen = StickyPartitions(batch_size=30, first=1).choose(rows, record_sizes(rows.payload), 3)
    assert chosen.tolist() == [2, 1, partition_for_key(b"k", 3), 1, 0]


def test_null_keys_move_on_after_a_batch_and_the_same_rows_give_the_same_partitions() -> None:
    def chosen() -> list[int]:
        sticky = StickyPartitions(batch_size=100, first=4)
        result: list[int] = []
        for _ in range(3):
            (rows,) = rows_by_topic(batch(value=[b"x" * 26] * 3), "t", None, 7)
            result += sticky.choose(rows, record_sizes(rows.payload), 3).tolist()
        return result

    assert chosen() == [1, 1, 2, 2, 0, 0, 1, 1, 2] == chosen()


def test_an_unknown_partition_is_refused() -> None:
    (rows,) = rows_by_topic(batch(value=[b"1"], partition=pa.array([5], pa.int32())), "t", None, 7)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"5 is not in the range \[0...3\)"):
        StickyPartitions(100, 0).choose(rows, record_sizes(rows.payload), 3)


def values(count: int, size: int) -> pa.Table:
    return payload_table((0, None, bytes([i]) * size, None) for i in range(count))


def test_rows_split_by_partition_keep_their_order() -> None:
    parts = {p: t["value"].to_pylist() for p, t in split_by_partition(values(4, 1), np.array([1, 0, 1, 0]))}
    assert parts == {0: [b"\x01", b"\x03"], 1: [b"\x00", b"\x02"]}
    assert list(split_by_partition(values(0, 1), np.array([], np.int64))) == []


@pytest.mark.parametrize(("count", "max_bytes", "expected"), [(5, 100, [2, 2, 1]), (5, 50, [1] * 5), (5, 10**6, [5])])
def test_batches_fill_up_to_their_limit(count: int, max_bytes: int, expected: list[int]) -> None:
    assert [b.record_count for b in record_batches(values(count, 26), max_bytes, NO_PRODUCER)] == expected


def test_few_rows_are_those_that_a_table_of_them_gives() -> None:
    records = [(1_000, b"k", b"v", None), (None, None, b"", None), (-5, b"", None, None), (7, None, b"w", None)]
    parts = few_rows_of(payload_table(records), [1, 2, 1], NO_PRODUCER)
    expected = [few_rows(data_table([NewRecordBatch(payload_table(part))])) for part in (records[:1], records[1:3])]
    assert parts[:2] == expected
    assert [len(part or ()) for part in parts] == [1, 2, 1]


def test_rows_with_headers_or_a_time_that_cannot_be_stored_are_no_few_rows() -> None:
    records = [(0, None, b"a", [("h", b"x")]), (0, None, b"b", None), (0, None, b"c", None)]
    table = payload_table(records)
    times = pa.array([0, 0, 2**63 - 1]).cast(PAYLOAD_SCHEMA.field("timestamp").type)
    late = table.set_column(table.schema.get_field_index("timestamp"), PAYLOAD_SCHEMA.field("timestamp"), times)
    assert [part is None for part in few_rows_of(late, [1, 1, 1], NO_PRODUCER)] == [True, False, True]


def test_a_record_above_the_limit_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="The message is 124 bytes when serialized which is larger than 100"):
        record_batches(values(1, 100), 100, NO_PRODUCER)


def test_rows_of_a_transaction_name_its_producer_in_every_file() -> None:
    payload, producer = values(3, 5), ProducerIdAndEpoch(7, 2)
    (few,) = few_rows_of(payload, [3], producer)
    (batch,) = record_batches(payload, 1_000, producer)
    assert few is not None
    assert table_of_rows(few).to_pylist() == data_table([batch]).to_pylist()
    expected = {(7, 2, NO_SEQUENCE, TRANSACTIONAL_ATTRIBUTE)}
    assert {(row.producer_id, row.producer_epoch, row.sequence, row.attributes) for row in few} == expected


def test_a_time_before_1970_is_refused_as_by_a_producer() -> None:
    """-1 ms would be read as no time."""
    times = pa.array([-1], pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidTimestampError, match="should always be non-negative or null"):
        list(rows_by_topic(pa.record_batch([pa.array(["v"]), times], names=["value", "at"]), "t", "at", 7))
