"""Requests to coordinators and leaders as Kafka's messages, and the answers back. Pure.

The reverse of `server.apis`. Values name and nest their fields as messages do, so a row of the table mostly
names the API, a version and the response. An answer is what the coordinator would give in its own process: the
response, or the error with which a broker refuses requests for coordinators that it does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    MemberDescription,
    TopicPartitions,
)
from stratalog.replication.requests.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from stratalog.replication.requests.produce import NO_TIME, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from stratalog.storage.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    NotCoordinatorError,
    StratalogError,
)
from stratalog.storage.records import NewRecordBatch, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.entities import Values, build
from stratalog.wire.messages.schema import Entity, request_type
from stratalog.wire.messages.values import error_of, fields_of, time_ms_of, value_of

PRODUCE, FIND_COORDINATOR = (ApiKey.PRODUCE, 13), (ApiKey.FIND_COORDINATOR, 6)
"""API key and version: topics by id, transactions that brokers verify."""
END_TXN_BEFORE_EPOCH_BUMP = 4

_ELSEWHERE = (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)
"""What a broker answers for a coordinator that it does not have, or not yet, whatever the request."""
_NOT_SENT = frozenset(
    (
        *("client_id", "client_host", "requires_known_member_id", "supports_skipping_assignment"),
        *("generates_member_id", "visible", "verified_offset", "verified_leader_epoch"),
        *("transaction_version", "offsets_partition"),
    )
)
"""Fields of requests that follow from the connection, the version, or are known to the broker."""


def sent_fields(request: object) -> Values:
    """A request as the fields of its message."""
    return {name: value for name, value in fields_of(request).items() if name not in _NOT_SENT}


def _by_name(request: object) -> Values:
    """As `sent_fields`, for a message without ids: the receiver finds the topics by their names."""
    values = dict(sent_fields(request))
    topics = ({name: part for name, part in topic.items() if name != "topic_id"} for topic in values["topics"])
    return {**values, "topics": list(topics)}


@dataclass(frozen=True, slots=True)
class Translation:
    """One kind of request.

    response  the coordinator's response, from the request and the message that answers it
    values    the fields of the request's message
    """

    api_key: int
    version: int
    response: Callable[[Any, Entity], object]
    values: Callable[[Any], Values] = sent_fields

    def message(self, request: object) -> Entity:
        """The request as a message."""
        return build(request_type(self.api_key, self.version), self.values(request))

    def answer(self, request: object, message: Entity) -> object:
        """The coordinator's answer: a response or a StratalogError."""
        response = self.response(request, message)
        error = _first_error(response)
        return error if isinstance(error, _ELSEWHERE) else response


def translation_of(request: object) -> Translation:
    """InvalidRequestError for a request that Kafka's protocol does not have."""
    if isinstance(request, EndTxnRequest) and request.transaction_version < TRANSACTION_VERSION_2:
        return Translation(ApiKey.END_TXN, END_TXN_BEFORE_EPOCH_BUMP, _as(EndTxnResponse))
    found = _TRANSLATIONS.get(type(request))
    if found is None:
        raise InvalidRequestError(f"{type(request).__name__} is not sent to brokers of other processes")
    return found


def _first_error(response: Any) -> StratalogError | None:
    """The error of a response, or the first one of its parts."""
    own: StratalogError | None = getattr(response, "error", None)
    if own is not None:
        return own
    for parts in ("groups", "results", "topics", "partitions"):
        for part in getattr(response, parts, ()):
            found = _first_error(part)
            if found is not None:
                return found
    return None


def _as(response_type: type[Any]) -> Callable[[Any, Entity], object]:
    return lambda _request, message: value_of(response_type, message)


# -- modern groups -----------------------------------------------------------------------------------------------


def _assigned(assignment: Entity) -> tuple[TopicPartitions, ...] | None:
    if assignment is None:
        return None
    return tuple(value_of(TopicPartitions, topic) for topic in assignment.topic_partitions)


def _modern_asked(request: ConsumerGroupHeartbeatRequest) -> Values:
    owned = request.topic_partitions
    named = None if owned is None else [{"topic_id": t.topic_id, "partitions": t.partitions} for t in owned]
    return {**sent_fields(request), "topic_partitions": named}


def _modern_heartbeat(_request: ConsumerGroupHeartbeatRequest, message: Entity) -> ConsumerGroupHeartbeatResponse:
    return value_of(ConsumerGroupHeartbeatResponse, message, assignment=_assigned(message.assignment))


def _modern_description(_request: ConsumerGroupDescribeRequest, message: Entity) -> ConsumerGroupDescribeResponse:
    def member(each: Entity) -> MemberDescription:
        assignments = {name: _assigned(getattr(each, name)) for name in ("assignment", "target_assignment")}
        return value_of(MemberDescription, each, **assignments)

    groups = (
        value_of(DescribedConsumerGroup, group, members=tuple(map(member, group.members))) for group in message.groups
    )
    return ConsumerGroupDescribeResponse(tuple(groups))


# -- transactions ------------------------------------------------------------------------------------------------


def _transactions_asked(request: DescribeTransactionsRequest) -> Values:
    return {"transactional_ids": [request.transactional_id]}


def _transaction(_request: DescribeTransactionsRequest, message: Entity) -> DescribeTransactionsResponse:
    (found,) = message.transaction_states
    topics = tuple(TopicPartition(each.topic, partition) for each in found.topics for partition in each.partitions)
    return value_of(DescribeTransactionsResponse, found, topics=topics)


_TRANSLATIONS: dict[type, Translation] = {
    OffsetCommitRequest: Translation(ApiKey.OFFSET_COMMIT, 9, _as(OffsetCommitResponse)),
    OffsetFetchRequest: Translation(ApiKey.OFFSET_FETCH, 9, _as(OffsetFetchResponse)),
    JoinGroupRequest: Translation(ApiKey.JOIN_GROUP, 9, _as(JoinGroupResponse)),
    HeartbeatRequest: Translation(ApiKey.HEARTBEAT, 4, _as(HeartbeatResponse)),
    LeaveGroupRequest: Translation(ApiKey.LEAVE_GROUP, 5, _as(LeaveGroupResponse)),
    SyncGroupRequest: Translation(ApiKey.SYNC_GROUP, 5, _as(SyncGroupResponse)),
    DescribeGroupsRequest: Translation(ApiKey.DESCRIBE_GROUPS, 6, _as(DescribeGroupsResponse)),
    ListGroupsRequest: Translation(ApiKey.LIST_GROUPS, 5, _as(ListGroupsResponse)),
    InitProducerIdRequest: Translation(ApiKey.INIT_PRODUCER_ID, 5, _as(InitProducerIdResponse)),
    AddOffsetsToTxnRequest: Translation(ApiKey.ADD_OFFSETS_TO_TXN, 4, _as(AddOffsetsToTxnResponse)),
    EndTxnRequest: Translation(ApiKey.END_TXN, 5, _as(EndTxnResponse)),
    TxnOffsetCommitRequest: Translation(ApiKey.TXN_OFFSET_COMMIT, 5, _as(TxnOffsetCommitResponse), _by_name),
    DeleteGroupsRequest: Translation(ApiKey.DELETE_GROUPS, 2, _as(DeleteGroupsResponse)),
    OffsetDeleteRequest: Translation(ApiKey.OFFSET_DELETE, 0, _as(OffsetDeleteResponse)),
    DescribeTransactionsRequest: Translation(ApiKey.DESCRIBE_TRANSACTIONS, 0, _transaction, _transactions_asked),
    ListTransactionsRequest: Translation(ApiKey.LIST_TRANSACTIONS, 2, _as(ListTransactionsResponse)),
    ConsumerGroupHeartbeatRequest: Translation(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _modern_heartbeat, _modern_asked),
    ConsumerGroupDescribeRequest: Translation(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, _modern_description),
}
"""The newest version of each API that names topics and has no flag of two-phase commit."""


# -- FindCoordinator, Produce ------------------------------------------------------------------------------------


def find_message(request: FindCoordinatorRequest) -> Entity:
    values = {"key_type": request.key_type.value, "coordinator_keys": request.coordinator_keys}
    return build(request_type(*FIND_COORDINATOR), values)


def found_coordinators(message: Entity) -> FindCoordinatorResponse:
    """The reverse of FindCoordinator's answer."""
    return FindCoordinatorResponse(tuple(value_of(Coordinator, each) for each in message.coordinators))


def produce_message(request: ProduceRequest) -> Entity:
    """A batch as Produce sends it. RecordTooLargeError, UnsupportedCompressionTypeError."""
    batch = request.batch
    records = encode_batch(batch) if isinstance(batch, NewRecordBatch) else batch.data
    topic_id, (_, partition) = request.partition
    data = {"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
    values = {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout": request.timeout_ms,
        "topic_data": [data],
    }
    return build(request_type(*PRODUCE), values)


def produced(request: ProduceRequest, message: Entity) -> ProduceResponse:
    """The leader's response. The message names no leader epoch, nor whether the batch was stored before."""
    (part,) = message.responses[0].partition_responses
    error = error_of(part)
    if error is not None:
        return ProduceResponse(request.partition, error=error)
    count = request.batch.record_count if isinstance(request.batch, NewRecordBatch) else 1
    time_ms = NO_TIME if part.log_append_time is None else time_ms_of(part.log_append_time)
    last_offset = part.base_offset + count - 1
    return ProduceResponse(request.partition, part.base_offset, last_offset, append_time_ms=time_ms)
