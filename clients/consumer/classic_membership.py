"""A consumer's membership in a classic group, as a state machine. Pure.

    UNJOINED --JoinGroup--> PREPARING_REBALANCE --SyncGroup--> COMPLETING_REBALANCE --assignment--> STABLE
        ^---- unknown member, stale generation, fenced, left ----------------------------------------'

`step` returns the requests that are due and at most one `ListenerCall`, which the application's thread makes before it
calls `performed`. Responses are passed to `answered`. Time, metadata and assignors are arguments;
`clients.consumer.group_member` owns threads and transport.

Source: Kafka's AbstractCoordinator, ConsumerCoordinator and Heartbeat. Different: a cooperative member also commits
before it revokes partitions in the middle of a rebalance (Kafka commits only before it joins); pauses have no jitter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from stratalog.clients.consumer.assignors.assignor import NO_RACKS, Assignor, PartitionRacks
from stratalog.clients.consumer.membership import (
    CONSUMER,
    KICKED_OUT,
    LOCAL_HOST,
    LOST_COORDINATOR,
    FindCoordinator,
    ListenerCall,
    ListenerCallKind,
    Membership,
    MembershipConfig,
    Owned,
    Plan,
    Send,
    Step,
    join_protocols,
    leader_plan,
)
from stratalog.clients.records import NO_COORDINATOR, NO_GENERATION_ID, Generation
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.wire.consumer_protocol import Assignment, decode_assignment

_STALE = (errors.UnknownMemberIdError, errors.IllegalGenerationError, errors.FencedInstanceIdError)
_AT_ONCE = (
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.MemberIdRequiredError,
)
"""Errors after which a member joins again without a pause."""

COMMIT_DURING_REBALANCE = (
    "Offset commit cannot be completed since {what} for auto partition assignment. "
    "You can try completing the rebalance by calling poll() and then retry the operation."
)


class ClassicMembershipState(Enum):
    """Kafka's AbstractCoordinator.MemberState."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class ClassicMembership(Membership):
    """One member.

    assignors        in order of preference; the group uses one that all members have. If one of them is not
                     cooperative, the member revokes everything before it joins, as in Kafka.
    partition_count  of a topic in the client's metadata; 0 for an unknown one
    partition_racks  of topics' partitions: the racks of their replicas; called when a member has a rack
    `assigned` is the generation of the application's assignment.
    """

    def __init__(
        self,
        config: MembershipConfig,
        assignors: Sequence[Assignor],
        partition_count: Callable[[str], int],
        partition_racks: Callable[[Iterable[str]], PartitionRacks] = lambda _: NO_RACKS,
    ) -> None:
        super().__init__(config)
        self.state = ClassicMembershipState.UNJOINED
        self.assigned = Generation()
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.cooperative for assignor in assignors)
        self._partition_count = partition_count
        self._partition_racks = partition_racks
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._joined_topics: frozenset[str] | None = None
        self._planned_from: dict[str, int] = {}
        self._last = Owned()
        self._arrived: Assignment | None = None
        self._rejoin_reason: str | None = None
        self._needs_prepare = True
        self._must_rejoin = True
        self._heartbeat_due_ms = self._session_end_ms = 0

    # -- what the application wants -------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the member wants to be in the group."""
        return bool(self._topics) or self._pattern is not None

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    @property
    def is_settled(self) -> bool:
        is_stable = self.state == ClassicMembershipState.STABLE
        return is_stable and self._arrived is None and not self._must_rejoin

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None = None) -> None:
        """Subscribe to these topics; of a pattern, those that match it now. A change makes the member join again."""
        self._topics, self._pattern = topics, pattern

    def leaving(self) -> ListenerCall | None:
        """The listener call before `leave`; None when nothing is owned (ConsumerCoordinator.onLeavePrepare)."""
        if not self.owned:
            return None
        is_lost = self.generation.generation_id == NO_GENERATION_ID or self._is_rebalancing
        return ListenerCall(ListenerCallKind.LOST if is_lost else ListenerCallKind.REVOKED, self.owned, frozenset())

    def leave(self, reason: str) -> tuple[Send, ...]:
        """Leave the group; the request goes to NO_COORDINATOR while the coordinator is looked up.

        A static member sends none, so that it may come back.
        """
        self._leave(reason)
        return self._drained()

    # -- driving -------------------------------------------------------------------------------------------

    def step(self, now_ms: int, *, is_polling: bool) -> Step:
        """What is due. `is_polling`: called by the application's thread, which makes listener calls and renews
        `max.poll.interval.ms`; otherwise only heartbeats are due."""
        if not self.is_subscribed:
            return Step(self._drained())
        if is_polling:
            self._poll_end_ms = now_ms + self.config.max_poll_interval_ms
        self._keep_alive(now_ms)
        call = self._rebalance(now_ms) if is_polling else None
        return Step(self._drained(), call)

    def next_due_ms(self, *, is_polling: bool) -> int | None:
        """When the next `step` has something to do, if no answer comes before; None: only after an answer."""
        if not self.is_subscribed:
            return None
        due: list[int] = []
        if self.coordinator == NO_COORDINATOR:
            if (is_polling or self._has_joined) and not self._is_open(FindCoordinator):
                due.append(self._retry_at_ms)
        elif is_polling and self._must_rejoin and not self._is_open(JoinGroupRequest, SyncGroupRequest):
            due.append(self._retry_at_ms)
        if self._has_joined and self.coordinator != NO_COORDINATOR:
            due += [self._heartbeat_due_ms, self._session_end_ms, self._poll_end_ms]
        return min(due, default=None)

    def request_rejoin(self, reason: str) -> None:
        """Join again with the next poll."""
        self._rejoin_reason = reason
        self._must_rejoin = True

    # -- commits -------------------------------------------------------------------------------------------

    def identity_for_commit(self) -> Generation:
        """The generation that a commit is sent with. RebalanceInProgressError, CommitFailedError when there is none."""
        if self.state == ClassicMembershipState.STABLE:
            return self.generation
        if self._is_rebalancing:
            raise errors.RebalanceInProgressError(
                COMMIT_DURING_REBALANCE.format(what="the consumer is undergoing a rebalance")
            )
        raise errors.CommitFailedError(KICKED_OUT)

    def commit_answered(self, error: StratalogError, sent: Generation) -> StratalogError:
        """Act on an error of OffsetCommit; the error for the application."""
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif isinstance(error, errors.RebalanceInProgressError):
            self.request_rejoin("offset commit failed since group is already rebalancing")
            return errors.RebalanceInProgressError(
                COMMIT_DURING_REBALANCE.format(what="the group is executing a rebalance")
            )
        elif isinstance(error, _STALE) and not (
            isinstance(error, errors.FencedInstanceIdError) and sent == self.generation
        ):
            if sent != self.generation and self.state == ClassicMembershipState.PREPARING_REBALANCE:
                what = "the member's generation is stale: it has joined another rebalance"
                return errors.RebalanceInProgressError(COMMIT_DURING_REBALANCE.format(what=what))
            if not isinstance(error, errors.FencedInstanceIdError):
                self._reset_by(error, "OFFSET_COMMIT")
            return errors.CommitFailedError(KICKED_OUT)
        return error

    # -- answers -------------------------------------------------------------------------------------------

    def _request_answered(
        self, kind: type[object], answer: Any, error: StratalogError | None, sent: Generation, now_ms: int
    ) -> None:
        if kind is JoinGroupRequest:
            self._join_answered(answer, error, sent, now_ms)
        elif kind is SyncGroupRequest:
            self._sync_answered(answer, error, sent, now_ms)
        elif kind is HeartbeatRequest:
            self._heartbeat_answered(answer, error, sent, now_ms)

    def _coordinator_answered(self, answer: object, error: StratalogError | None, now_ms: int) -> None:
        super()._coordinator_answered(answer, error, now_ms)
        if isinstance(answer, int):
            self._session_end_ms = now_ms + self.config.session_timeout_ms

    def _join_answered(self, answer: object, error: StratalogError | None, sent: Generation, now_ms: int) -> None:
        if error is None and isinstance(answer, JoinGroupResponse):
            if self.state == ClassicMembershipState.PREPARING_REBALANCE:
                self._joined(answer, now_ms)
            return
        if isinstance(error, errors.MemberIdRequiredError) and isinstance(answer, JoinGroupResponse):
            self.generation = Generation(member_id=answer.member_id)
            self.request_rejoin(f"need to re-join with the given member-id: {answer.member_id}")
        elif isinstance(error, errors.UnknownMemberIdError) and sent == self.generation:
            self._reset_by(error, "JOIN_GROUP")
        self._rejoin_after(error, now_ms)

    def _joined(self, joined: JoinGroupResponse, now_ms: int) -> None:
        if joined.protocol_type not in (None, CONSUMER) or joined.protocol_name not in self._assignors:
            mine = ", ".join(self._assignors)
            self._rejoin_after(
                errors.InconsistentGroupProtocolError(
                    f"group {self.config.group_id} is of type {joined.protocol_type} with protocol "
                    f"{joined.protocol_name}; this member has type {CONSUMER} with {mine}"
                ),
                now_ms,
            )
            return
        self.state = ClassicMembershipState.COMPLETING_REBALANCE
        self.generation = Generation(joined.generation_id, joined.member_id, joined.protocol_name)
        self._heartbeat_due_ms = now_ms + self.config.heartbeat_interval_ms
        self._session_end_ms = now_ms + self.config.session_timeout_ms
        self._poll_end_ms = now_ms + self.config.max_poll_interval_ms
        plan = Plan((), {})
        if joined.leader == joined.member_id:
            assignor = self._assignors[joined.protocol_name]
            known = (self._partition_count, self._partition_racks)
            plan = leader_plan(assignor, joined.members, *known, skip_assignment=joined.skip_assignment)
        self._planned_from = plan.made_from
        self._send(
            SyncGroupRequest(
                self.config.group_id,
                joined.generation_id,
                joined.member_id,
                self.config.group_instance_id,
                CONSUMER,
                joined.protocol_name,
                plan.assignments,
            )
        )

    def _sync_answered(self, answer: object, error: StratalogError | None, sent: Generation, now_ms: int) -> None:
        if error is None and isinstance(answer, SyncGroupResponse):
            if self.state != ClassicMembershipState.COMPLETING_REBALANCE or sent != self.generation:
                return
            if answer.protocol_name not in (None, self.generation.protocol_name):
                error = errors.InconsistentGroupProtocolError(
                    f"SyncGroup has protocol {answer.protocol_name}, JoinGroup had {self.generation.protocol_name}"
                )
            else:
                self.state = ClassicMembershipState.STABLE
                self._arrived = decode_assignment(answer.assignment)
                self._must_rejoin, self._rejoin_reason = False, None
                self._attempts = 0
                return
        if isinstance(error, errors.UnknownMemberIdError | errors.IllegalGenerationError) and sent == self.generation:
            self._reset_by(error, "SYNC_GROUP")
        self._rejoin_after(error, now_ms)

    def _rejoin_after(self, error: StratalogError | None, now_ms: int) -> None:
        """A rebalance failed: join again, at once or after a pause, or fail with an error for the application."""
        if error is None or not self.is_subscribed:
            return
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        if not isinstance(error, errors.MemberIdRequiredError):
            self.request_rejoin(f"rebalance failed due to {type(error).__name__}")
        self._must_rejoin = True
        if isinstance(error, _AT_ONCE):
            return
        if error.retriable:
            self._pause(now_ms)
        else:
            self._fail(error, now_ms)

    def _heartbeat_answered(self, answer: object, error: StratalogError | None, sent: Generation, now_ms: int) -> None:
        if error is None and isinstance(answer, HeartbeatResponse):
            self._session_end_ms = now_ms + self.config.session_timeout_ms
        elif isinstance(error, errors.RebalanceInProgressError):
            self._session_end_ms = now_ms + self.config.session_timeout_ms
            if self.state == ClassicMembershipState.STABLE:
                self.request_rejoin("group is already rebalancing")
        elif isinstance(error, _STALE):
            if sent == self.generation:
                self._reset_by(error, "HEARTBEAT")
                if isinstance(error, errors.FencedInstanceIdError):
                    self._fail(error, now_ms)
        elif isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif error is not None and not error.retriable:
            self._fail(error, now_ms)
        else:
            self._heartbeat_due_ms = now_ms + self.config.retry_backoff_ms

    # -- inside --------------------------------------------------------------------------------------------

    @property
    def _is_rebalancing(self) -> bool:
        return self.state in (ClassicMembershipState.PREPARING_REBALANCE, ClassicMembershipState.COMPLETING_REBALANCE)

    @property
    def _has_joined(self) -> bool:
        """Whether heartbeats are due: the member is known to the coordinator and not waiting in a JoinGroup."""
        return self.state in (ClassicMembershipState.COMPLETING_REBALANCE, ClassicMembershipState.STABLE)

    def _keep_alive(self, now_ms: int) -> None:
        if not self._has_joined:
            return
        if self.coordinator == NO_COORDINATOR:
            self._look_up(now_ms)
        elif now_ms >= self._session_end_ms:
            self._forget_coordinator()
        elif now_ms >= self._poll_end_ms:
            # Without a listener call: other members get its partitions while the application handles its last records.
            self._leave("consumer poll timeout has expired.")
        elif now_ms >= self._heartbeat_due_ms:
            self._heartbeat_due_ms = now_ms + self.config.heartbeat_interval_ms
            generation, config = self.generation, self.config
            identity = (generation.generation_id, generation.member_id, config.group_instance_id)
            self._send(HeartbeatRequest(config.group_id, *identity))

    def _leave(self, reason: str) -> None:
        is_known = self.state != ClassicMembershipState.UNJOINED and self.generation.member_id != ""
        if is_known and self.config.group_instance_id is None:
            members = (MemberIdentity(self.generation.member_id, reason=reason),)
            self._send(LeaveGroupRequest(self.config.group_id, members))
        self._reset("consumer pro-actively leaving the group", forget_member=True)

    def _rebalance(self, now_ms: int) -> ListenerCall | None:
        if self.coordinator == NO_COORDINATOR:
            self._look_up(now_ms)
            return None
        if self._arrived is not None and (call := self._accept_assignment(self._arrived)):
            return call
        self._check_changes()
        if not self._must_rejoin or self._is_open(JoinGroupRequest, SyncGroupRequest):
            return None
        if self._needs_prepare:
            self._needs_prepare = False
            call = self._call_before_joining()
            if call is not None:
                return call
        if now_ms >= self._retry_at_ms:
            self._join()
        return None

    def _check_changes(self) -> None:
        if self._must_rejoin:
            return
        if any(self._partition_count(topic) != count for topic, count in self._planned_from.items()):
            self.request_rejoin("cached metadata has changed")
        if self._joined_topics is not None and self._joined_topics != self._topics:
            self.request_rejoin("subscription has changed")

    def _call_before_joining(self) -> ListenerCall | None:
        """The listener call before joining (ConsumerCoordinator.onJoinPrepare)."""
        self._planned_from = {}
        if not self.owned:
            return None
        if self.generation.generation_id == NO_GENERATION_ID or self.generation.member_id == "":
            return ListenerCall(ListenerCallKind.LOST, self.owned, frozenset())
        if not self._is_cooperative:
            return ListenerCall(ListenerCallKind.REVOKED, self.owned, frozenset())
        going = frozenset(tp for tp in self.owned if tp.topic not in self._topics)
        return ListenerCall(ListenerCallKind.REVOKED, going, self.owned - going) if going else None

    def _accept_assignment(self, arrived: Assignment) -> ListenerCall | None:
        """The next listener call for an assignment: revoke first, then assign (ConsumerCoordinator.onJoinComplete)."""
        assigned = frozenset(arrived.partitions)
        if not all(self._accepts(tp.topic) for tp in assigned):
            self._arrived = None
            self._needs_prepare = True
            self.request_rejoin("received assignment does not match the current subscription")
            return None
        if self._is_cooperative and not self.owned <= assigned:
            self.request_rejoin("need to revoke partitions and re-join")
            return ListenerCall(ListenerCallKind.REVOKED, self.owned - assigned, self.owned & assigned)
        self._arrived = None
        self._needs_prepare = True
        self.assigned = self.generation
        self._last = Owned(arrived.partitions, self.generation.generation_id)
        return ListenerCall(ListenerCallKind.ASSIGNED, assigned - self.owned, assigned)

    def _accepts(self, topic: str) -> bool:
        return topic in self._topics or (self._pattern is not None and self._pattern.fullmatch(topic) is not None)

    def _join(self) -> None:
        self.state = ClassicMembershipState.PREPARING_REBALANCE
        self._joined_topics = self._topics
        newest = self.generation.generation_id
        rack = self.config.client_rack
        protocols = join_protocols(self._assignors.values(), self._topics, self.owned, newest, self._last, rack)
        self._send(
            JoinGroupRequest(
                self.config.group_id,
                self.config.session_timeout_ms,
                self.config.max_poll_interval_ms,
                self.generation.member_id,
                self.config.group_instance_id,
                CONSUMER,
                protocols,
                self._rejoin_reason,
                self.config.client_id,
                LOCAL_HOST,
            )
        )

    def _reset_by(self, error: StratalogError, request: str) -> None:
        is_kept = isinstance(error, errors.IllegalGenerationError)
        self._reset(f"encountered {error.name} from {request} response", forget_member=not is_kept)

    def _reset(self, reason: str, *, forget_member: bool) -> None:
        self.state = ClassicMembershipState.UNJOINED
        self.generation = Generation() if forget_member else Generation(member_id=self.generation.member_id)
        self._arrived = None
        self._needs_prepare = True
        self._forget_requests()
        self.request_rejoin(reason)
