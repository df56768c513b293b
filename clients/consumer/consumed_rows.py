"""What a consumer gives back: rows of a partition as records or as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.records import ConsumerRecord
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import Header, TopicPartition

CONTROL = 0x20
"""Kafka's attribute bit of a control batch: transaction markers, which only brokers look at."""

_SHOWN = ("offset", "leader_epoch", "timestamp", "timestamp_type", "key", "value", "headers")

CONSUMED_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *[READ_SCHEMA.field(name) for name in _SHOWN],
    ]
)
"""The columns of `Consumer.poll_table`."""


def without_control(rows: pa.Table) -> pa.Table:
    """Rows of `READ_SCHEMA` without transaction markers."""
    if rows.num_rows == 0:
        return rows
    is_control = pc.bit_wise_and(rows["attributes"], pa.scalar(CONTROL, pa.int16()))
    if pc.max(is_control).as_py() == 0:
        return rows
    return rows.filter(pc.equal(is_control, 0))


def consumed_table(topic_partition: TopicPartition, rows: pa.Table) -> pa.Table:
    """Rows of one partition as `CONSUMED_SCHEMA`."""
    topic = pa.repeat(pa.scalar(topic_partition.topic), rows.num_rows)
    partition = pa.repeat(pa.scalar(topic_partition.partition, pa.int32()), rows.num_rows)
    return pa.table([topic, partition, *[rows[name] for name in _SHOWN]], schema=CONSUMED_SCHEMA)


def consumer_records(topic_partition: TopicPartition, rows: pa.Table) -> Iterable[ConsumerRecord]:
    """Rows of one partition as records."""
    times = rows["timestamp"].cast(pa.int64())
    columns = [rows[name] if name != "timestamp" else times for name in _SHOWN]
    for offset, epoch, time_ms, kind, key, value, headers in zip(*(c.to_pylist() for c in columns), strict=True):
        named = tuple(Header(h["key"], h["value"]) for h in headers or ())
        yield ConsumerRecord(*topic_partition, offset, time_ms, kind, key, value, named, epoch)
