"""Batches behind one that the coordinator is asked about reach the log after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stratalog.replication.coordinator.transactions.add_partitions import produce_in_transaction
from stratalog.replication.coordinator.transactions.held_batches import HeldBatches, OpenQuestion
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_2, AddPartitionsToTxnResponse
from stratalog.storage.errors import ConcurrentTransactionsError, UnverifiedTransactionError
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table

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
            refusal = ProduceResponse(request.topic_partition, error=UnverifiedTransactionError("not yet", 5))
            if self.refused is None:
                complete(refusal)
            else:
                self.refused.append(partial(complete, refusal))
            return
        self.open.add(key)
        self.sequences.append(batch.base_sequence)
        complete(ProduceResponse(request.topic_partition, 5, 5))

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

        request = ProduceRequest(named, batch)
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
    assert leader.held._held == {}


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


def test_batches_that_were_asked_about_together_are_all_sent_before_later_ones() -> None:
    leader, key, sent = Leader(), (7, T), list[str]()
    held = leader.held
    first, second = held.asked(key), held.asked(key)
    held.begin(key, lambda: sent.append("c"))
    held.answered(key, first, lambda: sent.append("a"))
    assert sent == ["a"]
    held.answered(key, second, lambda: sent.append("b"))
    assert sent == ["a", "b", "c"]
    assert held._held == {}


def test_batches_that_were_asked_about_together_are_sent_in_their_order_whichever_answer_comes_first() -> None:
    """The refusals of both come after both were sent; the first question is asked again and answered last."""
    leader = Leader()
    refused = leader.refuse_later()
    leader.send(0)
    leader.send(1)
    for refuse in refused:
        refuse()
    leader.send(2)
    leader.answer(1)
    assert leader.sequences == []
    leader.answer(0)
    assert leader.sequences == [0, 1, 2]


def test_a_batch_that_is_sent_meanwhile_stays_behind() -> None:
    """One is released, and another one comes before the rest is: it goes to the end."""
    held, key, sent, questions = HeldBatches(), (7, T), list[int](), list[OpenQuestion]()

    def first() -> None:
        sent.append(1)
        held.begin(key, lambda: sent.append(3))
        questions.append(held.asked(key))

    again = held.asked(key)
    held.begin(key, first)
    held.begin(key, lambda: sent.append(2))
    held.answered(key, again, lambda: None)
    assert sent == [1]
    held.answered(key, questions[0], lambda: None)
    assert sent == [1, 2, 3]
