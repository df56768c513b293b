"""The state of a transactional id at its coordinator, and its legal steps. Pure.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing | Empty
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing | Empty
    Empty, CompleteCommit, CompleteAbort -> PrepareAbort (version 2: an abort of nothing), Dead

Once Prepare is committed the outcome is final; markers write it into the partitions, and Complete means that all of
them have one. Kafka: `TransactionMetadata` and `TransactionCoordinator`, 4.3. There a step waits as `pendingState` for
the log; here a step takes effect at once, and its answer waits. KIP-98, KIP-360, KIP-447, KIP-588, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.storage import errors
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

PRODUCER_EPOCH_MAX = 2**15 - 1
NO_TIME = -1


class TransactionState(Enum):
    """Kafka's number of a state, which is stored, and its name, which tools print."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"
    """In Kafka's coordinator between the fencing of a producer and PrepareAbort; never stored, not used here."""

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def label(self) -> str:
        return self.value[1]

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and markers are under way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """No transaction is open: the id may be removed when it is no longer used."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


STATE_OF_NUMBER = {state.number: state for state in TransactionState}
STATE_OF_LABEL = {state.label: state for state in TransactionState}

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

LEGAL_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _EMPTY: frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT}),
    _ONGOING: frozenset({_ONGOING, _EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT}),
    _PREPARE_COMMIT: frozenset({_ONGOING}),
    _PREPARE_ABORT: frozenset({_ONGOING, _EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT}),
    _COMPLETE_COMMIT: frozenset({_PREPARE_COMMIT}),
    _COMPLETE_ABORT: frozenset({_PREPARE_ABORT}),
    TransactionState.DEAD: frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT}),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({_ONGOING}),
}
"""States that may precede each state (`validPreviousStates`)."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id (Kafka's TransactionMetadata). Times in ms since 1970.

    producer_epoch        the epoch the producer continues with; from Prepare on under version 2 the one after its
                          transaction's, which the markers have
    last_producer_epoch   the epoch before the last bump, -1 when older producers are fenced; not in the log, so a
                          retry that meets another coordinator is refused, as in Kafka
    previous_producer_id  the id before `producer_id`, as of the last InitProducerId or end of a transaction
    next_producer_id      while markers are under way: the id that follows, since the epochs of this one are used up
    transaction_version   of the client, at its last step: 2 bumps the epoch with each transaction
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    transaction_version: int = TRANSACTION_VERSION_0

    @property
    def is_epoch_exhausted(self) -> bool:
        """One epoch is reserved, so that a producer with the last one can still be fenced."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def deadline_ms(self) -> int | None:
        """The time-out of an open transaction; None when none is open."""
        return self.started_ms + self.timeout_ms if self.state is _ONGOING else None

    @property
    def is_commit(self) -> bool:
        return self.state in (_PREPARE_COMMIT, _COMPLETE_COMMIT)

    def stepped(self, state: TransactionState, now_ms: int, **changes: object) -> Transaction:
        """The next state; IllegalStateError when it may not follow this one."""
        if self.state not in LEGAL_PREVIOUS[state]:
            raise errors.IllegalStateError(
                f"transactional id {self.transactional_id}: {state.label} cannot follow {self.state.label}"
            )
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether a producer with this epoch receives a new id instead of the next epoch."""
    return producer_epoch >= PRODUCER_EPOCH_MAX - 1


def needs_producer_id(known: Transaction | None, request: InitProducerIdRequest) -> bool:
    """Whether `initialized` needs a new producer id: the first of a transactional id, or its epochs are used up."""
    if known is None:
        return True
    is_asked_by_current = request.producer_id == NO_PRODUCER_ID or request.producer_epoch == known.producer_epoch
    return known.state.may_expire and known.is_epoch_exhausted and is_asked_by_current


def initialized(
    known: Transaction | None, request: InitProducerIdRequest, new_producer_id: int, now_ms: int
) -> Transaction:
    """InitProducerId: the state with the epoch that fences earlier producers of the transactional id.

    An open transaction is aborted first, with an epoch that no producer receives: the result is PrepareAbort then, and
    the producer has to retry. A retry of the last request receives the same epoch.
    Raises ProducerFencedError, ConcurrentTransactionsError (markers are under way).
    """
    if known is None:
        name = request.transactional_id or ""
        return Transaction(name, new_producer_id, 0, request.transaction_timeout_ms, updated_ms=now_ms)
    if not _may_continue(known, request):
        raise errors.ProducerFencedError(
            f"transactional id {known.transactional_id}: producer id {request.producer_id}, current {known.producer_id}"
        )
    if known.state.is_prepared:
        raise _still_ending(known)
    if known.state is _ONGOING:
        return fenced(known, now_ms)
    if needs_producer_id(known, request):
        producer_id, epoch = new_producer_id, 0
        last_epoch = NO_PRODUCER_EPOCH if request.producer_id == NO_PRODUCER_ID else known.producer_epoch
    else:
        producer_id = known.producer_id
        epoch, last_epoch = _bumped(known, request)
    return known.stepped(
        _EMPTY,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=known.producer_id,
        timeout_ms=request.transaction_timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIME,
    )


def _may_continue(known: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the producer id of a request can still be its own (KIP-360)."""
    if request.producer_id in (NO_PRODUCER_ID, known.producer_id):
        return True
    return request.producer_id == known.previous_producer_id and is_epoch_exhausted(request.producer_epoch)


def _bumped(known: Transaction, request: InitProducerIdRequest) -> tuple[int, int]:
    """The next epoch and the one before it; the current ones for a retry of an answered request."""
    if request.producer_id == NO_PRODUCER_ID:
        return known.producer_epoch + 1, NO_PRODUCER_EPOCH
    if request.producer_epoch == known.producer_epoch:
        return known.producer_epoch + 1, known.producer_epoch
    if request.producer_epoch == known.last_producer_epoch:
        return known.producer_epoch, known.last_producer_epoch
    raise errors.ProducerFencedError(
        f"transactional id {known.transactional_id}: producer epoch {request.producer_epoch}, "
        f"current {known.producer_epoch}, before it {known.last_producer_epoch}"
    )


def fenced(known: Transaction, now_ms: int) -> Transaction:
    """Abort of an open transaction after its time-out, or for a newer producer: under the next epoch, so that the older
    producer is fenced. One bump, whatever the version (KAFKA-19367).

    An InitProducerId with the epoch before is that of the producer which had the transaction open: unless a newer one
    has come meanwhile, it receives the next epoch. The last epoch only fences.
    """
    return known.stepped(
        _PREPARE_ABORT,
        now_ms,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=NO_PRODUCER_EPOCH if known.is_epoch_exhausted else known.producer_epoch,
        transaction_version=TRANSACTION_VERSION_2,
    )


def check_producer(known: Transaction | None, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
    """The state, if this producer is its current one; else InvalidProducerIdMappingError or ProducerFencedError."""
    if known is None:
        raise errors.InvalidProducerIdMappingError(f"transactional id {transactional_id} is not known")
    if known.producer_id != producer_id:
        raise errors.InvalidProducerIdMappingError(
            f"transactional id {transactional_id}: producer id {producer_id}, current {known.producer_id}"
        )
    if known.producer_epoch != epoch:
        raise errors.ProducerFencedError(
            f"transactional id {transactional_id}: producer epoch {epoch}, current {known.producer_epoch}"
        )
    return known


def with_partitions(known: Transaction | None, asked: AddPartitionsToTxnRequest, now_ms: int) -> Transaction:
    """AddPartitionsToTxn and AddOffsetsToTxn: the transaction with these partitions; `known` itself if it has them.

    Raises as `check_producer`, and ConcurrentTransactionsError while the one before is being ended.
    """
    current = check_producer(known, asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if current.state.is_prepared:
        raise _still_ending(current)
    wanted = frozenset(asked.topics)
    if current.state is _ONGOING and wanted <= current.partitions:
        return current
    return current.stepped(
        _ONGOING,
        now_ms,
        partitions=current.partitions | wanted,
        started_ms=current.started_ms if current.state is _ONGOING else now_ms,
        transaction_version=asked.transaction_version,
    )


def verified(
    known: Transaction | None, asked: AddPartitionsToTxnRequest
) -> tuple[tuple[TopicPartition, errors.TransactionAbortableError | None], ...]:
    """Checks which partitions are in the open transaction (`verify_only`). Raises as `with_partitions`."""
    current = check_producer(known, asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if current.state.is_prepared:
        raise _still_ending(current)
    absent = f"is not in the transaction of {current.transactional_id}, which is {current.state.label}"
    return tuple(
        (each, None if each in current.partitions else errors.TransactionAbortableError(f"{each} {absent}"))
        for each in asked.topics
    )


def is_ended_already(known: Transaction | None, request: EndTxnRequest) -> bool:
    """Whether an EndTxn is the retry of one that is complete: answered with the current id and epoch, nothing written.

    Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError (its markers are under way),
    InvalidTxnStateError (the other outcome is certain already, or there is nothing to end).
    """
    if known is None:
        raise errors.InvalidProducerIdMappingError(f"transactional id {request.transactional_id} is not known")
    if request.transaction_version >= TRANSACTION_VERSION_2:
        return _is_retry_under_2(known, request)
    check_producer(known, request.transactional_id, request.producer_id, request.producer_epoch)
    if known.state is _ONGOING:
        return False
    if known.state is (_COMPLETE_COMMIT if request.committed else _COMPLETE_ABORT):
        return True
    raise _not_to_be_ended(known, request)


def _is_retry_under_2(known: Transaction, request: EndTxnRequest) -> bool:
    """Under version 2 a retry has the epoch before the current one, the next transaction's end the current one."""
    after_bump = known.producer_id == request.producer_id and known.producer_epoch == request.producer_epoch + 1
    after_rotation = (
        known.previous_producer_id == request.producer_id != known.producer_id
        and request.producer_epoch == PRODUCER_EPOCH_MAX - 1
        and known.producer_epoch == 0
    )
    is_retry = after_bump or after_rotation
    if known.producer_id != request.producer_id and not after_rotation:
        check_producer(known, request.transactional_id, request.producer_id, request.producer_epoch)
    is_complete = known.state in (_COMPLETE_COMMIT, _COMPLETE_ABORT)
    # The last epoch only fences. In Prepare, Kafka refuses the current one with PRODUCER_FENCED, which ends a producer
    # that gives up its next transaction while the markers of the one before are under way.
    has_epoch = known.producer_epoch == request.producer_epoch < PRODUCER_EPOCH_MAX
    is_current = has_epoch and known.producer_id == request.producer_id
    if known.state.is_prepared and is_current:
        raise _still_ending(known)
    if not (is_retry if known.state.is_prepared else is_current or (is_complete and is_retry)):
        raise errors.ProducerFencedError(
            f"transactional id {known.transactional_id}: producer epoch {request.producer_epoch}, "
            f"current {known.producer_epoch} in {known.state.label}"
        )
    if known.state is _ONGOING:
        return False
    if is_complete and is_retry:
        if request.committed == known.is_commit:
            return True
    elif not known.state.is_prepared and not request.committed:
        return False
    raise _not_to_be_ended(known, request)


def _not_to_be_ended(
    known: Transaction, request: EndTxnRequest
) -> errors.ConcurrentTransactionsError | errors.InvalidTxnStateError:
    if known.state.is_prepared and request.committed == known.is_commit:
        return _still_ending(known)
    wish = "commit" if request.committed else "abort"
    return errors.InvalidTxnStateError(
        f"transactional id {known.transactional_id} is {known.state.label}: no {wish} now"
    )


def prepared(known: Transaction, request: EndTxnRequest, next_producer_id: int, now_ms: int) -> Transaction:
    """EndTxn, when `is_ended_already` is false: the outcome, which markers with this producer epoch write.

    `next_producer_id` is a new id where `needs_next_producer_id`, else -1.
    """
    bumps = request.transaction_version >= TRANSACTION_VERSION_2
    return known.stepped(
        _PREPARE_COMMIT if request.committed else _PREPARE_ABORT,
        now_ms,
        producer_epoch=known.producer_epoch + 1 if bumps else known.producer_epoch,
        last_producer_epoch=known.producer_epoch if bumps else known.last_producer_epoch,
        next_producer_id=next_producer_id,
        partitions=known.partitions if known.state is _ONGOING else frozenset(),
        started_ms=known.started_ms if known.state is _ONGOING else now_ms,
        transaction_version=request.transaction_version,
    )


def needs_next_producer_id(known: Transaction, request: EndTxnRequest) -> bool:
    """Whether the producer continues under a new id after this transaction, as its epochs are used up."""
    return request.transaction_version >= TRANSACTION_VERSION_2 and known.is_epoch_exhausted


def completed(known: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker. The producer's next id becomes its id."""
    is_rotated = known.next_producer_id != NO_PRODUCER_ID
    return known.stepped(
        _COMPLETE_COMMIT if known.state is _PREPARE_COMMIT else _COMPLETE_ABORT,
        now_ms,
        producer_id=known.next_producer_id if is_rotated else known.producer_id,
        producer_epoch=0 if is_rotated else known.producer_epoch,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def _still_ending(known: Transaction) -> errors.ConcurrentTransactionsError:
    return errors.ConcurrentTransactionsError(
        f"transactional id {known.transactional_id} is {known.state.label}: its markers are under way"
    )
