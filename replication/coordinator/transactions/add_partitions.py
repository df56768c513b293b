"""A transactional batch on its way to its partition: before the first one, the coordinator is asked (KIP-890). Pure.

A partition's log knows which transactions are open in it, so most batches go straight through. The first batch of a
transaction is refused by the log (`UnverifiedTransactionError`), the coordinator adds the partition (clients of version
2) or says whether it was added (older ones), and the batch comes again with that word. So nothing is ever appended to a
transaction that nobody would end. Kafka: `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`,
`AddPartitionsToTxnManager`.

Offsets on their way into a transaction: before the first ones, its coordinator is asked (KIP-890). Pure.

As with records (`replication.coordinator.transactions.add_partitions`): the log of the group's partition of
`__consumer_offsets` knows whether the transaction is open in it. The first commit of a transaction is refused with the
log end (`UnverifiedTransactionError`), the transaction's coordinator adds that partition (clients of version 2) or says
whether it was added (older ones), and the commit comes again with that log end. The log holds it against the last
marker when it appends: a transaction that was ended in between takes no offset, since nobody would ever end it again.
Kafka: `CoordinatorRuntime.scheduleTransactionalWriteOperation`, `CoordinatorPartitionWriter`, `VerificationGuard`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from stratalog.replication.internal_topics import TRANSACTION_STATE_TOPIC, partition_of_key
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import TxnOffsetCommitRequest
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from stratalog.storage.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    StratalogError,
    TransactionAbortableError,
    UnverifiedTransactionError,
)
from stratalog.storage.records import TopicPartition

Asked = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest
Ask = Callable[[Asked, Callable[[object], None]], None]
"""Sends a request to the coordinator of its transactional id; the answer is a response or a StratalogError."""

QUESTIONS_MAX = 3
"""A second question needs a marker between the first and the append, a third one two."""
_COME_AGAIN = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)


class Produces(Protocol):
    """The broker that leads the partition."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete` is called once."""
        ...


class Coordinates(Protocol):
    """A broker that may be a coordinator."""

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Ask the shard of a key; `answer` is called once."""
        ...


def produce_in_transaction(
    leader: Produces,
    ask: Ask,
    request: ProduceRequest,
    transactional_id: str,
    transaction_version: int,
    complete: Callable[[ProduceResponse], None],
    *,
    is_abortable_known: bool = True,
) -> None:
    """Append a transactional batch; `complete` is called once, in whichever thread the last answer came.

    `transaction_version` 2 (Produce from version 12 on) adds the partition to the transaction; before that the producer
    has done so itself, and it is only verified. `is_abortable_known`: the client knows TRANSACTION_ABORTABLE (Produce
    from version 11 on), else it gets INVALID_TXN_STATE.

    Where the marker of the transaction before came after the question, the answer is void. Version 2 asks again: each
    transaction has an epoch of its own, so that a batch of an ended one is fenced. Before that it is refused.
    """
    topic_partition, batch = request.topic_partition, request.batch

    def appended(response: ProduceResponse, questions_left: int) -> None:
        refusal = response.error
        if not isinstance(refusal, UnverifiedTransactionError) or not questions_left:
            complete(response)
            return
        question = _question(request, transactional_id, transaction_version)
        ask(question, lambda answer: asked(answer, refusal, questions_left - 1))

    def asked(answer: object, refusal: UnverifiedTransactionError, questions_left: int) -> None:
        error = _error_for(answer, topic_partition)
        if error is not None:
            told = _as_produce_error(error, topic_partition, transaction_version, is_abortable_known)
            complete(ProduceResponse(topic_partition, error=told))
            return
        verified = replace(request, batch=replace(batch, verified_offset=refusal.log_end_offset))
        leader.produce_then(verified, partial(appended, questions_left=questions_left))

    leader.produce_then(request, partial(appended, questions_left=questions_max(transaction_version)))


def questions_max(transaction_version: int) -> int:
    """How often the coordinator is asked about one request."""
    return QUESTIONS_MAX if transaction_version >= TRANSACTION_VERSION_2 else 1


def coordinator_asker(image: Callable[[], ClusterImage], brokers: Mapping[int, Coordinates]) -> Ask:
    """Asks whichever of `brokers` leads the transactional id's partition of `__transaction_state` right now."""

    def ask(request: Asked, answer: Callable[[object], None]) -> None:
        now = image()
        count = sum(1 for each in now.partitions if each.topic == TRANSACTION_STATE_TOPIC)
        place = TopicPartition(TRANSACTION_STATE_TOPIC, partition_of_key(request.transactional_id, max(1, count)))
        state = now.partitions.get(place)
        broker = None if state is None else brokers.get(state.leader)
        if broker is None:
            answer(
                CoordinatorNotAvailableError(f"{place}, of transactional id {request.transactional_id}, has no leader")
            )
            return
        broker.coordinator(CoordinatorType.TRANSACTION, request.transactional_id, request, answer)

    return ask


def _question(request: ProduceRequest, transactional_id: str, transaction_version: int) -> AddPartitionsToTxnRequest:
    adds = transaction_version >= TRANSACTION_VERSION_2
    return AddPartitionsToTxnRequest(
        transactional_id,
        request.batch.producer_id,
        request.batch.producer_epoch,
        (request.topic_partition,),
        verify_only=not adds,
        transaction_version=TRANSACTION_VERSION_2 if adds else TRANSACTION_VERSION_0,
    )


def _error_for(answer: object, topic_partition: TopicPartition) -> StratalogError | None:
    if isinstance(answer, AddPartitionsToTxnResponse):
        return dict(answer.results)[topic_partition]
    assert isinstance(answer, StratalogError)
    return answer


def _as_produce_error(
    error: StratalogError, topic_partition: TopicPartition, transaction_version: int, is_abortable_known: bool
) -> StratalogError:
    """The coordinator's error as one that a producer may get for a batch.

    NOT_ENOUGH_REPLICAS makes clients of any age try again without asking for metadata. INVALID_PRODUCER_EPOCH lets a
    fenced producer abort, where PRODUCER_FENCED would be fatal to it.
    """
    is_new = transaction_version >= TRANSACTION_VERSION_2
    if isinstance(error, _COME_AGAIN) or (isinstance(error, ConcurrentTransactionsError) and not is_new):
        return NotEnoughReplicasError(
            f"{topic_partition}: it is not known yet whether it is in the transaction: {error.name}: {error}"
        )
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, TransactionAbortableError) and not is_abortable_known:
        return InvalidTxnStateError(str(error))
    return error


Answer = Callable[[object], None]
"""Told a response or a StratalogError, once."""


def commit_in_transaction(
    ask_group: Callable[[object, Answer], None],
    ask_transaction: Callable[[AddOffsetsToTxnRequest | AddPartitionsToTxnRequest, Answer], None],
    request: TxnOffsetCommitRequest,
    offsets_partition: TopicPartition,
    transaction_version: int,
    complete: Answer,
    *,
    is_abortable_known: bool = True,
) -> None:
    """Commit offsets as part of a transaction; `complete` is called once, in whichever thread the last answer came.

    ask_group, ask_transaction  the coordinators of the request's group and transactional id
    offsets_partition           the group's partition of `__consumer_offsets`
    transaction_version         2 (TxnOffsetCommit from version 5 on) adds that partition to the transaction; before
                                that the producer has done so with AddOffsetsToTxn, and it is only verified
    is_abortable_known          the client knows TRANSACTION_ABORTABLE (version 4), else it gets INVALID_TXN_STATE

    Where the marker of the transaction before came after the question, the answer is void; version 2 asks again, as
    with records.
    """

    def committed(answer: object, questions_left: int) -> None:
        if not isinstance(answer, UnverifiedTransactionError) or not questions_left:
            complete(answer)
            return
        end_offset, question = answer.log_end_offset, question_about(request, offsets_partition, transaction_version)
        ask_transaction(question, lambda told: asked(told, end_offset, questions_left - 1))

    def asked(answer: object, end_offset: int, questions_left: int) -> None:
        error = _error_of(answer)
        if error is None:
            again = replace(request, verified_offset=end_offset)
            ask_group(again, partial(committed, questions_left=questions_left))
        else:
            complete(_as_commit_error(error, is_abortable_known))

    ask_group(request, partial(committed, questions_left=questions_max(transaction_version)))


def question_about(
    request: TxnOffsetCommitRequest, offsets_partition: TopicPartition, transaction_version: int
) -> AddOffsetsToTxnRequest | AddPartitionsToTxnRequest:
    """What the transaction's coordinator is asked before offsets may be stored."""
    named = (request.transactional_id, request.producer_id, request.producer_epoch)
    if transaction_version >= TRANSACTION_VERSION_2:
        return AddOffsetsToTxnRequest(*named, request.group_id, offsets_partition, TRANSACTION_VERSION_2)
    return AddPartitionsToTxnRequest(*named, (offsets_partition,), verify_only=True)


def _error_of(answer: object) -> StratalogError | None:
    if isinstance(answer, AddPartitionsToTxnResponse):
        return next((error for _, error in answer.results if error is not None), None)
    if isinstance(answer, AddOffsetsToTxnResponse):
        return answer.error
    assert isinstance(answer, StratalogError)
    return answer


def _as_commit_error(error: StratalogError, is_abortable_known: bool) -> StratalogError:
    """The transaction coordinator's error as one that a TxnOffsetCommit may get (`AddPartitionsToTxnHandler`)."""
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, TransactionAbortableError) and not is_abortable_known:
        return InvalidTxnStateError(str(error))
    return error
