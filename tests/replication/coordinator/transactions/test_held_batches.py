"""Batches behind one that the coordinator is asked about reach the log after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from stratalog.replication.coordinator.transactions.add_partitions import produce_in_transaction
from stratalog.replication.coordinator.transactions.held_batches import HeldBatch, HeldBatches
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_2, AddPartitionsToTxnResponse
from stratalog.storage.errors import ConcurrentTransactionsError, StratalogError, UnverifiedTransactionError
from stratalog.storage.records import (
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    TopicPartition,
    payload_table,
)
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.storage.logs import Replicas, append, idempotent

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


class Leader:
    """Notes the batches that reach it, by sequence; refuses those of a transaction that it does not know."""

    def __init__(self) -> None:
        self.open: set[tuple[int, TopicPartition]] = set()
        self.sequences: list[int] = []
        self.held = HeldBatches()
        self.questions: list[Callable[[object], None]] = []
        self.completed: list[tuple[int, str]] = []
        self.refused: list[Callable[[], None]] | None = None

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        batch = request.batch
        assert isinstance(batch, NewRecordBatch)
        key = (batch.producer_id, request.topic_partition)
        if key not in self.open and batch.verified_offset < 0:
            refusal = ProduceResponse(request.partition, error=UnverifiedTransactionError("not yet", 5))
            if self.refused is None:
                complete(refusal)
            else:
                self.refused.append(partial(complete, refusal))
            return
        self.open.add(key)
        self.sequences.append(batch.base_sequence)
        complete(ProduceResponse(request.partition, 5, 5))

    def refuse_later(self) -> list[Callable[[], None]]:
        """Refusals are calls of the test from now on."""
        self.refused = []
        return self.refused

    def send(self, sequence: int, producer_id: int = 7, named: TopicPartition = T) -> None:
        batch = NewRecordBatch(payload_table([(1, None, b"v", None)]), producer_id, 0, sequence, attributes=16)

        def ask(_question: object, answer: Callable[[object], None]) -> None:
            self.questions.append(answer)

        def complete(response: ProduceResponse) -> None:
            self.completed.append((sequence, response.error.name if response.error else ""))

        request = ProduceRequest(IdentifiedPartition("id", named), batch)
        produce_in_transaction(self, ask, request, "x", TRANSACTION_VERSION_2, complete, held=self.held)

    def answer(self, which: int, answer: Any = None, named: TopicPartition = T) -> None:
        self.questions[which](answer or AddPartitionsToTxnResponse(((named, None),)))


def test_a_batch_waits_for_the_question_about_the_one_before_it() -> None:
    leader = Leader()
    for sequence in (0, 1, 2):
        leader.send(sequence)
    assert (leader.sequences, len(leader.questions)) == ([], 1)
    leader.answer(0)
    assert leader.sequences == [0, 1, 2]
    leader.send(3)
    assert leader.sequences == [0, 1, 2, 3]
    assert leader.held._lines == {}


def test_another_partition_or_producer_does_not_wait() -> None:
    leader = Leader()
    leader.open = {(7, U), (8, T)}
    leader.send(0)
    leader.send(1)
    leader.send(10, named=U)
    leader.send(20, producer_id=8)
    assert leader.sequences == [10, 20]
    leader.answer(0)
    assert leader.sequences == [10, 20, 0, 1]


def test_a_refused_batch_lets_the_next_one_ask() -> None:
    leader = Leader()
    leader.send(0)
    leader.send(1)
    leader.answer(0, ConcurrentTransactionsError("markers are under way"))
    assert (leader.completed, len(leader.questions)) == ([(0, "CONCURRENT_TRANSACTIONS")], 2)
    leader.answer(1)
    assert leader.sequences == [1]  # the log judges its sequence


class Line:
    """Batches of one producer and partition, and what was sent: `1` unverified, `1!` verified."""

    def __init__(self) -> None:
        self.held = HeldBatches()
        self.sent: list[str] = []

    def come(self, name: str) -> HeldBatch:
        batch = HeldBatch((7, T), lambda verified: self.sent.append(name + "!" * (verified is not None)))
        self.held.begin(batch)
        return batch

    def answer(self, batch: HeldBatch) -> None:
        self.held.answered(batch, UnverifiedTransactionError("not yet", 5))

    def new(self) -> list[str]:
        """What was sent since the last call."""
        sent, self.sent[:] = list(self.sent), []
        return sent


def test_one_batch_is_asked_about_and_those_behind_it_follow_unverified() -> None:
    line = Line()
    first, second = line.come("1"), line.come("2")
    assert [line.held.refused(first), line.held.refused(second)] == [True, False]
    line.come("3")
    assert line.new() == ["1", "2"]
    line.answer(first)
    assert line.new() == ["1!", "2", "3"]


def test_a_batch_that_is_asked_about_again_keeps_its_place() -> None:
    """A marker came after the question: the log refuses the verified batch, and those behind it as unverified."""
    line = Line()
    first, second = line.come("1"), line.come("2")
    assert [line.held.refused(first), line.held.refused(second)] == [True, False]
    line.answer(first)
    assert line.new() == ["1", "2", "1!", "2"]
    assert [line.held.refused(first), line.held.refused(second)] == [True, False]
    third = line.come("3")
    assert line.new() == []
    line.answer(first)
    assert line.new() == ["1!", "2", "3"]
    for batch in (first, second, third):
        line.held.done(batch)
    assert line.held._lines == {}


def test_a_batch_is_asked_about_when_the_one_before_it_has_an_answer_that_did_not_begin_the_transaction() -> None:
    line = Line()
    first, second = line.come("1"), line.come("2")
    assert [line.held.refused(first), line.held.refused(second)] == [True, False]
    line.held.done(first)
    assert line.new() == ["1", "2", "2"]
    assert line.held.refused(second)
    line.answer(second)
    assert line.new() == ["2!"]


def test_a_batch_is_asked_about_behind_one_that_the_log_has() -> None:
    """The first is stored and waits for its followers; a marker ended its transaction before the second came."""
    line = Line()
    line.come("1")
    second = line.come("2")
    assert line.held.refused(second)
    line.answer(second)
    assert line.new() == ["1", "2", "2!"]


def test_nothing_is_sent_before_a_batch_that_has_still_to_come_back() -> None:
    """The first is sent again while the second, sent behind it once, is still in the log's queue: ahead of it."""
    line = Line()
    first, second = line.come("1"), line.come("2")
    assert line.held.refused(first)
    line.answer(first)
    line.come("3")
    assert line.new() == ["1", "2", "1!"]
    assert not line.held.refused(second)
    assert line.new() == ["2", "3"]


def test_a_refusal_that_comes_out_of_order_is_not_used_before_the_one_ahead_of_it() -> None:
    line = Line()
    first, second = line.come("1"), line.come("2")
    assert [line.held.refused(second), line.held.refused(first)] == [True, True]
    line.answer(second)
    assert line.new() == ["1", "2"]
    line.answer(first)
    assert line.new() == ["1!", "2"]


def test_a_batch_that_comes_while_another_one_is_sent_stays_behind() -> None:
    line = Line()

    def send(_verified: UnverifiedTransactionError | None) -> None:
        line.sent.append("1")
        line.come("2")

    line.held.begin(HeldBatch((7, T), send))
    assert line.new() == ["1", "2"]


def test_a_marker_between_two_batches_that_are_under_way_costs_no_sequence() -> None:
    """The log's queue holds the first, the marker of the transaction before, and the second. What the coordinator said
    of the first is void, since the marker came later; it would hold for the second, which must not pass."""
    log = Replicas.new().leader()
    old = replace(idempotent("x", 0, 7, 0), attributes=TRANSACTIONAL_ATTRIBUTE)
    (refused,) = append(log, old).results
    assert isinstance(refused, UnverifiedTransactionError)
    append(log, replace(old, verified_offset=refused.log_end_offset))
    held, told, questions = HeldBatches(), [], deque[Callable[[object], None]]()
    queue = deque[tuple[NewRecordBatch, Callable[[ProduceResponse], None]]]()
    leader = SimpleNamespace(produce_then=lambda request, complete: queue.append((request.batch, complete)))

    def send(sequence: int) -> None:
        batch = replace(idempotent("x", sequence, 7, 1), attributes=TRANSACTIONAL_ATTRIBUTE)

        def complete(response: ProduceResponse) -> None:
            told.append((sequence, response.error.name if response.error else response.base_offset))

        def ask(_question: object, answer: Callable[[object], None]) -> None:
            questions.append(answer)

        produce_in_transaction(
            leader, ask, ProduceRequest(IdentifiedPartition("id", T), batch), "x", 2, complete, held=held
        )

    def answer_all() -> None:
        while questions:
            questions.popleft()(AddPartitionsToTxnResponse(((T, None),)))

    send(0)
    queue.append((marker_batch(7, 1, EndMarker(True, 0), 1, 2), lambda response: told.append(("marker", response))))
    send(1)
    while queue or questions:
        while queue:
            batch, complete = queue.popleft()
            (result,) = append(log, batch).results
            if isinstance(result, StratalogError):
                complete(ProduceResponse(IdentifiedPartition("id", T), error=result))
            elif batch.base_sequence >= 0:
                complete(ProduceResponse(IdentifiedPartition("id", T), result.base_offset, result.last_offset))
        answer_all()
    assert told == [(0, 2), (1, 3)]
