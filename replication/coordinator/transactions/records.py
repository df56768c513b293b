"""Keys and values of `__transaction_state` in Kafka's binary schemas. Pure.

Kafka: `TransactionLog`, `TransactionLogKey.json`, `TransactionLogValue.json`. Written is value version 1, which keeps
what KIP-890 needs as tagged fields; versions 0 and 1 are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.coordinator.transactions.transaction import STATE_OF_NUMBER, Transaction, TransactionState
from stratalog.replication.requests.kafka_bytes import KafkaReader, KafkaWriter
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import NO_PRODUCER_ID, TopicPartition

KEY_VERSION = 0
VALUE_VERSIONS = (0, 1)
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION = 0, 1, 2


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    """The record that makes this the state of its transactional id."""
    return CoordinatorRecord(transaction_key(transaction.transactional_id), transaction_value(transaction))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """The record after which the transactional id is not known any more."""
    return CoordinatorRecord(transaction_key(transactional_id), None)


def transaction_key(transactional_id: str) -> bytes:
    """
    >>> transaction_key("tx").hex()
    '000000027478'
    """
    writer = KafkaWriter(flexible=False)
    writer.int16(KEY_VERSION)
    writer.string(transactional_id)
    return writer.bytes_written()


def transactional_id_of(key: bytes) -> str | None:
    """The transactional id of a key; None when the key is of a newer version: of a kind that is not known here."""
    reader = KafkaReader(key, flexible=False)
    return reader.string() if reader.int16() == KEY_VERSION else None


def transaction_value(transaction: Transaction) -> bytes:
    """The state as stored. Partitions are null in Empty; default values of tagged fields are left out."""
    writer = KafkaWriter(flexible=True)
    writer.int16(VALUE_VERSIONS[-1])
    writer.int64(transaction.producer_id)
    writer.int16(transaction.producer_epoch)
    writer.int32(transaction.timeout_ms)
    writer.int8(transaction.state.number)
    topics = None if transaction.state is TransactionState.EMPTY else _by_topic(transaction.partitions)

    def write_topic(topic: tuple[str, list[int]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], writer.int32)
        writer.no_tagged_fields()

    writer.array(topics, write_topic)
    writer.int64(transaction.updated_ms)
    writer.int64(transaction.started_ms)
    _write_tagged(writer, transaction)
    return writer.bytes_written()


def _write_tagged(writer: KafkaWriter, transaction: Transaction) -> None:
    ids = (
        (_PREVIOUS_PRODUCER_ID, transaction.previous_producer_id),
        (_NEXT_PRODUCER_ID, transaction.next_producer_id),
    )
    present = [(tag, producer_id) for tag, producer_id in ids if producer_id != NO_PRODUCER_ID]
    version = transaction.transaction_version
    writer.unsigned_varint(len(present) + (version != 0))
    for tag, producer_id in present:
        writer.unsigned_varint(tag)
        writer.unsigned_varint(8)
        writer.int64(producer_id)
    if version:
        writer.unsigned_varint(_CLIENT_TRANSACTION_VERSION)
        writer.unsigned_varint(2)
        writer.int16(version)


def transaction_of(transactional_id: str, value: bytes) -> Transaction:
    """The state that a value holds. Raises CorruptMessageError for a version or state that Kafka has not."""
    version = KafkaReader(value, flexible=False).int16()
    if version not in VALUE_VERSIONS:
        known = f"known are {VALUE_VERSIONS}"
        raise CorruptMessageError(f"transactional id {transactional_id}: value version {version}, {known}")
    reader = KafkaReader(value[2:], flexible=version >= 1)
    producer_id, producer_epoch, timeout_ms, number = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    if number not in STATE_OF_NUMBER:
        raise CorruptMessageError(f"transactional id {transactional_id}: state {number} is none of Kafka's")

    def read_topic() -> list[TopicPartition]:
        topic, partitions = reader.string(), reader.array(reader.int32)
        reader.tagged_fields()
        return [TopicPartition(topic, partition) for partition in partitions]

    topics = reader.nullable_array(read_topic) or []
    updated_ms, started_ms = reader.int64(), reader.int64()
    tagged = reader.tagged_fields()
    return Transaction(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        STATE_OF_NUMBER[number],
        frozenset(each for topic in topics for each in topic),
        updated_ms,
        started_ms,
        previous_producer_id=_number(tagged.get(_PREVIOUS_PRODUCER_ID), NO_PRODUCER_ID),
        next_producer_id=_number(tagged.get(_NEXT_PRODUCER_ID), NO_PRODUCER_ID),
        transaction_version=_number(tagged.get(_CLIENT_TRANSACTION_VERSION), 0),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _number(field: bytes | None, default: int) -> int:
    return default if field is None else int.from_bytes(field, "big", signed=True)
