"""Members of a modern group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Pure.

While a group's consumers are restarted one after the other with `group.protocol=consumer`, the older ones stay in it.
A member epoch is their generation. None of them leads: the coordinator assigns, by the rules of
`replication.coordinator.groups.modern.heartbeat`.

    Heartbeat    REBALANCE_IN_PROGRESS when the member's epoch is older than the target, when it has to revoke
                 partitions, or when those that it waits for are free: then it joins again
    JoinGroup    the member's subscription and owned partitions, one step towards its target; answered at once
    SyncGroup    its assignment, which may lack partitions that others have not revoked yet
    LeaveGroup   removes members, also those of the modern protocol

Source: `classicGroupJoinToConsumerGroup` and its neighbours in Kafka 4.3.1's `GroupMetadataManager`. We differ where
all members of the modern protocol have left and the policy forbids the downgrade: see `_waits_for_a_target`. And a
member that was removed, which Kafka takes for a new one, is told UNKNOWN_MEMBER_ID as long as it owns partitions: they
are others' by now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stratalog.replication.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from stratalog.replication.coordinator.groups.classic.rebalance import with_timeouts
from stratalog.replication.coordinator.groups.migration import assignment_bytes, may_downgrade, partitions_with_ids
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.heartbeat import Heartbeat, HeartbeatSender
from stratalog.replication.coordinator.groups.modern.member import (
    ClassicMemberMetadata,
    ModernMember,
    ModernMemberState,
)
from stratalog.replication.coordinator.groups.modern.sessions import SYNC, ModernSessions, removals, replacement
from stratalog.replication.coordinator.groups.modern.topics import KnownTopics, metadata_hash, topic_names
from stratalog.replication.coordinator.groups.table import DecisionBuilder, GroupTable
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest, TopicPartitions
from stratalog.replication.requests.groups import (
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
from stratalog.wire.consumer_protocol import Subscription, decode_subscription, partitions_by_topic


class ClassicMembers:
    """The classic protocol's requests to the modern groups of a shard that have members."""

    def __init__(self, table: GroupTable, topics: Callable[[], KnownTopics], sessions: ModernSessions) -> None:
        self._table = table
        self._topics = topics
        self._sessions = sessions

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, DecisionBuilder], None]]:
        return {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
        }

    def _image(self) -> ClusterImage:
        return self._topics().image

    def _group(self, group_id: str) -> ModernGroup:
        group = self._table.group(group_id)
        assert isinstance(group, ModernGroup)
        return group

    # JoinGroup

    def _join(self, request: JoinGroupRequest, token: int, decision: DecisionBuilder) -> None:
        request = with_timeouts(request, self._table.config)
        try:
            response = self._joined(self._group(request.group_id), request, decision)
        except StratalogError as error:
            response = JoinGroupResponse(error=error.as_value())
        decision.answer(token, response)

    def _joined(self, group: ModernGroup, request: JoinGroupRequest, decision: DecisionBuilder) -> JoinGroupResponse:
        member_id = request.member_id or self._table.ids.new_id()
        self._check_join(group, member_id, request)
        if request.requires_known_member_id and not request.member_id and request.group_instance_id is None:
            required = errors.MemberIdRequiredError(f"group {group.group_id}: join again as member {member_id!r}")
            return JoinGroupResponse(member_id=member_id, error=required)
        sender = _sender(group, member_id, request)
        said = self._as_heartbeat(request, member_id)
        group.validate_names(member_id, len(set(said.subscribed_topic_names or ())))
        if said.topic_partitions and sender.replaced is None and member_id not in group.members:
            raise errors.UnknownMemberIdError(
                f"Member {member_id} was removed from group {group.group_id}: it has to give up the partitions that it"
                " still owns, and to join without a member id."
            )
        away = group.static_member(request.group_instance_id or "")
        config = self._table.config
        downgrades = (
            away is not None
            and away.classic_member_metadata is None
            and may_downgrade(group, {away.member_id}, config, returning=1)
        )
        heartbeat = Heartbeat(config, self._topics(), group, sender, said, decision.now_ms)
        member, records = heartbeat.decide(assigns=not downgrades)
        is_classic = False
        if downgrades:
            assert away is not None
            others = (each for each in group.members.values() if each is not away)
            is_settled = all(each.is_reconciled_to(group.group_epoch) for each in (*others, member))
            rebalances = heartbeat.rebalances or not is_settled
            is_classic = self._sessions.downgrades(group, {away.member_id}, member, decision, rebalances=rebalances)
        if not is_classic:
            if sender.replaced is not None:
                records = [*replacement(group, sender.replaced, sender.before), *records]
            self._table.check_fits(group.group_id, records)
            if sender.replaced is not None:
                self._sessions.stop(group.group_id, sender.replaced.member_id)
            decision.records += records
            self._table.counts.consumer_group_rebalances += heartbeat.rebalances
            self._sessions.start(group.group_id, member, decision.now_ms)
            self._sessions.time_rebalance(group.group_id, member, decision.now_ms)
            self._sessions.await_sync(group.group_id, member, decision.now_ms)
        return JoinGroupResponse(
            member.member_epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0].name, member_id=member_id
        )

    def _check_join(self, group: ModernGroup, member_id: str, request: JoinGroupRequest) -> None:
        policy = self._table.config.group_consumer_migration_policy
        if policy == "disabled":
            raise errors.InconsistentGroupProtocolError(
                f"Cannot join the consumer group {group.group_id} with the classic protocol: the migration of groups is"
                f" disabled (group.consumer.migration.policy={policy})."
            )
        group.validate_room(member_id, self._table.config.group_consumer_max_size)
        if not _supports(group, request):
            raise errors.InconsistentGroupProtocolError(
                f"Member {member_id}'s protocols are not supported: type {request.protocol_type!r},"
                f" {[protocol.name for protocol in request.protocols]}."
            )

    def _as_heartbeat(self, request: JoinGroupRequest, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """What the member says of itself, as a member of the modern protocol would."""
        subscription = _subscription(request)
        owned = partitions_with_ids(subscription.owned_partitions, self._image())
        return ConsumerGroupHeartbeatRequest(
            request.group_id,
            member_id,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=subscription.topics,
            subscribed_topic_regex="",
            topic_partitions=tuple(
                TopicPartitions(topic_id, tuple(numbers))
                for topic_id, numbers in partitions_by_topic(sorted(owned)).items()
            ),
            client_id=request.client_id,
            client_host=request.client_host,
            visible=request.visible,
        )

    # SyncGroup and Heartbeat

    def _sync(self, request: SyncGroupRequest, token: int, decision: DecisionBuilder) -> None:
        group = self._group(request.group_id)
        member, metadata = _classic_member(group, request)
        for given, own in (
            (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
            (request.protocol_name, metadata.protocol.name),
        ):
            if given is not None and given != own:
                raise errors.InconsistentGroupProtocolError(
                    f"{given!r} from member {member.member_id} != {own!r}, which it was told when it joined."
                )
        if group.target_epoch > member.member_epoch and member.state is not ModernMemberState.UNREVOKED_PARTITIONS:
            self._sessions.await_join(group.group_id, member, decision.now_ms)
            raise errors.RebalanceInProgressError(
                f"group {group.group_id} has target epoch {group.target_epoch} > {member.member_epoch} of member"
                f" {member.member_id}: it has to join again"
            )
        self._sessions.stop(group.group_id, member.member_id, (SYNC,))
        self._sessions.start(group.group_id, member, decision.now_ms)
        assigned = assignment_bytes(metadata.protocol.metadata, member.assigned.keys(), topic_names(self._image()))
        decision.answer(token, SyncGroupResponse(request.protocol_type, request.protocol_name, assigned))

    def _heartbeat(self, request: HeartbeatRequest, token: int, decision: DecisionBuilder) -> None:
        group = self._group(request.group_id)
        member, _ = _classic_member(group, request)
        self._sessions.start(group.group_id, member, decision.now_ms)
        error = None
        if (
            member.member_epoch < group.target_epoch
            or self._waits_for_a_target(group)
            or member.state is ModernMemberState.UNREVOKED_PARTITIONS
            or (member.state is ModernMemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            self._sessions.await_join(group.group_id, member, decision.now_ms)
            error = errors.RebalanceInProgressError(
                f"member {member.member_id} of group {group.group_id} has to join again"
            )
        decision.answer(token, HeartbeatResponse(error))

    def _waits_for_a_target(self, group: ModernGroup) -> bool:
        """Whether a member's JoinGroup has to compute a target, since no member of the modern protocol will: the last
        one has left, and the policy forbids the downgrade. Kafka leaves partitions without an owner then."""
        members = group.members.values()
        if any(member.classic_member_metadata is None for member in members):
            return False
        if group.target_epoch == group.group_epoch and group.checked_topics == self._image().topic_changes:
            return False
        topics = {topic for member in members for topic in group.topics_of(member)}
        return group.target_epoch < group.group_epoch or metadata_hash(self._image(), topics) != group.metadata_hash

    # LeaveGroup

    def _leave(self, request: LeaveGroupRequest, token: int, decision: DecisionBuilder) -> None:
        """Each member has its own error."""
        group = self._group(request.group_id)
        leaving: dict[str, ModernMember] = {}
        responses = []
        for identity in request.members:
            error = None
            try:
                member = _identified(group, identity)
                leaving[member.member_id] = member
            except StratalogError as refused:
                error = refused.as_value()
            responses.append(MemberResponse(identity.member_id, identity.group_instance_id, error))
        if leaving:
            self._table.check_fits(group.group_id, removals(group.group_id, leaving))
            self._sessions.remove(group, list(leaving.values()), decision)
        decision.answer(token, LeaveGroupResponse(tuple(responses)))


def _supports(group: ModernGroup, request: JoinGroupRequest) -> bool:
    """Whether all members of the classic protocol have one of the request's protocols."""
    known = [
        {protocol.name for protocol in member.classic_member_metadata.supported_protocols}
        for member in group.members.values()
        if member.classic_member_metadata is not None
    ]
    names = {protocol.name for protocol in request.protocols}
    return request.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(names.intersection(*known))


def _subscription(request: JoinGroupRequest) -> Subscription:
    try:
        return decode_subscription(request.protocols[0].metadata)
    except errors.CorruptMessageError as error:
        raise errors.InconsistentGroupProtocolError(
            f"The subscription of protocol {request.protocols[0].name!r} cannot be read: {error}."
        ) from error


def _sender(group: ModernGroup, member_id: str, request: JoinGroupRequest) -> HeartbeatSender:
    """The member that joins. One with an instance id and no member id takes the place of the instance's last one."""
    classic = ClassicMemberMetadata(request.session_timeout_ms, request.protocols)
    instance_id = request.group_instance_id
    if instance_id is None:
        return HeartbeatSender(group.members.get(member_id) or ModernMember(member_id), classic=classic)
    if request.member_id:
        return HeartbeatSender(group.static_member_of(instance_id, member_id), classic=classic)
    known = group.static_member(instance_id)
    if known is None:
        return HeartbeatSender(ModernMember(member_id), classic=classic)
    returned = replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    return HeartbeatSender(returned, known, classic)


def _classic_member(
    group: ModernGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ModernMember, ClassicMemberMetadata]:
    """The member of a request. Raises UNKNOWN_MEMBER_ID, also for a member of the modern protocol, FENCED_INSTANCE_ID
    and ILLEGAL_GENERATION."""
    if request.group_instance_id is None:
        member = group.member(request.member_id)
    else:
        member = group.static_member_of(request.group_instance_id, request.member_id)
    if member.classic_member_metadata is None:
        raise errors.UnknownMemberIdError(f"Member {member.member_id} does not use the classic protocol.")
    if member.member_epoch != request.generation_id:
        raise errors.IllegalGenerationError(
            f"The request generation id {request.generation_id} is not equal to the member epoch {member.member_epoch}"
            f" of member {member.member_id}."
        )
    return member, member.classic_member_metadata


def _identified(group: ModernGroup, identity: MemberIdentity) -> ModernMember:
    """The member that leaves. By its instance id alone an administrator removes a member."""
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    return group.static_member_of(instance_id, identity.member_id or group.static_members.get(instance_id, ""))
