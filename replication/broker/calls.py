"""What is called of a broker in its own process: appends and coordinators, as requests of Kafka's vocabulary.

I/O: through the broker's queues. Any thread may call; nothing here blocks, and each answer comes once, from the
broker's loop, or from the caller's own thread when the broker has stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.metrics import Metric
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.produce import HandOverRequest, ProduceRequest, ProduceResponse
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup


class BrokerCalls:
    """The entrance of a `Broker`, which sets these parts and runs them."""

    broker_id: int
    stopped_by: StratalogError | None
    wakeup: Wakeup
    _queue: AppendQueue
    _coordinators: CoordinatorRuntime

    def produce(self, request: ProduceRequest) -> Future[ProduceResponse]:
        """Queue a batch. The future never raises: an error is in the response."""
        return self._submit(request)

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete`, which must neither raise nor block, is called once: in the broker's thread, or the
        caller's when the broker has stopped."""
        self._enqueue(WaitingAppend(request, complete))

    def hand_over(self, handed: HandOverRequest) -> Future[ProduceResponse]:
        """Queue data files that already lie in the partition's directory."""
        return self._submit(handed)

    def _submit(self, request: ProduceRequest | HandOverRequest) -> Future[ProduceResponse]:
        future: Future[ProduceResponse] = Future()
        self._enqueue(WaitingAppend(request, future.set_result))
        return future

    def _enqueue(self, waiting: WaitingAppend) -> None:
        if is_internal(waiting.request.topic_partition.topic):
            self._coordinators.append(waiting)
            return
        self.append(waiting)

    def append(self, waiting: WaitingAppend) -> None:
        """Queue an append for its leader, whatever partition it is of: for the coordinators, which own some."""
        self._queue.put(waiting)
        if self.stopped_by is not None:
            self._queue.refuse_all(f"broker {self.broker_id} is down: {self.stopped_by}")
        self.wakeup.wake()

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        """Who coordinates these groups or transactional ids, as far as this broker knows.

        The first request of a kind makes the internal topic. It is answered COORDINATOR_NOT_AVAILABLE, as are those
        that follow until its leaders are known: the client asks again.
        """
        self._coordinators.find(request, answer)

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Ask the coordinator of a group or transactional id, or of a partition of its topic by number, on this broker.

        `answer`, which must neither raise nor block, gets the shard's response once it rests on committed records
        alone, or a StratalogError: NOT_COORDINATOR (ask another broker), COORDINATOR_LOAD_IN_PROGRESS (ask again),
        COORDINATOR_NOT_AVAILABLE (this broker is down, or the outcome is not known), or why the shard refused.
        """
        self._coordinators.request(kind, key, request, answer)

    def coordinator_metrics(self) -> list[Metric]:
        """What the coordinators here count and hold, by the names of Kafka's metrics."""
        return self._coordinators.metrics()

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        """Ask each shard of a kind on this broker: responses or errors in order of partition; [] if there is none."""
        self._coordinators.every(kind, request, answer)
