"""The messages of coordinators: the API, the response and the refusal of each request. Pure.

A refusal is a StratalogError as the answer to a request, such as NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and
COORDINATOR_LOAD_IN_PROGRESS of a coordinator's runtime: a response has one error, or one for each of its parts.
Source: Kafka's `ApiKeys`; `getErrorResponse` of Kafka's requests, and `GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stratalog.replication.requests import consumer_groups, coordinators, groups, transactions
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.response import Response

MESSAGES: Mapping[type, tuple[ApiKey, int, type[Response]]] = {
    groups.OffsetCommitRequest: (ApiKey.OFFSET_COMMIT, 9, groups.OffsetCommitResponse),
    groups.OffsetFetchRequest: (ApiKey.OFFSET_FETCH, 9, groups.OffsetFetchResponse),
    coordinators.FindCoordinatorRequest: (ApiKey.FIND_COORDINATOR, 6, coordinators.FindCoordinatorResponse),
    groups.JoinGroupRequest: (ApiKey.JOIN_GROUP, 9, groups.JoinGroupResponse),
    groups.HeartbeatRequest: (ApiKey.HEARTBEAT, 4, groups.HeartbeatResponse),
    groups.LeaveGroupRequest: (ApiKey.LEAVE_GROUP, 5, groups.LeaveGroupResponse),
    groups.SyncGroupRequest: (ApiKey.SYNC_GROUP, 5, groups.SyncGroupResponse),
    groups.DescribeGroupsRequest: (ApiKey.DESCRIBE_GROUPS, 6, groups.DescribeGroupsResponse),
    groups.ListGroupsRequest: (ApiKey.LIST_GROUPS, 5, groups.ListGroupsResponse),
    transactions.InitProducerIdRequest: (ApiKey.INIT_PRODUCER_ID, 5, transactions.InitProducerIdResponse),
    transactions.AddOffsetsToTxnRequest: (ApiKey.ADD_OFFSETS_TO_TXN, 4, transactions.AddOffsetsToTxnResponse),
    transactions.EndTxnRequest: (ApiKey.END_TXN, 5, transactions.EndTxnResponse),
    groups.TxnOffsetCommitRequest: (ApiKey.TXN_OFFSET_COMMIT, 5, groups.TxnOffsetCommitResponse),
    groups.DeleteGroupsRequest: (ApiKey.DELETE_GROUPS, 2, groups.DeleteGroupsResponse),
    groups.OffsetDeleteRequest: (ApiKey.OFFSET_DELETE, 0, groups.OffsetDeleteResponse),
    transactions.DescribeTransactionsRequest: (
        *(ApiKey.DESCRIBE_TRANSACTIONS, 0),
        transactions.DescribeTransactionsResponse,
    ),
    transactions.ListTransactionsRequest: (ApiKey.LIST_TRANSACTIONS, 2, transactions.ListTransactionsResponse),
    consumer_groups.ConsumerGroupHeartbeatRequest: (
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
        consumer_groups.ConsumerGroupHeartbeatResponse,
    ),
    consumer_groups.ConsumerGroupDescribeRequest: (
        *(ApiKey.CONSUMER_GROUP_DESCRIBE, 1),
        consumer_groups.ConsumerGroupDescribeResponse,
    ),
}
"""A request -> its API, the version in which brokers send it to each other, its response. It is the newest version that
names topics and has no flag of two-phase commit; of transactions, the one that brokers verify."""
REQUEST_OF_API: Mapping[int, type] = {api_key: request for request, (api_key, _, _) in MESSAGES.items()}
"""The requests that frames are read into, by API."""


def error_response(request: object, error: StratalogError) -> Any:
    """The response with `error` for the whole request; InvalidRequestError for one that is not of coordinators.

    >>> error_response(groups.SyncGroupRequest("g", 1, "m"), errors.UnknownMemberIdError("m")).error.name
    'UNKNOWN_MEMBER_ID'
    """
    if not has_error_response(request):
        raise errors.InvalidRequestError(f"{type(request).__name__} is no request of coordinators")
    refuse = _REFUSALS.get(type(request))
    if refuse is not None:
        return refuse(request, error)
    response: Any = MESSAGES[type(request)][2]
    return response(error=error)


def has_error_response(request: object) -> bool:
    """Whether it is one of the table."""
    return type(request) in MESSAGES


def with_error(response: Any, error: StratalogError) -> Any:
    """The response of a request that waited, such as JoinGroup's, with the error that ended its wait."""
    return replace(response, error=error)


def _heartbeat(_request: groups.HeartbeatRequest, error: StratalogError) -> groups.HeartbeatResponse:
    """No error while a coordinator loads: members would find another one."""
    return groups.HeartbeatResponse(None if isinstance(error, errors.CoordinatorLoadInProgressError) else error)


def _leave(request: groups.LeaveGroupRequest, error: StratalogError) -> groups.LeaveGroupResponse:
    if isinstance(error, errors.UnknownMemberIdError):
        members = (groups.MemberResponse(each.member_id, each.group_instance_id, error) for each in request.members)
        return groups.LeaveGroupResponse(tuple(members))
    return groups.LeaveGroupResponse(error=error)


def _each_partition(request: Any, error: StratalogError) -> tuple[groups.OffsetCommitResponseTopic, ...]:
    return tuple(
        groups.OffsetCommitResponseTopic(
            topic.name,
            tuple(groups.OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions),
            topic.topic_id,
        )
        for topic in request.topics
    )


def _each(response: Any, names: str, part: Callable[..., Any]) -> Callable[[Any, StratalogError], Any]:
    """A response with a part for each of the request's names."""
    return lambda request, error: response(tuple(part(name, error=error) for name in getattr(request, names)))


_REFUSALS: Mapping[type, Callable[[Any, StratalogError], object]] = {
    groups.JoinGroupRequest: lambda request, error: groups.JoinGroupResponse(member_id=request.member_id, error=error),
    groups.HeartbeatRequest: _heartbeat,
    groups.LeaveGroupRequest: _leave,
    groups.OffsetCommitRequest: lambda request, error: groups.OffsetCommitResponse(_each_partition(request, error)),
    groups.TxnOffsetCommitRequest: (
        lambda request, error: groups.TxnOffsetCommitResponse(_each_partition(request, error))
    ),
    groups.OffsetFetchRequest: lambda request, error: groups.OffsetFetchResponse(
        tuple(groups.OffsetFetchResponseGroup(each.group_id, error=error) for each in request.groups)
    ),
    groups.DescribeGroupsRequest: _each(groups.DescribeGroupsResponse, "groups", groups.DescribedGroup),
    groups.DeleteGroupsRequest: _each(groups.DeleteGroupsResponse, "groups_names", groups.DeletableGroupResult),
    consumer_groups.ConsumerGroupDescribeRequest: _each(
        consumer_groups.ConsumerGroupDescribeResponse, "group_ids", consumer_groups.DescribedConsumerGroup
    ),
    transactions.DescribeTransactionsRequest: _each(
        transactions.DescribeTransactionsResponse, "transactional_ids", transactions.TransactionDescription
    ),
}
"""Where a response has errors in its parts, or more than the error."""
