"""The first records or offsets of a transaction in a partition: its coordinator adds or verifies it (KIP-890). Pure.

A partition's log knows which transactions are open in it, so most batches are appended at once. It refuses the first
batch of a transaction with its log end (`UnverifiedTransactionError`), the coordinator adds the partition (clients of
version 2) or verifies that it was added (older ones), and the batch is sent again with that log end. The log compares
it with the last marker: a transaction that was ended in between receives no records, since it is never ended again.
Commits of offsets do the same with the group's partition of `__consumer_offsets`.

Kafka: `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`, `AddPartitionsToTxnManager`,
`CoordinatorRuntime.scheduleTransactionalWriteOperation`, `CoordinatorPartitionWriter`, `VerificationGuard`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from stratalog.replication.coordinator.transactions.held_batches import HeldBatch, HeldBatches
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
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.transactions import NO_EPOCH

Question = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest
Answer = Callable[[object], None]
"""Receives a response or a StratalogError, once."""
Ask = Callable[[Question, Answer], None]
"""Sends a request to the coordinator of its transactional id."""


class Retries(NamedTuple):
    """How long a question is asked again while the transaction before it is being ended, and how it waits.

    backoff_ms      pause before each repetition: `add.partitions.to.txn.retry.backoff.ms`
    backoff_max_ms  the last one begins no later: `add.partitions.to.txn.retry.backoff.max.ms`
    now_ms          a monotonic clock
    schedule_once   calls a function after so many ms
    """

    backoff_ms: int
    backoff_max_ms: int
    now_ms: Callable[[], int]
    schedule_once: Callable[[Callable[[], None], int], None]


QUESTIONS_MAX = 3
"""Requests to the coordinator about one batch. A second one needs a marker after the first, a third one two."""
_RETRIABLE = (errors.CoordinatorLoadInProgressError, errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)


class Produces(Protocol):
    """The broker that leads the partition."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete` is called once."""


class Coordinates(Protocol):
    """A broker that may be a coordinator."""

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Send a request to the shard of a key; `answer` is called once."""


def produce_in_transaction(
    leader: Produces,
    ask: Ask,
    request: ProduceRequest,
    transactional_id: str,
    transaction_version: int,
    complete: Callable[[ProduceResponse], None],
    *,
    is_abortable_known: bool = True,
    held: HeldBatches | None = None,
) -> None:
    """Append a transactional batch; `complete` is called once, in the thread of the last answer.

    `transaction_version` 2 (Produce from version 12 on) adds the partition to the transaction; before that the producer
    has done so itself, and it is only verified. `is_abortable_known`: the client knows TRANSACTION_ABORTABLE (Produce
    from version 11 on), else it receives INVALID_TXN_STATE. `held`: what all batches of this way to the leader share;
    it keeps those of one producer and partition in their order.

    If the marker of the transaction before was appended after the question, the answer is void. Version 2 asks again:
    each transaction has an epoch of its own, so that a batch of an ended one is fenced. Before that it is refused. An
    answer of another leader epoch is void, too; before version 2 the client then comes again, unless it has given up.
    """
    topic_partition, batch = request.topic_partition, request.batch
    held = held or HeldBatches()
    questions_left, asked_in = questions_max(transaction_version), NO_EPOCH

    def send(verified: errors.UnverifiedTransactionError | None) -> None:
        leader.produce_then(request if verified is None else _verified(request, verified), appended)

    def appended(response: ProduceResponse) -> None:
        nonlocal questions_left, asked_in
        refusal = response.error
        if not isinstance(refusal, errors.UnverifiedTransactionError):
            end(response)
        elif not questions_left:
            end(response if refusal.leader_epoch == asked_in else _moved(request.partition, asked_in, refusal))
        elif held.refused(in_line):
            questions_left, asked_in = questions_left - 1, refusal.leader_epoch
            question = _question(request, transactional_id, transaction_version)
            ask(question, lambda answer: answered(answer, refusal))

    def answered(answer: object, refusal: errors.UnverifiedTransactionError) -> None:
        error = _error_for(answer, topic_partition)
        if error is None:
            held.answered(in_line, refusal)
        else:
            error = _as_produce_error(error, topic_partition, transaction_version, is_abortable_known)
            end(ProduceResponse(request.partition, error=error))

    def end(response: ProduceResponse) -> None:
        held.done(in_line)
        complete(response)

    in_line = HeldBatch((batch.producer_id, topic_partition), send)
    held.begin(in_line)


def questions_max(transaction_version: int) -> int:
    """The number of requests to the coordinator about one batch or commit."""
    return QUESTIONS_MAX if transaction_version >= TRANSACTION_VERSION_2 else 1


def coordinator_asker(image: Callable[[], ClusterImage], brokers: Mapping[int, Coordinates]) -> Ask:
    """Sends questions to the one of `brokers` that leads the transactional id's partition of `__transaction_state`."""

    def ask(request: Question, answer: Answer) -> None:
        now = image()
        count = sum(1 for each in now.partitions if each.topic == TRANSACTION_STATE_TOPIC)
        place = TopicPartition(TRANSACTION_STATE_TOPIC, partition_of_key(request.transactional_id, max(1, count)))
        state = now.partitions.get(place)
        broker = None if state is None else brokers.get(state.leader)
        if broker is None:
            answer(
                errors.CoordinatorNotAvailableError(
                    f"{place}, of transactional id {request.transactional_id}, has no leader"
                )
            )
            return
        broker.coordinator(CoordinatorType.TRANSACTION, request.transactional_id, request, answer)

    return ask


def ask_while_ending(ask: Ask, retries: Retries) -> Ask:
    """As `ask`, but a question that meets CONCURRENT_TRANSACTIONS is asked again for some time: the markers of the
    transaction before are under way, and the client would pause for longer than they need.

    Source: `ReplicaManager.handleProduceAppend` (KAFKA-18402).
    """

    def begin(request: Question, answer: Answer) -> None:
        until_ms = retries.now_ms() + retries.backoff_max_ms

        def send() -> None:
            ask(request, received)

        def received(answered: object) -> None:
            if isinstance(_error_of(answered), errors.ConcurrentTransactionsError) and retries.now_ms() < until_ms:
                retries.schedule_once(send, retries.backoff_ms)
            else:
                answer(answered)

        send()

    return begin


def _moved(
    partition: IdentifiedPartition, asked_in: int, refusal: errors.UnverifiedTransactionError
) -> ProduceResponse:
    moved = errors.NotLeaderOrFollowerError(
        f"{partition}: verified under leader epoch {asked_in}, which is {refusal.leader_epoch} by now"
    )
    return ProduceResponse(partition, error=moved)


def _verified(request: ProduceRequest, refusal: errors.UnverifiedTransactionError) -> ProduceRequest:
    """The batch with the place at which its coordinator was asked about it."""
    return replace(request, batch=replace(request.batch, **refusal.verification))


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
    """The coordinator's error as one of Produce. NOT_ENOUGH_REPLICAS makes clients of any version retry without
    requesting metadata."""
    is_new = transaction_version >= TRANSACTION_VERSION_2
    if isinstance(error, _RETRIABLE) or (isinstance(error, errors.ConcurrentTransactionsError) and not is_new):
        return errors.NotEnoughReplicasError(
            f"{topic_partition}: it is not known yet whether it is in the transaction: {error.name}: {error}"
        )
    return _as_client_error(error, is_abortable_known)


def commit_in_transaction(
    ask_group: Callable[[object, Answer], None],
    ask_transaction: Ask,
    request: TxnOffsetCommitRequest,
    offsets_partition: TopicPartition,
    transaction_version: int,
    complete: Answer,
    *,
    is_abortable_known: bool = True,
) -> None:
    """Commit offsets as part of a transaction; `complete` is called once, in the thread of the last answer.

    ask_group, ask_transaction  the coordinators of the request's group and transactional id
    offsets_partition           the group's partition of `__consumer_offsets`
    transaction_version         2 (TxnOffsetCommit from version 5 on) adds that partition to the transaction; before
                                that the producer has done so with AddOffsetsToTxn, and it is only verified
    is_abortable_known          the client knows TRANSACTION_ABORTABLE (version 4), else it receives INVALID_TXN_STATE

    Version 2 asks again as with records.
    """

    questions_left, asked_in = questions_max(transaction_version), NO_EPOCH

    def committed(answer: object) -> None:
        nonlocal questions_left, asked_in
        if not isinstance(answer, errors.UnverifiedTransactionError):
            complete(answer)
        elif questions_left:
            questions_left, asked_in = questions_left - 1, answer.leader_epoch
            question = question_about(request, offsets_partition, transaction_version)
            ask_transaction(question, lambda response: asked(response, answer))
        elif answer.leader_epoch == asked_in:
            complete(answer)
        else:
            at = f"under leader epoch {asked_in}, which is {answer.leader_epoch} by now"
            complete(errors.NotCoordinatorError(f"{offsets_partition}: verified {at}"))

    def asked(answer: object, refusal: errors.UnverifiedTransactionError) -> None:
        error = _error_of(answer)
        if error is None:
            ask_group(replace(request, **refusal.verification), committed)
        else:
            complete(_as_client_error(error, is_abortable_known))

    ask_group(request, committed)


def question_about(
    request: TxnOffsetCommitRequest, offsets_partition: TopicPartition, transaction_version: int
) -> Question:
    """The request to the transaction's coordinator before offsets may be stored."""
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


def _as_client_error(error: StratalogError, is_abortable_known: bool) -> StratalogError:
    """The coordinator's error as one of TxnOffsetCommit (`AddPartitionsToTxnHandler`). INVALID_PRODUCER_EPOCH lets a
    fenced producer abort, where PRODUCER_FENCED would be fatal to it."""
    if isinstance(error, errors.ProducerFencedError):
        return errors.InvalidProducerEpochError(str(error))
    if isinstance(error, errors.TransactionAbortableError) and not is_abortable_known:
        return errors.InvalidTxnStateError(str(error))
    return error
