"""Requests of the members of classic groups, and of administrators for all groups.

I/O: through the broker that coordinates the group; its thread answers, JoinGroup and SyncGroup perhaps much later.
Source: `KafkaApis.handleJoinGroupRequest` and its neighbours (KIP-62, KIP-345, KIP-394, KIP-518, KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    MemberIdentity,
)
from stratalog.replication.requests.messages import error_response
from stratalog.server.request.api import Api, Body, Call, error_only
from stratalog.server.request.broker import NOT_REQUESTED, ApiFamily
from stratalog.server.request.coordinators import Split, ask, ask_all, ask_each, refused_whole
from stratalog.storage.errors import InvalidGroupIdError, StratalogError
from stratalog.wire.api_keys import ApiKey

KNOWN_MEMBER_ID_FROM, SKIPPED_ASSIGNMENT_FROM = 4, 9
SEVERAL_LEAVE_FROM = 3
GROUP_NOT_FOUND_FROM = 6
DEAD = "Dead"


class GroupApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.JOIN_GROUP, self._join, error_only),
            Api(ApiKey.SYNC_GROUP, self._ask_as_it_is, error_only),
            Api(ApiKey.HEARTBEAT, self._ask_as_it_is, error_only, is_quick=True),
            Api(ApiKey.LEAVE_GROUP, self._leave, error_only),
            Api(ApiKey.LIST_GROUPS, self._list, error_only),
            Api(ApiKey.DESCRIBE_GROUPS, self._describe, refused_whole),
            Api(ApiKey.DELETE_GROUPS, self._delete, refused_whole),
        ]

    # -- members ---------------------------------------------------------------------------------------------

    def _join(self, call: Call) -> None:
        request = replace(
            call.request,
            client_id=call.client_id,
            client_host=call.connection.principal.host,
            requires_known_member_id=call.version >= KNOWN_MEMBER_ID_FROM,
            supports_skipping_assignment=call.version >= SKIPPED_ASSIGNMENT_FROM,
            visible=self._broker.visible_topics(call),
        )
        self._ask(call, request)

    def _ask_as_it_is(self, call: Call) -> None:
        self._ask(call, call.request)

    def _leave(self, call: Call) -> None:
        if call.version >= SEVERAL_LEAVE_FROM:
            self._ask(call, call.request)
            return
        request = LeaveGroupRequest(call.request.group_id, (MemberIdentity(call.request.member_id),))
        self._ask(call, request, _only_members_error)

    def _ask(self, call: Call, request: Any, body: Callable[[Any], Body] = lambda response: response) -> None:
        """Ask the group's coordinator, if the caller may read the group."""
        self._broker.check(call, Operation.READ, ResourceType.GROUP, request.group_id)

        def refused(error: StratalogError) -> Body:
            return body(error_response(request, error))

        if not request.group_id:
            call.respond(refused(InvalidGroupIdError("the group id is empty")))
            return

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, body, refused)

    # -- administrators ----------------------------------------------------------------------------------------

    def _list(self, call: Call) -> None:
        may_see_all = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER) is None

        def is_visible(group_id: str) -> bool:
            return may_see_all or not self._broker.refusal(call, Operation.DESCRIBE, ResourceType.GROUP, group_id)

        def joined(responses: list[ListGroupsResponse], error: StratalogError | None) -> Body:
            groups = (group for each in responses for group in each.groups if is_visible(group.group_id))
            return ListGroupsResponse(tuple(groups), error)

        ask_all(self._broker, call, CoordinatorType.GROUP, call.request, joined)

    def _describe(self, call: Call) -> None:
        wants_operations = call.request.include_authorized_operations

        def request(group_id: str) -> DescribeGroupsRequest:
            return DescribeGroupsRequest((group_id,))

        def described(group_id: str, response: DescribeGroupsResponse) -> DescribedGroup:
            (found,) = response.groups
            is_left_out = found.group_state == DEAD and call.version < GROUP_NOT_FOUND_FROM
            error = None if is_left_out else found.error
            is_asked = wants_operations and error is None
            allowed = self._broker.allowed(call, ResourceType.GROUP, group_id) if is_asked else NOT_REQUESTED
            return replace(found, authorized_operations=allowed, error=error)

        split = Split(
            CoordinatorType.GROUP, Operation.DESCRIBE, request, described, _group_error, DescribeGroupsResponse
        )
        ask_each(self._broker, call, call.request.groups, split)

    def _delete(self, call: Call) -> None:
        def request(group_id: str) -> DeleteGroupsRequest:
            return DeleteGroupsRequest((group_id,))

        def deleted(_group_id: str, response: DeleteGroupsResponse) -> DeletableGroupResult:
            return response.results[0]

        split = Split(
            CoordinatorType.GROUP, Operation.DELETE, request, deleted, DeletableGroupResult, DeleteGroupsResponse
        )
        ask_each(self._broker, call, call.request.groups_names, split)


def _only_members_error(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The answer to the one member of a LeaveGroup request below version 3."""
    error = response.error
    if error is None and response.members:
        error = response.members[0].error
    return LeaveGroupResponse(error=error)


def _group_error(group_id: str, error: StratalogError) -> DescribedGroup:
    return DescribedGroup(group_id, error=error)
