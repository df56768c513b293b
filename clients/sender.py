"""The producer's background thread: sends batches to leaders, acts on the answers, completes deliveries.

I/O: through the transport and the cluster view. Every rule it follows is in `accumulator` and `retry`; the
lock is the producer's and is never held while something is sent or a delivery completes.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from clients.accumulator import Accumulator, PartitionQueue
from clients.batch import ProducerBatch
from clients.cluster_view import ClusterView
from clients.records import UNKNOWN_OFFSET
from clients.retry import Action
from clients.settings import ProducerConfig
from clients.transport import Transport
from replication.requests import ACKS_NONE, ProduceRequest, ProduceResponse
from replication.state import NO_LEADER
from storage.errors import (
    LeaderNotAvailableError,
    RequestTimedOutError,
    StoreUnavailableError,
    StratalogError,
    UnknownServerError,
)
from storage.records import NewRecordBatch

IDLE_WAIT_MS = 1_000
ANSWER_GRACE_MS = 2_000
"""The broker gives up a request first and says so; only a broker that says nothing is given up by us."""
METADATA_BACKOFF_MS = 20

_JITTER = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    batch: ProducerBatch
    attempt: int
    response: ProduceResponse | None
    error: StratalogError | None


_Outcome = tuple[ProducerBatch, int, StratalogError | None]


class Counters:
    """Running totals, under Kafka's metric names (`producer-metrics`)."""

    def __init__(self) -> None:
        self.record_send_total = 0
        self.record_retry_total = 0
        self.record_error_total = 0
        self.batch_send_total = 0
        self.request_latency_ms_total = 0

    def as_metrics(self) -> dict[str, float]:
        requests = max(self.batch_send_total, 1)
        return {
            "record-send-total": self.record_send_total,
            "record-retry-total": self.record_retry_total,
            "record-error-total": self.record_error_total,
            "request-total": self.batch_send_total,
            "records-per-request-avg": self.record_send_total / requests,
            "request-latency-avg": self.request_latency_ms_total / requests,
        }


class Sender:
    """One thread that runs until `stop`. `wake` tells it that there is something to send."""

    def __init__(
        self,
        config: ProducerConfig,
        view: ClusterView,
        transport: Transport,
        accumulator: Accumulator,
        lock: threading.Condition,
        rng: random.Random,
        on_memory_freed: Callable[[], None],
    ) -> None:
        self.counters = Counters()
        self.flushes = 0
        self._config = config
        self._view = view
        self._clock = view.clock
        self._transport = transport
        self._accumulator = accumulator
        self._lock = lock
        self._rng = rng
        self._on_memory_freed = on_memory_freed
        self._mailbox: SimpleQueue[_Answer | None] = SimpleQueue()
        self._is_woken = False
        self._is_stopped = False
        self._metadata_is_stale = False
        self._refreshed_ms = self._clock.monotonic_ms()
        self._thread = threading.Thread(target=self._run, name="stratalog-producer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something new to send."""
        if not self._is_woken:
            self._is_woken = True
            self._mailbox.put(None)

    def stop(self, timeout_s: float | None = None) -> None:
        """End the thread; batches without an outcome fail."""
        self._is_stopped = True
        self._mailbox.put(None)
        if not self.is_current_thread():
            self._thread.join(timeout_s)

    def is_current_thread(self) -> bool:
        """True inside a delivery callback."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        wait_ms: float = IDLE_WAIT_MS
        while not self._is_stopped:
            answers = self._wait(wait_ms)
            try:
                wait_ms = self._turn(answers)
            except StoreUnavailableError:
                # Metadata is out of reach for the moment: batches wait, within their delivery timeout.
                wait_ms = self._config.retry_backoff_ms
            except Exception as defect:  # noqa: BLE001
                # Whoever waits for a record must hear of it even when the fault is ours.
                _log.exception("the producer's sender failed")
                self._fail_all(UnknownServerError(f"the producer's sender failed: {defect!r}"))
        self._fail_all(UnknownServerError("Producer is closed forcefully."))

    def _wait(self, wait_ms: float) -> list[_Answer]:
        answers: list[_Answer] = []
        try:
            first = self._mailbox.get(timeout=wait_ms / 1000) if wait_ms > 0 else self._mailbox.get_nowait()
            self._is_woken = False
            while True:
                if first is not None:
                    answers.append(first)
                first = self._mailbox.get_nowait()
        except Empty:
            return answers

    # -- one turn ----------------------------------------------------------------------------------------

    def _turn(self, answers: list[_Answer]) -> float:
        """Take answers in, send what is due; the time in ms until something may be due again."""
        now_ms = self._clock.monotonic_ms()
        self._finish(self._take_in(answers, now_ms))
        self._transport.poll()
        self._refresh_metadata(now_ms)
        batches, wait_ms = self._drain(now_ms)
        for batch in batches:
            self._send(batch)
        return wait_ms

    def _take_in(self, answers: list[_Answer], now_ms: int) -> list[_Outcome]:
        if not answers:
            return []
        outcomes: list[_Outcome] = []
        with self._lock:
            for answer in answers:
                batch = answer.batch
                in_flight = self._accumulator.queue(batch.topic_partition).in_flight
                if batch not in in_flight or batch.attempts != answer.attempt:
                    continue  # given up or sent again meanwhile: only the newest attempt's answer counts
                outcomes.extend(self._judge(batch, answer.response, answer.error, now_ms))
        return outcomes

    def _judge(
        self, batch: ProducerBatch, response: ProduceResponse | None, error: StratalogError | None, now_ms: int
    ) -> list[_Outcome]:
        self.counters.request_latency_ms_total += now_ms - batch.sent_ms
        queue = self._accumulator.queue(batch.topic_partition)
        verdict = queue.answered(batch, error, now_ms, self._rng.uniform(-_JITTER, _JITTER))
        self._metadata_is_stale |= error is not None
        if verdict.action is Action.RETRY:
            self.counters.record_retry_total += batch.record_count
        if verdict.action in (Action.RETRY, Action.SPLIT):
            return []
        self._accumulator.release(batch)
        base_offset = response.base_offset if response else UNKNOWN_OFFSET
        return [(batch, base_offset, error if verdict.action is Action.FAIL else None)]

    def _refresh_metadata(self, now_ms: int) -> None:
        age_ms = now_ms - self._refreshed_ms
        if (self._metadata_is_stale and age_ms >= METADATA_BACKOFF_MS) or age_ms >= self._config.metadata_max_age_ms:
            self._refreshed_ms = now_ms
            self._metadata_is_stale = False
            self._view.refresh()

    def _drain(self, now_ms: int) -> tuple[list[ProducerBatch], float]:
        """The batches to send now, and how long to wait when there are none."""
        wait_ms: float = IDLE_WAIT_MS
        batches: list[ProducerBatch] = []
        expired: list[tuple[ProducerBatch, StratalogError]] = []
        with self._lock:
            for queue in self._accumulator.active():
                expired.extend(self._expire(queue, now_ms))
                taken, queue_wait_ms = self._drain_queue(queue, now_ms)
                batches.extend(taken)
                wait_ms = min(wait_ms, queue_wait_ms)
        self._finish([(batch, UNKNOWN_OFFSET, error) for batch, error in expired])
        return batches, wait_ms

    def _drain_queue(self, queue: PartitionQueue, now_ms: int) -> tuple[list[ProducerBatch], float]:
        taken: list[ProducerBatch] = []
        wait_ms: float = IDLE_WAIT_MS
        while (due_ms := queue.ready_at_ms(self.flushes > 0)) is not None:
            if due_ms > now_ms:
                wait_ms = due_ms - now_ms
            elif not self._has_leader(queue):
                self._metadata_is_stale = True
                wait_ms = self._config.retry_backoff_ms
            elif len(queue.in_flight) < self._transport.max_in_flight:
                taken.append(queue.send_next(now_ms))
                continue
            break
        return taken, min(wait_ms, self._transport.poll_interval_ms) if queue.in_flight else wait_ms

    def _has_leader(self, queue: PartitionQueue) -> bool:
        state = self._view.image.partitions.get(queue.topic_partition)
        return state is not None and state.leader != NO_LEADER

    def _expire(self, queue: PartitionQueue, now_ms: int) -> list[tuple[ProducerBatch, StratalogError]]:
        expired = queue.expire(now_ms, self._config.delivery_timeout_ms)
        for batch, _ in expired:
            self._accumulator.release(batch)
        limit_ms = self._config.request_timeout_ms + ANSWER_GRACE_MS
        for batch in list(queue.in_flight):
            if now_ms - batch.sent_ms >= limit_ms:
                error = RequestTimedOutError(f"{queue.topic_partition}: no answer within {limit_ms} ms")
                self._mailbox.put(_Answer(batch, batch.attempts, None, error))
        return expired

    # -- sending and finishing ---------------------------------------------------------------------------

    def _send(self, batch: ProducerBatch) -> None:
        attempt = batch.attempts
        self.counters.batch_send_total += 1
        self.counters.record_send_total += batch.record_count
        try:
            future = self._transmit(batch)
        except StratalogError as error:
            self._mailbox.put(_Answer(batch, attempt, None, error))
            return
        if self._config.acks == ACKS_NONE:
            self._mailbox.put(_Answer(batch, attempt, None, None))
            return
        future.add_done_callback(lambda done: self._mailbox.put(_answer_of(batch, attempt, done)))

    def _transmit(self, batch: ProducerBatch) -> Future[ProduceResponse]:
        state = self._view.partition_state(batch.topic_partition)
        broker = self._view.image.brokers.get(state.leader)
        if broker is None:
            raise LeaderNotAvailableError(f"{batch.topic_partition} has no leader")
        assert batch.payload is not None
        records = NewRecordBatch(batch.payload, batch.producer_id, batch.producer_epoch, batch.sequence)
        request = ProduceRequest(batch.topic_partition, records, self._config.acks, self._config.request_timeout_ms)
        return self._transport.send(broker, request)

    def _finish(self, outcomes: list[_Outcome]) -> None:
        if not outcomes:
            return
        self._on_memory_freed()
        for batch, base_offset, error in outcomes:
            if error is not None:
                self.counters.record_error_total += batch.record_count
            batch.delivery.complete(batch.outcome(base_offset, error))

    def _fail_all(self, error: StratalogError) -> None:
        with self._lock:
            batches = self._accumulator.batches()
            for batch in batches:
                self._accumulator.queue(batch.topic_partition).drop(batch)
                self._accumulator.release(batch)
        self._finish([(batch, UNKNOWN_OFFSET, error) for batch in batches])


def _answer_of(batch: ProducerBatch, attempt: int, done: Future[ProduceResponse]) -> _Answer:
    reason = done.exception()
    if reason is not None:
        error = reason if isinstance(reason, StratalogError) else UnknownServerError(repr(reason))
        return _Answer(batch, attempt, None, error)
    response = done.result()
    return _Answer(batch, attempt, response, response.error)
