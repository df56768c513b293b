"""The rebalances of classic groups: from one generation to the next. Pure.

    prepare_rebalance   members have to join again: the first rebalance of an empty group waits for the initial delay,
                        and longer while members join; others wait until all have joined or their timeout is over.
                        Members keep their last assignments until then, also where Kafka forgets them: cooperative
                        ones still use theirs, which an upgrade has to know
    complete_join       members that have not joined are removed; a new generation, its leader receives the members
    assign              the leader's assignments are stored; all SyncGroups are answered

`replication.coordinator.groups.classic.membership` calls it for requests, `expire` is called for timers. Source: the
classic part of Kafka's `GroupMetadataManager`, whose method names these resemble.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup, ClassicMember, GroupState
from stratalog.replication.coordinator.groups.table import DecisionBuilder, GroupTable, TimerKey
from stratalog.replication.requests.groups import (
    UNKNOWN_MEMBER_ID,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError

JOIN, SYNC, SESSION = "classic-join", "classic-sync", "classic-session"
"""Kinds of timers: of a rebalance's joins, of its syncs, and of each member."""
WITH_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def with_timeouts(request: JoinGroupRequest, config: BrokerConfig) -> JoinGroupRequest:
    """The request with a rebalance timeout, which clients of version 0 do not send.

    Raises INVALID_SESSION_TIMEOUT unless the session timeout is between the least and the greatest one allowed."""
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        raise errors.InvalidSessionTimeoutError(
            f"session timeout {request.session_timeout_ms} ms is not within {least} ms"
            f" (group.min.session.timeout.ms) to {most} ms (group.max.session.timeout.ms)"
        )
    if request.rebalance_timeout_ms < 0:
        return replace(request, rebalance_timeout_ms=request.session_timeout_ms)
    return request


class Rebalances:
    """The rebalances of one shard's groups. Each method may answer waiting requests and add records to the decision."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._timers = table.timers
        self._config = table.config

    def await_join(self, group: ClassicGroup, member_id: str, token: int, decision: DecisionBuilder) -> None:
        earlier = group.awaiting_join.get(member_id)
        if earlier is not None:
            again = errors.RebalanceInProgressError(f"member {member_id!r} sent another JoinGroup")
            decision.answer(earlier, JoinGroupResponse(member_id=member_id, error=again))
        group.awaiting_join[member_id] = token

    @staticmethod
    def joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
        return JoinGroupResponse(
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader or "",
            member_id=member.member_id,
            members=group.leader_members() if group.leader == member.member_id else (),
        )

    def rebalance_or_complete(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        if group.can_rebalance:
            self.prepare_rebalance(group, decision)
        else:
            self.complete_if_all_joined(group, decision)

    def prepare_rebalance(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            error = errors.RebalanceInProgressError(f"group {group.group_id} rebalances again")
            for member_id in list(group.awaiting_sync):
                self.answer_sync(group, group.members[member_id], decision, error)
        group.pending_sync.clear()
        self._timers.cancel(TimerKey(SYNC, group.group_id))
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, decision.now_ms)
        if is_initial:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self.schedule(JOIN, group, delay_ms, decision)
        elif group.has_all_members_joined:
            self._complete_join(group, decision)
        else:
            self.schedule(JOIN, group, group.rebalance_timeout_ms, decision)

    def complete_if_all_joined(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        """The rebalance of a group that was empty waits for its delay."""
        is_initial = group.previous_state is GroupState.EMPTY
        if group.state is GroupState.PREPARING_REBALANCE and not is_initial and group.has_all_members_joined:
            self._complete_join(group, decision)

    def _extend_or_complete_initial(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        """The initial delay is over: another one if members joined meanwhile, up to the rebalance timeout."""
        if group.previous_state is GroupState.EMPTY and group.new_member_added and group.initial_remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            self.schedule(JOIN, group, delay_ms, decision)
        else:
            self._complete_join(group, decision)

    def _complete_join(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        """The next generation: without the dynamic members that have not joined, with all static ones."""
        self._timers.cancel(TimerKey(JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.member_id not in group.awaiting_join and member.group_instance_id is None:
                self.remove(group, member.member_id, decision)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has joined: wait for one, until their sessions end.
            self.schedule(JOIN, group, max(group.rebalance_timeout_ms, 1), decision)
            return
        group.begin_generation(decision.now_ms)
        group.new_member_added = False
        if group.state is GroupState.EMPTY:
            decision.records.append(group.state_record())
            return
        for member in group.members.values():
            token = group.awaiting_join.pop(member.member_id, None)
            if token is not None:
                decision.answer(token, self.joined(group, member))
            self.schedule(SESSION, group, member.session_timeout_ms, decision, member.member_id)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        self.schedule(SYNC, group, group.rebalance_timeout_ms, decision)

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes], decision: DecisionBuilder) -> None:
        """The generation is stable; members that the leader left out have no partitions."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(GroupState.STABLE, decision.now_ms)
        self._table.counts.group_completed_rebalances += 1
        decision.records.append(group.state_record())
        for member_id in list(group.awaiting_sync):
            self.answer_sync(group, group.members[member_id], decision)

    def answer_sync(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        decision: DecisionBuilder,
        error: StratalogError | None = None,
        *,
        restarts_session: bool = True,
    ) -> None:
        token = group.awaiting_sync.pop(member.member_id)
        if error is None:
            response = SyncGroupResponse(group.protocol_type, group.protocol_name, member.assignment)
        else:
            response = SyncGroupResponse(error=error)
        decision.answer(token, response)
        if restarts_session:
            self.schedule(SESSION, group, member.session_timeout_ms, decision, member.member_id)

    def end(self, group: ClassicGroup, decision: DecisionBuilder) -> None:
        """The group becomes a modern one: requests that wait are answered REBALANCE_IN_PROGRESS, and its timers end."""
        error = errors.RebalanceInProgressError(f"group {group.group_id} becomes a consumer group: join again")
        for member_id in group.members:
            self.answer_waiting(group, member_id, member_id, error, decision)
        for member_id in (*group.members, *group.pending_join):
            self._timers.cancel(TimerKey(SESSION, group.group_id, member_id))
        for kind in (JOIN, SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))

    def touch(self, group: ClassicGroup, member_id: str, decision: DecisionBuilder) -> None:
        """Restart the member's session."""
        self.schedule(SESSION, group, group.members[member_id].session_timeout_ms, decision, member_id)

    def expire(self, group: ClassicGroup, key: TimerKey, decision: DecisionBuilder) -> None:
        """A timer of the group is due. SYNC removes the members that have not sent SyncGroup."""
        if key.kind == SESSION:
            self._expire_session(group, key.member_id, decision)
        elif key.kind == JOIN and group.state is GroupState.PREPARING_REBALANCE:
            self._extend_or_complete_initial(group, decision)
        elif key.kind == SYNC and group.state in WITH_GENERATION and group.pending_sync:
            for member_id in list(group.pending_sync):
                self.remove(group, member_id, decision)
            self.prepare_rebalance(group, decision)

    def _expire_session(self, group: ClassicGroup, member_id: str, decision: DecisionBuilder) -> None:
        if member_id in group.members:
            is_waiting = member_id in group.awaiting_join or member_id in group.awaiting_sync
            if is_waiting and not group.members[member_id].is_new:
                return  # A member that waits for an answer is alive; its session begins again with the answer.
        elif member_id not in group.pending_join:
            return
        is_member = member_id in group.members
        self.remove(group, member_id, decision)
        if group.state in WITH_GENERATION and is_member:
            self.prepare_rebalance(group, decision)
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self._complete_join(group, decision)

    def remove(self, group: ClassicGroup, member_id: str, decision: DecisionBuilder) -> None:
        """Remove a member or a pending id. Its waiting requests are answered UNKNOWN_MEMBER_ID, so that a member that
        is alive joins again."""
        self._timers.cancel(TimerKey(SESSION, group.group_id, member_id))
        error = errors.UnknownMemberIdError(f"member {member_id!r} was removed from group {group.group_id}")
        self.answer_waiting(group, member_id, UNKNOWN_MEMBER_ID, error, decision)
        group.remove(member_id)

    @staticmethod
    def answer_waiting(
        group: ClassicGroup, member_id: str, answered_member_id: str, error: StratalogError, decision: DecisionBuilder
    ) -> None:
        join, sync = group.awaiting_join.get(member_id), group.awaiting_sync.get(member_id)
        if join is not None:
            decision.answer(join, JoinGroupResponse(member_id=answered_member_id, error=error))
        if sync is not None:
            decision.answer(sync, SyncGroupResponse(error=error))

    def schedule(
        self, kind: str, group: ClassicGroup, delay_ms: int, decision: DecisionBuilder, member_id: str = ""
    ) -> None:
        self._timers.schedule(TimerKey(kind, group.group_id, member_id), decision.now_ms + delay_ms)
