"""The transactional part of a producer: its coordinator, and the beginning and end of its transactions.

I/O: calls brokers and waits for their answers. Source: Kafka's `KafkaProducer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from stratalog.clients.client_view import ClientView
from stratalog.clients.config import ProducerConfig
from stratalog.clients.connected_cluster import CalledBrokers
from stratalog.clients.coordinator_calls import RETRY_MS, InProcessCalls, PendingAnswer, offset_rows
from stratalog.clients.producer.transaction_state import ProducerTransactions
from stratalog.clients.producer.transport import Answer, Produce, Transport
from stratalog.clients.records import ConsumerGroupMetadata, OffsetAndMetadata
from stratalog.replication.coordinator.transactions.add_partitions import (
    QUESTIONS_MAX,
    coordinator_asker,
    produce_in_transaction,
    question_about,
)
from stratalog.replication.coordinator.transactions.held_batches import HeldBatches
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, partition_of_key
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import TxnOffsetCommitRequest
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.server.bootstrap import BrokerFace, Cluster
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition


class TransactionalTransport(Transport):
    """Carries transactional batches to leaders that it calls; before the first batch the coordinator is asked, here or
    by a leader in another process."""

    def __init__(self, brokers: CalledBrokers, view: ClientView, transactional_id: str) -> None:
        super().__init__(brokers)
        self._cluster = brokers.cluster
        self._transactional_id = transactional_id
        self._view = view

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        """See `Transport.send`. BrokerNotAvailableError for a leader that the cluster does not call: the transaction's
        coordinator may be such a broker, too."""
        leader = broker.registration.broker_id
        if leader not in self._cluster.brokers() and not self._cluster.hosts(leader):
            raise errors.BrokerNotAvailableError(
                f"{request.topic_partition}: its leader, broker {leader}, cannot be called from this process; give the "
                "metadata root or a RemoteCluster instead of the Cluster, and no `stratalog.transport`"
            )
        super().send(broker, request, answer)

    def _produce_of(self, face: BrokerFace) -> Produce:
        def produce(request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
            ask = coordinator_asker(lambda: self._view.image, self._cluster.peers())
            named = replace(request, transactional_id=self._transactional_id)
            version = TRANSACTION_VERSION_2
            produce_in_transaction(face, ask, named, self._transactional_id, version, complete, held=held)

        held = HeldBatches()
        return produce


class TransactionSession:
    """The calls of a transactional `Producer`, by one thread at a time. Each blocks up to its timeout."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, clock: Clock, image: Callable[[], ClusterImage]
    ) -> None:
        self.transactions = ProducerTransactions(config.transactional_id)
        self._config = config
        self._clock = clock
        self._image = image
        self._calls = {
            kind: InProcessCalls(cluster, clock, config.request_timeout_ms, kind)
            for kind in (CoordinatorType.TRANSACTION, CoordinatorType.GROUP)
        }

    def init(self, timeout_ms: int) -> None:
        """Get id and epoch. The previous producer of the transactional id is fenced, its open transaction aborted."""
        self.transactions.begin_init()
        name = self._config.transactional_id
        request = InitProducerIdRequest(name, self._config.transaction_timeout_ms)
        try:
            answer = self._call(CoordinatorType.TRANSACTION, name, request, timeout_ms)
        except StratalogError:
            self.transactions.reset_init()
            raise
        self.transactions.initialized(answer.producer_id, answer.producer_epoch)

    def continue_as(self, producer_id: int, producer_epoch: int) -> None:
        """Instead of `init`: another process has got id and epoch, and begins no transaction itself."""
        self.transactions.begin_init()
        self.transactions.initialized(producer_id, producer_epoch)

    def add_partitions(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> None:
        """Make partitions part of the transaction before files are handed over to their leaders, which do not ask."""
        state = self.transactions
        state.check_sending()
        name, producer = state.transactional_id, (state.producer_id, state.producer_epoch)
        asked = AddPartitionsToTxnRequest(name, *producer, tuple(partitions), transaction_version=TRANSACTION_VERSION_2)
        try:
            self._call(CoordinatorType.TRANSACTION, name, asked, timeout_ms)
        except StratalogError as error:
            state.failed(error)
            raise

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata, timeout_ms: int
    ) -> None:
        """Make a group's offsets part of the transaction: they are committed with it (KIP-447)."""
        state = self.transactions
        state.check_sending()
        commit = TxnOffsetCommitRequest(
            state.transactional_id,
            group.group_id,
            state.producer_id,
            state.producer_epoch,
            offset_rows(dict(sorted(offsets.items()))),
            group.generation_id,
            group.member_id,
            group.group_instance_id,
        )
        try:
            self._commit(commit, timeout_ms)
        except StratalogError as error:
            state.failed(error)
            raise

    def _commit(self, commit: TxnOffsetCommitRequest, timeout_ms: int) -> None:
        """Commit offsets, adding the group's partition to the transaction when its coordinator requires it.

        That is before the first offsets of a transaction, and again when the previous transaction's marker came later.
        """
        for _ in range(QUESTIONS_MAX):
            try:
                self._call(CoordinatorType.GROUP, commit.group_id, commit, timeout_ms)
                return
            except errors.UnverifiedTransactionError as unverified:
                count = len(self._image().partitions_of(GROUP_METADATA_TOPIC))
                partition = TopicPartition(GROUP_METADATA_TOPIC, partition_of_key(commit.group_id, count))
                asked = question_about(commit, partition, TRANSACTION_VERSION_2)
                self._call(CoordinatorType.TRANSACTION, commit.transactional_id, asked, timeout_ms)
                commit = replace(commit, **unverified.verification)
        self._call(CoordinatorType.GROUP, commit.group_id, commit, timeout_ms)

    def end(self, *, committed: bool, timeout_ms: int) -> None:
        """Have the coordinator end the transaction; after a time-out the same call continues."""
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
        except errors.RequestTimedOutError:
            raise
        except StratalogError as error:
            state.failed(error, by_coordinator=True)
            raise
        state.ended(answer.producer_id, answer.producer_epoch)

    def _call(self, kind: CoordinatorType, key: str, request: object, timeout_ms: int) -> Any:
        """The coordinator's answer without an error; retriable ones are tried again until the time is over."""
        calls, deadline_ms = self._calls[kind], self._clock.monotonic_ms() + timeout_ms
        while True:
            answer = PendingAnswer().ask(calls, key, request).result(calls, self._clock, deadline_ms)
            error = answer if isinstance(answer, StratalogError) else _error_of(answer)
            if error is None:
                return answer
            if not error.retriable or isinstance(error, errors.RequestTimedOutError):
                raise error
            if self._clock.monotonic_ms() >= deadline_ms:
                raise errors.RequestTimedOutError(
                    f"transactional id {self._config.transactional_id}: {error.name}: {error}"
                )
            self._clock.sleep_ms(min(self._config.retry_backoff_ms, RETRY_MS))


def _error_of(answer: Any) -> StratalogError | None:
    """The first error of a response."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        return next((error for _, error in answer.results if error is not None), None)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            if partition.error is not None:
                error: StratalogError = partition.error
                return error
    found: StratalogError | None = getattr(answer, "error", None)
    return found
