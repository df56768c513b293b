"""A consumer's membership in a modern group (KIP-848), as a state machine. Pure.

    JOINING --epoch and assignment--> RECONCILING --revoked, then assigned--> ACKNOWLEDGING --heartbeat--> STABLE
       ^                                  ^-- another assignment, from STABLE or ACKNOWLEDGING --------------'
       '---- listener call LOST ---------- FENCED (unknown to the coordinator), STALE (polled too late)

It is driven as `clients.consumer.classic_membership` is. The coordinator computes the assignment; a heartbeat carries
only what changed, and everything after an error. The owned partitions are sent when the whole assignment is reconciled;
no partition moves to another member before.

Source: Kafka's AbstractMembershipManager, ConsumerMembershipManager and ConsumerHeartbeatRequestManager. Different: a
changed subscription is sent at once instead of with the next heartbeat; a group that the coordinator does not know any
more is joined again, where Kafka's consumer fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from stratalog.clients.consumer.membership import (
    KICKED_OUT,
    LOCAL_HOST,
    LOST_COORDINATOR,
    FindCoordinator,
    ListenerCall,
    ListenerCallKind,
    Membership,
    MembershipConfig,
    Send,
    Step,
)
from stratalog.clients.records import NO_COORDINATOR, Generation
from stratalog.replication.requests.consumer_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from stratalog.server.remote.connections.config import REQUEST_TIMEOUT_MS
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

_FENCED = (errors.FencedMemberEpochError, errors.UnknownMemberIdError, errors.GroupIdNotFoundError)
_TopicIds = frozenset[tuple[str, int]]
"""Partitions as the coordinator names them: topic id and number."""


class ModernMembershipState(Enum):
    """Kafka's MemberState. FATAL: an error that no retry helps against; the application has to subscribe again."""

    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


_OUT = (ModernMembershipState.FENCED, ModernMembershipState.STALE, ModernMembershipState.FATAL)
_AT_ONCE = (ModernMembershipState.JOINING, ModernMembershipState.ACKNOWLEDGING)


class ModernMembership(Membership):
    """One member.

    member_id   made by the client, for the member's whole life (KIP-1082)
    topic_name  of a topic id in the client's metadata, None for an unknown one
    """

    def __init__(self, config: MembershipConfig, member_id: str, topic_name: Callable[[str], str | None]) -> None:
        super().__init__(config)
        self.state = ModernMembershipState.JOINING
        self.generation = self._nowhere = Generation(member_id=member_id)
        self._topic_name = topic_name
        self._topics: frozenset[str] = frozenset()
        self._regex = ""
        self._is_wanted = False
        self._target: _TopicIds = frozenset()
        self._accepting: _TopicIds = frozenset()
        self._reconciled: _TopicIds | None = None
        self._sent: ConsumerGroupHeartbeatRequest | None = None
        self._heartbeat_due_ms = self._answer_end_ms = 0

    # -- what the application wants -------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the member wants to be in the group."""
        return self._is_wanted

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern that the coordinator matches, those with owned partitions."""
        return frozenset(tp.topic for tp in self.owned) if self._regex else self._topics

    @property
    def is_settled(self) -> bool:
        return self._is_in_group and not self._has_to_reconcile

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None = None) -> None:
        """Subscribe to these topics; of a pattern that the client matches, those that match it now."""
        self._topics, self._regex = topics, ""
        self._is_wanted = bool(topics) or pattern is not None
        self._subscribed()

    def subscribe_to_regex(self, regex: str) -> None:
        """Subscribe to the topics that match this RE2 expression, now and later; the coordinator matches it."""
        self._topics, self._regex, self._is_wanted = frozenset(), regex, True
        self._subscribed()

    def _subscribed(self) -> None:
        if self.state is ModernMembershipState.FATAL and not self.owned:
            self.state = ModernMembershipState.JOINING

    def leaving(self) -> ListenerCall | None:
        """The listener call before `leave`; None when nothing is owned."""
        if not self.owned:
            return None
        kind = ListenerCallKind.LOST if self.state in _OUT else ListenerCallKind.REVOKED
        return ListenerCall(kind, self.owned, frozenset())

    def leave(self, _reason: str) -> tuple[Send, ...]:
        """Leave the group; the request goes to NO_COORDINATOR while the coordinator is looked up.

        A static member's request says that it may come back. The protocol has no field for a reason.
        """
        self._leave()
        self._reset(ModernMembershipState.JOINING)
        self._poll_end_ms = 0
        return self._drained()

    # -- driving -------------------------------------------------------------------------------------------

    def step(self, now_ms: int, *, is_polling: bool) -> Step:
        """What is due. `is_polling`: called by the application's thread, which makes listener calls."""
        if not self.is_subscribed:
            return Step(self._drained())
        if is_polling:
            self._poll_end_ms = now_ms + self.config.max_poll_interval_ms
        call = self._next_call() if is_polling else None
        if self._poll_end_ms and self.state not in _OUT:
            self._keep_alive(now_ms)
        return Step(self._drained(), call)

    def next_due_ms(self, *, is_polling: bool) -> int | None:
        """When the next `step` has something to do, if no answer comes before; None: only after an answer."""
        if not self.is_subscribed or not (is_polling or self._poll_end_ms):
            return None
        if self.state in _OUT:
            is_over = self.state is ModernMembershipState.FATAL and not self.owned
            return None if is_over or not is_polling else 0
        if is_polling and self._has_to_reconcile:
            return 0
        if self.coordinator == NO_COORDINATOR:
            return None if self._is_open(FindCoordinator) else self._retry_at_ms
        due_ms = self._answer_end_ms if self._is_open(ConsumerGroupHeartbeatRequest) else self._due_ms()
        return min(due_ms, self._poll_end_ms) if self._is_in_group else due_ms

    def performed(self, call: ListenerCall) -> None:
        super().performed(call)
        if call.kind is ListenerCallKind.ASSIGNED and self.state is ModernMembershipState.RECONCILING:
            self._reconciled = self._accepting
            self.state = ModernMembershipState.ACKNOWLEDGING

    def request_rejoin(self, _reason: str) -> None:
        """Does nothing: the coordinator decides when a modern group rebalances."""

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> Generation:
        """The member with its epoch: it calls its listener before it joins again after being fenced."""
        return self.generation

    def identity_for_commit(self) -> Generation:
        """The member with its epoch. CommitFailedError when it has none."""
        if not self._is_in_group:
            raise errors.CommitFailedError(KICKED_OUT)
        return self.generation

    def commit_answered(self, error: StratalogError, _sent: Generation) -> StratalogError:
        """Act on an error of OffsetCommit; the error for the application.

        STALE_MEMBER_EPOCH changes nothing: the next heartbeat's answer has the newer epoch.
        """
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif isinstance(error, errors.UnknownMemberIdError):
            return errors.CommitFailedError(KICKED_OUT)
        return error

    # -- answers -------------------------------------------------------------------------------------------

    def _request_answered(
        self, kind: type[object], answer: Any, error: StratalogError | None, _sent: Generation, now_ms: int
    ) -> None:
        if kind is ConsumerGroupHeartbeatRequest and error is None:
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            self._heartbeat_answered(answer, now_ms)
        elif kind is ConsumerGroupHeartbeatRequest:
            self._heartbeat_refused(error, now_ms)

    def _heartbeat_answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        self._attempts, self._retry_at_ms = 0, now_ms
        self._heartbeat_due_ms = now_ms + answer.heartbeat_interval_ms
        self.generation = Generation(answer.member_epoch, self.generation.member_id)
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._target = frozenset((topic.topic_id, n) for topic in topics for n in topic.partitions)
        if self.state is not ModernMembershipState.ACKNOWLEDGING:
            self.state = self._settled_state

    def _heartbeat_refused(self, error: StratalogError | None, now_ms: int) -> None:
        self._sent = None
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif isinstance(error, _FENCED):
            self._reset(ModernMembershipState.FENCED)
        elif error is None or error.retriable:
            self._pause(now_ms)
        else:
            self._fail(error, now_ms)
            if not isinstance(error, errors.TopicAuthorizationFailedError):
                self._reset(ModernMembershipState.FATAL)

    # -- inside --------------------------------------------------------------------------------------------

    @property
    def _is_in_group(self) -> bool:
        return self.generation.generation_id > JOIN_EPOCH

    @property
    def _settled_state(self) -> ModernMembershipState:
        is_done = self._target == self._reconciled
        return ModernMembershipState.STABLE if is_done else ModernMembershipState.RECONCILING

    def _next_call(self) -> ListenerCall | None:
        if self.state in _OUT:
            if self.owned:
                return ListenerCall(ListenerCallKind.LOST, self.owned, frozenset())
            if self.state is not ModernMembershipState.FATAL:
                self.state = ModernMembershipState.JOINING
            return None
        if not self._has_to_reconcile:
            return None
        names = self._names()
        self._accepting = frozenset(each for each in self._target if each[0] in names)
        wanted = frozenset(TopicPartition(names[topic_id], number) for topic_id, number in self._accepting)
        if not self.owned <= wanted:
            return ListenerCall(ListenerCallKind.REVOKED, self.owned - wanted, self.owned & wanted)
        return ListenerCall(ListenerCallKind.ASSIGNED, wanted - self.owned, wanted)

    @property
    def _has_to_reconcile(self) -> bool:
        """True with partitions to revoke or assign; those of topics that metadata does not have yet wait for it."""
        if self.state is not ModernMembershipState.RECONCILING:
            return False
        names = self._names()
        return frozenset(each for each in self._target if each[0] in names) != self._reconciled

    def _names(self) -> dict[str, str]:
        """The target's topics that metadata knows: names by id."""
        names = {topic_id: self._topic_name(topic_id) for topic_id, _ in self._target}
        return {topic_id: name for topic_id, name in names.items() if name is not None}

    def _keep_alive(self, now_ms: int) -> None:
        if self.coordinator == NO_COORDINATOR:
            self._look_up(now_ms)
        elif self._is_in_group and now_ms >= self._poll_end_ms:
            # Without a listener call: other members get its partitions while the application handles its last records.
            self._leave()
            self._reset(ModernMembershipState.STALE)
        elif self._is_open(ConsumerGroupHeartbeatRequest):
            if now_ms >= self._answer_end_ms:
                self._sent = None
                self._forget_coordinator()
                self._look_up(now_ms)
        elif now_ms >= self._due_ms():
            self._send_heartbeat(now_ms)

    def _due_ms(self) -> int:
        is_change = self.state in _AT_ONCE or self._sent is None or self._subscription() != _subscription_of(self._sent)
        return self._retry_at_ms if is_change else max(self._heartbeat_due_ms, self._retry_at_ms)

    def _send_heartbeat(self, now_ms: int) -> None:
        self._send(self._heartbeat())
        self._answer_end_ms = now_ms + REQUEST_TIMEOUT_MS
        if self.state is ModernMembershipState.ACKNOWLEDGING:
            self.state = self._settled_state

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Everything when joining or after an error, else what changed since the last heartbeat."""
        names, regex = self._subscription()
        is_joining = self.state is ModernMembershipState.JOINING
        owned = () if is_joining else _by_topic(self._reconciled or frozenset())
        config = self.config
        whole = ConsumerGroupHeartbeatRequest(
            config.group_id,
            self.generation.member_id,
            JOIN_EPOCH if is_joining else self.generation.generation_id,
            config.group_instance_id,
            config.client_rack,
            config.max_poll_interval_ms,
            names,
            regex,
            config.remote_assignor,
            owned,
            config.client_id,
            LOCAL_HOST,
        )
        sent, self._sent = self._sent, whole
        if is_joining or sent is None:
            return whole
        is_same = _subscription_of(sent) == (names, regex)
        return replace(
            whole,
            rack_id=None,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None if is_same else names,
            subscribed_topic_regex=None if is_same else regex,
            server_assignor=None,
            topic_partitions=None if sent.topic_partitions == owned else owned,
        )

    def _subscription(self) -> tuple[tuple[str, ...], str]:
        return tuple(sorted(self._topics)), self._regex

    def _leave(self) -> None:
        """Send it while the join is not answered, too: the coordinator handles them in order."""
        is_known = self._is_in_group or self._is_open(ConsumerGroupHeartbeatRequest)
        if not is_known or self.state in _OUT:
            return
        config = self.config
        epoch = LEAVE_EPOCH if config.group_instance_id is None else STATIC_LEAVE_EPOCH
        identity = (config.group_id, self.generation.member_id, epoch, config.group_instance_id)
        self._send(ConsumerGroupHeartbeatRequest(*identity, client_id=config.client_id, client_host=LOCAL_HOST))

    def _reset(self, state: ModernMembershipState) -> None:
        self.state = state
        self.generation = self._nowhere
        self._target, self._reconciled, self._sent = frozenset(), None, None
        self._forget_requests()


def _subscription_of(sent: ConsumerGroupHeartbeatRequest) -> tuple[tuple[str, ...] | None, str | None]:
    return sent.subscribed_topic_names, sent.subscribed_topic_regex


def _by_topic(partitions: _TopicIds) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return tuple(TopicPartitions(topic_id, tuple(each)) for topic_id, each in numbers.items())
