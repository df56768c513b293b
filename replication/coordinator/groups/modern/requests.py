"""The requests of modern groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe, and time-outs. Pure.

A heartbeat joins, changes the subscription, reports revoked partitions, and is answered with the member's epoch and,
if it changed, its assignment. The records of a decision, in this order: the member; the group epoch, if topics or
subscriptions changed; the target assignment, if it is older than the group; the member's step towards it. The group
folds them right after the decision.

A classic group of consumers becomes a modern one when such a member joins (`replication.coordinator.groups.migration`);
its members go on by `replication.coordinator.groups.modern.classic_members`.

Source: `GroupMetadataManager` and `GroupCoordinatorService` of Kafka 4.3.1. We differ: regular expressions are resolved
at once where that is quick (`replication.coordinator.topic_matches`), a change of topics takes effect at the next
heartbeat of any member, not when the broker receives it, and a static member may repeat its join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.classic.rebalance import Rebalances
from stratalog.replication.coordinator.groups.migration import upgrade_records
from stratalog.replication.coordinator.groups.modern.classic_members import ClassicMembers
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.heartbeat import (
    Heartbeat,
    HeartbeatSender,
    check_member_epoch,
    check_request,
)
from stratalog.replication.coordinator.groups.modern.member import ModernMember
from stratalog.replication.coordinator.groups.modern.records import KEY_VERSIONS, KeyVersion, current_record, decode_key
from stratalog.replication.coordinator.groups.modern.sessions import (
    JOIN,
    SYNC,
    TIMER_KINDS,
    ModernSessions,
    replacement,
)
from stratalog.replication.coordinator.groups.modern.topics import KnownTopics, Matches, matching_topics, topic_names
from stratalog.replication.coordinator.groups.table import CONSUMER, DecisionBuilder, GroupTable, TimerKey
from stratalog.replication.coordinator.server_assignors import SERVER_ASSIGNORS, TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.configs import GROUP_HEARTBEAT, group_config_ms
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.consumer_groups import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    MemberAssignment,
    MemberDescription,
    TopicPartitions,
)
from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.storage.errors import GroupIdNotFoundError, StratalogError, UnreleasedInstanceIdError
from stratalog.wire.consumer_protocol import partitions_by_topic
from stratalog.wire.java_strings import string_order
from stratalog.wire.kafka_types import version_of

DEFAULT_ASSIGNOR = next(iter(SERVER_ASSIGNORS))


class ModernGroups:
    """A `GroupKind`. `image` returns the broker's newest metadata image."""

    group_type = CONSUMER
    key_versions = KEY_VERSIONS
    timer_kinds = frozenset(TIMER_KINDS)

    def __init__(
        self, table: GroupTable, image: Callable[[], ClusterImage], matches: Matches = matching_topics
    ) -> None:
        self._table = table
        self._matches = matches
        self._image = image
        self._sessions = ModernSessions(table, image)
        self._classic_members = ClassicMembers(table, self._known_topics, self._sessions)
        self._rebalances = Rebalances(table)
        self._visible: dict[str, dict[str, VisibleNames | None]] = {}
        """What each member of each group may describe: it outlives the objects of a group that is being made."""

    def _known_topics(self) -> KnownTopics:
        return KnownTopics(self._image(), self._matches)

    def _topic_ids(self) -> Mapping[str, str]:
        return self._image().topic_ids

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, DecisionBuilder], None]]:
        return {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            ConsumerGroupDescribeRequest: self._describe,
            **self._classic_members.requests,
        }

    # The fold

    def replay(self, record: CoordinatorRecord, _timestamp_ms: int) -> None:
        """The first record of a group creates it; the tombstone of its epoch is the last one and removes it."""
        key = decode_key(record.key)
        group = self._table.groups.get(key.group_id)
        if not isinstance(group, ModernGroup):
            if record.value is None:
                self._visible.pop(key.group_id, None)
            if record.value is None or key.version == KeyVersion.LEGACY_TOPICS:
                return
            visible = self._visible.setdefault(key.group_id, {})
            group = self._table.groups[key.group_id] = ModernGroup(
                key.group_id, topic_ids=self._topic_ids, visible=visible
            )
        if key.version == KeyVersion.GROUP and record.value is None:
            del self._table.groups[key.group_id]
            self._visible.pop(key.group_id, None)
        else:
            group.replay(key, record.value)

    def loaded(self, decision: DecisionBuilder) -> None:
        for group in self._table.groups.values():
            if isinstance(group, ModernGroup):
                self._sessions.loaded(group, decision.now_ms)

    def expire(self, key: TimerKey, decision: DecisionBuilder) -> None:
        group = self._table.groups.get(key.group_id)
        member = group.members.get(key.member_id) if isinstance(group, ModernGroup) else None
        if isinstance(group, ModernGroup) and member is not None:
            self._sessions.expire(group, member, key, decision)

    def unload(self, _now_ms: int) -> list[tuple[int, object]]:
        """No request waits."""
        return []

    # Heartbeats

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest, token: int, decision: DecisionBuilder) -> None:
        try:
            check_request(request, SERVER_ASSIGNORS)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(request, decision)
            else:
                response = self._stay(request, decision)
        except StratalogError as error:
            response = ConsumerGroupHeartbeatResponse(error=error.as_value())
        decision.answer(token, response)

    def _stay(
        self, request: ConsumerGroupHeartbeatRequest, decision: DecisionBuilder
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN_EPOCH
        known = self._table.groups.get(request.group_id)
        upgrade: list[CoordinatorRecord] = []
        if joins and isinstance(known, ClassicGroup) and not known.is_empty:
            upgrade = upgrade_records(known, self._table.config, self._image())
            group = self._folded(request.group_id, upgrade)
            group.visible.update((each.member_id, each.visible) for each in known.members.values() if each.visible)
        else:
            group = self._group(request.group_id, make=joins)
        group.validate_room(request.member_id, self._table.config.group_consumer_max_size)
        member_id = request.member_id or self._table.ids.new_id()
        sender = self._sender(group, member_id, request)
        if request.subscribed_topic_names is not None:
            group.validate_names(sender.before.member_id, len(set(request.subscribed_topic_names)))
        heartbeat = Heartbeat(self._table.config, self._known_topics(), group, sender, request, decision.now_ms)
        updated, records = heartbeat.decide()
        if sender.replaced is not None:
            records = [*replacement(group, sender.replaced, sender.before), *records]
        self._table.check_fits(group.group_id, [*upgrade, *records])
        self._visible[group.group_id] = group.visible
        if upgrade and isinstance(known, ClassicGroup):
            self._rebalances.end(known, decision)
            self._sessions.loaded(group, decision.now_ms)
            decision.records += upgrade
        self._table.remove_if_empty_of_other_type(request.group_id, CONSUMER, decision)
        if sender.replaced is not None:
            self._sessions.stop(group.group_id, sender.replaced.member_id)
        decision.records += records
        self._table.counts.consumer_group_rebalances += heartbeat.rebalances
        if heartbeat.moved:
            self._sessions.time_rebalance(group.group_id, updated, decision.now_ms)
        if sender.before.classic_member_metadata is not None:
            self._sessions.stop(group.group_id, member_id, (JOIN, SYNC))
        self._sessions.start(group.group_id, updated, decision.now_ms)
        return ConsumerGroupHeartbeatResponse(
            member_id,
            updated.member_epoch,
            group_config_ms(self._image(), group.group_id, GROUP_HEARTBEAT, self._table.config),
            _by_topic(updated.assigned) if heartbeat.has_assignment(updated) else None,
        )

    def _group(self, group_id: str, *, make: bool) -> ModernGroup:
        found = self._table.groups.get(group_id)
        if isinstance(found, ModernGroup):
            return found
        if found is None and not make:
            raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
        if found is not None and not (make and found.is_empty):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return ModernGroup(group_id, topic_ids=self._topic_ids)

    def _folded(self, group_id: str, records: Iterable[CoordinatorRecord]) -> ModernGroup:
        """The modern group that these records make."""
        group = ModernGroup(group_id, topic_ids=self._topic_ids)
        for record in records:
            if version_of(record.key) in KEY_VERSIONS:
                group.replay(decode_key(record.key), record.value)
        return group

    def _sender(self, group: ModernGroup, member_id: str, request: ConsumerGroupHeartbeatRequest) -> HeartbeatSender:
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = ModernMember(member_id) if joins and member_id not in group.members else None
            member = member or group.member(member_id)
        else:
            known = group.static_member(request.instance_id)
            if joins and known is None:
                return HeartbeatSender(group.members.get(member_id) or ModernMember(member_id))
            if joins and known is not None and not _joins_again(known, member_id):
                return HeartbeatSender(_returned(known, member_id, request.instance_id), known)
            member = group.static_member_of(request.instance_id, member_id)
        check_member_epoch(member, request)
        return HeartbeatSender(member)

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, decision: DecisionBuilder
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._group(request.group_id, make=False)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.static_member_of(request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            away = replace(
                member,
                member_epoch=STATIC_LEAVE_EPOCH,
                assigned=dict.fromkeys(member.assigned, 0),
                pending_revocation={},
            )
            decision.records.append(current_record(group.group_id, away))
            self._sessions.time_rebalance(group.group_id, away, decision.now_ms)
        else:
            self._sessions.remove(group, [member], decision)
        return ConsumerGroupHeartbeatResponse(request.member_id, request.member_epoch)

    # Descriptions

    def _describe(self, request: ConsumerGroupDescribeRequest, token: int, decision: DecisionBuilder) -> None:
        names = topic_names(self._image())
        described = []
        for group_id in request.group_ids:
            try:
                described.append(_described(self._group(group_id, make=False), names))
            except StratalogError as error:
                described.append(DescribedConsumerGroup(group_id, error=error.as_value()))
        decision.answer(token, ConsumerGroupDescribeResponse(tuple(described)))


def _joins_again(known: ModernMember, member_id: str) -> bool:
    """Whether this is the member itself, which did not leave: the answer to its join was lost, or came so late that it
    asks again. Kafka refuses it with UNRELEASED_INSTANCE_ID, which ends its consumers."""
    return known.member_id == member_id and known.member_epoch != STATIC_LEAVE_EPOCH


def _returned(known: ModernMember, member_id: str, instance_id: str) -> ModernMember:
    """A static member that returns: its assignment under its new member id. Raises UNRELEASED_INSTANCE_ID while the
    old one has not left; one of the classic protocol need not have."""
    if known.member_epoch != STATIC_LEAVE_EPOCH and known.classic_member_metadata is None:
        raise UnreleasedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id"
            f" is owned by {known.member_id} member."
        )
    return replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)


def _by_topic(
    partitions: Mapping[TopicIdPartition, int] | frozenset[TopicIdPartition], names: Mapping[str, str] | None = None
) -> MemberAssignment:
    """Partitions by topic id; with `names` only of topics that exist, with their names."""
    by_topic = (
        TopicPartitions(topic_id, tuple(numbers), "" if names is None else names[topic_id])
        for topic_id, numbers in partitions_by_topic(sorted(partitions)).items()
        if names is None or topic_id in names
    )
    return MemberAssignment(tuple(by_topic))


def _described(group: ModernGroup, names: Mapping[str, str]) -> DescribedConsumerGroup:
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            tuple(sorted(member.subscribed_topic_names, key=string_order)),
            member.subscribed_topic_regex,
            _by_topic({**member.assigned, **member.pending_revocation}, names),
            _by_topic(group.targets.get(member.member_id, frozenset()), names),
            CONSUMER_MEMBER if member.classic_member_metadata is None else CLASSIC_MEMBER,
        )
        for member in group.members.values()
    )
    assignor = group.preferred_assignor(group.members.values()) or DEFAULT_ASSIGNOR
    return DescribedConsumerGroup(
        group.group_id, group.state_name, group.group_epoch, group.target_epoch, assignor, members
    )
