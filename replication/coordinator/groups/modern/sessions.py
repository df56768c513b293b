"""Sessions and time-outs of modern groups' members, and how members are removed. Pure.

    session     without a heartbeat for so long, a member is removed; one of the classic protocol says how long itself
    rebalance   a member that does not revoke partitions in time is removed
    join, sync  a member of the classic protocol that was told REBALANCE_IN_PROGRESS and does not join in time, or that
                has joined and does not send SyncGroup

Source: `consumerGroupFenceMembers` and the timers of Kafka 4.3.1's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stratalog.replication.coordinator.groups.classic.rebalance import Rebalances
from stratalog.replication.coordinator.groups.migration import downgraded, may_downgrade
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import ModernMember, ModernMemberState
from stratalog.replication.coordinator.groups.modern.records import (
    KEY_VERSIONS,
    GroupEpoch,
    KeyVersion,
    current_record,
    decode_key,
    group_epoch_record,
    member_record,
    target_record,
    tombstone,
)
from stratalog.replication.coordinator.groups.modern.topics import metadata_hash
from stratalog.replication.coordinator.groups.table import DecisionBuilder, GroupTable, TimerKey
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.configs import GROUP_SESSION, group_config_ms
from stratalog.replication.metadata.image import ClusterImage
from stratalog.wire.kafka_types import version_of

SESSION, REBALANCE, JOIN, SYNC = "consumer-session", "consumer-rebalance", "consumer-join", "consumer-sync"
TIMER_KINDS = (SESSION, REBALANCE, JOIN, SYNC)


class ModernSessions:
    """The timers of a shard's modern groups. `image` returns the broker's newest metadata image."""

    def __init__(self, table: GroupTable, image: Callable[[], ClusterImage]) -> None:
        self._table = table
        self._timers = table.timers
        self._image = image
        self._rebalances = Rebalances(table)

    # Timers

    def loaded(self, group: ModernGroup, now_ms: int) -> None:
        """Each member has a whole session for its next heartbeat, and its rebalance timeout to revoke partitions."""
        for member in group.members.values():
            self.start(group.group_id, member, now_ms)
            self.time_rebalance(group.group_id, member, now_ms)

    def start(self, group_id: str, member: ModernMember, now_ms: int) -> None:
        """The member's session begins again."""
        metadata = member.classic_member_metadata
        if metadata is None:
            session_ms = group_config_ms(self._image(), group_id, GROUP_SESSION, self._table.config)
        else:
            session_ms = metadata.session_timeout_ms
        self._timers.schedule(TimerKey(SESSION, group_id, member.member_id), now_ms + session_ms)

    def time_rebalance(self, group_id: str, member: ModernMember, now_ms: int) -> None:
        """The member has its rebalance timeout to revoke partitions, if it has to. One of the classic protocol is told
        so by its next heartbeat, and then has that time to join."""
        key = TimerKey(REBALANCE, group_id, member.member_id)
        if is_revoking(member) and member.classic_member_metadata is None:
            self._timers.schedule(key, now_ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(key)

    def await_join(self, group_id: str, member: ModernMember, now_ms: int) -> None:
        """The member was told to join: it has its rebalance timeout since the first time."""
        key = TimerKey(JOIN, group_id, member.member_id)
        if self._timers.due_ms(key) is None:
            self._timers.schedule(key, now_ms + member.rebalance_timeout_ms)

    def await_sync(self, group_id: str, member: ModernMember, now_ms: int) -> None:
        """The member has joined: it has its rebalance timeout to send SyncGroup."""
        self._timers.cancel(TimerKey(JOIN, group_id, member.member_id))
        self._timers.schedule(TimerKey(SYNC, group_id, member.member_id), now_ms + member.rebalance_timeout_ms)

    def stop(self, group_id: str, member_id: str, kinds: Iterable[str] = TIMER_KINDS) -> None:
        for kind in kinds:
            self._timers.cancel(TimerKey(kind, group_id, member_id))

    def expire(self, group: ModernGroup, member: ModernMember, key: TimerKey, decision: DecisionBuilder) -> None:
        """A timer of a member is due."""
        if key.kind != REBALANCE or is_revoking(member):
            self.remove(group, [member], decision)

    # Removal

    def remove(self, group: ModernGroup, members: Sequence[ModernMember], decision: DecisionBuilder) -> None:
        """Remove members: their partitions are free, and the targets of the others will be computed again. The group
        becomes classic if only members of the classic protocol are left."""
        leaving = {member.member_id for member in members} | _removed_members(group.group_id, decision)
        if may_downgrade(group, leaving, self._table.config) and self.downgrades(
            group, leaving, None, decision, rebalances=True
        ):
            return
        decision.records += removals(group.group_id, (member.member_id for member in members))
        others = [other for other in group.members.values() if other.member_id not in leaving]
        decision.work += len(others) + sum(len(other.subscribed_topic_names) for other in others)
        unused = [regex for regex in group.regexes if all(other.subscribed_topic_regex != regex for other in others)]
        topics = {topic for other in others for topic in group.topics_of(other)}
        decision.records += [tombstone(KeyVersion.REGEX, group.group_id, regex) for regex in unused]
        epoch = GroupEpoch(group.group_epoch + 1, metadata_hash(self._image(), topics))
        decision.records.append(group_epoch_record(group.group_id, epoch))
        for member in members:
            self.stop(group.group_id, member.member_id)

    def downgrades(
        self,
        group: ModernGroup,
        leaving: set[str],
        returning: ModernMember | None,
        decision: DecisionBuilder,
        *,
        rebalances: bool,
    ) -> bool:
        """Make the group classic from now on. What the decision has said of the modern one so far is void.

        False, and nothing happened, when the group does not fit into one record: its members were stored one by one.
        With `rebalances` the members have to join again, since partitions have no owner, or some have to move. Kafka's
        record does not tell that to a coordinator that takes over meanwhile; ours does."""
        group_id = group.group_id
        classic = downgraded(group, leaving, returning, self._image(), decision.now_ms)
        records = [record for record in decision.records if not _is_of(group_id, record)]
        records += group.tombstones()
        records.append(classic.unassigned_record() if rebalances else classic.state_record())
        if not self._table.fits(records):
            return False
        decision.records = records
        for member_id in group.members:
            self.stop(group_id, member_id)
        self._table.groups[group_id] = classic
        for member_id in classic.members:
            self._rebalances.touch(classic, member_id, decision)
        if rebalances:
            self._rebalances.prepare_rebalance(classic, decision)
        return True


def is_revoking(member: ModernMember) -> bool:
    """A static member that has left for a while has nothing to revoke, whatever its state was when it left."""
    return member.state is ModernMemberState.UNREVOKED_PARTITIONS and bool(member.pending_revocation)


def replacement(group: ModernGroup, before: ModernMember, member: ModernMember) -> tuple[CoordinatorRecord, ...]:
    """The records by which a static member takes the place of another one."""
    return (
        *removals(group.group_id, (before.member_id,)),
        member_record(group.group_id, member),
        target_record(group.group_id, member.member_id, group.targets.get(before.member_id, ())),
        current_record(group.group_id, member),
    )


def removals(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """The tombstones of members, each in Kafka's order: assignment, target, member."""
    versions = (KeyVersion.CURRENT, KeyVersion.TARGET, KeyVersion.MEMBER)
    return [tombstone(version, group_id, member_id) for member_id in member_ids for version in versions]


def _removed_members(group_id: str, decision: DecisionBuilder) -> set[str]:
    """Members that the decision removes already: several sessions may end at once."""
    prefix = KeyVersion.MEMBER.to_bytes(2, "big")
    removed = (record.key for record in decision.records if record.value is None and record.key.startswith(prefix))
    return {key.name for key in map(decode_key, removed) if key.group_id == group_id}


def _is_of(group_id: str, record: CoordinatorRecord) -> bool:
    return version_of(record.key) in KEY_VERSIONS and decode_key(record.key).group_id == group_id
