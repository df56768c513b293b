"""Kafka's error vocabulary: one tree, Kafka's names, codes and `retriable`. Pure.

    StratalogError                     code, retriable
      one class per Kafka error        UnknownTopicOrPartitionError (3), NotLeaderOrFollowerError (6), …
        KafkaStorageError (56)           the storage of a replica failed
          ForeignCommitError               a commit in a live table that stratalog did not write
          TableReplacedError               another table in the place of one that was read before
          UnsupportedTableFeatureError     a table uses a Delta feature that stratalog does not write
      StoreError                       the object store did not answer or answered with a fault
        StoreUnavailableError            retriable; it is not known whether a write was applied
          StoreFullError                   no space is left
        ObjectNotFoundError              a named object does not exist

Source: Kafka's `org.apache.kafka.common.protocol.Errors`. A lost commit race is not an error but a value:
`storage.delta.table.Conflict`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class StratalogError(Exception):
    """The root. `code` is Kafka's error code; `retriable`: a retry can succeed. Subclasses inherit both."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool | None = None) -> None:
        cls.code = cls.code if code is None else code
        cls.retriable = cls.retriable if retriable is None else retriable

    @property
    def name(self) -> str:
        """Kafka's constant, e.g. `UNKNOWN_TOPIC_OR_PARTITION`."""
        return NAME_OF_CODE.get(self.code, "UNKNOWN_SERVER_ERROR")

    def as_value(self) -> Self:
        """The error as part of an answer: without traceback and cause. Their frames would refer to the answer, and so
        to the error, in a circle, which stays until a garbage collection."""
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self


class UnknownServerError(StratalogError, code=-1):
    """The server met something unexpected."""


class IllegalStateError(UnknownServerError):
    """A state that must not occur: a defect. Kafka's IllegalStateException; clients receive UNKNOWN_SERVER_ERROR."""


class CommitFailedError(UnknownServerError):
    """The member has left its group, so others may own its partitions. Kafka's exception of the consumer alone."""


class SerializationError(UnknownServerError):
    """A key or value does not fit its schema, or bytes their format. Kafka's SerializationException of clients."""


class RecordDeserializationError(SerializationError):
    """The deserializer refused the record at `offset`; the consumer's position is there, and a seek passes it."""

    def __init__(self, message: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset = topic, partition, offset


class OffsetOutOfRangeError(StratalogError, code=1):
    """The offset lies outside the log: below its start, or above its end."""


class CorruptMessageError(StratalogError, code=2, retriable=True):
    """Bytes fail their checksum or do not have the form they must have."""


class DamagedFileError(CorruptMessageError):
    """A live data file is gone, short or has wrong bits; `path` is its path below the table."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class UnknownTopicOrPartitionError(StratalogError, code=3, retriable=True):
    """There is no such topic or partition here."""


class LeaderNotAvailableError(StratalogError, code=5, retriable=True):
    """The partition has no leader now: an election is under way, or no replica may lead."""


class NotLeaderOrFollowerError(StratalogError, code=6, retriable=True):
    """The broker is not the leader, or no replica, of the partition."""


class RequestTimedOutError(StratalogError, code=7, retriable=True):
    """The request was not done in time; what it asked for may still happen."""


class BrokerNotAvailableError(StratalogError, code=8):
    """The broker is not available."""


class ReplicaNotAvailableError(StratalogError, code=9, retriable=True):
    """The broker has no replica of the partition."""


class RecordTooLargeError(StratalogError, code=10):
    """A batch is larger than `max.message.bytes`."""


class StaleControllerEpochError(StratalogError, code=11):
    """A newer controller has been elected."""


class OffsetMetadataTooLargeError(StratalogError, code=12):
    """The metadata of a committed offset is larger than `offset.metadata.max.bytes`."""


class CoordinatorLoadInProgressError(StratalogError, code=14, retriable=True):
    """The coordinator is still folding its log."""


class CoordinatorNotAvailableError(StratalogError, code=15, retriable=True):
    """The coordinator is not available."""


class NotCoordinatorError(StratalogError, code=16, retriable=True):
    """The broker is not the coordinator of this group or transactional id."""


class InvalidTopicError(StratalogError, code=17):
    """The topic name is not valid, or the topic is not open to this operation."""


class RecordListTooLargeError(StratalogError, code=18):
    """A batch is larger than `segment.bytes`."""


class NotEnoughReplicasError(StratalogError, code=19, retriable=True):
    """The ISR is smaller than `min.insync.replicas`: nothing was appended."""


class NotEnoughReplicasAfterAppendError(StratalogError, code=20, retriable=True):
    """The records are in the log, but the ISR became smaller than `min.insync.replicas`."""


class InvalidRequiredAcksError(StratalogError, code=21):
    """`acks` is 0, 1 or all (-1)."""


class IllegalGenerationError(StratalogError, code=22):
    """The generation is not the current one of the group."""


class InconsistentGroupProtocolError(StratalogError, code=23):
    """The member's protocols and those of the group have none in common."""


class InvalidGroupIdError(StratalogError, code=24):
    """The group id is not valid."""


class UnknownMemberIdError(StratalogError, code=25):
    """The group has no such member."""


class InvalidSessionTimeoutError(StratalogError, code=26):
    """The session timeout lies outside `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."""


class RebalanceInProgressError(StratalogError, code=27):
    """The group rebalances: join again."""


class TopicAuthorizationFailedError(StratalogError, code=29):
    """The principal may not do this with the topic."""


class GroupAuthorizationFailedError(StratalogError, code=30):
    """The principal may not do this with the group."""


class ClusterAuthorizationFailedError(StratalogError, code=31):
    """The principal may not do this with the cluster."""


class InvalidTimestampError(StratalogError, code=32):
    """A timestamp cannot be stored."""


class UnsupportedSaslMechanismError(StratalogError, code=33):
    """The SASL mechanism is not enabled, or not known."""


class IllegalSaslStateError(StratalogError, code=34):
    """The request does not belong to this state of the SASL exchange."""


class UnsupportedVersionError(StratalogError, code=35):
    """This version of the request is not served."""


class TopicAlreadyExistsError(StratalogError, code=36):
    """A topic of this name exists."""


class InvalidPartitionsError(StratalogError, code=37):
    """The number of partitions is below 1, or not above the present one."""


class InvalidReplicationFactorError(StratalogError, code=38):
    """The replication factor is below 1, or above the number of brokers."""


class InvalidReplicaAssignmentError(StratalogError, code=39):
    """An assignment names unknown brokers, or one twice."""


class InvalidConfigError(StratalogError, code=40):
    """A config has no such name or value."""


class UnknownStorageDomainError(InvalidConfigError):
    """No storage domain of the cluster has this name."""


class InvalidRequestError(StratalogError, code=42):
    """The request contradicts itself or the protocol."""


class StorageNotKnownError(InvalidRequestError):
    """What is asked for is on the cluster's storage, and only its brokers' addresses are known here."""


class UnsupportedForMessageFormatError(StratalogError, code=43):
    """The format of the stored records does not support the request."""


class PolicyViolationError(StratalogError, code=44):
    """A policy, such as `cleanup.policy`, forbids the request."""


class OutOfOrderSequenceNumberError(StratalogError, code=45):
    """A sequence number is missing between the last batch of the producer and this one."""


class InvalidProducerEpochError(StratalogError, code=47):
    """The producer has a newer epoch."""


class InvalidTxnStateError(StratalogError, code=48):
    """The transaction's state does not allow the request."""


class UnverifiedTransactionError(InvalidTxnStateError):
    """The transaction's coordinator has not verified this partition. After it has, the batch is retried with
    `verification`. Internal: of clients only Spark's sink receives it.

    log_end_offset, leader_epoch  where the log ended, and under which leader epoch; -1: not known
    """

    def __init__(self, message: str, log_end_offset: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.log_end_offset = log_end_offset
        self.leader_epoch = leader_epoch

    @property
    def verification(self) -> dict[str, Any]:
        """The fields of a batch, hand-over or commit whose coordinator was asked because of this refusal."""
        known = {"verified_leader_epoch": self.leader_epoch} if self.leader_epoch >= 0 else {}
        return {"verified_offset": self.log_end_offset, **known}


class InvalidProducerIdMappingError(StratalogError, code=49):
    """The producer id is not that of the transactional id."""


class InvalidTransactionTimeoutError(StratalogError, code=50):
    """The timeout is above `transaction.max.timeout.ms`."""


class ConcurrentTransactionsError(StratalogError, code=51, retriable=True):
    """The last transaction of the transactional id is not complete yet."""


class TransactionCoordinatorFencedError(StratalogError, code=52):
    """A newer coordinator has written a marker."""


class TransactionalIdAuthorizationFailedError(StratalogError, code=53):
    """The principal may not use the transactional id."""


class SecurityDisabledError(StratalogError, code=54):
    """The broker has no authorizer."""


class OperationNotAttemptedError(StratalogError, code=55):
    """Nothing of the request was done, since another part of it was refused."""


class KafkaStorageError(StratalogError, code=56, retriable=True):
    """The storage of the replica failed."""


class LogDirNotFoundError(StratalogError, code=57):
    """The broker has no such root."""


class SaslAuthenticationFailedError(StratalogError, code=58):
    """SASL authentication failed; clients receive the message, so that it must not reveal which users exist."""


class UnknownProducerIdError(StratalogError, code=59):
    """The log knows nothing of the producer, whose sequence does not begin at 0."""


class NonEmptyGroupError(StratalogError, code=68):
    """The group has members."""


class GroupIdNotFoundError(StratalogError, code=69):
    """There is no such group."""


class FetchSessionIdNotFoundError(StratalogError, code=70, retriable=True):
    """The broker has no such fetch session (KIP-227)."""


class InvalidFetchSessionEpochError(StratalogError, code=71, retriable=True):
    """The epoch is not the next one of the fetch session."""


class ListenerNotFoundError(StratalogError, code=72, retriable=True):
    """The leader has no endpoint under the listener asked for."""


class TopicDeletionDisabledError(StratalogError, code=73):
    """`delete.topic.enable` is false."""


class FencedLeaderEpochError(StratalogError, code=74, retriable=True):
    """The leader epoch is older than the current one."""


class UnknownLeaderEpochError(StratalogError, code=75, retriable=True):
    """The leader epoch is newer than any that is known here."""


class UnsupportedCompressionTypeError(StratalogError, code=76):
    """The codec is not known, or not in this version of the request."""


class StaleBrokerEpochError(StratalogError, code=77):
    """The broker has registered again since."""


class MemberIdRequiredError(StratalogError, code=79):
    """The member joins again with the id that the answer carries (KIP-394)."""


class PreferredLeaderNotAvailableError(StratalogError, code=80, retriable=True):
    """The preferred leader is not alive or not in the ISR."""


class GroupMaxSizeReachedError(StratalogError, code=81):
    """The group has `group.max.size` members."""


class FencedInstanceIdError(StratalogError, code=82):
    """Another member has taken the group instance id (KIP-345)."""


class EligibleLeadersNotAvailableError(StratalogError, code=83, retriable=True):
    """No replica that may lead is alive."""


class ElectionNotNeededError(StratalogError, code=84, retriable=True):
    """The partition has the leader that was asked for."""


class NoReassignmentInProgressError(StratalogError, code=85):
    """The partition is not being reassigned."""


class GroupSubscribedToTopicError(StratalogError, code=86):
    """The group subscribes to the topic whose offsets were to be deleted."""


class InvalidRecordError(StratalogError, code=87):
    """A record is not valid for its topic."""


class UnstableOffsetCommitError(StratalogError, code=88, retriable=True):
    """An open transaction has offsets of this partition (KIP-447)."""


class ThrottlingQuotaExceededError(StratalogError, code=89, retriable=True):
    """The client has made or deleted partitions faster than its quota (KIP-599)."""


class ProducerFencedError(StratalogError, code=90):
    """A newer producer has taken the transactional id."""


class ResourceNotFoundError(StratalogError, code=91):
    """There is no such resource, as a user's credential."""


class DuplicateResourceError(StratalogError, code=92):
    """The request names a resource twice."""


class UnacceptableCredentialError(StratalogError, code=93):
    """The credential has too few or too many iterations, or no user."""


class InvalidUpdateVersionError(StratalogError, code=95):
    """A partition state is older or newer than the one that is changed, or a feature cannot have this level."""


class UnknownTopicIdError(StratalogError, code=100, retriable=True):
    """There is no topic of this id here."""


class DuplicateBrokerRegistrationError(StratalogError, code=101):
    """Another live broker has this id."""


class BrokerIdNotRegisteredError(StratalogError, code=102):
    """No broker of this id is registered."""


class InconsistentTopicIdError(StratalogError, code=103, retriable=True):
    """The topic of this name has another id."""


class InconsistentClusterIdError(StratalogError, code=104):
    """The storage belongs to another cluster."""


class TransactionalIdNotFoundError(StratalogError, code=105):
    """There is no such transactional id."""


class FetchSessionTopicIdError(StratalogError, code=106, retriable=True):
    """The request and its fetch session do not agree on the use of topic ids."""


class FencedMemberEpochError(StratalogError, code=110):
    """The member epoch is not the current one (KIP-848): join again."""


class UnreleasedInstanceIdError(StratalogError, code=111):
    """Another member still has the group instance id."""


class UnsupportedAssignorError(StratalogError, code=112):
    """The group coordinator has no assignor of this name."""


class StaleMemberEpochError(StratalogError, code=113):
    """The member epoch is not the current one: commit again under the new one."""


class TransactionAbortableError(StratalogError, code=120):
    """The transaction cannot commit; abort it and continue (KIP-890)."""


class MismatchedEndpointTypeError(StratalogError, code=114):
    """The request is for controllers, and this is a broker."""


class UnsupportedEndpointTypeError(StratalogError, code=115):
    """The request names a kind of endpoint that does not exist."""


class InvalidRegularExpressionError(StratalogError, code=128):
    """The regular expression is not valid."""


class StoreError(StratalogError, code=KafkaStorageError.code, retriable=True):
    """The object store failed; the message names the object and quotes the store."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or answered with a fault: a write may or may not have been applied."""


class StoreFullError(StoreUnavailableError):
    """No space is left: the write was not applied; a later one may succeed."""


class ObjectNotFoundError(StoreError, retriable=False):
    """The named object does not exist."""


class ForeignCommitError(KafkaStorageError, retriable=False):
    """A commit in a live table was not written by stratalog: the replica goes offline."""


class LogLostError(KafkaStorageError):
    """The replica's table is gone, although it had records: it must not lead an empty log."""


class TableReplacedError(KafkaStorageError):
    """The table that was read before is gone and another one is in its place: the replica was made again."""


class UnsupportedTableFeatureError(KafkaStorageError, retriable=False):
    """The table's protocol or properties name a feature that a log does not have."""


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
