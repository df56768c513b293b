"""The producer's background thread: sends batches to leaders, acts on the answers, completes deliveries.

I/O: through the transport and the cluster view. Its rules are in `accumulator`, `schedule` and `retry`. The lock is
shared with the producer. It is never held while a delivery completes. A send does not block: the appending thread does
it, which saves a change of threads.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from stratalog.clients.client_view import ClientView
from stratalog.clients.config import ProducerConfig
from stratalog.clients.producer.accumulator import Accumulator, PartitionQueue
from stratalog.clients.producer.batch import ProducerBatch
from stratalog.clients.producer.retry import Action
from stratalog.clients.producer.schedule import Schedule
from stratalog.clients.producer.transport import MAX_IN_FLIGHT, POLL_INTERVAL_MS, Answer, Transport
from stratalog.clients.records import UNKNOWN_OFFSET
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.groups import NO_LEADER_EPOCH
from stratalog.replication.requests.produce import ACKS_NONE, ProduceRequest, ProduceResponse
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, NewRecordBatch

IDLE_WAIT_MS = 1_000
ANSWER_GRACE_MS = 2_000
"""Time beyond `request.timeout.ms` until a broker counts as silent: its own time-out comes first."""
METADATA_BACKOFF_MS = 20

_JITTER = 0.2

_log = line_logger(__name__)


_Answer = tuple[ProducerBatch, int, ProduceResponse | None, StratalogError | None]
"""A batch, the number of the attempt, and the leader's response or the error without one."""

_Outcome = tuple[ProducerBatch, int, StratalogError | None]


@dataclass(slots=True)
class Counters:
    """Running totals, under Kafka's metric names (`producer-metrics`)."""

    record_send_total: int = 0
    record_retry_total: int = 0
    record_error_total: int = 0
    batch_send_total: int = 0
    request_latency_ms_total: int = 0

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
    """One thread that runs until `stop`. `lock` guards the accumulator.

    on_failed  called with the error of each batch that fails
    """

    def __init__(
        self,
        config: ProducerConfig,
        view: ClientView,
        transport: Transport,
        accumulator: Accumulator,
        rng: random.Random,
        on_failed: Callable[[StratalogError], None] | None = None,
    ) -> None:
        self.lock = threading.Condition()
        self.counters = Counters()
        self.flushes = 0
        self._config = config
        self._view = view
        self._clock = view.clock
        self._transport = transport
        self._accumulator = accumulator
        self._rng = rng
        self._on_failed = on_failed
        self._schedule = Schedule()
        self._answers: deque[_Answer] = deque()
        self._mailbox: SimpleQueue[None] = SimpleQueue()
        self._is_woken = False
        self._is_stopped = False
        self._wakes_at_ms = 0
        self._busy_ms = 0
        self._polled_ms = 0
        self._metadata_is_stale = False
        self._held_back: set[PartitionQueue] = set()
        """The queues whose next batch waits for a retry. They are looked at after each refresh of metadata: a batch
        goes to a new leader without waiting."""
        self._answer_limit_ms = config.request_timeout_ms + ANSWER_GRACE_MS
        self._refreshed_ms = self._clock.monotonic_ms()
        self._thread = threading.Thread(target=self._run, name="stratalog-producer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def appended(self, queue: PartitionQueue, now_ms: int) -> None:
        """A new batch waits in `queue`: send it if it is due. With the lock held."""
        self._send_all(self._take_due(queue, now_ms))
        next_ms = self._schedule.next_ms()
        if next_ms is not None and next_ms < self._wakes_at_ms:
            self.wake()

    def flush(self) -> None:
        """Lingering batches are due now, while `flushes` counts a waiting thread. With the lock held."""
        for queue in self._accumulator.active():
            self._schedule.add(queue)
        self.wake()

    def wake(self) -> None:
        """End the thread's wait."""
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
            except errors.StoreUnavailableError:
                # Metadata is out of reach: batches wait, within their delivery timeout.
                wait_ms = self._config.retry_backoff_ms
            except Exception as defect:  # noqa: BLE001
                # Waiting threads have to get an error even for a defect of ours.
                _log.exception("the producer's sender failed")
                self._fail_all(errors.UnknownServerError(f"the producer's sender failed: {defect!r}"))
        self._fail_all(errors.UnknownServerError("Producer is closed forcefully."))

    def _wait(self, wait_ms: float) -> list[_Answer]:
        with suppress(Empty):
            self._mailbox.get(timeout=wait_ms / 1000) if wait_ms > 0 else self._mailbox.get_nowait()
            self._is_woken = False  # before the turn: an answer that comes now wakes again
        return [self._answers.popleft() for _ in range(len(self._answers))]

    # -- one turn ----------------------------------------------------------------------------------------

    def _turn(self, answers: list[_Answer]) -> float:
        """Handle answers, send what is due; the time in ms until something may be due again."""
        now_ms = self._clock.monotonic_ms()
        outcomes = self._handle_answers(answers, now_ms)
        self._poll(now_ms)
        try:
            self._refresh_metadata(now_ms)
            outcomes += self._drain(now_ms)
        finally:
            self._finish(outcomes)
        return self._wait_ms(now_ms)

    def _handle_answers(self, answers: list[_Answer], now_ms: int) -> list[_Outcome]:
        if not answers:
            return []
        outcomes: list[_Outcome] = []
        with self.lock:
            for batch, attempt, response, error in answers:
                queue = self._accumulator.queue(batch.topic_partition)
                if batch not in queue.in_flight or batch.attempts != attempt:
                    continue  # expired or sent again meanwhile: only the newest attempt's answer counts
                outcomes.extend(self._judge(queue, batch, response, error, now_ms))
                self._schedule.add(queue)
        return outcomes

    def _judge(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        response: ProduceResponse | None,
        error: StratalogError | None,
        now_ms: int,
    ) -> list[_Outcome]:
        self.counters.request_latency_ms_total += now_ms - batch.sent_ms
        verdict = queue.answered(batch, error, now_ms, self._rng.uniform(-_JITTER, _JITTER) if error else 0.0)
        self._metadata_is_stale |= error is not None
        if verdict.action is Action.RETRY:
            self.counters.record_retry_total += batch.record_count
        if verdict.action in (Action.RETRY, Action.SPLIT):
            return []
        self._accumulator.release(batch)
        base_offset = response.base_offset if response else UNKNOWN_OFFSET
        return [(batch, base_offset, error if verdict.action is Action.FAIL else None)]

    def _poll(self, now_ms: int) -> None:
        if now_ms - self._polled_ms < POLL_INTERVAL_MS:
            return
        self._polled_ms = now_ms
        with self.lock:  # appending threads send through it as well
            self._transport.poll()

    def _refresh_metadata(self, now_ms: int) -> None:
        age_ms = now_ms - self._refreshed_ms
        is_stale = self._metadata_is_stale and age_ms >= METADATA_BACKOFF_MS
        is_stale |= bool(self._held_back) and age_ms >= max(METADATA_BACKOFF_MS, self._config.retry_backoff_ms)
        if is_stale or age_ms >= self._config.metadata_max_age_ms:
            self._refreshed_ms = now_ms
            self._metadata_is_stale = False
            self._view.refresh()
            with self.lock:
                for queue in self._held_back:
                    self._schedule.add(queue)

    def _drain(self, now_ms: int) -> list[_Outcome]:
        """Send what may be sent now; the outcomes of expired batches."""
        batches: list[ProducerBatch] = []
        outcomes: list[_Outcome] = []
        with self.lock:
            for queue in self._schedule.take_due(now_ms):
                outcomes.extend(self._expire(queue, now_ms))
                batches.extend(self._take_due(queue, now_ms))
            self._send_all(batches)
        return outcomes

    def _take_due(self, queue: PartitionQueue, now_ms: int) -> list[ProducerBatch]:
        """Remove from a queue the batches to be sent now, and set its timer."""
        taken: list[ProducerBatch] = []
        state = self._view.image.partitions.get(queue.topic_partition)
        leader_epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        while (due_ms := queue.ready_at_ms(self.flushes > 0, leader_epoch)) is not None:
            if due_ms > now_ms:
                self._schedule.add_timer(queue, due_ms)
            elif state is None or state.leader == NO_LEADER:
                self._metadata_is_stale = True
                self._schedule.add_timer(queue, now_ms + self._config.retry_backoff_ms)
            elif len(queue.in_flight) < MAX_IN_FLIGHT:
                taken.append(queue.send_next(now_ms, leader_epoch))
                continue
            break
        (self._held_back.add if queue.is_held_back else self._held_back.discard)(queue)
        if queue.is_empty():
            self._accumulator.deactivate_if_empty(queue)
        else:
            self._schedule.add_timer(queue, self._expires_at_ms(queue))
        return taken

    def _expires_at_ms(self, queue: PartitionQueue) -> int:
        """When the oldest batch expires, or the oldest request has been without an answer for too long."""
        expires_ms = queue.oldest_ms() + self._config.delivery_timeout_ms
        return min(expires_ms, queue.in_flight[0].sent_ms + self._answer_limit_ms) if queue.in_flight else expires_ms

    def _expire(self, queue: PartitionQueue, now_ms: int) -> list[_Outcome]:
        expired = queue.expire(now_ms, self._config.delivery_timeout_ms)
        for batch, _ in expired:
            self._accumulator.release(batch)
        for batch in queue.in_flight:
            if now_ms - batch.sent_ms >= self._answer_limit_ms:
                error = errors.RequestTimedOutError(
                    f"{queue.topic_partition}: no answer within {self._answer_limit_ms} ms"
                )
                self._answer(batch, batch.attempts, None, error)
        return [(batch, UNKNOWN_OFFSET, error) for batch, error in expired]

    def _wait_ms(self, now_ms: int) -> float:
        """Until the next timer; while answers are awaited, or were recently, at most `POLL_INTERVAL_MS`."""
        with self.lock:
            if self._accumulator.is_active:
                self._busy_ms = now_ms
            is_busy = now_ms - self._busy_ms < IDLE_WAIT_MS
            wakes_at_ms = now_ms + (POLL_INTERVAL_MS if is_busy else IDLE_WAIT_MS)
            next_ms = self._schedule.next_ms()
            self._wakes_at_ms = wakes_at_ms if next_ms is None else min(wakes_at_ms, next_ms)
            return max(0, self._wakes_at_ms - now_ms) if not self._schedule.has_due else 0

    # -- sending and finishing ---------------------------------------------------------------------------

    def _send_all(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            self._send(batch)

    def _send(self, batch: ProducerBatch) -> None:
        attempt = batch.attempts
        self.counters.batch_send_total += 1
        self.counters.record_send_total += batch.record_count
        is_answered = self._config.acks != ACKS_NONE
        try:
            self._transmit(batch, partial(self._answer, batch, attempt) if is_answered else _ignore)
        except StratalogError as error:
            self._answer(batch, attempt, None, error)
            return
        if not is_answered:
            self._answer(batch, attempt, None, None)

    def _answer(
        self, batch: ProducerBatch, attempt: int, response: ProduceResponse | None, error: StratalogError | None
    ) -> None:
        """Queue the answer to a batch, from any thread. The sender thread handles all that have come by then."""
        self._answers.append((batch, attempt, response, response.error if response else error))
        self.wake()

    def _transmit(self, batch: ProducerBatch, answer: Answer) -> None:
        state = self._view.partition_state(batch.topic_partition)
        broker = self._view.image.brokers.get(state.leader)
        if broker is None:
            raise errors.LeaderNotAvailableError(f"{batch.topic_partition} has no leader")
        assert batch.payload is not None
        records = NewRecordBatch(
            batch.payload,
            batch.producer_id,
            batch.producer_epoch,
            batch.sequence,
            attributes=TRANSACTIONAL_ATTRIBUTE if self._config.transactional_id else 0,
            compression_type=self._config.compression_type,
        )
        partition = self._view.image.identified(batch.topic_partition)
        request = ProduceRequest(partition, records, self._config.acks, self._config.request_timeout_ms)
        self._transport.send(broker, request, answer)

    def _finish(self, outcomes: list[_Outcome]) -> None:
        if not outcomes:
            return
        with self.lock:
            self.lock.notify_all()  # memory is free again
        for batch, base_offset, error in outcomes:
            if error is not None:
                self.counters.record_error_total += batch.record_count
                if self._on_failed is not None:
                    self._on_failed(error)
            batch.delivery.complete(batch.outcome(base_offset, error))

    def _fail_all(self, error: StratalogError) -> None:
        with self.lock:
            batches = self._accumulator.batches()
            for batch in batches:
                self._accumulator.queue(batch.topic_partition).drop(batch)
                self._accumulator.release(batch)
        self._finish([(batch, UNKNOWN_OFFSET, error) for batch in batches])


def _ignore(_response: ProduceResponse | None, _error: StratalogError | None) -> None:
    """The answer to a batch that was sent with acks=0."""
