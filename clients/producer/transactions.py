"""The transactional part of a producer: its coordinator, and the beginning and end of its transactions.

I/O: calls brokers of the own process and waits for their answers. Kafka: `KafkaProducer`'s transactional methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from stratalog.clients.bootstrap import BrokerFace, Cluster, RunningCluster
from stratalog.clients.config import ProducerConfig
from stratalog.clients.coordinator_calls import FIND_TIMEOUT_MS
from stratalog.clients.producer.transaction_state import ProducerTransactions
from stratalog.clients.producer.transport import Answer, InboxTransport, InProcessTransport, Produce
from stratalog.clients.records import ConsumerGroupMetadata, OffsetAndMetadata
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.replication.coordinator.transactions.add_partitions import (
    QUESTIONS_MAX,
    coordinator_asker,
    produce_in_transaction,
    question_about,
)
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, partition_of_key
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.groups import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
)
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.storage.clock import Clock
from stratalog.storage.errors import (
    BrokerNotAvailableError,
    CoordinatorNotAvailableError,
    RequestTimedOutError,
    StratalogError,
    UnverifiedTransactionError,
)
from stratalog.storage.records import TopicPartition

GONE_CHECK_MS = 50


class TransactionalTransport(InProcessTransport):
    """Carries batches of transactions to leaders of the own process, which ask the coordinator before the first."""

    def __init__(self, cluster: RunningCluster, view: ClusterView, transactional_id: str) -> None:
        super().__init__(cluster, InboxTransport(view))
        self._transactional_id = transactional_id
        self._view = view

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        """As of every transport. BrokerNotAvailableError for a leader that another process hosts: what is handed over
        through an inbox is in no transaction."""
        leader = broker.registration.broker_id
        if leader not in self._cluster.brokers() and not self._cluster.hosts(leader):
            raise BrokerNotAvailableError(
                f"{request.topic_partition}: its leader, broker {leader}, runs in another process; transactions across "
                "processes need the Kafka endpoint"
            )
        super().send(broker, request, answer)

    def _produce_of(self, face: BrokerFace) -> Produce:
        def produce(request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
            ask = coordinator_asker(lambda: self._view.image, self._cluster.brokers())
            produce_in_transaction(face, ask, request, self._transactional_id, TRANSACTION_VERSION_2, complete)

        return produce


class TransactionSession:
    """What a transactional `Producer` calls; one thread at a time. Each call blocks up to its timeout."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, clock: Clock, image: Callable[[], ClusterImage]
    ) -> None:
        if isinstance(cluster, str):
            raise BrokerNotAvailableError(
                f"transactions are coordinated by brokers, and no broker of {cluster} can be called from this process: "
                "give the running Cluster itself"
            )
        self.transactions = ProducerTransactions(config.transactional_id)
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._image = image
        self._silent = -1

    def init(self, timeout_ms: int) -> None:
        """Get id and epoch; whoever had the name before is fenced, and what it left open is aborted."""
        self.transactions.begin_init()
        name = self._config.transactional_id
        request = InitProducerIdRequest(name, self._config.transaction_timeout_ms)
        try:
            answer = self._call(CoordinatorType.TRANSACTION, name, request, timeout_ms)
        except StratalogError:
            self.transactions.give_up_init()
            raise
        self.transactions.initialized(answer.producer_id, answer.producer_epoch)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata, timeout_ms: int
    ) -> None:
        """Make a group's offsets part of the transaction: they count when it commits (KIP-447)."""
        state = self.transactions
        state.check_sending()
        try:
            commit = TxnOffsetCommitRequest(
                state.transactional_id,
                group.group_id,
                state.producer_id,
                state.producer_epoch,
                _topics(offsets),
                group.generation_id,
                group.member_id,
                group.group_instance_id,
            )
            self._commit(commit, timeout_ms)
        except StratalogError as error:
            state.failed(error)
            raise

    def _commit(self, commit: TxnOffsetCommitRequest, timeout_ms: int) -> None:
        """Before the first offsets of a transaction the group's coordinator wants to have them added to it; once more
        where the marker of the transaction before came after that was asked."""
        for _ in range(QUESTIONS_MAX):
            try:
                self._call(CoordinatorType.GROUP, commit.group_id, commit, timeout_ms)
                return
            except UnverifiedTransactionError as unverified:
                partition = self._offsets_partition(commit.group_id, timeout_ms)
                asked = question_about(commit, partition, TRANSACTION_VERSION_2)
                self._call(CoordinatorType.TRANSACTION, commit.transactional_id, asked, timeout_ms)
                commit = replace(commit, verified_offset=unverified.log_end_offset)
        self._call(CoordinatorType.GROUP, commit.group_id, commit, timeout_ms)

    def _offsets_partition(self, group_id: str, timeout_ms: int) -> TopicPartition:
        self._coordinator_of(CoordinatorType.GROUP, group_id, self._clock.monotonic_ms() + timeout_ms)
        count = len(self._image().partitions_of(GROUP_METADATA_TOPIC))
        return TopicPartition(GROUP_METADATA_TOPIC, partition_of_key(group_id, count))

    def end(self, *, committed: bool, timeout_ms: int) -> None:
        """Have the coordinator end what was begun; after a time-out the same call goes on with it."""
        state = self.transactions
        if not state.is_ending:
            state.begin_end(committed=committed)
        if not state.is_begun:
            state.ended(state.producer_id, state.producer_epoch)
            return
        name = state.transactional_id
        request = EndTxnRequest(name, state.producer_id, state.producer_epoch, committed, TRANSACTION_VERSION_2)
        try:
            answer = self._call(CoordinatorType.TRANSACTION, name, request, timeout_ms)
        except RequestTimedOutError:
            raise
        except StratalogError as error:
            state.failed(error, by_coordinator=True)
            raise
        state.ended(answer.producer_id, answer.producer_epoch)

    # -- calls -------------------------------------------------------------------------------------------

    def _call(self, kind: CoordinatorType, key: str, request: object, timeout_ms: int) -> Any:
        """The coordinator's answer without an error; retriable ones are tried again until the time is over."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            broker_id, broker = self._coordinator_of(kind, key, deadline_ms)
            asked = partial(broker.coordinator, kind, key, request)
            answer = self._waited(broker_id, broker, asked, self._left_ms(deadline_ms))
            error = answer if isinstance(answer, StratalogError) else _error_of(answer)
            if error is None:
                return answer
            if not error.retriable or isinstance(error, RequestTimedOutError):
                raise error
            self._pause(deadline_ms, error)

    def _coordinator_of(self, kind: CoordinatorType, key: str, deadline_ms: int) -> tuple[int, BrokerFace]:
        """Ask the brokers in turn who it is: one that does not answer is passed over."""
        error: StratalogError = CoordinatorNotAvailableError("no broker is running in this process")
        while True:
            brokers = self._cluster.brokers()
            if brokers:
                asked_id = min(brokers, key=lambda each: (each == self._silent, each))
                ask = partial(brokers[asked_id].find_coordinator, FindCoordinatorRequest(kind, (key,)))
                limit_ms = min(FIND_TIMEOUT_MS, self._left_ms(deadline_ms))
                found = self._waited(asked_id, brokers[asked_id], ask, limit_ms)
                if isinstance(found, FindCoordinatorResponse):
                    (coordinator,) = found.coordinators
                    broker = brokers.get(coordinator.node_id)
                    if coordinator.error is None and broker is not None:
                        return coordinator.node_id, broker
                    error = coordinator.error or CoordinatorNotAvailableError(f"broker {coordinator.node_id} is gone")
                elif isinstance(found, StratalogError):
                    error = found
            if not error.retriable:
                raise error
            self._pause(deadline_ms, error)

    def _waited(
        self, broker_id: int, face: BrokerFace, ask: Callable[[Callable[[Any], None]], None], timeout_ms: int
    ) -> object:
        """What the broker answers; an error as soon as it is gone, or when it has been silent for `timeout_ms`."""
        told = threading.Event()
        answers: list[object] = []

        def answer(response: object) -> None:
            answers.append(response)
            told.set()

        ask(answer)
        end_ms = self._clock.monotonic_ms() + timeout_ms
        while not told.wait(GONE_CHECK_MS / 1000):
            is_gone = self._cluster.brokers().get(broker_id) is not face
            if is_gone or self._clock.monotonic_ms() >= end_ms:
                self._silent = broker_id
                why = "is gone" if is_gone else f"did not answer within {timeout_ms} ms"
                return CoordinatorNotAvailableError(f"broker {broker_id} {why}")
        return answers[0]

    def _left_ms(self, deadline_ms: int) -> int:
        return min(self._config.request_timeout_ms, max(1, deadline_ms - self._clock.monotonic_ms()))

    def _pause(self, deadline_ms: int, error: StratalogError) -> None:
        if self._clock.monotonic_ms() >= deadline_ms:
            raise RequestTimedOutError(f"transactional id {self._config.transactional_id}: {error.name}: {error}")
        self._clock.sleep_ms(min(self._config.retry_backoff_ms, 20))


def _error_of(answer: Any) -> StratalogError | None:
    """The first error of a response."""
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            if partition.error is not None:
                error: StratalogError = partition.error
                return error
    found: StratalogError | None = getattr(answer, "error", None)
    return found


def _topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[OffsetCommitRequestTopic, ...]:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), committed in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition,
                committed.offset,
                -1 if committed.leader_epoch is None else committed.leader_epoch,
                committed.metadata,
            )
        )
    return tuple(OffsetCommitRequestTopic(topic, tuple(parts)) for topic, parts in by_topic.items())
