"""Delayed produce: requests that wait for the high watermark (Kafka: `DelayedProduce` in a purgatory). Pure.

A request completes when the high watermark passes its last offset. It fails when its deadline passes, or when its
partition is not led here any more; one that no other replica has to confirm succeeds then, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stratalog.replication.requests.produce import ProduceResponse
from stratalog.storage.errors import NotEnoughReplicasAfterAppendError, RequestTimedOutError, StratalogError
from stratalog.storage.records import TopicPartition

Complete = Callable[[ProduceResponse], None]


@dataclass(slots=True)
class DelayedProduce:
    """A stored batch that waits: `response` is sent when the high watermark reaches `required_offset`.

    is_confirmed  of acks=1 and 0: it is answered without an error whatever happens, by its deadline at the latest
    """

    response: ProduceResponse
    required_offset: int
    deadline_ms: int
    complete: Complete
    is_confirmed: bool = False
    is_done: bool = False
    arrived_ms: int = 0

    def finish(self, error: StratalogError | None = None) -> None:
        """Answer once; later calls do nothing."""
        if self.is_done:
            return
        self.is_done = True
        self.complete(replace(self.response, error=error) if error and not self.is_confirmed else self.response)


@dataclass(slots=True)
class ProducePurgatory:
    """Waiting requests by partition, least offset first (a duplicate may wait for less), and by deadline."""

    _waiting: dict[TopicPartition, list[tuple[int, int, DelayedProduce]]] = field(default_factory=dict)
    _deadlines: list[tuple[int, int, DelayedProduce]] = field(default_factory=list)
    _count: int = 0

    def add(self, delayed: DelayedProduce) -> None:
        self._count += 1
        waiting = self._waiting.setdefault(delayed.response.topic_partition, [])
        heapq.heappush(waiting, (delayed.required_offset, self._count, delayed))
        heapq.heappush(self._deadlines, (delayed.deadline_ms, self._count, delayed))

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def size(self) -> int:
        """Waiting requests. Called from any thread."""
        return sum(len(waiting) for waiting in list(self._waiting.values()))

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if nothing waits."""
        return self._deadlines[0][0] if self._waiting else None

    def high_watermark_moved(
        self,
        topic_partition: TopicPartition,
        high_watermark: int,
        has_enough_replicas: bool,
        on_done: Callable[[DelayedProduce], None] = lambda _delayed: None,
    ) -> int:
        """Answer everything below the high watermark; `on_done` is called before each answer. Returns how many.

        If the ISR is too small by now, the records are stored on fewer replicas than requested:
        NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        waiting = self._waiting.get(topic_partition)
        done = 0
        while waiting and waiting[0][0] <= high_watermark:
            error = None if has_enough_replicas else _too_few_after_append(topic_partition)
            delayed = heapq.heappop(waiting)[2]
            on_done(delayed)
            delayed.finish(error)
            done += 1
        if waiting is not None and not waiting:
            del self._waiting[topic_partition]
        return done

    def fail(self, topic_partition: TopicPartition, error: StratalogError) -> None:
        """The partition is no longer led here: answer all its requests with `error`."""
        for _, _, delayed in sorted(self._waiting.pop(topic_partition, ()), key=lambda entry: entry[:2]):
            delayed.finish(error)

    def expire(self, now_ms: int) -> None:
        """Answer REQUEST_TIMED_OUT to all requests whose deadline passed."""
        late: set[TopicPartition] = set()
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][2].is_done):
            delayed = heapq.heappop(self._deadlines)[2]
            if delayed.is_done:
                continue
            topic_partition, offset = delayed.response.topic_partition, delayed.required_offset - 1
            late.add(topic_partition)
            missed = f"{topic_partition}: offset {offset} was stored but not replicated to all in-sync replicas in time"
            delayed.finish(RequestTimedOutError(missed))
        for topic_partition in late:  # once per partition: thousands of requests of one may time out together
            waiting = [entry for entry in self._waiting.pop(topic_partition) if not entry[2].is_done]
            if waiting:
                heapq.heapify(waiting)
                self._waiting[topic_partition] = waiting


def _too_few_after_append(topic_partition: TopicPartition) -> StratalogError:
    return NotEnoughReplicasAfterAppendError(
        f"{topic_partition}: the records were stored, but the ISR shrank below min.insync.replicas meanwhile"
    )
