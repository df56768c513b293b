"""What memberships of both protocols have in common: requests under way, the coordinator's look-up, pauses. Pure.

What a group member is, what it wants sent and what it wants done: the values of both kinds of membership. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from stratalog.clients.consumer.assignors.assignor import NO_RACKS, Assignor, AssignorMember, PartitionRacks
from stratalog.clients.records import NO_GENERATION_ID, Generation
from stratalog.replication.requests.consumer_protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from stratalog.replication.requests.groups import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    SyncGroupRequestAssignment,
)
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
    StratalogError,
)
from stratalog.storage.records import TopicPartition

LOST_COORDINATOR = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)
"""After these the coordinator is looked up anew."""
LOCAL_HOST = "/127.0.0.1"
"""What a coordinator in the same process shows for the member's host, as Kafka writes it."""
KICKED_OUT = (
    "Offset commit cannot be completed since the consumer is not part of an active group for auto partition "
    "assignment; it is likely that the consumer was kicked out of the group."
)
BACKOFF_MS_MAX = 1_000
"""Kafka's `retry.backoff.max.ms`."""


class MembershipRequests:
    """The requests of one member. Each is answered at most once; those that nobody waits for any more are forgotten."""

    def __init__(self, group_id: str, retry_backoff_ms: int) -> None:
        self.generation = Generation()
        self.coordinator = NO_COORDINATOR
        self._group_id = group_id
        self._retry_backoff_ms = retry_backoff_ms
        self._failure: StratalogError | None = None
        self._open: dict[int, tuple[type[object], Generation]] = {}
        self._outbox: list[Send] = []
        self._token = 0
        self._retry_at_ms = 0
        self._attempts = 0

    def take_failure(self) -> StratalogError | None:
        """What the application has to hear of, once: fenced, not authorized, group full, …"""
        failure, self._failure = self._failure, None
        return failure

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
            self._send(FindCoordinator(self._group_id))

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
        self._retry_at_ms = now_ms + min(self._retry_backoff_ms * 2 ** min(self._attempts - 1, 10), BACKOFF_MS_MAX)

    def _fail(self, error: StratalogError, now_ms: int) -> None:
        self._failure = error
        self._pause(now_ms)

    def _forget_coordinator(self) -> None:
        """Ask anew who it is. Requests on their way to the old one are not waited for."""
        self.coordinator = NO_COORDINATOR
        self._forget_requests()

    def _forget_requests(self) -> None:
        self._open = {token: sent for token, sent in self._open.items() if sent[0] is FindCoordinator}


CONSUMER = "consumer"
"""The protocol type of consumers; Kafka Connect's workers have another one."""


NO_COORDINATOR = -1


class MembershipState(Enum):
    """Where a member stands, as in Kafka's AbstractCoordinator."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


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
    """What a rebalance listener is called for. LOST: somebody else may have them already, so nothing is committed."""

    REVOKED = "revoked"
    LOST = "lost"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class ListenerCall:
    """To be done by the application's thread before anything goes on: `performed(call)` says that it was.

    `partitions` are those that go or come; `owned` all that the member has afterwards.
    """

    kind: ListenerCallKind
    partitions: frozenset[TopicPartition]
    owned: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Step:
    """What is due; both empty: nothing now."""

    sends: tuple[Send, ...] = ()
    call: ListenerCall | None = None


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """Of `ConsumerConfig`, what the membership needs; times in ms. The rebalance timeout is `max_poll_interval_ms`."""

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
    """What a member got last, and in which generation: what sticky assignors tell each other."""

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
    """What JoinGroup offers: for each assignor the subscription in its words. `owned` was not revoked.

    `generation_id` is the member's newest generation, also if it got nothing in it: with an older one the cooperative
    assignor would take its partitions for somebody else's (KAFKA-13891).
    """
    wanted, kept = tuple(sorted(topics)), tuple(sorted(owned))

    def metadata(assignor: Assignor) -> bytes:
        user_data = assignor.user_data(last.partitions, last.generation_id)
        return encode_subscription(Subscription(wanted, user_data, kept, generation_id, rack_id))

    return tuple(JoinGroupRequestProtocol(each.name, metadata(each)) for each in assignors)


@dataclass(frozen=True, slots=True)
class Plan:
    """A leader's plan, and the partition counts that it was made from: when they change the group has to plan anew."""

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
    """Who gets what. A static leader that came back leaves the plan as it is: `skip_assignment` (KIP-814).

    Racks count where a member tells its own (`client.rack`, KIP-881). Kafka's leader also plans anew when racks change.
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
