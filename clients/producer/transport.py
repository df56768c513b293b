"""How a producer's batch reaches the partition's leader: by a call in the same process, or through its inbox.

I/O: the inbox transport writes a data file and a small request object into the leader's root and polls for
the answer. Both answer each batch at most once; without an answer the sender times out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Protocol

from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.requests.hand_over import answer_path, decode_answer, encode_request, request_path
from stratalog.replication.requests.produce import HandOverRequest, ProduceRequest, ProduceResponse
from stratalog.server.bootstrap import BrokerFace, RunningCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import (
    InvalidRecordError,
    LeaderNotAvailableError,
    LogDirNotFoundError,
    RequestTimedOutError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.files.codecs import codec_of_append
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import HandedFiles, check_records
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import NewRecordBatch, TopicPartition, data_rows

METADATA_AGE_MS = 200
"""Age of the metadata in which a poll checks that brokers with open requests are alive."""

Answer = Callable[[ProduceResponse | None, StratalogError | None], None]
"""Called once with the leader's response, or the error without one. From any thread; it does not block."""

Produce = Callable[[ProduceRequest, Callable[[ProduceResponse], None]], None]
"""`BrokerFace.produce_then`, or a function around it."""


class Transport(Protocol):
    """Carries batches to leaders, for one producer.

    is_immediate      `send` does not block: it may be called while the producer's lock is held.
    max_in_flight     batches of one partition that may be under way at once and arrive in order.
    poll_interval_ms  interval of `poll` calls while answers are awaited.
    """

    is_immediate: bool
    max_in_flight: int

    @property
    def poll_interval_ms(self) -> int: ...

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        """Send a batch. Raises a StratalogError when it certainly did not arrive; there is no answer then."""
        ...

    def poll(self) -> None:
        """Answer with responses that have come, or with an error for leaders that are gone."""
        ...


class InProcessTransport:
    """Calls the broker object. The open requests of a broker that is gone fail.

    Leaders in other processes of the same cluster get requests through their inboxes.
    """

    is_immediate = True
    max_in_flight = 5

    def __init__(self, cluster: RunningCluster, inbox: InboxTransport) -> None:
        self._cluster = cluster
        self._asked: dict[int, _AskedBroker] = {}
        self._elsewhere = _QueuedInbox(inbox)

    @property
    def poll_interval_ms(self) -> int:
        return 50 if self._elsewhere.is_idle else InboxTransport.poll_interval_ms

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        leader = broker.registration.broker_id
        face = self._cluster.brokers().get(leader)
        if face is None and not self._cluster.hosts(leader):
            self._elsewhere.send(broker, request, answer)
            return
        if face is None:
            raise LeaderNotAvailableError(
                f"{request.topic_partition}: broker {leader} (epoch {broker.broker_epoch}) is not running"
            )
        asked = self._asked.get(leader)
        if asked is None or asked.face is not face:
            if asked is not None:
                asked.fail(leader)
            asked = self._asked[leader] = _AskedBroker(face, self._produce_of(face))
        asked.send(request, answer)

    def _produce_of(self, face: BrokerFace) -> Produce:
        """The function that sends a batch to a broker."""
        return face.produce_then

    def poll(self) -> None:
        self._elsewhere.poll()
        running = self._cluster.brokers()
        for leader, asked in list(self._asked.items()):
            if running.get(leader) is not asked.face:
                del self._asked[leader]
                asked.fail(leader)


@dataclass(slots=True)
class _AskedBroker:
    """One broker object and its open answers. The thread that removes an answer from the dictionary calls it."""

    face: BrokerFace
    produce: Produce
    _answers: dict[int, Answer] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)

    def send(self, request: ProduceRequest, answer: Answer) -> None:
        number = next(self._numbers)
        self._answers[number] = answer
        self.produce(request, partial(self._answered, number))

    def _answered(self, number: int, response: ProduceResponse) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None:
            answer(response, None)

    def fail(self, leader: int) -> None:
        for number in list(self._answers):
            answer = self._answers.pop(number, None)
            if answer is not None:
                reason = f"broker {leader} is gone; whether it stored the batch is unknown"
                answer(None, RequestTimedOutError(reason))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request in the inbox of one registration of a broker: to append `file`, which was written into `table`."""

    table: LogTable
    file: DataFile
    objects: ObjectStore
    broker_id: int
    broker_epoch: int
    answer: Answer


class InboxTransport:
    """Hands data files over to leaders in other processes.

    The order in which a broker handles the requests in its inbox is not defined: one batch per partition at a time.
    """

    is_immediate = False
    max_in_flight = 1
    poll_interval_ms = 2

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._tables: dict[tuple[str, TopicPartition], LogTable] = {}
        self._open: dict[str, _Asked] = {}

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        root, batch = broker.registration.root, request.batch
        assert isinstance(batch, NewRecordBatch)  # batches in Kafka's bytes go through a broker
        try:
            objects = self._view.stores.objects(root)
        except LogDirNotFoundError as reason:
            raise LeaderNotAvailableError(f"{request.topic_partition}: {reason}") from reason
        # The broker does not open the file, so its checks of a batch are made here.
        config = self._view.topic_config(request.topic_partition.topic, broker.registration.broker_id)
        check_records(batch, config)
        codec = codec_of_append(config.compression_type, [batch.compression_type], batch.size_bytes)
        table = self._table(root, request.topic_partition)
        file = table.write_file(data_rows([batch]), None, codec)
        handed = HandOverRequest(
            request.partition,
            HandedFiles(
                (file,),
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
            ),
            request.acks,
            request.timeout_ms,
        )
        request_id = self._view.ids.new_id()
        objects.put(request_path(request_id), encode_request([handed], broker.broker_epoch))
        registration = broker.registration.broker_id, broker.broker_epoch
        self._open[request_id] = _Asked(table, file, objects, *registration, answer)

    def poll(self) -> None:
        if self._open:
            self._view.refresh(METADATA_AGE_MS)
        for request_id, asked in list(self._open.items()):
            if self._is_answered(request_id, asked) or self._is_lost(asked):
                del self._open[request_id]

    def _is_answered(self, request_id: str, asked: _Asked) -> bool:
        answer = asked.objects.get_optional(answer_path(request_id))
        if answer is None:
            return False
        response, error = _decoded(answer)
        if (
            response is not None
            and isinstance(response.error, InvalidRecordError)
            and not asked.table.has_file(asked.file)
        ):
            # It went with the table of a topic that was deleted meanwhile: nothing of it was appended.
            response = replace(response, error=UnknownTopicOrPartitionError(str(response.error)))
        asked.answer(response, error)
        asked.objects.delete(answer_path(request_id))
        return True

    def _is_lost(self, asked: _Asked) -> bool:
        """A broker that was fenced or registered again does not answer for its old epoch."""
        if self._view.image.is_current(asked.broker_id, asked.broker_epoch):
            return False
        reason = f"broker {asked.broker_id} epoch {asked.broker_epoch} is over; whether it stored the batch is unknown"
        asked.answer(None, RequestTimedOutError(reason))
        return True

    def _table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        key = (root, topic_partition)
        if key not in self._tables:
            self._tables[key] = self._view.stores.table(root, topic_partition)
        return self._tables[key]


class _QueuedInbox:
    """An inbox for a sender with several batches of a partition under way: they are sent one after the other.

    `send` only queues; `poll`, on the sender's thread, writes files.
    """

    def __init__(self, inbox: InboxTransport) -> None:
        self._inbox = inbox
        self._waiting: dict[TopicPartition, deque[tuple[BrokerState, ProduceRequest, Answer]]] = {}
        self._asked: set[TopicPartition] = set()

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._asked

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        self._waiting.setdefault(request.topic_partition, deque()).append((broker, request, answer))

    def poll(self) -> None:
        if self.is_idle:
            return
        self._inbox.poll()
        for topic_partition in self._waiting.keys() - self._asked:
            broker, request, answer = self._waiting[topic_partition].popleft()
            if not self._waiting[topic_partition]:
                del self._waiting[topic_partition]
            self._asked.add(topic_partition)
            try:
                self._inbox.send(broker, request, partial(self._answered, topic_partition, answer))
            except StratalogError as reason:
                self._answered(topic_partition, answer, None, reason)

    def _answered(
        self,
        topic_partition: TopicPartition,
        answer: Answer,
        response: ProduceResponse | None,
        error: StratalogError | None,
    ) -> None:
        self._asked.discard(topic_partition)
        answer(response, error)


def _decoded(answer: bytes) -> tuple[ProduceResponse | None, StratalogError | None]:
    try:
        return decode_answer(answer)[0], None
    except (StratalogError, IndexError) as reason:
        return None, RequestTimedOutError(f"the broker's answer is unreadable: {reason}")
