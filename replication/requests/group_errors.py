"""A StratalogError as the answer to a request of groups or offsets: the response that the request has. Pure.

For errors of a coordinator and of its runtime: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS. Source: `getErrorResponse` of Kafka's requests, and `GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stratalog.replication.requests.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
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
    MemberResponse,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from stratalog.storage.errors import (
    CoordinatorLoadInProgressError,
    InvalidRequestError,
    StratalogError,
    UnknownMemberIdError,
)


def error_response(request: object, error: StratalogError) -> Any:
    """The response with `error` for the whole request; InvalidRequestError for a request that is not of groups.

    >>> error_response(SyncGroupRequest("g", 1, "m"), UnknownMemberIdError("m")).error.name
    'UNKNOWN_MEMBER_ID'
    """
    made = _RESPONSES.get(type(request))
    if made is None:
        raise InvalidRequestError(f"{type(request).__name__} is no request of groups")
    return made(request, error)


def has_error_response(request: object) -> bool:
    """Whether it is one of `replication.requests.groups`."""
    return type(request) in _RESPONSES


def with_error(response: Any, error: StratalogError) -> Any:
    """The response of a request that waited, such as JoinGroup's, with the error that ended its wait."""
    return replace(response, error=error)


def _heartbeat(_request: HeartbeatRequest, error: StratalogError) -> HeartbeatResponse:
    """No error while a coordinator loads: members would find another one."""
    return HeartbeatResponse(None if isinstance(error, CoordinatorLoadInProgressError) else error)


def _leave(request: LeaveGroupRequest, error: StratalogError) -> LeaveGroupResponse:
    if isinstance(error, UnknownMemberIdError):
        members = tuple(MemberResponse(each.member_id, each.group_instance_id, error) for each in request.members)
        return LeaveGroupResponse(members)
    return LeaveGroupResponse(error=error)


def _each_partition(
    topics: tuple[OffsetCommitRequestTopic, ...], error: StratalogError
) -> tuple[OffsetCommitResponseTopic, ...]:
    return tuple(
        OffsetCommitResponseTopic(
            topic.name, tuple(OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions)
        )
        for topic in topics
    )


def _fetch(request: OffsetFetchRequest, error: StratalogError) -> OffsetFetchResponse:
    return OffsetFetchResponse(tuple(OffsetFetchResponseGroup(each.group_id, error=error) for each in request.groups))


def _describe(request: DescribeGroupsRequest, error: StratalogError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(tuple(DescribedGroup(group_id, error=error) for group_id in request.groups))


def _delete(request: DeleteGroupsRequest, error: StratalogError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(tuple(DeletableGroupResult(group_id, error) for group_id in request.groups_names))


_RESPONSES: dict[type, Callable[[Any, StratalogError], object]] = {
    JoinGroupRequest: lambda request, error: JoinGroupResponse(member_id=request.member_id, error=error),
    SyncGroupRequest: lambda _request, error: SyncGroupResponse(error=error),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: lambda request, error: OffsetCommitResponse(_each_partition(request.topics, error)),
    TxnOffsetCommitRequest: lambda request, error: TxnOffsetCommitResponse(_each_partition(request.topics, error)),
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: lambda _request, error: OffsetDeleteResponse(error=error),
    DescribeGroupsRequest: _describe,
    ListGroupsRequest: lambda _request, error: ListGroupsResponse(error=error),
    DeleteGroupsRequest: _delete,
}
