"""The requests of groups' members and of who administers groups: classic ones and KIP-848's.

I/O: through the broker that coordinates the group; its thread answers, JoinGroup and SyncGroup perhaps much later.
Source: `KafkaApis.handleJoinGroupRequest` and its neighbours (KIP-62, KIP-345, KIP-394, KIP-518, KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from stratalog.clients.kafka.apis.find_coordinator import AskedGroups, ask, ask_each, coordinating_face
from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.protocol.values import as_error, fields_of, message_of, value_of
from stratalog.clients.kafka.request.api import Api, Call, error_only
from stratalog.clients.kafka.request.broker import NOT_REQUESTED, ServedBroker
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.group_errors import error_response
from stratalog.replication.requests.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from stratalog.storage.errors import StratalogError

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
KNOWN_MEMBER_ID_FROM, SKIPPED_ASSIGNMENT_FROM = 4, 9
SEVERAL_LEAVE_FROM = 3
GROUP_NOT_FOUND_FROM = 6
DEAD = "Dead"


class GroupApis:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        rows = (
            (JOIN_GROUP, self._join, error_only),
            (SYNC_GROUP, self._sync, error_only),
            (HEARTBEAT, self._heartbeat, error_only),
            (LEAVE_GROUP, self._leave, error_only),
            (LIST_GROUPS, self._list, error_only),
            (DESCRIBE_GROUPS, self._describe, _none_described),
            (DELETE_GROUPS, self._delete, _none_deleted),
        )
        return [Api(key, served_versions(key), handle, refuse) for key, handle, refuse in rows]

    # -- members ---------------------------------------------------------------------------------------------

    def _join(self, call: Call) -> None:
        request = value_of(
            JoinGroupRequest,
            call.request,
            client_id=call.client_id,
            client_host=call.connection.principal.host,
            requires_known_member_id=call.version >= KNOWN_MEMBER_ID_FROM,
            supports_skipping_assignment=call.version >= SKIPPED_ASSIGNMENT_FROM,
        )
        self._ask_as_member(call, request, fields_of)

    def _sync(self, call: Call) -> None:
        self._ask_as_member(call, value_of(SyncGroupRequest, call.request), fields_of)

    def _heartbeat(self, call: Call) -> None:
        self._ask_as_member(call, value_of(HeartbeatRequest, call.request), fields_of)

    def _leave(self, call: Call) -> None:
        if call.version >= SEVERAL_LEAVE_FROM:
            self._ask_as_member(call, value_of(LeaveGroupRequest, call.request), fields_of)
            return
        alone = LeaveGroupRequest(call.request.group_id, (MemberIdentity(call.request.member_id),))
        self._ask_as_member(call, alone, _left_alone)

    def _ask_as_member(self, call: Call, request: Any, values: Callable[[Any], Values]) -> None:
        """Ask the group's coordinator, if the caller may read the group."""
        self._broker.check(call, Operation.READ, ResourceType.GROUP, request.group_id)

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)

    # -- administrators ----------------------------------------------------------------------------------------

    def _list(self, call: Call) -> None:
        request = value_of(ListGroupsRequest, call.request)
        may_see_all = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER) is None

        def answer(answers: list[object]) -> None:
            call.respond_with(partial(self._listed, call, may_see_all, answers))

        coordinating_face(self._broker).every_coordinator(CoordinatorType.GROUP, request, answer)

    def _listed(self, call: Call, may_see_all: bool, answers: Sequence[Any]) -> Values:
        """What all coordinators of this broker know; the first error, if one of them cannot tell."""
        errors = [as_error(each) or getattr(each, "error", None) for each in answers]
        groups = [group for each in answers if as_error(each) is None for group in each.groups]
        seen = [
            fields_of(group)
            for group in groups
            if may_see_all or self._broker.refusal(call, Operation.DESCRIBE, ResourceType.GROUP, group.group_id) is None
        ]
        return {"error_code": next(filter(None, errors), None), "groups": seen}

    def _describe(self, call: Call) -> None:
        wants_operations = call.given("include_authorized_operations", False)

        def request(group_id: str) -> DescribeGroupsRequest:
            return DescribeGroupsRequest((group_id,))

        def values(group_id: str, answer: Any) -> Values:
            found: DescribedGroup = answer.groups[0]
            told = {**fields_of(found), "error_message": message_of(found.error)}
            if found.group_state == DEAD and call.version < GROUP_NOT_FOUND_FROM:
                told["error_code"] = None
            is_told = wants_operations and found.error is None
            allowed = self._broker.allowed(call, ResourceType.GROUP, group_id) if is_told else NOT_REQUESTED
            return {**told, "authorized_operations": allowed}

        each = AskedGroups(call.request.groups, Operation.DESCRIBE, request, values, _group_error)
        ask_each(self._broker, call, each, "groups")

    def _delete(self, call: Call) -> None:
        def request(group_id: str) -> DeleteGroupsRequest:
            return DeleteGroupsRequest((group_id,))

        def values(_group_id: str, answer: Any) -> Values:
            result: DeletableGroupResult = answer.results[0]
            return fields_of(result)

        each = AskedGroups(call.request.groups_names, Operation.DELETE, request, values, _group_error)
        ask_each(self._broker, call, each, "results")


def _left_alone(response: LeaveGroupResponse) -> Values:
    """What one member that leaves is told, before members could leave together."""
    error = response.error
    if error is None and response.members:
        error = response.members[0].error
    return {"error_code": error}


def _group_error(group_id: str, error: StratalogError) -> Values:
    return {"group_id": group_id, "error_code": error, "error_message": str(error)}


def _none_described(call: Call, error: StratalogError) -> Values:
    return {"groups": [_group_error(group_id, error) for group_id in call.request.groups]}


def _none_deleted(call: Call, error: StratalogError) -> Values:
    return {"results": [{"group_id": group_id, "error_code": error} for group_id in call.request.groups_names]}
