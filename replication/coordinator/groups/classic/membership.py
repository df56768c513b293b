"""The requests of classic groups' members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Pure.

    JoinGroup    waits until every member has joined, or the longest rebalance timeout is over; then all are answered
                 with the next generation, and the leader also with the members
    SyncGroup    waits for the leader's, whose assignments are one record; then all are answered with theirs
    Heartbeat    keeps the session; is answered REBALANCE_IN_PROGRESS during a rebalance
    LeaveGroup   removes members at once, others are removed when their sessions end

A rebalance begins when a member joins, leaves or times out, changes its protocols, when the leader joins again (a
topic's partitions changed), or when a member does not send SyncGroup in time. Its steps are in
`replication.coordinator.groups.classic.rebalance`.

Source: the classic part of Kafka's `GroupMetadataManager`. Two differences. A generation is Stable in memory as soon as
its leader's assignments are received, not when they are stored: answers wait for that anyway, in order, and a shard
whose record is not stored is discarded. A request that is sent again while the first waits replaces it; the first is
answered REBALANCE_IN_PROGRESS, which Kafka does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stratalog.replication import cadence
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup, ClassicMember, GroupState
from stratalog.replication.coordinator.groups.classic.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    WITH_GENERATION,
    Rebalances,
    with_timeouts,
)
from stratalog.replication.coordinator.groups.records import GROUP_METADATA_KEY, GroupMetadataKey, decode_key
from stratalog.replication.coordinator.groups.table import CLASSIC, DecisionBuilder, GroupTable, TimerKey
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.requests.groups import (
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError

PROTOCOLS_MAX = 4
"""How much more than its record a group may keep for the other protocols that its members support."""
PROTOCOL_BYTES = 256
"""What a protocol of a member takes beside its subscription, in memory and in time."""
GROUP_RECORD_BYTES = 8 << 10
"""Of a group's record, beside its own names and its members."""
MEMBER_RECORD_BYTES = 32
"""Of a member in its group's record, beside its names, subscription and assignment."""


class ClassicGroups:
    """The classic groups of a shard: a `GroupKind`."""

    group_type = CLASSIC
    key_versions = frozenset((GROUP_METADATA_KEY,))
    timer_kinds = frozenset((JOIN, SYNC, SESSION))

    def __init__(self, table: GroupTable) -> None:
        self.rebalances = Rebalances(table)
        self._table = table
        self._timers = table.timers
        self._config = table.config

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, DecisionBuilder], None]]:
        return {
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: self.heartbeat,
            LeaveGroupRequest: self.leave,
        }

    # JoinGroup

    def join(self, request: JoinGroupRequest, token: int, decision: DecisionBuilder) -> None:
        """Answered when the rebalance completes, at once if there is none or on an error."""
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        request = self._validated_join(request)
        self._table.remove_if_empty_of_other_type(request.group_id, CLASSIC, decision)
        group = self._table.groups.get(request.group_id)
        is_new_group = group is None
        if group is None:
            group = self._table.groups[request.group_id] = ClassicGroup(request.group_id, decision.now_ms)
        assert isinstance(group, ClassicGroup)
        records = len(decision.records)
        try:
            self._validate_joining(group, request)
            if is_unknown:
                self._join_new(group, request, token, decision)
            else:
                self._join_existing(group, request, token, decision)
        except StratalogError as error:
            member_id = UNKNOWN_MEMBER_ID if isinstance(error, errors.GroupMaxSizeReachedError) else request.member_id
            decision.answer(token, JoinGroupResponse(member_id=member_id, error=error.as_value()))
        if is_new_group and len(decision.records) == records:
            decision.records.append(group.creation_record())

    def _validated_join(self, request: JoinGroupRequest) -> JoinGroupRequest:
        if not request.group_id:
            raise errors.InvalidGroupIdError("the group id is empty")
        request = with_timeouts(request, self._config)
        group = self._table.groups.get(request.group_id)
        if group is not None and group.group_type != CLASSIC and not group.is_empty:
            raise errors.InconsistentGroupProtocolError(f"group {request.group_id} is a {group.group_type} group")
        exists = group is not None and group.group_type == CLASSIC
        if not exists and request.member_id != UNKNOWN_MEMBER_ID:
            raise errors.UnknownMemberIdError(
                f"group {request.group_id} does not exist, nor its member {request.member_id!r}"
            )
        return request

    def _validate_joining(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        member_id = request.member_id
        if not self._accepts(group, member_id):
            self._timers.cancel(TimerKey(SESSION, group.group_id, member_id))
            group.remove(member_id)
            raise errors.GroupMaxSizeReachedError(
                f"group {group.group_id} has {self._config.group_max_size} members (group.max.size)"
            )
        group.validate_alive()
        if not group.supports_protocols(request.protocol_type, request.protocols):
            raise errors.InconsistentGroupProtocolError(
                f"group {group.group_id} of type {group.protocol_type} has no protocol in common with type"
                f" {request.protocol_type!r}, {[protocol.name for protocol in request.protocols]}"
            )

        self._check_subscriptions(group, request)

    def _check_subscriptions(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        """The subscriptions of all members are stored in one record, and read together in each generation. GroupMaxSize
        when they cannot fit; for what members keep for other protocols there is room of the same kind."""
        others = (each.protocols for each in group.members.values() if each.member_id != request.member_id)
        sizes = [[len(each.metadata) for each in protocols] for protocols in (*others, request.protocols)]
        names = sum(len(protocols) for protocols in sizes) * PROTOCOL_BYTES
        least, total = sum(min(each, default=0) for each in sizes), sum(map(sum, sizes)) + names
        bytes_max = self._table.record_bytes_max()
        if least > bytes_max or total > PROTOCOLS_MAX * bytes_max:
            raise errors.GroupMaxSizeReachedError(
                f"the subscriptions of {len(sizes)} members of group {group.group_id} have {least} bytes, or {total} "
                f"with all protocols > max.message.bytes {bytes_max} of the topic of committed offsets"
            )

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """While members join, those that wait count: after the limit was lowered the last ones to join are refused."""
        size_max = self._config.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            return member_id in group.awaiting_join or len(group.awaiting_join) < size_max
        if group.state in WITH_GENERATION:
            return member_id in group.members or len(group.members) < size_max
        return True

    def _join_new(self, group: ClassicGroup, request: JoinGroupRequest, token: int, decision: DecisionBuilder) -> None:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._join_replacing(group, request, member_id, token, decision)
        elif instance_id is None and request.requires_known_member_id:
            group.pending_join.add(member_id)
            self.rebalances.schedule(SESSION, group, request.session_timeout_ms, decision, member_id)
            required = errors.MemberIdRequiredError(f"group {group.group_id}: join again as member {member_id!r}")
            decision.answer(token, JoinGroupResponse(member_id=member_id, error=required))
        else:
            self._add(group, request, member_id, token, decision)

    def _new_id(self) -> str:
        """128 bits in the form of a UUID, as at the end of Kafka's member ids."""
        digits = self._table.ids.new_id()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _join_existing(
        self, group: ClassicGroup, request: JoinGroupRequest, token: int, decision: DecisionBuilder
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join and request.group_instance_id is None:
            self._add(group, request, member_id, token, decision)
            return
        group.validate_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        member.visible = request.visible
        is_same = member.protocols == request.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and is_same:
            # The answer to the JoinGroup of this generation may have been lost.
            decision.answer(token, self.rebalances.joined(group, member))
        elif group.state is GroupState.STABLE and is_same and group.leader != member_id:
            decision.answer(token, self.rebalances.joined(group, member))
        else:
            group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
            self.rebalances.await_join(group, member_id, token, decision)
            self.rebalances.rebalance_or_complete(group, decision)

    def _add(
        self, group: ClassicGroup, request: JoinGroupRequest, member_id: str, token: int, decision: DecisionBuilder
    ) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
            is_new=True,
            visible=request.visible,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        self.rebalances.await_join(group, member_id, token, decision)
        self.rebalances.schedule(SESSION, group, cadence.NEW_MEMBER_JOIN.ms, decision, member_id)
        self.rebalances.rebalance_or_complete(group, decision)

    def _join_replacing(
        self, group: ClassicGroup, request: JoinGroupRequest, member_id: str, token: int, decision: DecisionBuilder
    ) -> None:
        """A static member returns without its member id and continues under a new one. In a stable group there is no
        rebalance if its protocols select the same one."""
        instance_id = request.group_instance_id or ""
        old_member_id, old_leader = group.static_members[instance_id], group.leader
        self._check_replaced(group, request, member_id, old_member_id)
        fenced = errors.FencedInstanceIdError(f"static member {instance_id} returned as {member_id!r}")
        self.rebalances.answer_waiting(group, old_member_id, old_member_id, fenced, decision)
        member = group.replace_static(instance_id, member_id)
        self._timers.cancel(TimerKey(SESSION, group.group_id, old_member_id))
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.rebalances.schedule(SESSION, group, member.session_timeout_ms, decision, member_id)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            decision.records.append(group.state_record())
            joined = self.rebalances.joined(group, member)
            if request.supports_skipping_assignment:
                joined = replace(joined, skip_assignment=group.leader == member_id)
            else:
                # An older client would assign again as the leader, though no rebalance is under way.
                joined = replace(joined, leader=old_leader or "", members=())
            decision.answer(token, joined)
            return
        self.rebalances.await_join(group, member_id, token, decision)
        if group.state in WITH_GENERATION:
            self.rebalances.prepare_rebalance(group, decision)
        else:
            self.rebalances.complete_if_all_joined(group, decision)

    # SyncGroup

    def sync(self, request: SyncGroupRequest, token: int, decision: DecisionBuilder) -> None:
        """Answered when the leader's assignments are received."""
        group = self._of_member(request.group_id)
        self._validate_sync(group, request)
        member = group.members[request.member_id]
        if group.leader == member.member_id and group.state is not GroupState.STABLE:
            self._check_size(group, request)
        earlier = group.awaiting_sync.get(member.member_id)
        if earlier is not None:
            again = errors.RebalanceInProgressError(f"member {member.member_id!r} sent another SyncGroup")
            decision.answer(earlier, SyncGroupResponse(error=again))
        group.awaiting_sync[member.member_id] = token
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._timers.cancel(TimerKey(SYNC, group.group_id))
        if group.state is GroupState.STABLE:
            self.rebalances.answer_sync(group, member, decision, restarts_session=False)
        elif group.leader == member.member_id:
            self.rebalances.assign(group, {each.member_id: each.assignment for each in request.assignments}, decision)

    def _validate_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        if group.is_empty:
            raise errors.UnknownMemberIdError(f"group {group.group_id} is empty")
        group.validate_alive()
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        for given, own in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
            if given is not None and own is not None and given != own:
                raise errors.InconsistentGroupProtocolError(f"{given!r} != {own!r} of group {group.group_id}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise errors.RebalanceInProgressError(f"group {group.group_id} rebalances again")

    def _check_size(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """The group's record has to fit into its log, else the shard would be lost for all of its groups. Kafka: the
        append fails, and the leader is answered UNKNOWN_SERVER_ERROR."""
        subscriptions = sum(len(each.metadata(group.protocol_name)) for each in group.members.values())
        assignments = sum(len(each.assignment) for each in request.assignments)
        self._check_record(group, subscriptions + assignments)

    def _check_replaced(
        self, group: ClassicGroup, request: JoinGroupRequest, member_id: str, old_member_id: str
    ) -> None:
        """The same for a static member that returns to a stable generation, whose record is written again."""
        given = [each.metadata for each in request.protocols if each.name == group.protocol_name]
        if group.state is not GroupState.STABLE or not given:
            return
        size_bytes = len(given[0]) + len(member_id.encode())
        for each in group.members.values():
            kept = 0 if each.member_id == old_member_id else len(each.metadata(group.protocol_name))
            size_bytes += kept + len(each.assignment)
        self._check_record(group, size_bytes)

    def _check_record(self, group: ClassicGroup, size_bytes: int) -> None:
        """`size_bytes`: of subscriptions and assignments."""
        size_bytes += GROUP_RECORD_BYTES + 2 * len(group.group_id.encode()) + len((group.protocol_name or "").encode())
        for each in group.members.values():
            names = (each.member_id, each.group_instance_id or "", each.client_id, each.client_host)
            size_bytes += MEMBER_RECORD_BYTES + sum(len(name.encode()) for name in names)
        bytes_max = self._table.record_bytes_max()
        if size_bytes > bytes_max:
            raise errors.UnknownServerError(
                f"the record of group {group.group_id} would have about {size_bytes} bytes with {len(group.members)} "
                f"members > max.message.bytes {bytes_max} of the topic of committed offsets"
            )

    # Heartbeat and LeaveGroup

    def heartbeat(self, request: HeartbeatRequest, token: int, decision: DecisionBuilder) -> None:
        """REBALANCE_IN_PROGRESS while members join; the session continues all the same."""
        group = self._of_member(request.group_id)
        group.validate_alive()
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        self.rebalances.touch(group, request.member_id, decision)
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        error = errors.RebalanceInProgressError(f"group {group.group_id} rebalances") if is_joining else None
        decision.answer(token, HeartbeatResponse(error))

    def leave(self, request: LeaveGroupRequest, token: int, decision: DecisionBuilder) -> None:
        """Each member has its own error. A rebalance begins if one of them was in the group."""
        if self._is_empty_of_other_type(request.group_id):
            error = errors.UnknownMemberIdError(f"group {request.group_id} is empty").as_value()
            gone = (MemberResponse(each.member_id, each.group_instance_id, error) for each in request.members)
            decision.answer(token, LeaveGroupResponse(tuple(gone)))
            return
        group = self._of_member(request.group_id)
        group.validate_alive()
        responses = tuple(self._leave_one(group, identity, decision) for identity in request.members)
        decision.answer(token, LeaveGroupResponse(responses))
        if any(response.error is None for response in responses):
            if group.state in WITH_GENERATION:
                self.rebalances.prepare_rebalance(group, decision)
            else:
                self.rebalances.complete_if_all_joined(group, decision)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, decision: DecisionBuilder) -> MemberResponse:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
        try:
            if member_id not in group.pending_join:
                group.validate_member(member_id, instance_id)
        except StratalogError as error:
            return MemberResponse(identity.member_id, instance_id, error.as_value())
        self.rebalances.remove(group, member_id, decision)
        return MemberResponse(identity.member_id, instance_id)

    def _is_empty_of_other_type(self, group_id: str) -> bool:
        group = self._table.groups.get(group_id)
        return group is not None and group.group_type != CLASSIC and group.is_empty

    def _of_member(self, group_id: str) -> ClassicGroup:
        """The group of a member's request. Raises UNKNOWN_MEMBER_ID if there is no classic group of that id."""
        if not group_id:
            raise errors.InvalidGroupIdError("the group id is empty")
        group = self._table.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise errors.UnknownMemberIdError(f"Group {group_id} not found.")
        return group

    def expire(self, key: TimerKey, decision: DecisionBuilder) -> None:
        group = self._table.groups.get(key.group_id)
        if isinstance(group, ClassicGroup) and group.state is not GroupState.DEAD:
            self.rebalances.expire(group, key, decision)

    def loaded(self, decision: DecisionBuilder) -> None:
        """Sessions begin again; a group above a lowered limit rebalances."""
        for group in list(self._table.groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            for member_id in group.members:
                self.rebalances.touch(group, member_id, decision)
            if len(group.members) > self._config.group_max_size:
                self.rebalances.prepare_rebalance(group, decision)

    def unload(self, now_ms: int) -> list[tuple[int, object]]:
        found: list[tuple[int, object]] = []
        for group in self._table.groups.values():
            if isinstance(group, ClassicGroup):
                joins, syncs = group.awaiting_join.items(), group.awaiting_sync.values()
                found += [(token, JoinGroupResponse(member_id=member_id)) for member_id, token in joins]
                found += [(token, SyncGroupResponse()) for token in syncs]
                group.transition_to(GroupState.DEAD, now_ms)
        return found

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:  # noqa: ARG002
        key = decode_key(record.key)
        assert isinstance(key, GroupMetadataKey)
        group = self._table.groups.get(key.group)
        if record.value is None:
            if isinstance(group, ClassicGroup):
                del self._table.groups[key.group]
        elif not (isinstance(group, ClassicGroup) and group.last_value == record.value):
            # A record of the log, not of the decision just made.
            self._table.groups[key.group] = ClassicGroup.folded(key.group, record.value)
