"""A classic consumer group: members, generation, and what is allowed in which state. Pure.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance …
                  any of them -> Dead; PreparingRebalance -> Empty when no member is left

Members join (PreparingRebalance), get a generation and a leader among them that assigns partitions
(CompletingRebalance), and read once its assignments are stored (Stable). Requests and timers are handled in
`replication.coordinator.groups.classic.membership`; this is the state of one group. The log holds the newest stable
generation, or that the group became empty: a new coordinator continues from there, and members of a rebalance that was
under way join again.

Source: Kafka's `ClassicGroup` and `ClassicGroupMember`. Where Java walks a HashMap, members come in the order in which
they were added; of protocols with equal votes the one wins that the HashMap gives first, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from stratalog.replication.coordinator.groups.records import (
    NO_TIMESTAMP,
    GroupMetadataValue,
    MemberMetadata,
    decode_group_metadata,
    encode_group_metadata,
    group_metadata_key,
)
from stratalog.replication.coordinator.groups.table import CLASSIC
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.replication.requests.groups import (
    DescribedGroup,
    DescribedGroupMember,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
    ListedGroup,
    OffsetCommitRequestTopic,
)
from stratalog.storage import errors
from stratalog.wire.consumer_protocol import decode_subscribed_topics
from stratalog.wire.java_strings import hash_order

CONSUMER_PROTOCOL_TYPE = "consumer"
"""Protocol type whose subscriptions the coordinator can read: consumers', not Kafka Connect's."""


class GroupState(Enum):
    """Kafka's `ClassicGroupState`; `value` is the word that tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@dataclass(slots=True)
class ClassicMember:
    """One member. `protocols` are its assignors in its order of preference, each with its subscription. `is_new`: it
    has not been in a generation yet, so that its session ends even while its request waits. `visible`: the topics that
    it may describe, by its last JoinGroup; None: all, or it has sent none to this coordinator."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    visible: VisibleNames | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The subscription under that protocol; IllegalStateError if the member does not support it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise errors.IllegalStateError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member prefers."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)


class ClassicGroup:
    """One group. `awaiting_join` and `awaiting_sync`: tokens of the members whose requests wait, by member id.

    last_value    the value of the group's newest record, None before the first
    pending_join  ids assigned with MEMBER_ID_REQUIRED whose members have not joined yet
    pending_sync  members that have not sent SyncGroup in this generation
    """

    group_type = CLASSIC

    def __init__(self, group_id: str, state_timestamp_ms: int | None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join: dict[str, int] = {}
        self.awaiting_sync: dict[str, int] = {}
        self.supported_protocols: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.last_value: bytes | None = None

    # Records

    @classmethod
    def folded(cls, group_id: str, data: bytes) -> ClassicGroup:
        """The group of a record's value: Stable with members, else Empty."""
        value = decode_group_metadata(data)
        timestamp = value.current_state_timestamp
        group = cls(group_id, None if timestamp == NO_TIMESTAMP else timestamp)
        group.last_value = data
        group.generation_id, group.protocol_name, group.leader = value.generation, value.protocol, value.leader
        for each in value.members:
            group.add(_member_of(each, value))
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.protocol_type = value.protocol_type or None
        group.subscribed_topics = group._read_subscribed_topics()
        return group

    def metadata_value(self) -> GroupMetadataValue:
        """The value of the group's next record."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment,
            )
            for member in self.members.values()
        )
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader,
            NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members,
        )

    def state_record(self) -> CoordinatorRecord:
        """The record of the generation that just became stable, or of the group that just became empty."""
        return self._record_of(self.metadata_value())

    def unassigned_record(self) -> CoordinatorRecord:
        """The record of a group whose members have to join again, also for a coordinator that takes over before they
        have: of the next generation, in which none of them is yet."""
        return self._record_of(replace(self.metadata_value(), generation=self.generation_id + 1))

    def creation_record(self) -> CoordinatorRecord:
        """The record of a group that was just made: without the member that is joining it."""
        timestamp = NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms
        return self._record_of(GroupMetadataValue(current_state_timestamp=timestamp))

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        return (CoordinatorRecord(group_metadata_key(self.group_id), None),)

    def _record_of(self, value: GroupMetadataValue) -> CoordinatorRecord:
        self.last_value = encode_group_metadata(value)
        return CoordinatorRecord(group_metadata_key(self.group_id), self.last_value)

    # Members

    def add(self, member: ClassicMember) -> None:
        """A new member; the first one leads and gives the group its protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; the next member leads if it led. The caller answers its tokens."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.pop(member_id, None)
        self.awaiting_join.pop(member_id, None)
        self.awaiting_sync.pop(member_id, None)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[JoinGroupRequestProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member that joins again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms, member.session_timeout_ms = rebalance_timeout_ms, session_timeout_ms

    def replace_static(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """The static member continues under a new id; the old one is fenced (KIP-345). Assignment, place among the
        members and leadership stay; the caller answers the old id's tokens."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members[old_member_id]
        member.member_id, member.is_new = new_member_id, False
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[group_instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        self.awaiting_join.pop(old_member_id, None)
        self.awaiting_sync.pop(old_member_id, None)
        if old_member_id in self.pending_sync:
            del self.pending_sync[old_member_id]
            self.pending_sync[new_member_id] = None
        return member

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader if the leader has not; False if no member has."""
        if self.leader is None:
            return False
        if self.leader not in self.awaiting_join:
            joined = next((member_id for member_id in self.members if member_id in self.awaiting_join), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == len(self.awaiting_join) and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members', 0 without any."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def leader_members(self) -> tuple[JoinGroupResponseMember, ...]:
        """The members with their subscriptions, for the leader's JoinGroup answer."""
        return tuple(
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    # Protocols

    def supports_protocols(self, protocol_type: str, protocols: Iterable[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these could join: all members have one of them, or the group is empty."""
        names = {protocol.name for protocol in protocols}
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        members = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.get(name, 0) == members for name in names
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all support.

        >>> group = ClassicGroup("g", 0)
        >>> for name, favourites in {"a": "xyz", "b": "yx", "c": "yzx"}.items():
        ...     protocols = tuple(JoinGroupRequestProtocol(each) for each in favourites)
        ...     group.add(ClassicMember(name, None, "", "", 1, 1, "consumer", protocols))
        >>> group.select_protocol()
        'y'
        """
        candidates = {name for name, count in self.supported_protocols.items() if count == len(self.members)}
        if not self.members or not candidates:
            raise errors.IllegalStateError(
                f"group {self.group_id}: {len(self.members)} members have no protocol in common"
            )
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = member.vote(candidates)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(hash_order(votes), key=votes.__getitem__)

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            count = self.supported_protocols.get(name, 0) + by
            if count:
                self.supported_protocols[name] = count
            else:  # names are the clients': none is kept without a member
                del self.supported_protocols[name]

    def _read_subscribed_topics(self) -> frozenset[str] | None:
        """None if they cannot be read: other protocol types, or subscriptions that are no consumer's."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]
            return frozenset(topic for each in set(subscriptions) for topic in decode_subscribed_topics(each))
        except errors.CorruptMessageError:
            return None

    # States

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """IllegalStateError for a transition that is not in the table."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            allowed = sorted(each.value for each in VALID_PREVIOUS_STATES[state])
            raise errors.IllegalStateError(
                f"Group {self.group_id} should be in one of {allowed} states before moving to {state.value} state."
                f" Instead it is in {self.state.value} state."
            )
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    def begin_generation(self, now_ms: int) -> None:
        """The next generation: CompletingRebalance with a protocol, or Empty without members."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._read_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    def settle(self) -> None:
        """Stable with its members, as after a generation that has been assigned."""
        self.protocol_name, self.state = self.select_protocol(), GroupState.STABLE
        self.subscribed_topics = self._read_subscribed_topics()

    # `Group`

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if its instance continues under another member id."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise errors.UnknownMemberIdError(f"group {self.group_id} has no static member {group_instance_id}")
            if existing != member_id:
                raise errors.FencedInstanceIdError(
                    f"static member {group_instance_id} of group {self.group_id}: member id {member_id!r} was replaced"
                    f" by {existing!r}"
                )
        if member_id not in self.members:
            raise errors.UnknownMemberIdError(f"group {self.group_id} has no member {member_id!r}")

    def validate_generation(self, generation_id: int) -> None:
        """Raises ILLEGAL_GENERATION unless it is the group's."""
        if generation_id != self.generation_id:
            raise errors.IllegalGenerationError(
                f"generation {generation_id} != {self.generation_id} of group {self.group_id}"
            )

    def validate_alive(self) -> None:
        """Raises COORDINATOR_NOT_AVAILABLE for a dead group: the member finds the coordinator again."""
        if self.state is GroupState.DEAD:
            raise errors.CoordinatorNotAvailableError(f"group {self.group_id} is dead")

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        is_transactional: bool,
        _topics: Sequence[OffsetCommitRequestTopic] = (),
    ) -> None:
        """Any commit while the group is empty, else one of a member in this generation; not before its assignments are
        stored (REBALANCE_IN_PROGRESS), except in a transaction, which is allowed in every state of the group."""
        self.validate_alive()
        generation_id = generation_id_or_member_epoch
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            self.validate_generation(generation_id)
        elif not is_transactional:
            raise errors.UnknownMemberIdError(
                f"group {self.group_id} is {self.state.value}: only its members may commit"
            )
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise errors.RebalanceInProgressError(
                f"generation {generation_id} of group {self.group_id} has no assignments yet"
            )

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002
        """Allowed for every client. Raises GROUP_ID_NOT_FOUND if the group is dead."""
        self._validate_not_dead()

    def validate_offset_delete(self) -> None:
        self._validate_not_dead()
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise errors.NonEmptyGroupError(
                f"group {self.group_id} of type {self.protocol_type} is {self.state.value}: its topics are not known"
            )

    def validate_delete(self) -> None:
        self._validate_not_dead()
        if self.state is not GroupState.EMPTY:
            raise errors.NonEmptyGroupError(
                f"group {self.group_id} is {self.state.value} and has {len(self.members)} members"
            )

    def _validate_not_dead(self) -> None:
        if self.state is GroupState.DEAD:
            raise errors.GroupIdNotFoundError(f"Group {self.group_id} is in dead state.")

    def is_subscribed_to(self, topic: str) -> bool:
        """A group of consumers whose subscriptions cannot be read counts as subscribed to every topic."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def reads(self, topic: str) -> bool:
        """Whether members are known to read `topic`."""
        subscribed = self.subscribed_topics
        return subscribed is not None and topic in subscribed

    def retained_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """KIP-211. Group with members: from the commit, for topics that it dropped. Empty group: from when it became
        empty. Commits without a group: from the commit."""
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        knows_topics = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        return commit_timestamp_ms if knows_topics and self.state is GroupState.STABLE else None

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, CLASSIC)

    def described(self) -> DescribedGroup:
        """Subscriptions and the assignor are those of a stable group only, as in Kafka."""
        is_stable = self.state is GroupState.STABLE
        members = tuple(
            DescribedGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol_name) if is_stable else b"",
                member.assignment,
            )
            for member in self.members.values()
        )
        protocol = (self.protocol_name or "") if is_stable else ""
        return DescribedGroup(self.group_id, self.state.value, self.protocol_type or "", protocol, members)


def _member_of(member: MemberMetadata, group: GroupMetadataValue) -> ClassicMember:
    rebalance_timeout_ms = member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
    return ClassicMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        rebalance_timeout_ms,
        member.session_timeout,
        group.protocol_type,
        (JoinGroupRequestProtocol(group.protocol or "", member.subscription),),
        member.assignment,
    )
