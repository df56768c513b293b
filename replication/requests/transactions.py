"""Requests of transactions by producers, coordinators, partition leaders and admin clients. Pure.

Frames are read into them and written from them, but for AddPartitionsToTxn, and the marker of WriteTxnMarkers:
there partitions are `TopicPartition`s in one flat tuple where Kafka nests them below topics, and a request has one
transactional id where Kafka's has several: each may belong to another coordinator.

`transaction_version` is KIP-890's: 0 is an older client, 2 one whose producer epoch is bumped with each transaction
(EndTxn from version 5 on, Produce from version 12 on, TxnOffsetCommit from version 5 on). `active_producers` is the
answer to DescribeProducers for one partition.
Kafka: `clients/src/main/resources/common/message/*Txn*.json`, `InitProducerId*.json`, `*Transactions*.json`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.storage.errors import StratalogError
from stratalog.storage.producers import ProducerEntry, ProducerStates
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from stratalog.wire.messages.response import Response

TRANSACTION_VERSION_0, TRANSACTION_VERSION_2 = 0, 2
"""Versions without and with the epoch bump. Kafka's 1 only concerns how the coordinator's records are written."""
NO_PARTITION = TopicPartition("", -1)
"""The value of a partition that is not known yet."""


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """The request of a producer id. With a `transactional_id` older producers of that id are fenced.

    `transactional_id` None: an idempotent producer, which any broker answers without a coordinator.
    `producer_id` and `producer_epoch` are the present ones, after a recoverable error; else -1.
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse(Response):
    """INVALID_REQUEST (empty id), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (try again)."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest:
    """Partitions that the transaction writes to from now on, before the first record is sent.

    `verify_only` only checks whether they are in it (a leader does, for clients before KIP-890).
    A leader that adds a partition for a client of version 2 sends `transaction_version` 2.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TopicPartition, ...]
    verify_only: bool = False
    transaction_version: int = TRANSACTION_VERSION_0


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """One error or None for each requested partition, in order.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (again later), TRANSACTION_ABORTABLE (not in
    the transaction: `verify_only`), OPERATION_NOT_ATTEMPTED (another partition was not authorized).
    """

    results: tuple[tuple[TopicPartition, StratalogError | None], ...]


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """The transaction is about to commit offsets of a group: adds the group's partition of `__consumer_offsets`.

    `offsets_partition` is that partition; the broker that is asked computes it from `group_id`.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    offsets_partition: TopicPartition = NO_PARTITION
    transaction_version: int = TRANSACTION_VERSION_0


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse(Response):
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """Commit (`committed`) or abort. Answered once the outcome is certain; the markers are written after that."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int = TRANSACTION_VERSION_0


@dataclass(frozen=True, slots=True)
class EndTxnResponse(Response):
    """`producer_id` and `producer_epoch` are the next ones; under version 2 the epoch has grown or the id is new.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (a retry while the
    markers are under way: it is ended already).
    """

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class WritableTxnMarker:
    """A transaction's end, to be written as a control batch into each of `topics`, from its coordinator.

    `transaction_result` True is COMMIT. `coordinator_epoch` is the leader epoch of the coordinator's partition: a
    leader refuses an older coordinator (TRANSACTION_COORDINATOR_FENCED).
    """

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int = TRANSACTION_VERSION_0


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """The state of a producer in a partition (Kafka: ProducerState). `last_sequence` -1: no batch of this epoch.

    `last_timestamp` is in milliseconds. `current_txn_start_offset` -1: no transaction of it is open in this partition.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """Transactional ids of one coordinator; split by coordinator and join the answers."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionTopic:
    """Kafka's `TopicData`."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`topics`: the partitions in the transaction; while it is ended, those whose marker is not written yet.

    TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST. `transaction_start_time_ms` -1: none has begun.
    """

    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    topics: tuple[TransactionTopic, ...] = ()
    error: StratalogError | None = None

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of `topics`."""
        return tuple(TopicPartition(each.topic, number) for each in self.topics for number in each.partitions)


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse(Response):
    transaction_states: tuple[TransactionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """The transactional ids of one coordinator partition; a broker's answer joins those of all that it leads.

    Empty filters pass everything, as does a `duration_filter` below 0; else transactions open for longer than so many
    ms. A coordinator does not read `transactional_id_pattern`: the broker that is asked filters by it.
    """

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    transaction_state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse(Response):
    """`unknown_state_filters` are those of the request that are no state's name."""

    transaction_states: tuple[TransactionListing, ...] = ()
    unknown_state_filters: tuple[str, ...] = ()
    error: StratalogError | None = None


def active_producers(states: ProducerStates) -> tuple[ActiveProducer, ...]:
    """The producers in a log's state, by id. Kafka: `ProducerStateManager.activeProducers`.

    A transaction that stays open long after its coordinator ended it shows as `current_txn_start_offset` here.
    """
    return tuple(_active(producer_id, entry, states) for producer_id, entry in sorted(states.producers.items()))


def _active(producer_id: int, entry: ProducerEntry, states: ProducerStates) -> ActiveProducer:
    transaction = states.transactions.of(producer_id)
    return ActiveProducer(
        producer_id,
        entry.producer_epoch,
        entry.batches[-1].last_sequence if entry.batches else -1,
        entry.timestamp_ms,
        transaction.coordinator_epoch,
        transaction.first_offset,
    )
