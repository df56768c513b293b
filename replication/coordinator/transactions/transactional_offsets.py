"""Offsets on their way into a transaction: before the first ones, its coordinator is asked (KIP-890). Pure.

As with records (`replication.coordinator.transactions.transactional_produce`): the log of the group's partition of
`__consumer_offsets` knows whether the transaction is open in it. The first commit of a transaction is refused with the
log end (`UnverifiedTransactionError`), the transaction's coordinator adds that partition (clients of version 2) or says
whether it was added (older ones), and the commit comes again with that log end. The log holds it against the last
marker when it appends: a transaction that was ended in between takes no offset, since nobody would ever end it again.
Kafka: `CoordinatorRuntime.scheduleTransactionalWriteOperation`, `CoordinatorPartitionWriter`, `VerificationGuard`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from stratalog.replication.coordinator.transactions.transactional_produce import questions_max
from stratalog.replication.requests.groups import TxnOffsetCommitRequest
from stratalog.replication.requests.transaction_requests import (
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from stratalog.storage.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    StratalogError,
    TransactionAbortableError,
    UnverifiedTransactionError,
)
from stratalog.storage.records import TopicPartition

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
