"""Batches waiting and in flight, per partition, in order. Pure: time is an argument, the producer holds the lock.

For one partition: new records join the last waiting batch; a batch to be sent again returns to its position
and is then sent alone, so order survives retries. At most `max.in.flight` batches are sent from the oldest
one without an outcome on, answered or not: the broker recognises a repeated batch among the last five only.
While they are under way, waiting batches grow beyond `batch.size`, with the backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile

import pyarrow as pa

from stratalog.clients.config import ProducerConfig
from stratalog.clients.producer.batch import Headers, ProducerBatch
from stratalog.clients.producer.retry import Action, Circumstances, Verdict, backoff_ms, judge
from stratalog.replication.requests.groups import NO_LEADER_EPOCH
from stratalog.storage.errors import RequestTimedOutError, StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

PRODUCER_EPOCH_MAX = 32_767
GROWTH = 16
"""Limit of a batch of single records that cannot be sent yet, in multiples of `batch.size`."""
_STORED = Verdict(Action.DONE)
_EXPIRED = "Expiring {} record(s) for {}:{} ms has passed since batch creation"


class PartitionQueue:
    """The batches of one partition, with its own producer epoch and sequences; the id is usually the producer's."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: ProducerConfig,
        producer_id: int,
        new_producer_id: Callable[[], int],
    ) -> None:
        self.topic_partition = topic_partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.may_grow = True
        self._unsettled: list[ProducerBatch] = []
        self.producer_id = producer_id if config.enable_idempotence else NO_PRODUCER_ID
        self.producer_epoch = 0 if config.enable_idempotence else NO_PRODUCER_EPOCH
        self._config = config
        self._new_producer_id = new_producer_id
        self._next_sequence = 0
        self._next_number = 0
        self._has_gap = False
        self._wants_new_epoch = False
        self._stored_count = 0

    def continue_as(self, producer_id: int, producer_epoch: int) -> None:
        """Set the id and epoch of the next transaction. Only when the queue is empty."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._next_sequence, self._has_gap, self._wants_new_epoch = 0, False, False

    def is_empty(self) -> bool:
        return not self.waiting and not self.in_flight

    def next_number(self) -> int:
        """The number of a batch to be appended."""
        self._next_number += 1
        return self._next_number

    def open_batch(self) -> ProducerBatch | None:
        """The batch that new records may join."""
        return self.waiting[-1] if self.waiting and not self.waiting[-1].closed else None

    def room_bytes(self) -> int:
        """How large a batch of single records may become now; at least 1."""
        config = self._config
        if not self.may_grow or len(self._unsettled) < config.max_in_flight_requests_per_connection:
            return max(config.batch_size, 1)
        return max(config.batch_size, min(GROWTH * config.batch_size, config.max_request_size), 1)

    @property
    def is_held_back(self) -> bool:
        """Whether the next batch is a retry."""
        return bool(self.waiting) and self.waiting[0].attempts > 0

    def ready_at_ms(self, is_flushing: bool, leader_epoch: int = NO_LEADER_EPOCH) -> int | None:
        """When the next batch may be sent; None while that depends on an answer under way.

        leader_epoch  of the partition's leader by the newest metadata. A retry for a later epoch than that of the last
                      attempt does not wait for its backoff (KIP-951; Kafka's `RecordAccumulator.shouldBackoff`)
        """
        if not self.waiting:
            return None
        head = self.waiting[0]
        if head.attempts and self.in_flight:
            return None
        if self._wants_new_epoch and self.in_flight:
            return None
        if head.attempts:
            return head.created_ms if leader_epoch > head.leader_epoch else head.retry_at_ms
        if len(self._unsettled) >= self._config.max_in_flight_requests_per_connection:
            return None
        if head.closed or head.is_of_tables or len(self.waiting) > 1 or is_flushing:
            return head.created_ms
        return head.created_ms + self._config.linger_ms

    def send_next(self, now_ms: int, leader_epoch: int = NO_LEADER_EPOCH) -> ProducerBatch:
        """Move the next batch in flight to the leader of this epoch, with a sequence if it has none yet. Only when
        `ready_at_ms` has come."""
        if self._wants_new_epoch:
            self._start_new_epoch()
        batch = self.waiting.popleft()
        batch.close()
        if self._config.enable_idempotence and batch.sequence == NO_SEQUENCE:
            self._set_sequence(batch)
        if not batch.attempts:
            self._unsettled.append(batch)
        batch.attempts += 1
        batch.sent_ms, batch.leader_epoch = now_ms, leader_epoch
        batch.stored_before = self._stored_count
        self.in_flight.append(batch)
        return batch

    def answered(self, batch: ProducerBatch, error: StratalogError | None, now_ms: int, jitter: float) -> Verdict:
        """Act on the answer to a batch in flight; it leaves the queue when it is DONE or FAILed."""
        verdict = _STORED if error is None else judge(error, self._circumstances(batch))
        if verdict.new_epoch and self._config.transactional_id:
            verdict = Verdict(Action.FAIL)  # only its coordinator raises the epoch, with the abort that has to follow
        self.in_flight.remove(batch)
        self._stored_count += error is None
        self._wants_new_epoch |= verdict.new_epoch and self._config.enable_idempotence
        if verdict.action is Action.RETRY:
            batch.retry_at_ms = now_ms + (self._backoff_ms(batch, jitter) if verdict.backoff else 0)
            self._put_back(batch)
        elif verdict.action is Action.SPLIT:
            self.may_grow = False
            parts = batch.split()
            at = self._unsettled.index(batch)
            self._unsettled[at : at + 1] = parts
            for part in parts:
                self._put_back(part)
        else:
            self._remove(batch, verdict.action is Action.FAIL)
        return verdict

    def expire(self, now_ms: int, timeout_ms: int) -> list[tuple[ProducerBatch, StratalogError]]:
        """Drop the batches older than `timeout_ms`, waiting or in flight; a late answer no longer counts."""
        if self.is_empty() or now_ms - self.oldest_ms() < timeout_ms:
            return []
        expired = [b for b in (*self.in_flight, *self.waiting) if now_ms - b.created_ms >= timeout_ms]
        for batch in expired:
            self.drop(batch)
        texts = [_EXPIRED.format(b.record_count, b.topic_partition, timeout_ms) for b in expired]
        return [(batch, RequestTimedOutError(text)) for batch, text in zip(expired, texts, strict=True)]

    def oldest_ms(self) -> int:
        """When the oldest batch without an outcome was begun. Only when there is one."""
        # Both are in the order in which their batches were begun, but for those that wait to be sent again.
        return min(batches[0].created_ms for batches in (self.in_flight, self.waiting) if batches)

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch that failed, waiting or in flight."""
        (self.in_flight if batch in self.in_flight else self.waiting).remove(batch)
        self._remove(batch, failed=True)

    def _remove(self, batch: ProducerBatch, failed: bool) -> None:
        batch.done = True
        if batch.sequence != NO_SEQUENCE:
            self._has_gap = failed
        while self._unsettled and self._unsettled[0].done:
            del self._unsettled[0]

    def _circumstances(self, batch: ProducerBatch) -> Circumstances:
        # Batches that wait to be sent again are the first ones.
        sent_again = takewhile(lambda b: b.attempts > 0, self.waiting)
        others = [b.order for b in (*self.in_flight, *sent_again) if b is not batch]
        return Circumstances(
            record_count=batch.record_count,
            attempts=batch.attempts,
            retries=self._config.retries,
            is_idempotent=self._config.enable_idempotence,
            is_oldest=all(batch.order < other for other in others),
            has_gap=self._has_gap,
            was_overtaken=self._stored_count > batch.stored_before,
        )

    def _backoff_ms(self, batch: ProducerBatch, jitter: float) -> int:
        return backoff_ms(batch.attempts, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, jitter)

    def _put_back(self, batch: ProducerBatch) -> None:
        at = sum(1 for _ in takewhile(lambda other: other.order < batch.order, self.waiting))
        self.waiting.insert(at, batch)

    def _set_sequence(self, batch: ProducerBatch) -> None:
        batch.producer_id = self.producer_id
        batch.sequence, batch.producer_epoch = self._next_sequence, self.producer_epoch
        self._next_sequence = (self._next_sequence + batch.record_count) & 0x7FFFFFFF

    def _start_new_epoch(self) -> None:
        self.producer_epoch += 1
        if self.producer_epoch > PRODUCER_EPOCH_MAX:
            self.producer_id, self.producer_epoch = self._new_producer_id(), 0
        self._next_sequence, self._has_gap, self._wants_new_epoch = 0, False, False
        for batch in self.waiting:
            batch.sequence = NO_SEQUENCE


class Accumulator:
    """All partitions' queues, and the memory of their records."""

    def __init__(self, config: ProducerConfig, new_producer_id: Callable[[], int]) -> None:
        self.used_bytes = 0
        self._config = config
        self._new_producer_id = new_producer_id
        self._producer_id = new_producer_id() if config.enable_idempotence else NO_PRODUCER_ID
        self._producer_epoch = 0
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue, made at first use."""
        found = self._queues.get(topic_partition)
        if found is None:
            found = PartitionQueue(topic_partition, self._config, self._producer_id, self._new_producer_id)
            if self._config.transactional_id:
                found.continue_as(self._producer_id, self._producer_epoch)
            self._queues[topic_partition] = found
        return found

    def continue_as(self, producer_id: int, producer_epoch: int) -> None:
        """Set the producer's id and epoch in every partition. Only while no batch is without an outcome."""
        self._producer_id, self._producer_epoch = producer_id, producer_epoch
        for queue in self._queues.values():
            queue.continue_as(producer_id, producer_epoch)

    def active(self) -> Iterator[PartitionQueue]:
        """Queues that hold batches."""
        yield from list(self._active.values())

    @property
    def is_active(self) -> bool:
        """True while any batch has no outcome."""
        return bool(self._active)

    def deactivate_if_empty(self, queue: PartitionQueue) -> None:
        """Remove the queue from the active ones if it holds no batch."""
        if queue.is_empty():
            self._active.pop(queue.topic_partition, None)

    def append(
        self,
        topic_partition: TopicPartition,
        now_ms: int,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        size_bytes: int,
    ) -> tuple[PartitionQueue, ProducerBatch, int]:
        """Put a record of `record_size_bytes` into a batch; its queue, the batch and the record's index in it."""
        queue = self._activate(topic_partition)
        batch = queue.open_batch()
        if batch is None or batch.is_of_tables or not batch.has_room(size_bytes, queue.room_bytes()):
            batch = self._begin(queue, batch, now_ms)
        index = batch.append(timestamp_ms, key, value, headers, size_bytes)
        self.used_bytes += size_bytes
        return queue, batch, index

    def append_payload(
        self, topic_partition: TopicPartition, now_ms: int, payload: pa.Table, size_bytes: int
    ) -> tuple[PartitionQueue, ProducerBatch, int]:
        """Put rows of `PAYLOAD_SCHEMA` behind all other records of the partition; the index is that of the first.

        They join waiting rows of other tables, up to `max.request.size`.
        """
        queue = self._activate(topic_partition)
        batch = queue.open_batch()
        limit_bytes = self._config.max_request_size if queue.may_grow else 0
        if batch is None or not batch.is_of_tables or not batch.has_room(size_bytes, limit_bytes):
            batch = self._begin(queue, batch, now_ms)
        index = batch.append_payload(payload, size_bytes)
        self.used_bytes += size_bytes
        return queue, batch, index

    def _begin(self, queue: PartitionQueue, last: ProducerBatch | None, now_ms: int) -> ProducerBatch:
        if last is not None:
            last.close()
        batch = ProducerBatch(queue.topic_partition, queue.next_number(), now_ms)
        queue.waiting.append(batch)
        return batch

    def release(self, batch: ProducerBatch) -> None:
        """The batch left its queue: its memory is free again."""
        self.used_bytes -= batch.size_bytes

    def batches(self) -> list[ProducerBatch]:
        """Every batch without an outcome."""
        return [batch for queue in self.active() for batch in (*queue.in_flight, *queue.waiting)]

    def _activate(self, topic_partition: TopicPartition) -> PartitionQueue:
        queue = self._active[topic_partition] = self.queue(topic_partition)
        return queue
