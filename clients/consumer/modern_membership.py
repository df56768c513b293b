"""A consumer's membership in a KIP-848 group, as a state machine: what to tell the coordinator, what goes. Pure.

    JOINING --epoch and assignment--> RECONCILING --partitions given up, then taken--> ACKNOWLEDGING --told--> STABLE
       ^                                  ^-- another assignment, from STABLE or ACKNOWLEDGING --------------------'
       '---- lost partitions were told --- FENCED (the coordinator does not know us), STALE (polled too late)

It is driven as `clients.consumer.classic_membership` is: `step` gives requests and at most one `ListenerCall`,
`performed` reports that the application's thread did it, `answered` takes responses. The coordinator computes the
assignment; a heartbeat carries only what changed, but everything after an error. The owned partitions are sent when the
whole assignment is reconciled; nothing moves to another member before.

Source: Kafka's AbstractMembershipManager, ConsumerMembershipManager and ConsumerHeartbeatRequestManager. Different: a
changed subscription is told at once instead of with the next heartbeat; a group that the coordinator has forgotten is
joined again, where Kafka's consumer gives up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from stratalog.clients.consumer.membership import (
    KICKED_OUT,
    LOCAL_HOST,
    LOST_COORDINATOR,
    NO_COORDINATOR,
    FindCoordinator,
    ListenerCall,
    ListenerCallKind,
    MembershipConfig,
    MembershipRequests,
    Send,
    Step,
)
from stratalog.clients.records import Generation
from stratalog.replication.requests.consumer_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from stratalog.storage.errors import (
    CommitFailedError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from stratalog.storage.records import TopicPartition

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's `request.timeout.ms`: a heartbeat that is not answered by then is sent again, to whoever coordinates now."""

_FENCED = (FencedMemberEpochError, UnknownMemberIdError, GroupIdNotFoundError)
_TopicIds = frozenset[tuple[str, int]]
"""Partitions as the coordinator names them: topic id and number."""


class ConsumerMemberState(Enum):
    """Where a member stands (Kafka's MemberState). FATAL: an error that nothing helps against; subscribe anew."""

    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


_OUT = (ConsumerMemberState.FENCED, ConsumerMemberState.STALE, ConsumerMemberState.FATAL)
_AT_ONCE = (ConsumerMemberState.JOINING, ConsumerMemberState.ACKNOWLEDGING)


class ConsumerMembership(MembershipRequests):
    """One member. Not thread-safe: its driver holds a lock.

    member_id   its own for as long as it lives; made by the client (KIP-1082)
    topic_name  of a topic id as the client's metadata has it now, None for an unknown one
    """

    def __init__(self, config: MembershipConfig, member_id: str, topic_name: Callable[[str], str | None]) -> None:
        super().__init__(config.group_id, config.retry_backoff_ms)
        self.config = config
        self.state = ConsumerMemberState.JOINING
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = self._nowhere = Generation(member_id=member_id)
        self._topic_name = topic_name
        self._topics: frozenset[str] = frozenset()
        self._regex = ""
        self._is_wanted = False
        self._target: _TopicIds = frozenset()
        self._taking: _TopicIds = frozenset()
        self._reconciled: _TopicIds | None = None
        self._told: ConsumerGroupHeartbeatRequest | None = None
        self._beat_due_ms = self._poll_end_ms = self._answer_end_ms = 0

    # -- what the application wants -------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the member wants to be in the group at all."""
        return self._is_wanted

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern that the coordinator matches, those that something is owned of."""
        return frozenset(tp.topic for tp in self.owned) if self._regex else self._topics

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None = None) -> None:
        """Want these topics from now on; of a pattern that the client matches, those that match it now."""
        self._topics, self._regex = topics, ""
        self._is_wanted = bool(topics) or pattern is not None
        self._subscribed()

    def subscribe_to_regex(self, regex: str) -> None:
        """Want what the coordinator finds to match this RE2 expression, now and later."""
        self._topics, self._regex, self._is_wanted = frozenset(), regex, True
        self._subscribed()

    def _subscribed(self) -> None:
        if self.state is ConsumerMemberState.FATAL and not self.owned:
            self.state = ConsumerMemberState.JOINING

    def leaving(self) -> ListenerCall | None:
        """What is to be given up before `leave`; None when nothing is owned."""
        if not self.owned:
            return None
        kind = ListenerCallKind.LOST if self.state in _OUT else ListenerCallKind.REVOKED
        return ListenerCall(kind, self.owned, frozenset())

    def leave(self, _reason: str) -> tuple[Send, ...]:
        """Say goodbye, to NO_COORDINATOR while it is looked up; a static member says that it will be back.

        The protocol has no place for a reason.
        """
        self._leave()
        self._reset(ConsumerMemberState.JOINING)
        self._poll_end_ms = 0
        return self._drained()

    # -- driving -------------------------------------------------------------------------------------------

    def step(self, now_ms: int, *, is_polling: bool) -> Step:
        """What is due. `is_polling`: the application's thread asks, which may be called back and proves it is alive."""
        if not self.is_subscribed:
            return Step(self._drained())
        if is_polling:
            self._poll_end_ms = now_ms + self.config.max_poll_interval_ms
        call = self._next_call() if is_polling else None
        if self._poll_end_ms and self.state not in _OUT:
            self._keep_alive(now_ms)
        return Step(self._drained(), call)

    def next_due_ms(self, *, is_polling: bool) -> int | None:
        """When the next `step` has something to do without an answer coming in; None: nothing is waited for."""
        if not self.is_subscribed or not (is_polling or self._poll_end_ms):
            return None
        if self.state in _OUT:
            is_over = self.state is ConsumerMemberState.FATAL and not self.owned
            return None if is_over or not is_polling else 0
        if is_polling and self._has_to_reconcile:
            return 0
        if self.coordinator == NO_COORDINATOR:
            return None if self._is_open(FindCoordinator) else self._retry_at_ms
        beat_ms = self._answer_end_ms if self._is_open(ConsumerGroupHeartbeatRequest) else self._due_ms()
        return min(beat_ms, self._poll_end_ms) if self._is_in_group else beat_ms

    def performed(self, call: ListenerCall) -> None:
        """The application's thread did what the call asked for."""
        self.owned = call.owned
        if call.kind is ListenerCallKind.ASSIGNED and self.state is ConsumerMemberState.RECONCILING:
            self._reconciled = self._taking
            self.state = ConsumerMemberState.ACKNOWLEDGING

    def request_rejoin(self, _reason: str) -> None:
        """Nothing: the coordinator decides when a group of this protocol rebalances."""

    # -- commits -------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> Generation:
        """Who commits what was given to the application: a member that was thrown out tells it before it joins anew."""
        return self.generation

    def identity_for_commit(self) -> Generation:
        """The member with its epoch. CommitFailedError when it has none."""
        if not self._is_in_group:
            raise CommitFailedError(KICKED_OUT)
        return self.generation

    def commit_answered(self, error: StratalogError, _sent: Generation) -> StratalogError:
        """What an error of OffsetCommit means for the membership, and the error that the application is to see.

        STALE_MEMBER_EPOCH is none of it: the next heartbeat's answer brings the newer epoch.
        """
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif isinstance(error, UnknownMemberIdError):
            return CommitFailedError(KICKED_OUT)
        return error

    # -- answers -------------------------------------------------------------------------------------------

    def answered(self, token: int, answer: object, now_ms: int) -> None:
        """The answer to a request: its response value, the coordinator's broker id, or a StratalogError.

        Unknown tokens, as after leaving, are passed over.
        """
        kind, _ = self._open.pop(token, (object, Generation()))
        error = answer if isinstance(answer, StratalogError) else getattr(answer, "error", None)
        if kind is FindCoordinator:
            self._coordinator_answered(answer, error, now_ms)
        elif kind is ConsumerGroupHeartbeatRequest and error is None:
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            self._heartbeat_answered(answer, now_ms)
        elif kind is ConsumerGroupHeartbeatRequest:
            self._heartbeat_refused(error, now_ms)

    def _heartbeat_answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        self._attempts, self._retry_at_ms = 0, now_ms
        self._beat_due_ms = now_ms + answer.heartbeat_interval_ms
        self.generation = Generation(answer.member_epoch, self.generation.member_id)
        if answer.assignment is not None:
            each = ((topic.topic_id, number) for topic in answer.assignment for number in topic.partitions)
            self._target = frozenset(each)
        if self.state is not ConsumerMemberState.ACKNOWLEDGING:
            self.state = self._settled_state

    def _heartbeat_refused(self, error: StratalogError | None, now_ms: int) -> None:
        self._told = None
        if isinstance(error, LOST_COORDINATOR):
            self._forget_coordinator()
        elif isinstance(error, _FENCED):
            self._reset(ConsumerMemberState.FENCED)
        elif error is None or error.retriable:
            self._pause(now_ms)
        else:
            self._fail(error, now_ms)
            if not isinstance(error, TopicAuthorizationFailedError):
                self._reset(ConsumerMemberState.FATAL)

    # -- inside --------------------------------------------------------------------------------------------

    @property
    def _is_in_group(self) -> bool:
        return self.generation.generation_id > JOIN_EPOCH

    @property
    def _settled_state(self) -> ConsumerMemberState:
        is_done = self._target == self._reconciled
        return ConsumerMemberState.STABLE if is_done else ConsumerMemberState.RECONCILING

    def _next_call(self) -> ListenerCall | None:
        if self.state in _OUT:
            if self.owned:
                return ListenerCall(ListenerCallKind.LOST, self.owned, frozenset())
            if self.state is not ConsumerMemberState.FATAL:
                self.state = ConsumerMemberState.JOINING
            return None
        if not self._has_to_reconcile:
            return None
        names = self._names()
        self._taking = frozenset(each for each in self._target if each[0] in names)
        wanted = frozenset(TopicPartition(names[topic_id], number) for topic_id, number in self._taking)
        if not self.owned <= wanted:
            return ListenerCall(ListenerCallKind.REVOKED, self.owned - wanted, self.owned & wanted)
        return ListenerCall(ListenerCallKind.ASSIGNED, wanted - self.owned, wanted)

    @property
    def _has_to_reconcile(self) -> bool:
        """What metadata does not name yet is taken when it does."""
        if self.state is not ConsumerMemberState.RECONCILING:
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
            # Left like this, others get its partitions while the application is still busy with the last records.
            self._leave()
            self._reset(ConsumerMemberState.STALE)
        elif self._is_open(ConsumerGroupHeartbeatRequest):
            if now_ms >= self._answer_end_ms:
                self._told = None
                self._forget_coordinator()
                self._look_up(now_ms)
        elif now_ms >= self._due_ms():
            self._beat(now_ms)

    def _due_ms(self) -> int:
        is_news = self.state in _AT_ONCE or self._told is None or self._subscription() != _subscription_of(self._told)
        return self._retry_at_ms if is_news else max(self._beat_due_ms, self._retry_at_ms)

    def _beat(self, now_ms: int) -> None:
        self._send(self._heartbeat())
        self._answer_end_ms = now_ms + REQUEST_TIMEOUT_MS
        if self.state is ConsumerMemberState.ACKNOWLEDGING:
            self.state = self._settled_state

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """All there is to say, when joining or after an error; else what changed since the last one."""
        names, regex = self._subscription()
        is_joining = self.state is ConsumerMemberState.JOINING
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
        told, self._told = self._told, whole
        if is_joining or told is None:
            return whole
        is_same = _subscription_of(told) == (names, regex)
        return ConsumerGroupHeartbeatRequest(
            whole.group_id,
            whole.member_id,
            whole.member_epoch,
            whole.instance_id,
            subscribed_topic_names=None if is_same else names,
            subscribed_topic_regex=None if is_same else regex,
            topic_partitions=None if told.topic_partitions == owned else owned,
            client_id=whole.client_id,
            client_host=whole.client_host,
        )

    def _subscription(self) -> tuple[tuple[str, ...], str]:
        return tuple(sorted(self._topics)), self._regex

    def _leave(self) -> None:
        """Also while the join is not answered: the coordinator takes the one after the other."""
        is_known = self._is_in_group or self._is_open(ConsumerGroupHeartbeatRequest)
        if not is_known or self.state in _OUT:
            return
        config = self.config
        epoch = LEAVE_EPOCH if config.group_instance_id is None else STATIC_LEAVE_EPOCH
        goodbye = ConsumerGroupHeartbeatRequest(
            config.group_id,
            self.generation.member_id,
            epoch,
            config.group_instance_id,
            client_id=config.client_id,
            client_host=LOCAL_HOST,
        )
        self._send(goodbye)

    def _reset(self, state: ConsumerMemberState) -> None:
        self.state = state
        self.generation = self._nowhere
        self._target, self._reconciled, self._told = frozenset(), None, None
        self._forget_requests()


def _subscription_of(told: ConsumerGroupHeartbeatRequest) -> tuple[tuple[str, ...] | None, str | None]:
    return told.subscribed_topic_names, told.subscribed_topic_regex


def _by_topic(partitions: _TopicIds) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return tuple(TopicPartitions(topic_id, tuple(each)) for topic_id, each in numbers.items())
