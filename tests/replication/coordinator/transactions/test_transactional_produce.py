"""The first batch of a transaction asks the coordinator; what it says becomes the producer's answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from stratalog.replication.coordinator.transactions.add_partitions import (
    Retries,
    ask_while_ending,
    coordinator_asker,
    produce_in_transaction,
)
from stratalog.replication.internal_topics import partition_of_key
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.storage.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProducerFencedError,
    StratalogError,
)
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, IdentifiedPartition, NewRecordBatch, TopicPartition
from tests.replication.transaction_tools import TX, A, B, Coordinator
from tests.storage.logs import Replicas, append, idempotent

CONCURRENT = "CONCURRENT_TRANSACTIONS"


class Leader:
    """A partition's leader that appends at once."""

    def __init__(self) -> None:
        self.log = Replicas.new().leader()
        self.seen: list[NewRecordBatch] = []

    def produce_then(self, request, complete):
        self.seen.append(request.batch)
        (result,) = append(self.log, request.batch, epoch=self.log.leader_epoch).results
        if isinstance(result, StratalogError):
            complete(ProduceResponse(request.partition, error=result))
        else:
            complete(ProduceResponse(request.partition, result.base_offset, result.last_offset))


class Producer:
    def __init__(self, version: int) -> None:
        self.version = version
        self.coordinator = Coordinator()
        self.leader = Leader()
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.answer: object = None
        self.late_marker: NewRecordBatch | None = None
        self.later_epoch: int | None = None
        given = self.coordinator.ask(InitProducerIdRequest(TX, 60_000))
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    def ask(self, request, answer):
        self.asked.append(request)
        if self.late_marker is not None:
            append(self.leader.log, self.late_marker)
            self.coordinator.write_markers()
            self.late_marker = None
        if self.later_epoch is not None:
            self.leader.log.start_epoch(self.later_epoch, as_leader=True)
            self.later_epoch = None
        answer(self.answer or self.coordinator.ask(request))

    def produce(self, sequence: int, *, is_abortable_known: bool = True) -> str:
        batch = idempotent("x", sequence, self.producer_id, self.epoch)
        batch = NewRecordBatch(
            batch.payload, self.producer_id, self.epoch, sequence, attributes=TRANSACTIONAL_ATTRIBUTE
        )
        answers = []
        produce_in_transaction(
            self.leader,
            self.ask,
            ProduceRequest(IdentifiedPartition("id", A), batch),
            TX,
            self.version,
            answers.append,
            is_abortable_known=is_abortable_known,
        )
        (response,) = answers
        return "NONE" if response.error is None else response.error.name


def test_under_version_2_the_leader_adds_the_partition_once():
    producer = Producer(2)
    assert [producer.produce(n) for n in range(3)] == ["NONE"] * 3
    assert [(each.topics, each.verify_only) for each in producer.asked] == [((A,), False)]
    assert producer.coordinator.state().partitions == {A}
    assert [batch.verified_offset for batch in producer.leader.seen] == [-1, 0, -1, -1]


def test_before_version_2_the_producer_has_to_have_added_it():
    producer = Producer(0)
    assert producer.produce(0) == "TRANSACTION_ABORTABLE"
    assert producer.produce(0, is_abortable_known=False) == "INVALID_TXN_STATE"
    producer.coordinator.ask(AddPartitionsToTxnRequest(TX, producer.producer_id, 0, (A, B)))
    assert producer.produce(0) == "NONE"
    assert producer.leader.log.log_end_offset == 1


def test_a_transaction_that_was_ended_takes_no_batch():
    producer = Producer(0)
    producer.coordinator.ask(AddPartitionsToTxnRequest(TX, producer.producer_id, 0, (A,)))
    producer.coordinator.ask(EndTxnRequest(TX, producer.producer_id, 0, False))
    assert producer.produce(0) == "NOT_ENOUGH_REPLICAS"
    producer.version = 2
    assert producer.produce(0) == "CONCURRENT_TRANSACTIONS"
    assert producer.leader.log.log_end_offset == 0


class Waits:
    """Calls that are due later, on a clock that moves to each of them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.calls: list[tuple[int, Callable[[], None]]] = []
        self.retries = Retries(20, 100, lambda: self.now_ms, self.schedule_once)

    def schedule_once(self, call: Callable[[], None], delay_ms: int) -> None:
        self.calls.append((self.now_ms + delay_ms, call))

    def run(self) -> None:
        while self.calls:
            self.now_ms, call = self.calls.pop(0)
            call()


@pytest.mark.parametrize(("ends_after", "asked", "told"), [(0, 1, "NONE"), (3, 4, "NONE"), (99, 6, CONCURRENT)])
def test_while_the_last_markers_are_under_way_the_leader_asks_again(ends_after: int, asked: int, told: str) -> None:
    """Every 20 ms, for 100 ms."""
    waits, names = Waits(), []

    def coordinator(request, answer):
        names.append(request)
        error = ConcurrentTransactionsError("markers") if len(names) <= ends_after else None
        answer(AddPartitionsToTxnResponse(tuple((each, error) for each in request.topics)))

    answers = []
    ask_while_ending(coordinator, waits.retries)(AddPartitionsToTxnRequest(TX, 1, 0, (A,)), answers.append)
    waits.run()
    ((_, error),) = answers[0].results
    assert (len(names), "NONE" if error is None else error.name) == (asked, told)


def test_other_errors_of_the_coordinator_are_told_at_once() -> None:
    waits, answers = Waits(), []
    refused = NotCoordinatorError("x")
    ask = ask_while_ending(lambda _, answer: answer(refused), waits.retries)
    ask(AddPartitionsToTxnRequest(TX, 1, 0, (A,)), answers.append)
    assert (answers, waits.calls) == ([refused], [])


def test_a_marker_that_comes_after_the_question_makes_version_2_ask_again():
    """The log ended below the marker when the question was asked, so the answer might be of the transaction before."""
    producer = Producer(2)
    assert producer.produce(0) == "NONE"
    ended = producer.coordinator.ask(EndTxnRequest(TX, producer.producer_id, producer.epoch, False, 2))
    producer.epoch = ended.producer_epoch
    (effect,) = producer.coordinator.effects
    producer.late_marker = effect.batch
    assert producer.produce(0) == "NONE"
    assert [batch.verified_offset for batch in producer.leader.seen] == [-1, 0, -1, 1, 2]
    assert producer.leader.log.log_end_offset == 3


def test_an_answer_of_another_leader_epoch_is_void() -> None:
    """Log ends of different epochs are not compared: the log may have been cut, and a marker appended below. Version 2
    asks again; before, the client comes again, unless it has given the transaction up."""
    producer = Producer(2)
    producer.later_epoch = 4
    assert producer.produce(0) == "NONE"
    assert len(producer.asked) == 2
    producer = Producer(0)
    producer.coordinator.ask(AddPartitionsToTxnRequest(TX, producer.producer_id, 0, (A,)))
    producer.later_epoch = 4
    assert producer.produce(0) == "NOT_LEADER_OR_FOLLOWER"
    assert producer.produce(0) == "NONE"
    assert producer.leader.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("answer", "version", "told"),
    [
        (NotCoordinatorError("x"), 2, "NOT_ENOUGH_REPLICAS"),
        (CoordinatorNotAvailableError("x"), 0, "NOT_ENOUGH_REPLICAS"),
        (ConcurrentTransactionsError("x"), 0, "NOT_ENOUGH_REPLICAS"),
        (ConcurrentTransactionsError("x"), 2, "CONCURRENT_TRANSACTIONS"),
        (ProducerFencedError("x"), 2, "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_what_the_producer_is_told(answer, version, told):
    producer = Producer(version)
    producer.answer = answer
    assert producer.produce(0) == told


def test_the_coordinator_is_who_leads_the_partition_of_the_name():
    place = TopicPartition("__transaction_state", partition_of_key(TX, 3))
    partitions = {TopicPartition("__transaction_state", p): SimpleNamespace(leader=p + 1) for p in range(3)}
    asked: list[tuple[int, object, str]] = []

    def broker(number):
        def coordinator(kind, key, request, answer):
            asked.append((number, kind, key))
            answer(request)

        return SimpleNamespace(coordinator=coordinator)

    answers: list[object] = []
    request = AddPartitionsToTxnRequest(TX, 1, 0, (A,))
    coordinator_asker(lambda: SimpleNamespace(partitions=partitions), {n: broker(n) for n in (1, 2, 3)})(
        request, answers.append
    )
    assert asked == [(place.partition + 1, CoordinatorType.TRANSACTION, TX)]
    assert answers == [request]
    coordinator_asker(lambda: SimpleNamespace(partitions={}), {})(request, answers.append)
    assert answers[1].name == "COORDINATOR_NOT_AVAILABLE"
