"""Transactions as they are stored at coordinators and in partitions, read without a broker; their end at a leader.

I/O: reads `__transaction_state` and the producer state of partitions from storage, calls leaders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from stratalog.clients.client_view import ClientView
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.internal_topics import TRANSACTION_STATE_TOPIC, partition_of_key
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    ActiveProducer,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    active_producers,
)
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import (
    StratalogError,
)
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition
from stratalog.storage.transactions import EndMarker, marker_batch

FETCH_BYTES = 1 << 23
_NO_EPOCH = 0
"""Coordinator epoch of a fold that is only read."""


class KnownTransactions(ABC):
    """Transactions, wherever they are known from."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @abstractmethod
    def listed(self, duration_filter_ms: int = -1) -> list[tuple[int, TransactionListing]]:
        """All transactional ids with their coordinator's broker id (-1: none), by id.

        With a filter of 0 ms or more only transactions that have been open for longer.
        """

    @abstractmethod
    def described(self, transactional_id: str) -> tuple[int, TransactionDescription]:
        """The coordinator's broker id and its state of a transactional id. TransactionalIdNotFoundError."""

    @abstractmethod
    def producers(self, topic_partition: TopicPartition, broker_id: int | None = None) -> tuple[ActiveProducer, ...]:
        """The producers in the state of the leader's replica of a partition, or of that on `broker_id`.

        UnknownTopicOrPartitionError, and the error of a broker that is not known.
        """

    def hanging(
        self, partitions: list[TopicPartition], older_than_ms: int
    ) -> Iterator[tuple[TopicPartition, ActiveProducer]]:
        """Transactions open in these partitions for `older_than_ms` that are not open there at any coordinator."""
        now_ms = self._clock.wall_ms()
        by_producer = {listing.producer_id: listing.transactional_id for _, listing in self.listed()}
        for partition in partitions:
            for producer in self.producers(partition):
                is_old = now_ms - producer.last_timestamp > older_than_ms
                if producer.current_txn_start_offset >= 0 and is_old:
                    transactional_id = by_producer.get(producer.producer_id)
                    if transactional_id is None or partition not in self._partitions(transactional_id):
                        yield partition, producer

    def _partitions(self, transactional_id: str) -> tuple[TopicPartition, ...]:
        return self.described(transactional_id)[1].topic_partitions


class StoredTransactions(KnownTransactions):
    """Folds the committed records of `__transaction_state`, a partition at its first request."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view.clock)
        self._view = view
        self._shards: dict[TopicPartition, TransactionShard] = {}

    def listed(self, duration_filter_ms: int = -1) -> list[tuple[int, TransactionListing]]:
        found: list[tuple[int, TransactionListing]] = []
        request = ListTransactionsRequest(duration_filter=duration_filter_ms)
        for partition in self._view.image.partitions_of(TRANSACTION_STATE_TOPIC):
            response = self._ask(partition, request)
            if not isinstance(response, ListTransactionsResponse):
                raise errors.UnknownServerError(f"expected a list of transactions, got {response!r}")
            found += [(self._view.leader(partition), each) for each in response.transaction_states]
        return sorted(found, key=lambda each: each[1].transactional_id)

    def described(self, transactional_id: str) -> tuple[int, TransactionDescription]:
        partitions = self._view.image.partitions_of(TRANSACTION_STATE_TOPIC)
        if not partitions:
            raise errors.TransactionalIdNotFoundError(f"transactional id {transactional_id} is not known")
        partition = partitions[partition_of_key(transactional_id, len(partitions))]
        response = self._ask(partition, DescribeTransactionsRequest((transactional_id,)))
        if not isinstance(response, DescribeTransactionsResponse):
            raise errors.UnknownServerError(f"expected a transaction, got {response!r}")
        (found,) = response.transaction_states
        if found.error is not None:
            raise found.error
        return self._view.leader(partition), found

    def producers(self, topic_partition: TopicPartition, broker_id: int | None = None) -> tuple[ActiveProducer, ...]:
        leader = self._view.leader(topic_partition)
        asked = leader if broker_id is None else broker_id
        return active_producers(self._view.records.producers(topic_partition, asked))

    def _ask(self, partition: TopicPartition, request: object) -> object:
        (answered,) = self._shard(partition).decide(request, 0, self._view.clock.wall_ms()).answers
        if isinstance(answered.response, StratalogError):
            raise answered.response
        return answered.response

    def _shard(self, partition: TopicPartition) -> TransactionShard:
        if partition not in self._shards:
            shard = TransactionShard(_NO_EPOCH, BrokerConfig(), lambda: self._view.image, lambda: None)
            for rows in self._view.records.committed_rows(partition, FETCH_BYTES):
                for row in rows.select(["key", "value", "attributes"]).to_pylist():
                    if not row["attributes"] & CONTROL_ATTRIBUTE:
                        shard.replay(CoordinatorRecord(row["key"], row["value"]), 0)
            self._shards[partition] = shard
        return self._shards[partition]


class LiveTransactions:
    """Ends transactions in partitions, by their leaders.

    known  where it looks up the producers of a partition
    """

    def __init__(
        self, cluster: RunningCluster, view: ClientView, known: KnownTransactions, timeout_ms: int = 30_000
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._known = known
        self._timeout_ms = timeout_ms

    def abort(self, topic_partition: TopicPartition, start_offset: int) -> None:
        """Write an abort marker for the transaction that is open in the partition since this offset.

        The coordinator is not asked: for transactions that it does not know (KIP-664). InvalidRequestError when none is
        open since then, LeaderNotAvailableError, RequestTimedOutError, and what the leader answers.
        """
        view = self._view
        leader = view.leader(topic_partition)
        partition = view.image.identified(topic_partition)
        producers = self._known.producers(topic_partition)
        found = next((each for each in producers if each.current_txn_start_offset == start_offset >= 0), None)
        if found is None:
            raise errors.InvalidRequestError(
                f"Could not find any open transactions starting at offset {start_offset} on partition {topic_partition}"
            )
        face = self._cluster.brokers().get(leader)
        if face is None:
            raise errors.LeaderNotAvailableError(f"{topic_partition}: its leader, broker {leader}, cannot be called")
        # A producer without a marker so far has coordinator epoch -1: as Kafka, 0 then.
        marker = EndMarker(is_commit=False, coordinator_epoch=max(0, found.coordinator_epoch))
        batch = marker_batch(found.producer_id, found.producer_epoch, marker, view.clock.wall_ms())
        answers: SimpleQueue[ProduceResponse] = SimpleQueue()
        face.produce_then(ProduceRequest(partition, batch, ACKS_ALL, self._timeout_ms), answers.put)
        try:
            error = answers.get(timeout=self._timeout_ms / 1_000).error
        except Empty:
            error = errors.RequestTimedOutError(f"broker {leader} did not answer within {self._timeout_ms} ms")
        if error is not None:
            raise error
