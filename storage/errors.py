"""Kafka's error vocabulary: one tree, Kafka's names, codes and `retriable`. Pure.

    StratalogError                     code, retriable
      one class per Kafka error        UnknownTopicOrPartitionError (3), NotLeaderOrFollowerError (6), …
      StoreError                       the object store did not answer or answered with a fault
        StoreUnavailableError            retriable; whether a write was applied is not known
          StoreFullError                   no space is left
        ObjectNotFoundError              a named object is not there
      ForeignCommitError               somebody else committed to a live table
      UnsupportedTableFeatureError     a table uses a Delta feature that stratalog does not write

Source: Kafka's `org.apache.kafka.common.protocol.Errors`. Losing a commit race is not an error:
see `storage.delta.table.Conflict`.
"""

from __future__ import annotations

from typing import ClassVar


class StratalogError(Exception):
    """The root. `code` is Kafka's error code; `retriable` tells whether trying again can help."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Kafka's constant, e.g. `UNKNOWN_TOPIC_OR_PARTITION`."""
        return NAME_OF_CODE.get(self.code, "UNKNOWN_SERVER_ERROR")


class UnknownServerError(StratalogError):
    code = -1


class IllegalStateError(UnknownServerError):
    """A defect of whoever decided. Kafka's IllegalStateException, which clients get as UNKNOWN_SERVER_ERROR."""


class CommitFailedError(UnknownServerError):
    """The member is in its group no more: others may have its partitions. Only clients know Kafka's exception."""


class OffsetOutOfRangeError(StratalogError):
    code = 1


class CorruptMessageError(StratalogError):
    code = 2
    retriable = True


class DamagedFileError(CorruptMessageError):
    """A live data file is gone, short or has wrong bits; `path` is its path below the table."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class UnknownTopicOrPartitionError(StratalogError):
    code = 3
    retriable = True


class LeaderNotAvailableError(StratalogError):
    code = 5
    retriable = True


class NotLeaderOrFollowerError(StratalogError):
    code = 6
    retriable = True


class RequestTimedOutError(StratalogError):
    code = 7
    retriable = True


class BrokerNotAvailableError(StratalogError):
    code = 8


class RecordTooLargeError(StratalogError):
    code = 10


class StaleControllerEpochError(StratalogError):
    code = 11


class OffsetMetadataTooLargeError(StratalogError):
    code = 12


class CoordinatorLoadInProgressError(StratalogError):
    code = 14
    retriable = True


class CoordinatorNotAvailableError(StratalogError):
    code = 15
    retriable = True


class NotCoordinatorError(StratalogError):
    code = 16
    retriable = True


class InvalidTopicError(StratalogError):
    code = 17


class RecordListTooLargeError(StratalogError):
    code = 18


class NotEnoughReplicasError(StratalogError):
    code = 19
    retriable = True


class NotEnoughReplicasAfterAppendError(StratalogError):
    code = 20
    retriable = True


class InvalidRequiredAcksError(StratalogError):
    code = 21


class IllegalGenerationError(StratalogError):
    code = 22


class InconsistentGroupProtocolError(StratalogError):
    code = 23


class InvalidGroupIdError(StratalogError):
    code = 24


class UnknownMemberIdError(StratalogError):
    code = 25


class InvalidSessionTimeoutError(StratalogError):
    code = 26


class RebalanceInProgressError(StratalogError):
    code = 27


class TopicAuthorizationFailedError(StratalogError):
    code = 29


class GroupAuthorizationFailedError(StratalogError):
    code = 30


class ClusterAuthorizationFailedError(StratalogError):
    code = 31


class InvalidTimestampError(StratalogError):
    code = 32


class UnsupportedVersionError(StratalogError):
    code = 35


class TopicAlreadyExistsError(StratalogError):
    code = 36


class InvalidPartitionsError(StratalogError):
    code = 37


class InvalidReplicationFactorError(StratalogError):
    code = 38


class InvalidReplicaAssignmentError(StratalogError):
    code = 39


class InvalidConfigError(StratalogError):
    code = 40


class NotControllerError(StratalogError):
    code = 41
    retriable = True


class InvalidRequestError(StratalogError):
    code = 42


class UnsupportedForMessageFormatError(StratalogError):
    code = 43


class PolicyViolationError(StratalogError):
    code = 44


class OutOfOrderSequenceNumberError(StratalogError):
    code = 45


class DuplicateSequenceNumberError(StratalogError):
    code = 46


class InvalidProducerEpochError(StratalogError):
    code = 47


class InvalidTxnStateError(StratalogError):
    code = 48


class UnverifiedTransactionError(InvalidTxnStateError):
    """The transaction's coordinator was not asked about this partition. Once it was, the batch may come again with
    `log_end_offset` as `NewRecordBatch.verified_offset`. Clients never see it."""

    def __init__(self, message: str, log_end_offset: int = -1) -> None:
        super().__init__(message)
        self.log_end_offset = log_end_offset


class InvalidProducerIdMappingError(StratalogError):
    code = 49


class InvalidTransactionTimeoutError(StratalogError):
    code = 50


class ConcurrentTransactionsError(StratalogError):
    code = 51
    retriable = True


class TransactionCoordinatorFencedError(StratalogError):
    code = 52


class TransactionalIdAuthorizationFailedError(StratalogError):
    code = 53


class OperationNotAttemptedError(StratalogError):
    code = 55


class KafkaStorageError(StratalogError):
    code = 56
    retriable = True


class LogDirNotFoundError(StratalogError):
    code = 57


class UnknownProducerIdError(StratalogError):
    code = 59


class NonEmptyGroupError(StratalogError):
    code = 68


class GroupIdNotFoundError(StratalogError):
    code = 69


class FetchSessionIdNotFoundError(StratalogError):
    code = 70
    retriable = True


class InvalidFetchSessionEpochError(StratalogError):
    code = 71
    retriable = True


class ListenerNotFoundError(StratalogError):
    code = 72
    retriable = True


class TopicDeletionDisabledError(StratalogError):
    code = 73


class FencedLeaderEpochError(StratalogError):
    code = 74
    retriable = True


class UnknownLeaderEpochError(StratalogError):
    code = 75
    retriable = True


class UnsupportedCompressionTypeError(StratalogError):
    code = 76


class StaleBrokerEpochError(StratalogError):
    code = 77


class OffsetNotAvailableError(StratalogError):
    code = 78
    retriable = True


class MemberIdRequiredError(StratalogError):
    code = 79


class PreferredLeaderNotAvailableError(StratalogError):
    code = 80
    retriable = True


class GroupMaxSizeReachedError(StratalogError):
    code = 81


class FencedInstanceIdError(StratalogError):
    code = 82


class EligibleLeadersNotAvailableError(StratalogError):
    code = 83
    retriable = True


class ElectionNotNeededError(StratalogError):
    code = 84
    retriable = True


class NoReassignmentInProgressError(StratalogError):
    code = 85


class GroupSubscribedToTopicError(StratalogError):
    code = 86


class InvalidRecordError(StratalogError):
    code = 87


class UnstableOffsetCommitError(StratalogError):
    code = 88
    retriable = True


class ProducerFencedError(StratalogError):
    code = 90


class InvalidUpdateVersionError(StratalogError):
    code = 95


class UnknownTopicIdError(StratalogError):
    code = 100
    retriable = True


class DuplicateBrokerRegistrationError(StratalogError):
    code = 101


class BrokerIdNotRegisteredError(StratalogError):
    code = 102


class InconsistentTopicIdError(StratalogError):
    code = 103
    retriable = True


class InconsistentClusterIdError(StratalogError):
    code = 104


class TransactionalIdNotFoundError(StratalogError):
    code = 105


class FetchSessionTopicIdError(StratalogError):
    code = 106
    retriable = True


class IneligibleReplicaError(StratalogError):
    code = 107


class FencedMemberEpochError(StratalogError):
    code = 110


class UnreleasedInstanceIdError(StratalogError):
    code = 111


class UnsupportedAssignorError(StratalogError):
    code = 112


class StaleMemberEpochError(StratalogError):
    code = 113


class TransactionAbortableError(StratalogError):
    code = 120


class InvalidRegularExpressionError(StratalogError):
    code = 128


class StoreError(StratalogError):
    """The object store failed; the message names the object and the store's own words."""

    code = KafkaStorageError.code
    retriable = True


class StoreUnavailableError(StoreError):
    """No answer, or a fault: a write may or may not have been applied."""


class StoreFullError(StoreUnavailableError):
    """No space is left: the write was not applied, and others may fit again later."""


class ObjectNotFoundError(StoreError):
    """The named object does not exist."""

    retriable = False


class ForeignCommitError(KafkaStorageError):
    """A commit in a live table that no stratalog committer wrote: the replica goes offline."""

    retriable = False


class TableReplacedError(KafkaStorageError):
    """Another table stands where one was read before: the replica was deleted and made anew."""


class UnsupportedTableFeatureError(KafkaStorageError):
    """The table's protocol or properties name a feature outside reader 1 / writer 2."""

    retriable = False


def _kafka_name(error: type[StratalogError]) -> str:
    words = "".join("_" + c if c.isupper() else c for c in error.__name__.removesuffix("Error"))
    return words.strip("_").upper()


_SPECIAL_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    56: "KAFKA_STORAGE_ERROR",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
}

ERROR_OF_CODE: dict[int, type[StratalogError]] = {
    error.code: error for error in StratalogError.__subclasses__() if error is not StoreError
}
NAME_OF_CODE: dict[int, str] = {0: "NONE"} | {
    code: _SPECIAL_NAMES.get(code, _kafka_name(error)) for code, error in ERROR_OF_CODE.items()
}


def error_for_code(code: int, message: str) -> StratalogError:
    """The exception for a Kafka error code, as another process reported it: 3 gives UnknownTopicOrPartitionError."""
    return ERROR_OF_CODE.get(code, UnknownServerError)(message)
