"""Keys and values of `__transaction_state` in Kafka's binary schemas. Pure.

Kafka: `TransactionLog`, `TransactionLogKey.json`, `TransactionLogValue.json`. Value version 1 is written, which keeps
what KIP-890 needs as tagged fields; versions 0 and 1 are read.
"""

from __future__ import annotations

from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.coordinator.transactions.transaction import STATE_OF_NUMBER, Transaction, TransactionState
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import NO_PRODUCER_ID, TopicPartition
from stratalog.wire.consumer_protocol import partitions_by_topic
from stratalog.wire.kafka_types import Field, Struct, Versioned, version_of

KEY_VERSION = 0
VALUE_VERSION = 1
_KEY = Versioned(Struct("TransactionLogKey", (Field("transactional_id", "string"),)), range(1))
_PARTITIONS = Struct("PartitionsSchema", (Field("topic", "string"), Field("partition_ids", "int32", is_array=True)))
_VALUE = Versioned(
    Struct(
        "TransactionLogValue",
        (
            Field("producer_id", "int64"),
            Field("previous_producer_id", "int64", tag=0, default=NO_PRODUCER_ID),
            Field("next_producer_id", "int64", tag=1, default=NO_PRODUCER_ID),
            Field("producer_epoch", "int16"),
            Field("transaction_timeout_ms", "int32"),
            Field("transaction_status", "int8"),
            Field("transaction_partitions", _PARTITIONS, is_array=True, is_nullable=True),
            Field("transaction_last_update_timestamp_ms", "int64"),
            Field("transaction_start_timestamp_ms", "int64"),
            Field("client_transaction_version", "int16", tag=2, default=0),
        ),
    ),
    versions=range(2),
    flexible_from=1,
)


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    """The record that makes this the state of its transactional id."""
    return CoordinatorRecord(transaction_key(transaction.transactional_id), transaction_value(transaction))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """The record after which the transactional id is unknown."""
    return CoordinatorRecord(transaction_key(transactional_id), None)


def transaction_key(transactional_id: str) -> bytes:
    """
    >>> transaction_key("tx").hex()
    '000000027478'
    """
    return _KEY.encode({"transactional_id": transactional_id}, KEY_VERSION)


def transactional_id_of(key: bytes) -> str | None:
    """The transactional id of a key; None when the key is of a newer version, whose meaning is not known here."""
    return str(_KEY.decode(key)["transactional_id"]) if version_of(key) == KEY_VERSION else None


def transaction_value(transaction: Transaction) -> bytes:
    """The state as stored. Partitions are null in Empty; default values of tagged fields are left out."""
    by_topic = partitions_by_topic(sorted(transaction.partitions))
    topics = [{"topic": topic, "partition_ids": numbers} for topic, numbers in by_topic.items()]
    fields = {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state.number,
        "transaction_partitions": None if transaction.state is TransactionState.EMPTY else topics,
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
        "client_transaction_version": transaction.transaction_version,
    }
    return _VALUE.encode(fields, VALUE_VERSION)


def transaction_of(transactional_id: str, value: bytes) -> Transaction:
    """The state in a value. CorruptMessageError for a version or a state that Kafka does not have."""
    try:
        fields = _VALUE.decode(value)
    except CorruptMessageError as reason:
        raise CorruptMessageError(f"transactional id {transactional_id}: {reason}") from reason
    number = fields["transaction_status"]
    if number not in STATE_OF_NUMBER:
        raise CorruptMessageError(f"transactional id {transactional_id}: state {number} is none of Kafka's")
    topics = fields["transaction_partitions"] or ()
    return Transaction(
        transactional_id,
        fields["producer_id"],
        fields["producer_epoch"],
        fields["transaction_timeout_ms"],
        STATE_OF_NUMBER[number],
        frozenset(TopicPartition(each["topic"], number) for each in topics for number in each["partition_ids"]),
        fields["transaction_last_update_timestamp_ms"],
        fields["transaction_start_timestamp_ms"],
        previous_producer_id=fields.get("previous_producer_id", NO_PRODUCER_ID),
        next_producer_id=fields.get("next_producer_id", NO_PRODUCER_ID),
        transaction_version=fields.get("client_transaction_version", 0),
    )
