"""The states of a transactional producer: its legal calls, and what follows from an error. Pure.

    Uninitialized -> Initializing -> Ready -> InTransaction -> Committing -> Ready
                                              InTransaction, AbortableError -> Aborting -> Ready
    any -> FatalError, which is final

Kafka: the client's `TransactionManager`, transaction version 2: partitions are added by the first batch that reaches
them, and each end of a transaction brings the next producer epoch.
"""

from __future__ import annotations

from enum import Enum

from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class Phase(Enum):
    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


_COMMITTING, _ABORTING = Phase.COMMITTING_TRANSACTION, Phase.ABORTING_TRANSACTION
LEGAL_PREVIOUS: dict[Phase, frozenset[Phase]] = {
    Phase.UNINITIALIZED: frozenset(),
    Phase.INITIALIZING: frozenset({Phase.UNINITIALIZED}),
    Phase.READY: frozenset({Phase.INITIALIZING, _COMMITTING, _ABORTING}),
    Phase.IN_TRANSACTION: frozenset({Phase.READY}),
    _COMMITTING: frozenset({Phase.IN_TRANSACTION}),
    _ABORTING: frozenset({Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR}),
    Phase.ABORTABLE_ERROR: frozenset({Phase.IN_TRANSACTION, _COMMITTING, Phase.ABORTABLE_ERROR}),
    Phase.FATAL_ERROR: frozenset(Phase),
}
"""A phase -> the phases from which it is legal (`isTransitionValid`)."""

_FATAL = (
    errors.ProducerFencedError,
    errors.InvalidProducerIdMappingError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.UnsupportedVersionError,
)


class ProducerTransactions:
    """One producer's transactions. The caller sends, waits and reports outcomes; errors are raised here.

    `is_begun`: records of the open transaction may have reached a broker, so its coordinator has to end it.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.error: StratalogError | None = None
        self.is_begun = False

    def begin_init(self) -> None:
        """`initTransactions`: once in a producer's life."""
        self._enter(Phase.INITIALIZING)

    def reset_init(self) -> None:
        """`initTransactions` failed, and may be called again."""
        self.phase = Phase.UNINITIALIZED

    def initialized(self, producer_id: int, producer_epoch: int) -> None:
        """The coordinator assigned id and epoch."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._enter(Phase.READY)

    def begin(self) -> None:
        """`beginTransaction`."""
        self._enter(Phase.IN_TRANSACTION)

    def check_sending(self) -> None:
        """Raise unless a record may be sent now; the transaction is begun then."""
        self._check_error()
        if self.phase is not Phase.IN_TRANSACTION:
            raise errors.IllegalStateError(
                f"Cannot perform send: no transaction is open, the state is {self.phase.value}"
            )
        self.is_begun = True

    def begin_end(self, *, committed: bool) -> None:
        """`commitTransaction` or `abortTransaction`; after an error only the second is legal."""
        if not committed and self.phase is Phase.ABORTABLE_ERROR:
            self.error = None
        self._enter(_COMMITTING if committed else _ABORTING)

    @property
    def is_ending(self) -> bool:
        """True when a begun end is not known to be complete: calling it again continues it (KIP-691's retry)."""
        return self.phase in (_COMMITTING, _ABORTING)

    def ended(self, producer_id: int, producer_epoch: int) -> None:
        """The coordinator ended the transaction, and assigned id and epoch for the next one."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.is_begun = False
        self._enter(Phase.READY)

    def failed(self, error: StratalogError, *, by_coordinator: bool = False) -> None:
        """A batch failed, or the coordinator refused: the transaction can only be aborted, or the producer is finished.

        After a leader's INVALID_PRODUCER_EPOCH an abort is legal; the coordinator's means that the producer is fenced.
        """
        if self.phase is Phase.FATAL_ERROR or (self.phase is _ABORTING and not by_coordinator):
            return
        is_fenced = by_coordinator and isinstance(error, errors.InvalidProducerEpochError)
        is_abortable = not by_coordinator or isinstance(error, errors.TransactionAbortableError)
        if isinstance(error, _FATAL) or is_fenced or not is_abortable:
            self.error, self.phase = error, Phase.FATAL_ERROR
        elif self.phase in LEGAL_PREVIOUS[Phase.ABORTABLE_ERROR]:
            self.error, self.phase = error, Phase.ABORTABLE_ERROR

    def _enter(self, phase: Phase) -> None:
        self._check_error()
        if self.phase not in LEGAL_PREVIOUS[phase]:
            raise errors.IllegalStateError(
                f"TransactionalId {self.transactional_id}: Invalid transition attempted from state "
                f"{self.phase.value} to state {phase.value}"
            )
        self.phase = phase

    def _check_error(self) -> None:
        error = self.error
        if error is None:
            return
        if isinstance(error, errors.ProducerFencedError):
            raise errors.ProducerFencedError(
                f"Producer with transactionalId '{self.transactional_id}' and producer id {self.producer_id}, epoch "
                f"{self.producer_epoch} has been fenced by another producer with the same transactionalId: {error}"
            )
        text = f"Cannot execute transactional method because we are in an error state: {error.name}: {error}"
        if self.phase is Phase.ABORTABLE_ERROR:
            raise errors.TransactionAbortableError(text) from error
        raise errors.UnknownServerError(text) from error
