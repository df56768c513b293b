"""How a producer's batch reaches the partition's leader: by a call in the same process, or through its inbox.

I/O: the inbox transport writes a data file and a small request object into the leader's root and polls for
the answer (DESIGN §4). Both answer with a future that always completes or is given up by the sender.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from clients.bootstrap import BrokerFace, RunningCluster
from clients.cluster_view import ClusterView
from replication.inbox import answer_path, decode_answer, encode_request, request_path
from replication.requests import HandedFiles, ProduceRequest, ProduceResponse
from replication.state import BrokerState
from storage.errors import LeaderNotAvailableError, LogDirNotFoundError, RequestTimedOutError, StratalogError
from storage.log_append import check_records
from storage.records import TopicPartition, data_table
from storage.store import ObjectStore
from storage.table import LogTable

METADATA_AGE_MS = 200
"""How soon the writer notices that the broker it waits for was declared dead."""


class Transport(Protocol):
    """Carries batches to leaders, for one sender thread.

    max_in_flight     batches of one partition that arrive in the order they were sent, if sent at once.
    poll_interval_ms  how often `poll` wants to be called while answers are awaited.
    """

    max_in_flight: int
    poll_interval_ms: int

    def send(self, broker: BrokerState, request: ProduceRequest) -> Future[ProduceResponse]:
        """Send a batch. Raises a StratalogError when it certainly did not arrive."""
        ...

    def poll(self) -> None:
        """Complete the futures whose answer or whose end is known."""
        ...


class InProcessTransport:
    """Calls the broker object. A broker that is gone takes its open requests with it."""

    max_in_flight = 5
    poll_interval_ms = 50

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._open: dict[Future[ProduceResponse], tuple[int, BrokerFace]] = {}

    def send(self, broker: BrokerState, request: ProduceRequest) -> Future[ProduceResponse]:
        leader = broker.registration.broker_id
        face = self._cluster.brokers().get(leader)
        if face is None:
            raise LeaderNotAvailableError(
                f"{request.topic_partition}: broker {leader} (epoch {broker.broker_epoch}) is not running"
            )
        answered = face.produce(request)
        future: Future[ProduceResponse] = Future()
        self._open[future] = (leader, face)
        answered.add_done_callback(lambda done: _pass_on(done, future))
        return future

    def poll(self) -> None:
        running = self._cluster.brokers()
        for future, (leader, face) in list(self._open.items()):
            if future.done():
                del self._open[future]
            elif running.get(leader) is not face:
                del self._open[future]
                _fail(future, RequestTimedOutError(f"broker {leader} is gone; whether it stored the batch is unknown"))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request in an inbox, for one registration of that broker."""

    objects: ObjectStore
    broker_id: int
    broker_epoch: int
    future: Future[ProduceResponse]


class InboxTransport:
    """Hands data files over to leaders in other processes.

    The order in which a broker takes requests from its inbox is not defined: one batch per partition at a time.
    """

    max_in_flight = 1
    poll_interval_ms = 2

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._tables: dict[tuple[str, TopicPartition], LogTable] = {}
        self._open: dict[str, _Asked] = {}

    def send(self, broker: BrokerState, request: ProduceRequest) -> Future[ProduceResponse]:
        root, batch = broker.registration.root, request.batch
        try:
            objects = self._view.stores.objects(root)
        except LogDirNotFoundError as reason:
            raise LeaderNotAvailableError(f"{request.topic_partition}: {reason}") from reason
        # The broker does not open the file, so what it checks of a batch is checked here.
        check_records(batch, self._view.topic_config(request.topic_partition.topic))
        file = self._table(root, request.topic_partition).write_file(data_table([batch]), 0)
        handed = HandedFiles(
            request.topic_partition,
            (file,),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
        )
        request_id = self._view.ids.new_id()
        future: Future[ProduceResponse] = Future()
        self._open[request_id] = _Asked(objects, broker.registration.broker_id, broker.broker_epoch, future)
        objects.put(request_path(request_id), encode_request([handed], broker.broker_epoch))
        return future

    def poll(self) -> None:
        if self._open:
            self._view.refresh(METADATA_AGE_MS)
        for request_id, asked in list(self._open.items()):
            if asked.future.done() or self._is_answered(request_id, asked) or self._is_lost(asked):
                del self._open[request_id]

    def _is_answered(self, request_id: str, asked: _Asked) -> bool:
        answer = asked.objects.get_optional(answer_path(request_id))
        if answer is None:
            return False
        _complete(asked.future, answer)
        asked.objects.delete(answer_path(request_id))
        return True

    def _is_lost(self, asked: _Asked) -> bool:
        """A broker that was fenced or registered anew will not answer for its old epoch."""
        if self._view.image.is_current(asked.broker_id, asked.broker_epoch):
            return False
        reason = f"broker {asked.broker_id} epoch {asked.broker_epoch} is over; whether it stored the batch is unknown"
        _fail(asked.future, RequestTimedOutError(reason))
        return True

    def _table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        key = (root, topic_partition)
        if key not in self._tables:
            self._tables[key] = self._view.stores.table(root, topic_partition)
        return self._tables[key]


def _complete(future: Future[ProduceResponse], answer: bytes) -> None:
    try:
        future.set_result(decode_answer(answer)[0])
    except (StratalogError, IndexError) as reason:
        _fail(future, RequestTimedOutError(f"the broker's answer is unreadable: {reason}"))


def _pass_on(done: Future[ProduceResponse], future: Future[ProduceResponse]) -> None:
    with suppress(InvalidStateError):  # given up before
        future.set_result(done.result())


def _fail(future: Future[ProduceResponse], error: StratalogError) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)
