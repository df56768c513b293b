"""A modern group (KIP-848): members, target assignment, epochs, as folded from its records. Pure.

The group epoch grows when members or their topics change; the target assignment is that of `target_epoch`, computed
from the group's state at that epoch; each member moves towards it (`replication.coordinator.groups.modern.member`).
Only records change a group, so that the next coordinator folds the same one. Source: Kafka 4.3.1's `ModernGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from stratalog.replication.coordinator.groups.modern.member import ModernMember
from stratalog.replication.coordinator.groups.modern.records import (
    CurrentAssignment,
    KeyVersion,
    ModernGroupKey,
    ResolvedRegex,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    tombstone,
)
from stratalog.replication.coordinator.groups.table import CONSUMER
from stratalog.replication.coordinator.server_assignors import SERVER_ASSIGNORS, TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.requests.consumer_groups import LEAVE_EPOCH
from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.replication.requests.groups import DescribedGroup, ListedGroup, OffsetCommitRequestTopic
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"

NAMES_MAX = 100_000
"""Names of topics that all members of a group together may subscribe to; an expression names any number of them."""


@dataclass(slots=True)
class ModernGroup:
    """One group, changed by `replay`; only `regexes_checked_ms`, `visible` and `checked_topics` are not in the log.

    topic_ids  the ids of the cluster's topics, by name
    visible    the topics that a member may describe, by its newest request; None: all. Of a member without an entry,
               which this coordinator has not met yet, all that it subscribes to: it learns of none before it asks.
    checked_topics  the image's `topic_changes` with which the group's hash was found to be right; None: not since its
               members changed
    """

    group_type: ClassVar[str] = CONSUMER

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    members: dict[str, ModernMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    targets: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    regexes_checked_ms: int = 0
    topic_ids: Callable[[], Mapping[str, str]] = field(default=dict, compare=False)
    visible: dict[str, VisibleNames | None] = field(default_factory=dict, compare=False)
    checked_topics: object = field(default=None, compare=False)

    # The fold

    def replay(self, key: ModernGroupKey, value: bytes | None) -> None:
        """Fold a record of this group; not the one that removes it."""
        if key.version in (KeyVersion.GROUP, KeyVersion.MEMBER, KeyVersion.REGEX):
            self.checked_topics = None
        match key.version:
            case KeyVersion.GROUP if value is not None:
                self.group_epoch, self.metadata_hash = decode_group_epoch(value)
            case KeyVersion.MEMBER:
                self._replay_member(key.name, value)
            case KeyVersion.TARGET_EPOCH:
                known = (0, 0) if value is None else decode_target_epoch(value)
                self.target_epoch, self.target_timestamp_ms = known
            case KeyVersion.TARGET if value is not None:
                self.targets[key.name] = decode_target(value)
            case KeyVersion.TARGET:
                self.targets.pop(key.name, None)
            case KeyVersion.CURRENT:
                self._replay_current(key.name, value)
            case KeyVersion.REGEX if value is not None:
                self.regexes[key.name] = decode_regex(value)
            case KeyVersion.REGEX:
                self.regexes.pop(key.name, None)

    def _replay_member(self, member_id: str, value: bytes | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            stored = decode_member(member_id, value)
            if known is not None:
                stored = _with_assignment(stored, known)
            self.members[member_id] = stored
            if stored.instance_id is not None:
                self.static_members[stored.instance_id] = member_id
        elif known is not None:
            self._own(known, ())
            del self.members[member_id]
            self.visible.pop(member_id, None)
            if self.static_members.get(known.instance_id or "") == member_id:
                del self.static_members[known.instance_id or ""]

    def _replay_current(self, member_id: str, value: bytes | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            member = _with_assignment(known or ModernMember(member_id), decode_current(value))
            self._own(known, (*member.assigned, *member.pending_revocation), member_id)
            self.members[member_id] = member
        elif known is not None:
            self._own(known, ())
            self.members[member_id] = replace(
                known, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={}, pending_revocation={}
            )

    def _own(self, before: ModernMember | None, partitions: Iterable[TopicIdPartition], member_id: str = "") -> None:
        if before is not None:
            for partition in (*before.assigned, *before.pending_revocation):
                if self.owners.get(partition) == before.member_id:
                    del self.owners[partition]
        self.owners.update((partition, member_id) for partition in partitions)

    # `Group`

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """Empty; Assigning: the target is older than the group; Reconciling: a member has not reached it; Stable."""
        if not self.members:
            return EMPTY
        if self.group_epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(member.is_reconciled_to(self.target_epoch) for member in list(self.members.values()))
        return STABLE if reconciled else RECONCILING

    def member(self, member_id: str) -> ModernMember:
        """Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise errors.UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str) -> ModernMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def static_member_of(self, instance_id: str, member_id: str) -> ModernMember:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance continues under another member id."""
        member = self.static_member(instance_id)
        if member is None:
            raise errors.UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise errors.FencedInstanceIdError(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
            )
        return member

    def validate_room(self, member_id: str, size_max: int) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if that member would be one too many."""
        if len(self.members) >= size_max and member_id not in self.members:
            raise errors.GroupMaxSizeReachedError(
                f"The consumer group has reached its maximum capacity of {size_max} members."
            )

    def waits_for_others(self, member: ModernMember) -> bool:
        """Whether a partition of its target that the member lacks is not free yet."""
        lacking = self.targets.get(member.member_id, frozenset()) - member.assigned.keys()
        return any(partition in self.owners for partition in lacking)

    def topics_of(self, member: ModernMember, regexes: Mapping[str, ResolvedRegex] | None = None) -> frozenset[str]:
        """Topics that the member subscribes to, by name and by its regular expression as it was last resolved. Topics
        that it may not describe are to it as those that do not exist."""
        resolved = (self.regexes if regexes is None else regexes).get(member.subscribed_topic_regex)
        names, matched = member.subscribed_topic_names, resolved.topics if resolved else frozenset()
        visible = self.visible.get(member.member_id)
        return names | matched if visible is None else visible(names) | visible(matched)

    def preferred_assignor(self, members: Iterable[ModernMember]) -> str | None:
        """The server assignor that most of the members request; of equals the first of `SERVER_ASSIGNORS`. In Kafka the
        order of a hash map decides: mostly it is that one, too."""
        asked = Counter(member.server_assignor for member in members if member.server_assignor)
        known = [name for name in SERVER_ASSIGNORS if name in asked] + sorted(asked.keys() - SERVER_ASSIGNORS.keys())
        return max(known, key=lambda name: asked[name], default=None)

    def validate_offset_commit(
        self,
        member_id: str,
        _group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        topics: Sequence[OffsetCommitRequestTopic] = (),
    ) -> None:
        """Members commit with their current epoch, or with an older one for partitions that they have had since then
        (KIP-1251: a commit that is under way while the epoch moves); without a member only while the group is empty."""
        if member_epoch < 0 and not self.members:
            return
        if is_transactional and member_epoch < 0 and not member_id:
            return
        member = self.member(member_id)
        if not topics or not 0 <= member_epoch < member.member_epoch:
            _check_epoch(member, member_epoch)
            return
        topic_ids = self.topic_ids()
        committed = [(topic.name, each.partition_index) for topic in topics for each in topic.partitions]
        for topic, partition in committed:
            place = TopicIdPartition(topic_ids.get(topic, ""), partition)
            assigned_epoch = member.assigned.get(place, member.pending_revocation.get(place))
            if assigned_epoch is None or member_epoch < assigned_epoch:
                since = "not at all" if assigned_epoch is None else f"since epoch {assigned_epoch}"
                raise _stale(
                    member,
                    f"The received member epoch {member_epoch} is older than the current one {member.member_epoch}, "
                    f"and {topic}-{partition} is assigned to the member {since}.",
                )

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), member_epoch)

    def validate_offset_delete(self) -> None:
        """Always allowed: `is_subscribed_to` knows the topics of all members."""

    def validate_delete(self) -> None:
        if self.members:
            raise errors.NonEmptyGroupError(f"The group {self.group_id} has {len(self.members)} members.")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(self._subscribes(member, topic) for member in self.members.values())

    def reads(self, topic: str) -> bool:
        """Whether members read `topic`. Any thread may call it: the members are those of a moment."""
        return any(self._subscribes(member, topic) for member in list(self.members.values()))

    def _subscribes(self, member: ModernMember, topic: str) -> bool:
        resolved = self.regexes.get(member.subscribed_topic_regex)
        names, matched = member.subscribed_topic_names, resolved.topics if resolved else frozenset()
        visible = self.visible.get(member.member_id)
        if topic not in names and topic not in matched:
            return False
        return visible is None or topic in visible(names) or topic in visible(matched)

    def validate_names(self, member_id: str, count: int) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if the members would name too many topics with so many of that member: all
        names are compared whenever one of them changes."""
        others = (each for each in self.members.values() if each.member_id != member_id)
        total = count + sum(len(each.subscribed_topic_names) for each in others)
        if total > NAMES_MAX and count:
            raise errors.GroupMaxSizeReachedError(
                f"The members of group {self.group_id} would subscribe to {total} names of topics > {NAMES_MAX}."
            )

    def retained_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        names = [
            (version, member_id) for version in (KeyVersion.CURRENT, KeyVersion.TARGET) for member_id in self.members
        ]
        names.append((KeyVersion.TARGET_EPOCH, ""))
        names += [(KeyVersion.MEMBER, member_id) for member_id in self.members]
        names += [(KeyVersion.REGEX, regex) for regex in self.regexes]
        names.append((KeyVersion.GROUP, ""))
        return tuple(tombstone(version, self.group_id, name) for version, name in names)

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "consumer", self.state_name, CONSUMER)

    def described(self) -> DescribedGroup:
        error = errors.GroupIdNotFoundError(f"Group {self.group_id} is not a classic group.")
        return DescribedGroup(self.group_id, "Dead", error=error)


def _check_epoch(member: ModernMember, member_epoch: int) -> None:
    if member_epoch != member.member_epoch:
        raise _stale(
            member,
            f"The received member epoch {member_epoch} does not match the expected member epoch {member.member_epoch}.",
        )


def _stale(member: ModernMember, message: str) -> StratalogError:
    """What a member is told that commits or fetches offsets with an epoch that is not its own: ILLEGAL_GENERATION in
    the classic protocol."""
    if member.classic_member_metadata is None:
        return errors.StaleMemberEpochError(message)
    return errors.IllegalGenerationError(message)


def _with_assignment(member: ModernMember, current: ModernMember | CurrentAssignment) -> ModernMember:
    return replace(member, **{each.name: getattr(current, each.name) for each in fields(CurrentAssignment)})
