"""The bytes of `__transaction_state`, as Kafka's TransactionLog writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.coordinator.transactions.records import (
    tombstone,
    transaction_key,
    transaction_of,
    transaction_record,
    transaction_value,
    transactional_id_of,
)
from stratalog.replication.coordinator.transactions.transaction import Transaction, TransactionState
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition

ONGOING = Transaction(
    "tx",
    7,
    3,
    60_000,
    TransactionState.ONGOING,
    frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("s", 2)}),
    updated_ms=258,
    started_ms=257,
    previous_producer_id=5,
    transaction_version=2,
)
VERSION_1 = (
    "0001"  # version
    "0000000000000007"  # producer id
    "0003"  # producer epoch
    "0000ea60"  # timeout
    "01"  # Ongoing
    "03"  # two topics
    "0273020000000200"  # s: 2
    "027403000000000000000100"  # t: 0, 1
    "0000000000000102"  # last update
    "0000000000000101"  # start
    "02"  # two tagged fields
    "00080000000000000005"  # previous producer id
    "02020002"  # client transaction version
)  # fmt: skip
VERSION_0 = (
    "0000000000000000000700030000ea6004"
    "00000001000174000000020000000000000001"
    "00000000000001020000000000000101"
)  # fmt: skip


def test_bytes_of_version_1():
    assert transaction_value(ONGOING).hex() == VERSION_1
    assert transaction_of("tx", bytes.fromhex(VERSION_1)) == ONGOING


def test_version_0_is_read():
    read = transaction_of("tx", bytes.fromhex(VERSION_0))
    assert (read.state, read.producer_id, read.producer_epoch) == (TransactionState.COMPLETE_COMMIT, 7, 3)
    assert read.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert (read.previous_producer_id, read.next_producer_id, read.transaction_version) == (-1, -1, 0)


def test_partitions_are_null_in_empty_and_default_tags_left_out():
    written = transaction_value(Transaction("tx", 7, 0, 1)).hex()
    assert written == "000100000000000000070000000000010000" + "f" * 16 + "f" * 16 + "00"  # fmt: skip


def test_keys():
    assert transactional_id_of(transaction_key("tx-ü")) == "tx-ü"
    assert transactional_id_of(bytes.fromhex("00010000")) is None
    assert tombstone("tx") == (bytes.fromhex("000000027478"), None)


@pytest.mark.parametrize("value", ["0002", "", VERSION_1[:-4], "0001" + VERSION_1[4:32] + "09" + VERSION_1[34:]])
def test_what_is_none_of_kafkas_is_corrupt(value):
    with pytest.raises(CorruptMessageError):
        transaction_of("tx", bytes.fromhex(value))


transactions = st.builds(
    Transaction,
    st.text(min_size=1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(1, 2**31 - 1),
    st.sampled_from([s for s in TransactionState if s is not TransactionState.EMPTY]),
    st.frozensets(st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 2**31 - 1))),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.just(-1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2),
)


@given(transactions)
def test_what_is_written_is_read(transaction):
    record = transaction_record(transaction)
    assert record.value is not None
    assert transactional_id_of(record.key) == transaction.transactional_id
    assert transaction_of(transaction.transactional_id, record.value) == transaction
