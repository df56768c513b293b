"""Kafka's requests and responses of consumer groups and committed offsets. Pure.

Frames are read into them and written from them (`wire.messages.layouts`): names and nesting are those of Kafka's
message JSON in snake_case, with the fields of all versions. What is different:

- `error: StratalogError | None` instead of `error_code`; None is NONE (0).
- What Kafka takes from the connection, a request carries itself: `client_id`, `client_host`, and for JoinGroup what
  only follows from the version that the client spoke (`requires_known_member_id`, `supports_skipping_assignment`).
- Older forms are converted where a request enters: LeaveGroup below version 3 is one of `members`, OffsetFetch below
  version 8 is one of `groups`. Coordinators do not read the fields of those versions.

Requests that name one group go to its coordinator. DescribeGroups, DeleteGroups and OffsetFetch name several: split
them by coordinator and join the answers; a coordinator answers what it is given. ListGroups goes to every partition of
`__consumer_offsets`, whose answers are concatenated.

Source: Kafka's `clients/src/main/resources/common/message/*.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition
from stratalog.wire.messages.response import ErrorWithText, Response

UNKNOWN_MEMBER_ID = ""
"""Member id in a JoinGroup of a member that has none yet. Kafka's `JoinGroupRequest.UNKNOWN_MEMBER_ID`."""
UNKNOWN_GENERATION_ID = -1
"""Generation in a commit without a group: Kafka's simple consumer."""
NO_OFFSET = -1
"""Offset in OffsetFetch's answer for a partition without a committed one (`INVALID_OFFSET`)."""
NO_LEADER_EPOCH = -1
NO_RETENTION_TIME_MS = -1
NO_AUTHORIZED_OPERATIONS = -(2**31)
"""Value when DescribeGroups did not request authorized operations."""


# Joining


@dataclass(frozen=True, slots=True)
class JoinGroupRequestProtocol:
    """An assignor that the member can use, and the member's subscription in that assignor's form."""

    name: str
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """Answered when the group's rebalance is complete, so perhaps after `rebalance_timeout_ms`.

    rebalance_timeout_ms           how long the group waits for this member in a rebalance; -1 = the session timeout
                                   (clients of version 0)
    requires_known_member_id       the client spoke version 4 or newer: a dynamic member without an id gets
                                   MEMBER_ID_REQUIRED and an id first (KIP-394)
    supports_skipping_assignment   version 9 or newer: a static leader that returns does not assign (KIP-814)
    visible                        the topics that the sender may describe; None: all
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True
    visible: VisibleNames | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class JoinGroupResponseMember:
    """`metadata` is the member's subscription under the selected protocol."""

    member_id: str
    group_instance_id: str | None = None
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinGroupResponse(Response):
    """`members` is only in the leader's: it assigns, and sends the assignments with SyncGroup."""

    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = UNKNOWN_MEMBER_ID
    members: tuple[JoinGroupResponseMember, ...] = ()
    error: StratalogError | None = None


# Assignments


@dataclass(frozen=True, slots=True)
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """`assignments` is empty unless the member is the leader. Answered after the leader's SyncGroup."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResponse(Response):
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    error: StratalogError | None = None


# Staying and leaving


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Response):
    """REBALANCE_IN_PROGRESS: the member has to join again."""

    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """A static member may be named by `group_instance_id` alone (an administrator removes it)."""

    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    """`member_id` only below version 3, which has no `members`."""

    group_id: str
    members: tuple[MemberIdentity, ...] = ()
    member_id: str = UNKNOWN_MEMBER_ID


@dataclass(frozen=True, slots=True)
class MemberResponse:
    member_id: str
    group_instance_id: str | None = None
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse(Response):
    members: tuple[MemberResponse, ...] = ()
    error: StratalogError | None = None


# Committing offsets


@dataclass(frozen=True, slots=True)
class OffsetCommitRequestPartition:
    """`committed_offset` is the offset of the next record to read."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = NO_LEADER_EPOCH
    committed_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitRequestTopic:
    """`topic_id` "": the topic that has the name when the coordinator decides. Clients name it from version 10 on."""

    name: str = ""
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """A member's commit, or with generation -1 and no member id one without a group.

    `generation_id_or_member_epoch` is the generation of a classic group, the member epoch of a modern one.
    `retention_time_ms`: versions 2 to 4 only. A group that does not exist: GROUP_ID_NOT_FOUND, for clients below
    version 9 ILLEGAL_GENERATION.
    """

    group_id: str
    topics: tuple[OffsetCommitRequestTopic, ...]
    generation_id_or_member_epoch: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    retention_time_ms: int = NO_RETENTION_TIME_MS


@dataclass(frozen=True, slots=True)
class OffsetCommitResponsePartition:
    partition_index: int
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitResponseTopic:
    """Coordinators know no `topic_id`."""

    name: str = ""
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse(Response):
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """Offsets that count when the transaction of this producer commits. Topics are those of OffsetCommit.

    `verified_offset` is the log end of the group's partition when the transaction's coordinator verified it, under
    `verified_leader_epoch`; both are -1 before. See `replication.coordinator.transactions.add_partitions`.
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[OffsetCommitRequestTopic, ...]
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    verified_offset: int = -1
    verified_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse(Response):
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


# Reading committed offsets


@dataclass(frozen=True, slots=True)
class OffsetFetchRequestTopic:
    """`topic_id` "": the topic that has the name when the coordinator answers."""

    name: str = ""
    partition_indexes: tuple[int, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetFetchRequestGroup:
    """`topics` None: every committed offset of the group. Member id and epoch are checked for modern groups only."""

    group_id: str
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """`require_stable`: UNSTABLE_OFFSET_COMMIT for partitions with an offset in an open transaction (KIP-447).

    `group_id` and `topics` are those of the one group below version 8, which has no `groups`.
    """

    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    require_stable: bool = False
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetchResponsePartition:
    """No committed offset: `committed_offset` -1, leader epoch -1, metadata empty, no error."""

    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = ""
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseTopic:
    """Coordinators know no `topic_id`."""

    name: str = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseGroup:
    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse(Response):
    """`topics` and `error` are those of the one group below version 8, which has no `groups`."""

    groups: tuple[OffsetFetchResponseGroup, ...] = ()
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error: StratalogError | None = None


# Deleting committed offsets


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequestPartition:
    partition_index: int


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequestTopic:
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse(Response):
    """`error` is the group's (then `topics` is empty); a partition of a subscribed topic has
    GROUP_SUBSCRIBED_TO_TOPIC. Topics are those of OffsetCommit."""

    topics: tuple[OffsetCommitResponseTopic, ...] = ()
    error: StratalogError | None = None


# Describing, listing and deleting groups


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class DescribedGroupMember:
    """`member_metadata` is empty unless the group is Stable."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class DescribedGroup(ErrorWithText):
    """`group_state` is Empty, PreparingRebalance, CompletingRebalance, Stable or Dead; `protocol_data` the assignor.

    A group that does not exist: state Dead and GROUP_ID_NOT_FOUND, which is left out for clients below version 6.
    """

    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class DescribeGroupsResponse(Response):
    groups: tuple[DescribedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """Empty filters pass everything; states and types are compared without case. Types: `classic`, `consumer`."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class ListGroupsResponse(Response):
    groups: tuple[ListedGroup, ...] = ()
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    groups_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletableGroupResult:
    group_id: str
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse(Response):
    results: tuple[DeletableGroupResult, ...] = ()


# Inside the cluster


@dataclass(frozen=True, slots=True)
class PartitionsDeleted:
    """Deleted partitions: their offsets are removed from every group, not those of a later topic of that name. Ours;
    for every partition of `__consumer_offsets`.

    Source: Kafka's `GroupCoordinator.onPartitionsDeleted`.
    """

    partitions: tuple[IdentifiedPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsDeletedDone:
    """The answer to `PartitionsDeleted`: their offsets are removed, or are being removed if there are very many."""
