"""What memberships of both group protocols share: their values, requests under way, the coordinator, pauses. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from stratalog.clients.consumer.assignors.assignor import NO_RACKS, Assignor, AssignorMember, PartitionRacks
from stratalog.clients.records import NO_COORDINATOR, NO_GENERATION_ID, Generation
from stratalog.replication.requests.groups import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    SyncGroupRequestAssignment,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

LOST_COORDINATOR = (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError, errors.RequestTimedOutError)
"""Errors after which the coordinator is looked up again."""
LOCAL_HOST = "/127.0.0.1"
"""The member's host as a coordinator in the same process shows it."""
KICKED_OUT = (
    "Offset commit cannot be completed since the consumer is not part of an active group for auto partition "
    "assignment; it is likely that the consumer was kicked out of the group."
)
BACKOFF_MS_MAX = 1_000
"""Kafka's `retry.backoff.max.ms`."""
CONSUMER = "consumer"
"""The protocol type of consumers; Kafka Connect's workers have another one."""


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask any broker; the answer is the coordinator's broker id."""

    group_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """A request to be sent to broker `broker_id` (any for FindCoordinator); its answer goes to `answered(token, …)`."""

    token: int
    broker_id: int
    request: object


class ListenerCallKind(Enum):
    """Reason of a listener call. LOST: another member may own the partitions already, so nothing is committed."""

    REVOKED = "revoked"
    LOST = "lost"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class ListenerCall:
    """A call that the application's thread has to make before the membership continues; then it calls `performed`.

    `partitions` are those revoked, lost or assigned; `owned` all that the member has afterwards.
    """

    kind: ListenerCallKind
    partitions: frozenset[TopicPartition]
    owned: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Step:
    """Requests to send and a listener call to make, if any."""

    sends: tuple[Send, ...] = ()
    call: ListenerCall | None = None


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """The part of `ConsumerConfig` for a membership; times in ms. `max_poll_interval_ms` is the rebalance timeout."""

    group_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    client_rack: str | None = None
    remote_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """A member's last assignment and its generation: the user data of sticky assignors."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION_ID


def join_protocols(
    assignors: Iterable[Assignor],
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation_id: int,
    last: Owned,
    rack_id: str | None = None,
) -> tuple[JoinGroupRequestProtocol, ...]:
    """The protocols of a JoinGroup: each assignor with its subscription. `owned` was not revoked.

    `generation_id` is the member's newest generation, also if nothing was assigned in it: with an older one the
    cooperative assignor would assign its partitions to other members (KAFKA-13891).
    """
    wanted, kept = tuple(sorted(topics)), tuple(sorted(owned))

    def metadata(assignor: Assignor) -> bytes:
        user_data = assignor.user_data(last.partitions, last.generation_id)
        return encode_subscription(Subscription(wanted, user_data, kept, generation_id, rack_id))

    return tuple(JoinGroupRequestProtocol(each.name, metadata(each)) for each in assignors)


@dataclass(frozen=True, slots=True)
class Plan:
    """A leader's assignments, and the partition counts behind them: when these change, the group rebalances."""

    assignments: tuple[SyncGroupRequestAssignment, ...]
    made_from: dict[str, int]


def leader_plan(
    assignor: Assignor,
    joined: Sequence[JoinGroupResponseMember],
    partition_count: Callable[[str], int],
    partition_racks: Callable[[Iterable[str]], PartitionRacks],
    *,
    skip_assignment: bool = False,
) -> Plan:
    """The assignment of every member; with `skip_assignment` (a static leader that came back, KIP-814) none.

    Racks count when a member has one (`client.rack`, KIP-881). Kafka's leader also rebalances when racks change.
    """
    members = {
        each.member_id: AssignorMember(decode_subscription(each.metadata), each.group_instance_id) for each in joined
    }
    topics = {topic for member in members.values() for topic in member.subscription.topics}
    counts = {topic: partition_count(topic) for topic in sorted(topics)}
    if skip_assignment:
        return Plan((), counts)
    known = {topic: count for topic, count in counts.items() if count}
    has_racks = any(member.subscription.rack_id for member in members.values())
    shares = assignor.assign(known, members, partition_racks(known) if has_racks else NO_RACKS)
    encoded = ((member_id, encode_assignment(Assignment(tuple(share)))) for member_id, share in shares.items())
    return Plan(tuple(SyncGroupRequestAssignment(*each) for each in encoded), counts)


class Membership(ABC):
    """One member of a group. Not thread-safe: its driver holds a lock.

    Each request is answered at most once; answers that are no longer waited for are ignored. `generation` is the newest
    one, `owned` what the application has.
    """

    def __init__(self, config: MembershipConfig) -> None:
        self.config = config
        self.generation = Generation()
        self.coordinator = NO_COORDINATOR
        self.owned: frozenset[TopicPartition] = frozenset()
        self._failure: StratalogError | None = None
        self._open: dict[int, tuple[type[object], Generation]] = {}
        self._outbox: list[Send] = []
        self._token = 0
        self._retry_at_ms = self._poll_end_ms = 0
        self._attempts = 0

    def take_failure(self) -> StratalogError | None:
        """An error for the application, returned once: fenced, not authorized, group full, …"""
        failure, self._failure = self._failure, None
        return failure

    def performed(self, call: ListenerCall) -> None:
        """The application's thread made this listener call."""
        self.owned = call.owned

    def answered(self, token: int, answer: object, now_ms: int) -> None:
        """The answer to a request: its response value, the coordinator's broker id, or a StratalogError.

        Unknown tokens, as after a reset, are ignored.
        """
        kind, sent = self._open.pop(token, (object, Generation()))
        error = answer if isinstance(answer, StratalogError) else getattr(answer, "error", None)
        if kind is FindCoordinator:
            self._coordinator_answered(answer, error, now_ms)
        else:
            self._request_answered(kind, answer, error, sent, now_ms)

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether `owned` is what the group has assigned, and no rebalance is under way that the member knows of."""

    @abstractmethod
    def _request_answered(
        self, kind: type[object], answer: Any, error: StratalogError | None, sent: Generation, now_ms: int
    ) -> None:
        """A response or error to a request of the kind, sent in generation `sent`."""

    def _coordinator_answered(self, answer: object, error: StratalogError | None, now_ms: int) -> None:
        if isinstance(answer, int):
            self.coordinator, self._attempts = answer, 0
            self._retry_at_ms = now_ms
        elif error is not None and not error.retriable:
            self._fail(error, now_ms)
        else:
            self._pause(now_ms)

    def _look_up(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms and not self._is_open(FindCoordinator):
            self._send(FindCoordinator(self.config.group_id))

    def _send(self, request: object) -> None:
        self._token += 1
        self._open[self._token] = (type(request), self.generation)
        self._outbox.append(Send(self._token, self.coordinator, request))

    def _drained(self) -> tuple[Send, ...]:
        sends, self._outbox = tuple(self._outbox), []
        return sends

    def _is_open(self, *kinds: type[object]) -> bool:
        return any(kind in kinds for kind, _ in self._open.values())

    def _pause(self, now_ms: int) -> None:
        """Kafka's exponential back-off up to ten times the first pause, without its jitter."""
        self._attempts += 1
        backoff_ms = self.config.retry_backoff_ms * 2 ** min(self._attempts - 1, 10)
        self._retry_at_ms = now_ms + min(backoff_ms, BACKOFF_MS_MAX)

    def _fail(self, error: StratalogError, now_ms: int) -> None:
        self._failure = error
        self._pause(now_ms)

    def _forget_coordinator(self) -> None:
        """Look the coordinator up again. Answers of the old one are no longer waited for."""
        self.coordinator = NO_COORDINATOR
        self._forget_requests()

    def _forget_requests(self) -> None:
        self._open = {token: sent for token, sent in self._open.items() if sent[0] is FindCoordinator}
