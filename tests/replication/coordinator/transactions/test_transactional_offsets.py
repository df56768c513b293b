"""Offsets go into a transaction only as long as its coordinator is going to end it in their partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.coordinator.transactions.add_partitions import commit_in_transaction
from stratalog.replication.requests.groups import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from stratalog.replication.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.storage.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProducerFencedError,
    StratalogError,
    UnverifiedTransactionError,
)
from stratalog.storage.records import NewRecordBatch
from tests.replication.coordinated import GROUP, P0
from tests.replication.coordinator.runtime.test_classic_groups import Groups, committed
from tests.replication.coordinator.runtime.test_effects import append_marker
from tests.replication.group_coordinator import commit_request, error_name
from tests.replication.transaction_tools import TX, Coordinator


class Consumer:
    """Commits offsets of `t-0` in transactions: a group's coordinator on a replicated log, and the transaction's."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.groups = Groups()
        self.transactions = Coordinator([P0])
        self.questions: list[object] = []
        self.answer: StratalogError | None = None
        self.late_marker: NewRecordBatch | None = None
        given = self.transactions.ask(InitProducerIdRequest(TX, 60_000))
        self.producer = (given.producer_id, given.producer_epoch)
        self.end = 0

    def add(self) -> None:
        """What clients of before version 2 do first."""
        self.transactions.ask(AddPartitionsToTxnRequest(TX, *self.producer, (P0,)))

    def end_transaction(self, *, is_commit: bool) -> None:
        answer = self.transactions.ask(EndTxnRequest(TX, *self.producer, is_commit, self.version))
        self.producer = (answer.producer_id, answer.producer_epoch)
        for effect in self.transactions.effects:
            self.mark(effect.batch)
        self.transactions.write_markers()

    def mark(self, batch: NewRecordBatch) -> None:
        append_marker(self.groups, batch)
        self.follow()
        assert self.groups.taken() == [None]

    def follow(self) -> None:
        self.groups.settle()
        self.end = self.groups.broker.leaders[P0].log.log_end_offset
        self.groups.follow(self.end)

    def ask_transaction(self, request, answer) -> None:
        self.questions.append(request)
        if self.late_marker is not None:
            marker, self.late_marker = self.late_marker, None
            self.mark(marker)
            self.transactions.write_markers()
        answer(self.answer or self.transactions.ask(request))

    def commit(self, offset: int, *, is_abortable_known: bool = True) -> str:
        request = TxnOffsetCommitRequest(TX, "g", *self.producer, commit_request({("t", 0): offset}).topics)
        answers: list[object] = []
        commit_in_transaction(
            lambda asked, answer: self.groups.broker.calls.coordinator(GROUP, 0, asked, answer),
            self.ask_transaction,
            request,
            P0,
            self.version,
            answers.append,
            is_abortable_known=is_abortable_known,
        )
        self.follow()
        self.follow()
        (told,) = answers
        if isinstance(told, StratalogError):
            return told.name
        assert isinstance(told, TxnOffsetCommitResponse)
        return error_name(told.topics[0].partitions[0])


def test_under_version_2_the_first_commit_of_a_transaction_adds_the_partition() -> None:
    consumer = Consumer(2)
    assert [consumer.commit(5), consumer.commit(6)] == ["NONE", "NONE"]
    assert consumer.questions == [AddOffsetsToTxnRequest(TX, *consumer.producer, "g", P0, 2)]
    consumer.end_transaction(is_commit=True)
    assert committed(consumer.groups) == {"t-0": 6}
    assert consumer.commit(7) == "NONE"
    assert len(consumer.questions) == 2


def test_a_marker_that_comes_after_the_question_makes_version_2_ask_again() -> None:
    consumer = Consumer(2)
    assert consumer.commit(5) == "NONE"
    ended = consumer.transactions.ask(EndTxnRequest(TX, *consumer.producer, False, 2))
    consumer.producer = (ended.producer_id, ended.producer_epoch)
    (effect,) = consumer.transactions.effects
    consumer.late_marker = effect.batch
    assert consumer.commit(7) == "NONE"
    assert len(consumer.questions) == 3
    consumer.end_transaction(is_commit=True)
    assert committed(consumer.groups) == {"t-0": 7}


def test_before_version_2_the_producer_has_to_have_added_the_partition() -> None:
    consumer = Consumer(0)
    assert consumer.commit(5) == "TRANSACTION_ABORTABLE"
    assert consumer.commit(5, is_abortable_known=False) == "INVALID_TXN_STATE"
    assert consumer.end == 0
    consumer.add()
    assert consumer.commit(5) == "NONE"
    assert consumer.questions[-1] == AddPartitionsToTxnRequest(TX, *consumer.producer, (P0,), verify_only=True)
    consumer.end_transaction(is_commit=True)
    assert committed(consumer.groups) == {"t-0": 5}
    assert consumer.commit(6) == "TRANSACTION_ABORTABLE"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ProducerFencedError("x"), "INVALID_PRODUCER_EPOCH"),
        (ConcurrentTransactionsError("x"), "CONCURRENT_TRANSACTIONS"),
        (NotCoordinatorError("x"), "NOT_COORDINATOR"),
        (CoordinatorNotAvailableError("x"), "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_what_the_client_is_told_when_the_transaction_cannot_be_verified(answer: StratalogError, told: str) -> None:
    for version in (0, 2):
        consumer = Consumer(version)
        consumer.answer = answer
        assert (consumer.commit(5), consumer.end) == (told, 0)


@pytest.mark.parametrize("is_marked_before", [True, False])
def test_a_transaction_that_ends_after_it_was_verified_takes_no_offset(*, is_marked_before: bool) -> None:
    """An older client's transaction keeps its epoch, so nothing but the marker tells that it is over: the marker is
    there when the commit comes, or is decided before it and appended with it. Nobody would end the transaction that
    this commit began, and the group's offsets would stay unstable for good."""
    consumer = Consumer(0)
    consumer.add()
    groups = consumer.groups
    first = TxnOffsetCommitRequest(TX, "g", *consumer.producer, commit_request({("t", 0): 5}).topics)
    refused = groups.answer(first)
    assert isinstance(refused, UnverifiedTransactionError)
    consumer.transactions.ask(EndTxnRequest(TX, *consumer.producer, False))
    (effect,) = consumer.transactions.effects
    late = replace(first, verified_offset=refused.log_end_offset)
    if is_marked_before:
        consumer.mark(effect.batch)
        groups.ask(late)
        consumer.follow()
    else:
        append_marker(groups, effect.batch)
        groups.ask(late)
        consumer.follow()
        assert groups.answers.pop(0) is None
    (told,) = groups.answers
    assert isinstance(told, UnverifiedTransactionError)
    assert (told.name, told.log_end_offset) == ("INVALID_TXN_STATE", 1)
    assert consumer.end == 1
    assert not groups.broker.leaders[P0].log.producers.transactions.of(consumer.producer[0]).is_open


def test_offsets_that_were_verified_in_another_leader_epoch_are_not_taken() -> None:
    consumer = Consumer(0)
    consumer.add()
    groups = consumer.groups
    first = TxnOffsetCommitRequest(TX, "g", *consumer.producer, commit_request({("t", 0): 5}).topics)
    refused = groups.answer(first)
    assert isinstance(refused, UnverifiedTransactionError)
    assert refused.leader_epoch == 0
    groups.lead(1, 1)
    groups.follow(0)
    again = groups.answer(replace(first, **refused.verification))
    assert isinstance(again, UnverifiedTransactionError)
    assert (again.leader_epoch, consumer.end) == (1, 0)
