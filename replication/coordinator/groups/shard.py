"""The group coordinator of one partition of `__consumer_offsets`: groups and committed offsets, folded. Pure.

Requests, records and timers go to what they concern: classic groups
(`replication.coordinator.groups.classic.membership`), modern groups
(`replication.coordinator.groups.modern.requests`), offsets (`replication.coordinator.groups.committed_offsets`). A
record is folded in the same way whether it comes from the log or from a decision of this shard, so a new coordinator
has what was stored: every offset, and of each classic group the newest stable generation. Members with an assignment
continue with it; members in a rebalance receive NOT_COORDINATOR and join again.

Source: Kafka's `GroupCoordinatorShard`, `GroupMetadataManager` and `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup, GroupState
from stratalog.replication.coordinator.groups.classic.membership import ClassicGroups
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets, commit_record
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.modern.topics import Matches, matching_topics
from stratalog.replication.coordinator.groups.records import (
    OFFSET_COMMIT_KEYS,
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
)
from stratalog.replication.coordinator.groups.table import DecisionBuilder, Group, GroupKind, GroupTable, TimerKey
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts, Held, groups_held
from stratalog.replication.coordinator.shard.shard import (
    RECORD_OVERHEAD_BYTES,
    Answered,
    CoordinatorRecord,
    Decision,
    HeldGroup,
    ShardPlace,
    size_bytes,
)
from stratalog.replication.requests.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    PartitionsDeleted,
    PartitionsDeletedDone,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from stratalog.replication.requests.messages import error_response, has_error_response, with_error
from stratalog.storage import errors
from stratalog.storage.clock import Ids
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import OffsetAndEpoch
from stratalog.wire.kafka_types import version_of

RETENTION, DROPPING = TimerKey("offsets-retention", ""), TimerKey("offsets-dropping", "")
BATCH_SHARE = 2
"""One part of so many of a batch is filled by timers: what the next timer adds has room in it, too."""
WORK_MAX = 500_000
"""Names that the timers of one decision compare, so that the broker's loop is not held up."""
OFFSETS_CHECKED_MAX = 5_000
"""Number of offsets that one decision checks for expiry, so that the broker's loop is not held up."""


def _reads_nothing(_topic: str) -> bool:
    """Whether a group without members reads a topic."""
    return False


class GroupShard:
    """A `CoordinatorShard`. `more_kinds` makes the groups of other protocols, which share the classic groups' table."""

    def __init__(
        self,
        config: BrokerConfig,
        ids: Ids,
        more_kinds: Iterable[Callable[[GroupTable], GroupKind]] = (),
        counts: CoordinatorCounts | None = None,
    ) -> None:
        self.table = GroupTable(config, ids, counts=counts or CoordinatorCounts())
        self._counts = self.table.counts
        self.offsets = CommittedOffsets(config)
        self._config = config
        self._now_ms = 0
        self._classic = ClassicGroups(self.table)
        self._kinds: list[GroupKind] = [self._classic, *(make(self.table) for make in more_kinds)]
        self._dropped: dict[IdentifiedPartition, int] = {}
        self._round: list[str] = []
        self._handlers: Mapping[type, Callable[[Any, int, DecisionBuilder], None]] = {
            OffsetCommitRequest: self._commit,
            TxnOffsetCommitRequest: self._commit_in_transaction,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete_offsets,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete_groups,
            PartitionsDeleted: self._partitions_deleted,
        }

    # The fold

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Records with an unknown key version are skipped, as after a downgrade."""
        self._now_ms = max(self._now_ms, timestamp_ms)
        version = version_of(record.key)
        if version not in OFFSET_COMMIT_KEYS:
            for kind in self._kinds:
                if version in kind.key_versions:
                    kind.replay(record, timestamp_ms)
            return
        key = decode_key(record.key)
        assert isinstance(key, OffsetCommitKey)
        value = None if record.value is None else decode_offset_commit(record.value)
        if producer_id != NO_PRODUCER_ID:
            self.offsets.see_producer(producer_id, producer_epoch, timestamp_ms)
        is_kept = self.offsets.replay(key.group, TopicPartition(key.topic, key.partition), value, producer_id)
        if is_kept and value is not None and key.group not in self.table.groups:
            # A commit without a member: the group is empty and has no protocol type.
            self.table.groups[key.group] = ClassicGroup(key.group, None)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.offsets.see_producer(producer_id, producer_epoch, self._now_ms)
        self.offsets.end_transaction(producer_id, is_commit)

    def loaded(self, now_ms: int) -> Decision:
        """Starts the sessions of all members, and the rounds of expiry."""
        self.offsets.is_loaded = True
        decision = self._builder(now_ms)
        for kind in self._kinds:
            kind.loaded(decision)
        self.table.timers.schedule(RETENTION, now_ms + self._config.offsets_retention_check_interval_ms)
        return decision.build()

    # Requests

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        """Refusals are responses with an error. A request that is not of groups raises INVALID_REQUEST."""
        handler = self._handlers.get(type(request)) or self._handler_of_kind(request)
        decision = self._builder(now_ms)
        try:
            handler(request, token, decision)
        except StratalogError as error:
            if not has_error_response(request):
                raise
            return Decision(answers=(Answered(token, error_response(request, error.as_value())),))
        return decision.build()

    def _handler_of_kind(self, request: object) -> Callable[[Any, int, DecisionBuilder], None]:
        able = [kind for kind in self._kinds if type(request) in kind.requests]
        if not able:
            raise errors.InvalidRequestError(f"{type(request).__name__} is no request of groups")
        group = self.table.groups.get(getattr(request, "group_id", ""))
        if group is not None and not group.is_empty:
            able.sort(key=lambda kind: kind.group_type != group.group_type)
        return able[0].requests[type(request)]

    def _builder(self, now_ms: int) -> DecisionBuilder:
        self._now_ms = now_ms
        return DecisionBuilder(now_ms)

    # Timers

    def expire(self, now_ms: int) -> Decision:
        """A batch of records at most, and work of one turn of the broker's loop; the rest is due at once."""
        decision = self._builder(now_ms)
        again: dict[TimerKey, int | None] = {}
        for key in self.table.timers.pop_due(now_ms):
            if key == RETENTION:
                again[key] = self._expire_offsets(decision)
            elif key == DROPPING:
                again[key] = self._drop(decision)
            else:
                for kind in self._kinds:
                    if key.kind in kind.timer_kinds:
                        kind.expire(key, decision)
            if decision.work >= WORK_MAX or self._is_full(size_bytes(decision.records)):
                break
        for key, due_ms in again.items():
            if due_ms is not None:
                self.table.timers.schedule(key, due_ms)
        return decision.build()

    @property
    def next_due_ms(self) -> int | None:
        return self.table.timers.next_due_ms

    def held(self) -> Counter[Held]:
        groups = [(group.group_type, group.state_name) for group in list(self.table.groups.values())]
        return groups_held(groups, self.offsets.total)

    def groups(self) -> Sequence[HeldGroup]:
        """As the port says: each group is as of a moment of its own."""
        groups, committed = self.table.groups.copy(), self.offsets.committed_by_group()
        return [
            HeldGroup(
                group_id,
                group.member_count if (group := groups.get(group_id)) is not None else 0,
                committed.get(group_id, {}),
                _reads_nothing if group is None or group.is_empty else group.reads,
            )
            for group_id in {**groups, **committed}
        ]

    def unload(self, error: StratalogError) -> tuple[Answered, ...]:
        """Answers `error` to every request that waits."""
        return tuple(
            Answered(token, with_error(response, error))
            for kind in self._kinds
            for token, response in kind.unload(self._now_ms)
        )

    # Offsets

    def _commit(self, request: OffsetCommitRequest, token: int, decision: DecisionBuilder) -> None:
        group = self.table.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0:
            raise errors.GroupIdNotFoundError(f"Group {request.group_id} not found.")
        if group is not None:
            generation = request.generation_id_or_member_epoch
            instance_id = request.group_instance_id
            group.validate_offset_commit(request.member_id, instance_id, generation, False, request.topics)
        if isinstance(group, ClassicGroup) and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._classic.rebalances.touch(group, request.member_id, decision)
        topic_ids, retention_ms = self.table.topic_ids(), request.retention_time_ms
        values, topics = self.offsets.commit(request.topics, decision.now_ms, topic_ids, retention_ms)
        self._counts.offset_commits += len(values)
        decision.records += [commit_record(request.group_id, *each) for each in values]
        decision.answer(token, OffsetCommitResponse(topics))

    def _commit_in_transaction(self, request: TxnOffsetCommitRequest, token: int, decision: DecisionBuilder) -> None:
        if not request.group_id:
            raise errors.InvalidGroupIdError("the group id is empty")
        group = self.table.groups.get(request.group_id)
        if group is None and request.generation_id >= 0:
            raise errors.IllegalGenerationError(
                f"generation {request.generation_id} of group {request.group_id}: not found"
            )
        if group is not None:
            try:
                generation, instance_id = request.generation_id, request.group_instance_id
                group.validate_offset_commit(request.member_id, instance_id, generation, True, request.topics)
            except errors.StaleMemberEpochError as error:
                raise errors.IllegalGenerationError(str(error)) from error
        self.offsets.validate_producer(request.producer_id, request.producer_epoch)
        values, topics = self.offsets.commit(request.topics, decision.now_ms, self.table.topic_ids())
        self._counts.offset_commits += len(values)
        self.offsets.expect(request.group_id, request.producer_id, values, decision.now_ms)
        if group is None and values:
            # Not when the records are folded: tombstones of the group may be folded before them.
            self.table.groups[request.group_id] = ClassicGroup(request.group_id, None)
        decision.records += [commit_record(request.group_id, *each) for each in values]
        decision.producer_id, decision.producer_epoch = request.producer_id, request.producer_epoch
        decision.verified = OffsetAndEpoch(request.verified_offset, request.verified_leader_epoch)
        decision.answer(token, TxnOffsetCommitResponse(topics))

    def _fetch(self, request: OffsetFetchRequest, token: int, decision: DecisionBuilder) -> None:
        groups = tuple(self._fetch_group(each, request.require_stable) for each in request.groups)
        decision.is_read = True
        decision.answer(token, OffsetFetchResponse(groups))

    def _fetch_group(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """A group that is not there has no offsets, which is no error."""
        group = self.table.groups.get(request.group_id)
        topics: tuple[OffsetFetchResponseTopic, ...]
        try:
            if group is not None:
                group.validate_offset_fetch(request.member_id, request.member_epoch)
            topics = self.offsets.fetch(request, require_stable, self.table.topic_ids())
        except StratalogError as error:
            return OffsetFetchResponseGroup(request.group_id, error=error.as_value())
        return OffsetFetchResponseGroup(request.group_id, topics)

    def _delete_offsets(self, request: OffsetDeleteRequest, token: int, decision: DecisionBuilder) -> None:
        if not request.group_id:
            raise errors.InvalidGroupIdError("the group id is empty")
        group = self.table.group(request.group_id)
        group.validate_offset_delete()
        records, topics = self.offsets.delete(request, group)
        self._counts.offset_deletions += len(records)
        decision.records += records
        decision.is_divisible = True
        decision.answer(token, OffsetDeleteResponse(topics))

    def _partitions_deleted(self, request: PartitionsDeleted, token: int, decision: DecisionBuilder) -> None:
        self._dropped |= dict.fromkeys(request.partitions, self.offsets.order)
        due_ms = self._drop(decision)
        if due_ms is not None:
            self.table.timers.schedule(DROPPING, due_ms)
        decision.answer(token, PartitionsDeletedDone())

    def _drop(self, decision: DecisionBuilder) -> int | None:
        """Tombstones for offsets of deleted partitions, as many as fit. When to continue, None if nothing is left."""
        if not self._add_tombstones(self.offsets.of_partitions(self._dropped), decision):
            return decision.now_ms
        self._dropped.clear()
        return None

    def _expire_offsets(self, decision: DecisionBuilder) -> int:
        """A piece of a round over all groups: tombstones for expired offsets, and for groups that then have neither
        members nor offsets. When to continue: at once within a round."""
        self._round = self._round or list(self.table.groups)
        checked = 0
        while self._round and checked < OFFSETS_CHECKED_MAX:
            group = self.table.groups.get(self._round[-1])
            if group is not None:
                earlier = len(decision.records)
                over = self.offsets.expired(group, decision.now_ms, self.table.topic_ids())
                is_all = self._add_tombstones(over, decision)
                expired = len(decision.records) - earlier
                self._counts.offset_expirations += expired
                if not is_all:
                    return decision.now_ms
                if group.is_empty and not self.offsets.has_more(group.group_id, expired):
                    decision.records += group.tombstones()
                checked += 1 + self.offsets.count(group.group_id)
            self._round.pop()
        if self._round:
            return decision.now_ms
        self.offsets.forget(decision.now_ms)
        return decision.now_ms + self._config.offsets_retention_check_interval_ms

    def _is_full(self, batch_bytes: int) -> bool:
        return BATCH_SHARE * batch_bytes > self.table.record_bytes_max()

    def _add_tombstones(self, tombstones: Iterator[CoordinatorRecord], decision: DecisionBuilder) -> bool:
        """Adds tombstones to the decision until it is full; whether all were added."""
        batch_bytes = size_bytes(decision.records)
        for record in tombstones:
            if self._is_full(batch_bytes):
                return False
            decision.records.append(record)
            batch_bytes += len(record.key) + RECORD_OVERHEAD_BYTES
        return True

    # Groups, as administrators see them

    def _describe(self, request: DescribeGroupsRequest, token: int, decision: DecisionBuilder) -> None:
        decision.answer(token, DescribeGroupsResponse(tuple(self._described(group_id) for group_id in request.groups)))

    def _described(self, group_id: str) -> DescribedGroup:
        try:
            return self.table.group(group_id).described()
        except errors.GroupIdNotFoundError as error:
            return DescribedGroup(group_id, GroupState.DEAD.value, error=error.as_value())

    def _list(self, request: ListGroupsRequest, token: int, decision: DecisionBuilder) -> None:
        states = {state.strip().lower() for state in request.states_filter}
        types = {group_type.strip().lower() for group_type in request.types_filter}

        def passes(group: Group) -> bool:
            is_in_state = not states or group.state_name.lower() in states
            return is_in_state and (not types or group.group_type in types)

        groups = tuple(group.listed() for group in self.table.groups.values() if passes(group))
        decision.answer(token, ListGroupsResponse(groups))

    def _delete_groups(self, request: DeleteGroupsRequest, token: int, decision: DecisionBuilder) -> None:
        results = tuple(self._delete_group(group_id, decision) for group_id in request.groups_names)
        decision.is_divisible = True
        decision.answer(token, DeleteGroupsResponse(results))

    def _delete_group(self, group_id: str, decision: DecisionBuilder) -> DeletableGroupResult:
        try:
            group = self.table.group(group_id)
            group.validate_delete()
        except StratalogError as error:
            return DeletableGroupResult(group_id, error.as_value())
        decision.records += self.offsets.delete_all(group_id)
        decision.records += group.tombstones()
        return DeletableGroupResult(group_id)


def group_shard(place: ShardPlace, matches: Matches = matching_topics) -> GroupShard:
    """A `ShardFactory`. `matches` resolves regular expressions of modern groups."""
    kinds = (lambda table: ModernGroups(table, place.image, matches),)
    shard = GroupShard(place.config, place.ids, kinds, place.counts)
    shard.table.topic_ids = lambda: place.image().topic_ids

    def record_bytes_max() -> int:
        """As the broker has it that leads the partition: it may have a limit of its own."""
        image, named = place.image(), place.topic_partition
        state = image.partitions.get(named)
        configs = image.topic_config(named.topic, None if state is None else state.leader)
        return int(configs.get("max.message.bytes") or LogConfig().max_message_bytes)

    shard.table.record_bytes_max = record_bytes_max
    return shard
