"""What a producer does with each answer, and that batches survive any mix of faults once and in order."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from stratalog.clients.config import ProducerConfig
from stratalog.clients.producer.accumulator import PartitionQueue
from stratalog.clients.producer.batch import ProducerBatch
from stratalog.clients.producer.retry import Action, Circumstances, Verdict, backoff_ms, judge
from stratalog.storage.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    RecordTooLargeError,
    RequestTimedOutError,
    StoreUnavailableError,
    StratalogError,
    UnknownProducerIdError,
)
from stratalog.storage.producers import BatchMetadata, Duplicate, ProducerStates
from stratalog.storage.records import NewRecordBatch, TopicPartition

PLAIN = Circumstances(record_count=3, attempts=1, retries=10, is_idempotent=True, is_oldest=True, has_gap=False)
RETRY = Verdict(Action.RETRY, backoff=True)

VERDICTS: list[tuple[StratalogError | None, Circumstances, Verdict]] = [
    (None, PLAIN, Verdict(Action.DONE)),
    (NotLeaderOrFollowerError(), PLAIN, RETRY),
    (NotEnoughReplicasError(), PLAIN, RETRY),
    (NotEnoughReplicasAfterAppendError(), PLAIN, RETRY),
    (RequestTimedOutError(), PLAIN, RETRY),
    (StoreUnavailableError(), PLAIN, RETRY),
    (CorruptMessageError(), PLAIN, RETRY),
    (NotLeaderOrFollowerError(), replace(PLAIN, attempts=11), Verdict(Action.FAIL)),
    (NotLeaderOrFollowerError(), replace(PLAIN, retries=0), Verdict(Action.FAIL)),
    (InvalidRecordError(), PLAIN, Verdict(Action.FAIL)),
    (RecordTooLargeError(), PLAIN, Verdict(Action.SPLIT)),
    (RecordListTooLargeError(), PLAIN, Verdict(Action.SPLIT)),
    (RecordTooLargeError(), replace(PLAIN, record_count=1), Verdict(Action.FAIL)),
    (OutOfOrderSequenceNumberError(), replace(PLAIN, is_oldest=False), Verdict(Action.RETRY)),
    (OutOfOrderSequenceNumberError(), replace(PLAIN, was_overtaken=True), Verdict(Action.RETRY)),
    (OutOfOrderSequenceNumberError(), replace(PLAIN, has_gap=True), replace(RETRY, new_epoch=True)),
    (OutOfOrderSequenceNumberError(), PLAIN, Verdict(Action.FAIL, new_epoch=True)),
    (OutOfOrderSequenceNumberError(), replace(PLAIN, is_idempotent=False), Verdict(Action.FAIL)),
    (UnknownProducerIdError(), PLAIN, replace(RETRY, new_epoch=True)),
    (UnknownProducerIdError(), replace(PLAIN, is_oldest=False), Verdict(Action.RETRY)),
    (InvalidProducerEpochError(), PLAIN, Verdict(Action.FAIL, new_epoch=True)),
]


@pytest.mark.parametrize(("error", "seen", "expected"), VERDICTS)
def test_each_answer_has_its_verdict(error: StratalogError | None, seen: Circumstances, expected: Verdict) -> None:
    assert judge(error, seen) == expected


def test_backoff_doubles_up_to_its_limit() -> None:
    assert [backoff_ms(n, 100, 1000, 0.0) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff_ms(1, 100, 1000, 0.2) == 120
    assert backoff_ms(10_000, 100, 1000, -0.2) == 800


def times_of(batch: ProducerBatch) -> list[int | None]:
    """The timestamps of a closed batch, ms."""
    assert batch.payload is not None
    times: list[int | None] = NewRecordBatch(batch.payload).payload["timestamp"].cast("int64").to_pylist()
    return times


class Leader:
    """A partition's leader: answers in order, with the real producer state; some answers are lost."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.states = ProducerStates()
        self.log: list[int | None] = []
        self.queue: deque[tuple[ProducerBatch, int, tuple[int, int, int], list[int | None]]] = deque()

    def step(self) -> tuple[ProducerBatch, int, StratalogError | None] | None:
        batch, attempt, (producer_id, epoch, sequence), times = self.queue.popleft()
        if self.rng.random() < 0.15:
            return batch, attempt, NotLeaderOrFollowerError()
        if len(times) > 3:
            return batch, attempt, RecordTooLargeError()
        try:
            known = self.states.check(producer_id, epoch, sequence, len(times))
        except StratalogError as error:
            return batch, attempt, error
        if not isinstance(known, Duplicate):
            last = (sequence + len(times) - 1) & 0x7FFFFFFF
            base = len(self.log)
            metadata = BatchMetadata(sequence, last, base, base + len(times) - 1, 0)
            self.states = self.states.with_batch(producer_id, epoch, metadata)
            self.log.extend(times)
        return None if self.rng.random() < 0.1 else (batch, attempt, None)


class History:
    """A producer's queue against a leader under random faults; every record carries its number as timestamp."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.config = ProducerConfig.from_settings({"batch.size": "100"}, {})
        self.queue = PartitionQueue(TopicPartition("t", 0), self.config, 7, iter(range(8, 99)).__next__)
        self.leader = Leader(self.rng)
        self.now_ms = 0
        self.sent = 0
        self.acked: list[int | None] = []
        self.failed: set[int | None] = set()
        self.times: dict[int, list[int | None]] = {}

    def add(self) -> None:
        batch = ProducerBatch(TopicPartition("t", 0), self.queue.next_number(), self.now_ms)
        for _ in range(self.rng.randrange(1, 5)):
            batch.append(self.sent, None, b"v", None, 30)
            self.sent += 1
        batch.close()
        self.queue.waiting.append(batch)

    def send(self) -> None:
        due_ms = self.queue.ready_at_ms(is_flushing=False)
        if due_ms is not None and due_ms <= self.now_ms:
            batch = self.queue.send_next(self.now_ms)
            label = (batch.producer_id, batch.producer_epoch, batch.sequence)
            times = times_of(batch)
            self.leader.queue.append((batch, batch.attempts, label, times))

    def answer(self) -> None:
        answer = self.leader.step() if self.leader.queue else None
        if answer is not None:
            self.take(*answer)

    def time_out(self) -> None:
        if self.queue.in_flight:
            batch = self.rng.choice(self.queue.in_flight)
            self.take(batch, batch.attempts, RequestTimedOutError())

    def take(self, batch: ProducerBatch, attempt: int, error: StratalogError | None) -> None:
        if batch not in self.queue.in_flight or batch.attempts != attempt:
            return
        verdict = self.queue.answered(batch, error, self.now_ms, 0.0)
        times = times_of(batch)
        if verdict.action is Action.DONE:
            self.acked.extend(times)
        elif verdict.action is Action.FAIL:
            self.failed.update(times)

    def expire(self) -> None:
        for batch, _ in self.queue.expire(self.now_ms, 2_000):
            batch.close()
            self.failed.update(times_of(batch))

    def run(self, steps: int, with_expiry: bool) -> None:
        actions = [self.add, self.send, self.send, self.answer, self.answer, self.time_out]
        for _ in range(steps):
            self.now_ms += self.rng.randrange(0, 60)
            self.rng.choice(actions)()
            if with_expiry:
                self.expire()
        while not self.queue.is_empty():
            self.now_ms += 200
            for action in (self.send, self.answer):
                action()
            if not self.leader.queue:
                self.time_out()


@pytest.mark.parametrize("seed", range(25))
def test_every_record_is_stored_once_and_in_order_whatever_is_refused_or_lost(seed: int) -> None:
    history = History(seed)
    history.run(400, with_expiry=False)
    assert history.failed == set()
    assert history.leader.log == list(range(history.sent))
    assert sorted(history.acked, key=int) == history.leader.log  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(25))
def test_batches_given_up_leave_the_others_stored_once_and_in_order(seed: int) -> None:
    history = History(seed)
    history.run(400, with_expiry=True)
    log = history.leader.log
    assert log == sorted(set(log), key=int)  # type: ignore[arg-type]
    assert set(history.acked) <= set(log)
    assert set(history.acked) | history.failed == set(range(history.sent))
