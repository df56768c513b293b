"""Requests of modern groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe. Pure.

Frames are read into them and written from them: names and nesting are those of Kafka's message JSON in snake_case;
`error` replaces error code and message, topic ids are 32 hexadecimal digits, and what Kafka takes from the connection a
request carries itself (`client_id`, `client_host`, `visible`, and `generates_member_id`, which follows from the version
that the client spoke).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.storage.errors import StratalogError
from stratalog.wire.messages.response import ErrorWithText, Response

JOIN_EPOCH = 0
"""Member epoch in a request: the member joins, or joins again after it was fenced."""
LEAVE_EPOCH = -1
"""Member epoch of a member that leaves."""
STATIC_LEAVE_EPOCH = -2
"""Member epoch of a static member that leaves and will return under the same instance id."""
NO_AUTHORIZED_OPERATIONS = -(2**31)
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of `MemberDescription.member_type`: the protocol that the member uses."""


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """`partitions` of one topic; `topic_name` only in ConsumerGroupDescribe."""

    topic_id: str
    partitions: tuple[int, ...]
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Kafka's `Assignment`: partitions of a member, by topic."""

    topic_partitions: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatRequest:
    """A member's heartbeat, every few seconds. None, and -1 of `rebalance_timeout_ms`: unchanged.

    member_epoch          the last one that it received; 0 joins, -1 leaves, -2 leaves for a while
    rebalance_timeout_ms  the time in which this member has to revoke partitions
    topic_partitions      the partitions that it owns; sent when they changed
    generates_member_id   the client spoke version 1 or newer: it makes its member id itself (KIP-1082)
    visible               the topics that the sender may describe; None: all
    """

    group_id: str
    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    generates_member_id: bool = True
    visible: VisibleNames | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatResponse(Response, ErrorWithText):
    """`assignment` None: unchanged. Its partitions may be used at once; others have to be revoked, and reported so."""

    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: MemberAssignment | None = None
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeRequest:
    """Groups of one coordinator; split by coordinator and join the answers."""

    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """Kafka's `Member`. `assignment` has also the partitions that the member has to revoke."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    assignment: MemberAssignment = MemberAssignment()
    target_assignment: MemberAssignment = MemberAssignment()
    member_type: int = CONSUMER_MEMBER


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup(ErrorWithText):
    """Kafka's `DescribedGroup`. `group_state` is Empty, Assigning, Reconciling or Stable."""

    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[MemberDescription, ...] = ()
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeResponse(Response):
    groups: tuple[DescribedConsumerGroup, ...] = ()
