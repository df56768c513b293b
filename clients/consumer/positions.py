"""A consumer's position in each assigned partition, the rows it read ahead, and rows as records or a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.records import ConsumerRecord
from stratalog.clients.serialization import KEY, VALUE, Deserializer, SerializationContext
from stratalog.storage.errors import RecordDeserializationError
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import CONTROL_ATTRIBUTE, Header, TopicPartition


@dataclass(slots=True)
class Position:
    """One partition. `offset` is that of the next record to be returned; None: not decided yet.

    `leader_epoch` is that of the record before it, if it was read. `topic_id` is the topic in which the offset was last
    read; None: in none yet. Rows read ahead start at `offset`; the next fetch starts at `_fetched_to`.
    """

    topic_partition: TopicPartition
    offset: int | None = None
    is_paused: bool = False
    leader_epoch: int | None = None
    topic_id: str | None = None
    _rows: pa.Table | None = field(default=None)
    _fetched_to: int = 0

    def seek(self, offset: int) -> None:
        """Set the position; rows read ahead are dropped."""
        self.offset, self._rows, self.leader_epoch, self.topic_id = offset, None, None, None

    def is_in(self, topic_id: str | None) -> bool:
        """Whether the offset may be one of this topic (None: of one that is deleted), not of an earlier one of the
        name."""
        return self.topic_id is None or self.topic_id == topic_id

    def forget(self) -> None:
        """Undecide the position; rows read ahead are dropped."""
        self.offset, self._rows, self.leader_epoch, self.topic_id = None, None, None, None

    def has_rows(self) -> bool:
        return self._rows is not None

    def put(self, rows: pa.Table, next_offset: int) -> None:
        """Keep rows read at `offset`; the next read starts at `next_offset`. Without rows the position moves there."""
        if rows.num_rows == 0:
            self.offset, self._rows = next_offset, None
            return
        self._rows, self._fetched_to = rows, next_offset

    def take(self, count: int | None) -> pa.Table:
        """Remove up to `count` rows (None: all read ahead) and move the position behind them. Only with rows."""
        assert self._rows is not None
        rows = self._rows
        if count is None or count >= rows.num_rows:
            self.offset, self._rows = self._fetched_to, None
        else:
            rows, self._rows = rows.slice(0, count), rows.slice(count)
            self.offset = self._rows["offset"][0].as_py()
        self.leader_epoch = rows["leader_epoch"][-1].as_py()
        return rows


class Positions:
    """The assigned partitions, visited in turn so that a busy one does not starve the others.

    Only those that may have rows are visited: since `may_have_rows`, until `has_no_more`.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Position] = {}
        self._to_visit: dict[TopicPartition, None] = {}
        self._with_rows: dict[TopicPartition, None] = {}

    def assign(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Exactly these from now on; known ones keep their position."""
        known = self.by_partition
        self.by_partition = {tp: known.get(tp) or Position(tp) for tp in topic_partitions}
        self._with_rows = {tp: None for tp in self._with_rows if tp in self.by_partition}
        self.may_have_rows(None)

    def may_have_rows(self, topic_partitions: Iterable[TopicPartition] | None) -> None:
        """Visit these partitions (None: all)."""
        for topic_partition in self.by_partition if topic_partitions is None else topic_partitions:
            if topic_partition in self.by_partition:
                self._to_visit[topic_partition] = None

    def has_no_more(self, position: Position) -> None:
        """Everything was read: no visit until `may_have_rows`."""
        self._to_visit.pop(position.topic_partition, None)

    @property
    def are_all_read(self) -> bool:
        """True when none needs a visit."""
        return not self._to_visit

    def in_turn(self) -> Iterator[Position]:
        """Partitions to visit, the one served longest ago first. Paused ones are not visited until resumed."""
        for topic_partition in list(self._to_visit):
            del self._to_visit[topic_partition]
            position = self.by_partition.get(topic_partition)
            if position is not None and not position.is_paused:
                self._to_visit[topic_partition] = None
                yield position

    def fetched(self, position: Position) -> None:
        """Rows were read ahead for this partition."""
        self._with_rows[position.topic_partition] = None

    def next_with_rows(self) -> Position | None:
        """A partition, not paused, with rows read ahead; the one served longest ago."""
        for topic_partition in list(self._with_rows):
            position = self.by_partition[topic_partition]
            if not position.has_rows():
                del self._with_rows[topic_partition]
            elif not position.is_paused:
                del self._with_rows[topic_partition]
                self._with_rows[topic_partition] = None
                return position
        return None


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
    is_control = pc.bit_wise_and(rows["attributes"], pa.scalar(CONTROL_ATTRIBUTE, pa.int16()))
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


def deserialized(
    record: ConsumerRecord, of_keys: Deserializer | None, of_values: Deserializer | None
) -> ConsumerRecord:
    """The record with its data. RecordDeserializationError, with the deserializer's error as its cause."""
    headers: list[tuple[str, bytes | None]] = list(record.headers)
    place, key, value = KEY, record.key, record.value
    try:
        if of_keys is not None:
            key = of_keys(key, SerializationContext(record.topic, KEY, headers))
        place = VALUE
        if of_values is not None:
            value = of_values(value, SerializationContext(record.topic, VALUE, headers))
    except Exception as reason:
        # Whatever a user's deserializer raises, the record is named, so that a reader can pass it.
        raise RecordDeserializationError(
            f"Error deserializing {place.upper()} for partition {record.topic}-{record.partition} at offset "
            f"{record.offset}. If needed, please seek past the record to continue consumption. ({reason})",
            record.topic,
            record.partition,
            record.offset,
        ) from reason
    return replace(record, key=key, value=value)
