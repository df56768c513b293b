"""Requests of the members of classic groups, and of administrators for all groups.

I/O: through the broker that coordinates the group; its thread answers, JoinGroup and SyncGroup perhaps much later.
Source: `KafkaApis.handleJoinGroupRequest` and its neighbours (KIP-62, KIP-345, KIP-394, KIP-518, KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.group_errors import error_response
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
)
from stratalog.server.request.api import Api, Call, error_only, refused_each
from stratalog.server.request.broker import NOT_REQUESTED, ApiFamily
from stratalog.server.request.coordinators import Split, ask, ask_all, ask_each
from stratalog.storage.errors import InvalidGroupIdError, StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.entities import Values
from stratalog.wire.messages.values import fields_of, message_of, value_of

KNOWN_MEMBER_ID_FROM, SKIPPED_ASSIGNMENT_FROM = 4, 9
SEVERAL_LEAVE_FROM = 3
GROUP_NOT_FOUND_FROM = 6
DEAD = "Dead"


class GroupApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.JOIN_GROUP, self._join, error_only),
            Api(ApiKey.SYNC_GROUP, self._sync, error_only),
            Api(ApiKey.HEARTBEAT, self._heartbeat, error_only, is_quick=True),
            Api(ApiKey.LEAVE_GROUP, self._leave, error_only),
            Api(ApiKey.LIST_GROUPS, self._list, error_only),
            Api(ApiKey.DESCRIBE_GROUPS, self._describe, refused_each("groups", "groups", _group_error)),
            Api(ApiKey.DELETE_GROUPS, self._delete, refused_each("results", "groups_names", _deletion_error)),
        ]

    # -- members ---------------------------------------------------------------------------------------------

    def _join(self, call: Call) -> None:
        request = value_of(
            JoinGroupRequest,
            call.request,
            client_id=call.client_id,
            client_host=call.connection.principal.host,
            requires_known_member_id=call.version >= KNOWN_MEMBER_ID_FROM,
            supports_skipping_assignment=call.version >= SKIPPED_ASSIGNMENT_FROM,
            visible=self._broker.visible_topics(call),
        )
        self._ask(call, request)

    def _sync(self, call: Call) -> None:
        self._ask(call, value_of(SyncGroupRequest, call.request))

    def _heartbeat(self, call: Call) -> None:
        self._ask(call, value_of(HeartbeatRequest, call.request))

    def _leave(self, call: Call) -> None:
        if call.version >= SEVERAL_LEAVE_FROM:
            self._ask(call, value_of(LeaveGroupRequest, call.request))
            return
        request = LeaveGroupRequest(call.request.group_id, (MemberIdentity(call.request.member_id),))
        self._ask(call, request, _only_members_error)

    def _ask(self, call: Call, request: Any, values: Callable[[Any], Values] = fields_of) -> None:
        """Ask the group's coordinator, if the caller may read the group."""
        self._broker.check(call, Operation.READ, ResourceType.GROUP, request.group_id)

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        if not request.group_id:
            call.respond(refused(InvalidGroupIdError("the group id is empty")))
            return

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)

    # -- administrators ----------------------------------------------------------------------------------------

    def _list(self, call: Call) -> None:
        request = value_of(ListGroupsRequest, call.request)
        may_see_all = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER) is None

        def is_visible(group_id: str) -> bool:
            return may_see_all or not self._broker.refusal(call, Operation.DESCRIBE, ResourceType.GROUP, group_id)

        def values(responses: list[ListGroupsResponse], error: StratalogError | None) -> Values:
            groups = [group for each in responses for group in each.groups if is_visible(group.group_id)]
            return {"error_code": error, "groups": [fields_of(group) for group in groups]}

        ask_all(self._broker, call, CoordinatorType.GROUP, request, values)

    def _describe(self, call: Call) -> None:
        wants_operations = call.given("include_authorized_operations", False)

        def request(group_id: str) -> DescribeGroupsRequest:
            return DescribeGroupsRequest((group_id,))

        def values(group_id: str, response: DescribeGroupsResponse) -> Values:
            (found,) = response.groups
            described = {**fields_of(found), "error_message": message_of(found.error)}
            if found.group_state == DEAD and call.version < GROUP_NOT_FOUND_FROM:
                described["error_code"] = None
            if wants_operations and described["error_code"] is None:
                allowed = self._broker.allowed(call, ResourceType.GROUP, group_id)
                return {**described, "authorized_operations": allowed}
            return {**described, "authorized_operations": NOT_REQUESTED}

        split = Split(CoordinatorType.GROUP, Operation.DESCRIBE, request, values, _group_error)
        ask_each(self._broker, call, call.request.groups, split, "groups")

    def _delete(self, call: Call) -> None:
        def request(group_id: str) -> DeleteGroupsRequest:
            return DeleteGroupsRequest((group_id,))

        def values(_group_id: str, response: DeleteGroupsResponse) -> Values:
            return fields_of(response.results[0])

        split = Split(CoordinatorType.GROUP, Operation.DELETE, request, values, _deletion_error)
        ask_each(self._broker, call, call.request.groups_names, split, "results")


def _only_members_error(response: LeaveGroupResponse) -> Values:
    """The answer to the one member of a LeaveGroup request below version 3."""
    error = response.error
    if error is None and response.members:
        error = response.members[0].error
    return {"error_code": error}


def _group_error(group_id: str, error: StratalogError) -> Values:
    return {"group_id": group_id, "error_code": error, "error_message": str(error)}


def _deletion_error(group_id: str, error: StratalogError) -> Values:
    return {"group_id": group_id, "error_code": error}
