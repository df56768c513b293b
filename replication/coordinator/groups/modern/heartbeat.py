"""One heartbeat of a modern group's member: its checks, and the records that it makes. Pure.

Source: `consumerGroupHeartbeat` of Kafka 4.3.1's `GroupMetadataManager`, and `TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import ClassicMemberMetadata, ModernMember, Reconciliation
from stratalog.replication.coordinator.groups.modern.records import (
    GroupEpoch,
    KeyVersion,
    ResolvedRegex,
    TargetEpoch,
    current_record,
    group_epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from stratalog.replication.coordinator.groups.modern.topics import (
    KnownTopics,
    metadata_hash,
    partition_counts,
    topic_ids,
    topic_pattern,
)
from stratalog.replication.coordinator.server_assignors import SERVER_ASSIGNORS, MemberSpec, TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.configs import GROUP_ASSIGNMENT, group_config_ms
from stratalog.replication.requests.consumer_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from stratalog.storage.errors import FencedMemberEpochError, InvalidRequestError, UnsupportedAssignorError


class HeartbeatSender(NamedTuple):
    """The member of a heartbeat until now, the static member that it replaces, what it says in the classic protocol."""

    before: ModernMember
    replaced: ModernMember | None = None
    classic: ClassicMemberMetadata | None = None


class Heartbeat:
    """A heartbeat that is not a leave, or the JoinGroup of a member of the classic protocol, as such one.

    After `decide`, `rebalances`: it began a group epoch; `moved`: the member's assignment or epoch changed.
    Topics of a regular expression that are not known yet come with a later heartbeat.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: KnownTopics,
        group: ModernGroup,
        sender: HeartbeatSender,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> None:
        self._classic = sender.classic
        self._config = config
        self._image, self._matches = topics
        self._group = group
        self._before = sender.before
        self._request = request
        self._now_ms = now_ms
        self._records: list[CoordinatorRecord] = []
        self._regexes = dict(group.regexes)
        self.moved = False
        self.rebalances = False
        gone = sender.replaced.member_id if sender.replaced else ""
        self._members = {name: member for name, member in group.members.items() if name != gone}
        inherited = group.targets.get(gone or self._before.member_id, frozenset())
        self._targets = {name: target for name, target in group.targets.items() if name != gone}
        if inherited or self._before.member_id in group.targets:
            self._targets[self._before.member_id] = inherited

    def decide(self, *, assigns: bool = True) -> tuple[ModernMember, list[CoordinatorRecord]]:
        """The member after this heartbeat, and the records in their order.
        `assigns` False: a target assignment that is older than the group stays, and the member takes no step."""
        is_seen_again = self._see()
        member = self._updated_member()
        if member != self._before:
            self._records.append(member_record(self._group.group_id, member))
        regex_changed = member.subscribed_topic_regex != self._before.subscribed_topic_regex
        names_changed = member.subscribed_topic_names != self._before.subscribed_topic_names
        matches_changed = self._match_regexes()
        group_epoch = self._bump_epoch(bump=regex_changed or names_changed or matches_changed or is_seen_again)
        if not assigns and self._group.target_epoch < group_epoch:
            return member, self._records
        target_epoch = self._compute_targets(group_epoch)
        changed = regex_changed or names_changed or is_seen_again
        if changed or not member.is_reconciled_to(target_epoch):
            member = self._reconcile(member, target_epoch, subscription_changed=changed)
        return member, self._records

    def has_assignment(self, member: ModernMember) -> bool:
        """Whether the answer has the assignment: it changed, or the member sent all fields, as after a lost answer."""
        request = self._request
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        full = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
        return request.member_epoch == JOIN_EPOCH or full or member.assigned != self._before.assigned

    def _see(self) -> bool:
        """Notes which topics the member may describe now; whether that changes those that it subscribes to."""
        group, before = self._group, self._before
        if before.member_id in group.visible and group.visible[before.member_id] is self._request.visible:
            return False
        topics = group.topics_of(before)
        group.visible[before.member_id] = self._request.visible
        return before.member_id in group.members and group.topics_of(before) != topics

    def _updated_member(self) -> ModernMember:
        request = self._request
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        sent = {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "client_id": request.client_id,
            "client_host": request.client_host,
            "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
            "subscribed_topic_names": None if names is None else frozenset(names),
            "subscribed_topic_regex": request.subscribed_topic_regex,
            "server_assignor": request.server_assignor,
        }
        changed: dict[str, Any] = {name: value for name, value in sent.items() if value is not None}
        member = replace(self._before, classic_member_metadata=self._classic, **changed)
        self._members[member.member_id] = member
        return member

    def _match_regexes(self) -> bool:
        """Resolves new regular expressions, and all of them at times; whether the topics of any changed."""
        group = self._group
        used = {member.subscribed_topic_regex for member in self._members.values()} - {""}
        for regex in self._regexes.keys() - used:
            del self._regexes[regex]
            self._records.append(tombstone(KeyVersion.REGEX, group.group_id, regex))
        checked_ms = max((group.regexes_checked_ms, *(known.timestamp_ms for known in self._regexes.values())))
        due = self._now_ms > checked_ms + cadence.EXPRESSIONS_MATCHED.ms
        changed, is_all_known = False, True
        for regex in sorted(used):
            known = self._regexes.get(regex)
            if known is not None and not due:
                continue
            topics = self._resolved(regex)
            if topics is None:
                is_all_known = False
            elif known is None or known.topics != topics:
                self._regexes[regex] = ResolvedRegex(topics, 0, self._now_ms)
                self._records.append(regex_record(group.group_id, regex, self._regexes[regex]))
                changed = True
        if used and due and is_all_known:
            group.regexes_checked_ms = self._now_ms
        return changed

    def _resolved(self, regex: str) -> frozenset[str] | None:
        """The topics that match and that a member with this expression may describe; None when they are not known yet.
        A member whose rights are not known, since this coordinator took over, goes on with those that were found
        before."""
        found = self._matches(regex, self._image.topic_ids)
        if found is None:
            return None
        known, visible = self._regexes.get(regex), self._group.visible
        subscribers = [name for name, member in self._members.items() if member.subscribed_topic_regex == regex]
        if any(name in visible and visible[name] is None for name in subscribers):
            return found
        seen = frozenset(known.topics & found if known and not visible.keys() >= set(subscribers) else ())
        sights = {sight for name in subscribers if (sight := visible.get(name)) is not None}
        return seen.union(*(sight(found) for sight in sights))

    def _bump_epoch(self, *, bump: bool) -> int:
        changes = self._image.topic_changes
        if not bump and self._group.checked_topics == changes:
            return self._group.group_epoch
        names = {name for member in self._members.values() for name in self._topics_of(member)}
        hashed = metadata_hash(self._image, names)
        if not bump and hashed == self._group.metadata_hash:
            self._group.checked_topics = changes
            return self._group.group_epoch
        epoch = GroupEpoch(self._group.group_epoch + 1, hashed)
        self._records.append(group_epoch_record(self._group.group_id, epoch))
        self.rebalances = True
        return epoch.epoch

    def _compute_targets(self, group_epoch: int) -> int:
        """The epoch of the newest target assignment, which is computed if it is older than the group and due."""
        group = self._group
        interval_ms = group_config_ms(self._image, group.group_id, GROUP_ASSIGNMENT, self._config)
        known_ms = group.target_timestamp_ms
        wait = known_ms and interval_ms and self._now_ms < known_ms + interval_ms
        if group.target_epoch >= group_epoch or wait:
            return group.target_epoch
        assignor = SERVER_ASSIGNORS[group.preferred_assignor(self._members.values()) or next(iter(SERVER_ASSIGNORS))]
        subscribed = {name: self._topics_of(member) for name, member in self._members.items()}
        specs = {
            name: MemberSpec(
                topic_ids(self._image, subscribed[name]), self._targets.get(name, frozenset()), member.instance_id
            )
            for name, member in self._members.items()
        }
        counts = partition_counts(self._image, set().union(*subscribed.values()))
        shares = assignor.assign(counts, specs)
        for name, share in shares.items():
            if self._targets.get(name) != share:
                self._records.append(target_record(group.group_id, name, share))
        self._targets = dict(shares)
        self._records.append(target_epoch_record(group.group_id, TargetEpoch(group_epoch, self._now_ms)))
        return group_epoch

    def _reconcile(self, member: ModernMember, target_epoch: int, *, subscription_changed: bool) -> ModernMember:
        step = Reconciliation(
            target_epoch,
            self._targets.get(member.member_id, frozenset()),
            topic_ids(self._image, self._topics_of(member)),
            subscription_changed,
            owned_partitions(self._request),
            self._group.owners.get,
        )
        stepped = step.apply(member)
        if stepped != member:
            self._records.append(current_record(self._group.group_id, stepped))
            self.moved = True
        return stepped

    def _topics_of(self, member: ModernMember) -> frozenset[str]:
        return self._group.topics_of(member, self._regexes)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    """The partitions that the member reports as owned; None if it reports none."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions
    )


def check_request(request: ConsumerGroupHeartbeatRequest, assignors: Collection[str] | Mapping[str, object]) -> None:
    """Raises INVALID_REQUEST for fields that contradict each other, UNSUPPORTED_ASSIGNOR for an unknown assignor,
    INVALID_REGULAR_EXPRESSION."""
    epoch = request.member_epoch
    if request.generates_member_id or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _not_empty("MemberId", request.member_id)
    _not_empty("GroupId", request.group_id)
    _not_empty("InstanceId", request.instance_id)
    _not_empty("RackId", request.rack_id)
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
    if request.subscribed_topic_regex:
        topic_pattern(request.subscribed_topic_regex)


def check_member_epoch(member: ModernMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises FENCED_MEMBER_EPOCH unless the member sends its newest epoch, or the one before with none but its own
    partitions: then the last answer was lost."""
    received, known = request.member_epoch, member.member_epoch
    if received in (JOIN_EPOCH, known):
        return
    owned = owned_partitions(request)
    if received == member.previous_member_epoch and owned is not None and owned <= member.assigned.keys():
        return
    word = "greater" if received > known else "smaller"
    raise FencedMemberEpochError(
        f"The consumer group member has a {word} member epoch ({received}) than the one known by the group coordinator"
        f" ({known}). The member must abandon all its partitions and rejoin."
    )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _not_empty(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise InvalidRequestError(f"{name} can't be empty.")
