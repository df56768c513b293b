"""The group coordinator of one partition of `__consumer_offsets`: groups and committed offsets, folded. Pure.

Requests, records and timers are given to what they are about: classic groups
(`replication.coordinator.groups.classic_membership`), groups of KIP-848
(`replication.coordinator.groups.modern_requests`), offsets (`replication.coordinator.groups.committed_offsets`). A
record is folded in the same way whether it comes from the log or is the shard's own, so a coordinator that takes over
has what was stored: every offset, and of each group the newest generation that was stable. Whoever had an assignment
can go on with it; whoever waited in a rebalance is answered NOT_COORDINATOR and joins again.

Source: Kafka's `GroupCoordinatorShard`, `GroupMetadataManager` and `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic_group import ClassicGroup, GroupState
from stratalog.replication.coordinator.groups.classic_membership import ClassicGroups
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets, commit_record
from stratalog.replication.coordinator.groups.modern_requests import ModernGroups
from stratalog.replication.coordinator.groups.records import (
    OFFSET_COMMIT_KEYS,
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
    key_version,
)
from stratalog.replication.coordinator.groups.table import Draft, Group, GroupKind, GroupTable, TimerKey
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts, Held, groups_held
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorRecord, Decision, ShardPlace
from stratalog.replication.requests.group_errors import error_response, has_error_response, with_error
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
from stratalog.storage.clock import Ids
from stratalog.storage.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidRequestError,
    StaleMemberEpochError,
    StratalogError,
)
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

RETENTION, DROPPING = TimerKey("offsets-retention", ""), TimerKey("offsets-dropping", "")
TOMBSTONE_BYTES_MAX = 512 * 1024
"""Keys of the tombstones of one decision: what expires is removed in pieces that fit into a batch."""
OFFSETS_LOOKED_AT_MAX = 5_000
"""Offsets that one decision looks at to find expired ones, so that a broker's loop goes on meanwhile: a few ms."""


class GroupShard:
    """A `CoordinatorShard`. `more_kinds` makes the other kinds of groups, sharing the table with the classic ones."""

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
        self._dropped: dict[TopicPartition, int] = {}
        self._round: list[str] = []
        self._handlers: Mapping[type, Callable[[Any, int, Draft], None]] = {
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
        """Records of kinds that nobody here knows are passed over, as after a downgrade."""
        self._now_ms = max(self._now_ms, timestamp_ms)
        version = key_version(record.key)
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
            # Somebody who commits without being a member: a group that is empty and has no protocol type.
            self.table.groups[key.group] = ClassicGroup(key.group, None)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.offsets.see_producer(producer_id, producer_epoch, self._now_ms)
        self.offsets.end_transaction(producer_id, is_commit)

    def loaded(self, now_ms: int) -> Decision:
        """Sessions of all members begin, and the rounds of expiry."""
        self.offsets.is_loaded = True
        draft = self._draft(now_ms)
        for kind in self._kinds:
            kind.loaded(draft)
        self.table.timers.schedule(RETENTION, now_ms + self._config.offsets_retention_check_interval_ms)
        return draft.decision()

    # Requests

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        """Refusals are responses with an error. A request of no kind here raises INVALID_REQUEST."""
        handler = self._handlers.get(type(request)) or self._handler_of_kind(request)
        draft = self._draft(now_ms)
        try:
            handler(request, token, draft)
        except StratalogError as error:
            if not has_error_response(request):
                raise
            return Decision(answers=(Answered(token, error_response(request, error)),))
        return draft.decision()

    def _handler_of_kind(self, request: object) -> Callable[[Any, int, Draft], None]:
        able = [kind for kind in self._kinds if type(request) in kind.requests]
        if not able:
            raise InvalidRequestError(f"{type(request).__name__} is no request of groups")
        group = self.table.groups.get(getattr(request, "group_id", ""))
        if group is not None and not group.is_empty:
            able.sort(key=lambda kind: kind.group_type != group.group_type)
        return able[0].requests[type(request)]

    def _draft(self, now_ms: int) -> Draft:
        self._now_ms = now_ms
        return Draft(now_ms)

    # Timers

    def expire(self, now_ms: int) -> Decision:
        draft = self._draft(now_ms)
        again: dict[TimerKey, int | None] = {}
        for key in self.table.timers.pop_due(now_ms):
            if key == RETENTION:
                again[key] = self._expire_offsets(draft)
            elif key == DROPPING:
                again[key] = self._drop(draft)
            else:
                for kind in self._kinds:
                    if key.kind in kind.timer_kinds:
                        kind.expire(key, draft)
        for key, due_ms in again.items():
            if due_ms is not None:
                self.table.timers.schedule(key, due_ms)
        return draft.decision()

    @property
    def next_due_ms(self) -> int | None:
        return self.table.timers.next_due_ms

    def held(self) -> Counter[Held]:
        groups = [(group.group_type, group.state_name) for group in list(self.table.groups.values())]
        return groups_held(groups, self.offsets.total)

    def give_up(self, error: StratalogError) -> tuple[Answered, ...]:
        """Every request that waits, with `error`."""
        return tuple(
            Answered(token, with_error(response, error))
            for kind in self._kinds
            for token, response in kind.unload(self._now_ms)
        )

    # Offsets

    def _commit(self, request: OffsetCommitRequest, token: int, draft: Draft) -> None:
        group = self.table.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0:
            raise GroupIdNotFoundError(f"Group {request.group_id} not found.")
        if group is not None:
            generation = request.generation_id_or_member_epoch
            group.validate_offset_commit(request.member_id, request.group_instance_id, generation, False)
        if isinstance(group, ClassicGroup) and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._classic.rebalances.touch(group, request.member_id, draft)
        values, topics = self.offsets.commit(request.topics, draft.now_ms, request.retention_time_ms)
        self._counts.offset_commits += len(values)
        draft.records += [commit_record(request.group_id, *each) for each in values]
        draft.answer(token, OffsetCommitResponse(topics))

    def _commit_in_transaction(self, request: TxnOffsetCommitRequest, token: int, draft: Draft) -> None:
        if not request.group_id:
            raise InvalidGroupIdError("the group id is empty")
        group = self.table.groups.get(request.group_id)
        if group is None and request.generation_id >= 0:
            raise IllegalGenerationError(f"generation {request.generation_id} of group {request.group_id}: not found")
        if group is not None:
            try:
                group.validate_offset_commit(request.member_id, request.group_instance_id, request.generation_id, True)
            except StaleMemberEpochError as error:
                raise IllegalGenerationError(str(error)) from error
        self.offsets.validate_producer(request.producer_id, request.producer_epoch)
        values, topics = self.offsets.commit(request.topics, draft.now_ms)
        self._counts.offset_commits += len(values)
        self.offsets.expect(request.group_id, request.producer_id, values, draft.now_ms)
        if group is None and values:
            # Now, not when the records are folded: what removes the group may be folded before them.
            self.table.groups[request.group_id] = ClassicGroup(request.group_id, None)
        draft.records += [commit_record(request.group_id, *each) for each in values]
        draft.producer_id, draft.producer_epoch = request.producer_id, request.producer_epoch
        draft.verified_offset = request.verified_offset
        draft.answer(token, TxnOffsetCommitResponse(topics))

    def _fetch(self, request: OffsetFetchRequest, token: int, draft: Draft) -> None:
        groups = tuple(self._fetch_group(each, request.require_stable) for each in request.groups)
        draft.is_read = True
        draft.answer(token, OffsetFetchResponse(groups))

    def _fetch_group(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """A group that is not there has no offsets, which is no error."""
        group = self.table.groups.get(request.group_id)
        topics: tuple[OffsetFetchResponseTopic, ...]
        try:
            if group is not None:
                group.validate_offset_fetch(request.member_id, request.member_epoch)
            topics = self.offsets.fetch(request, require_stable)
        except StratalogError as error:
            return OffsetFetchResponseGroup(request.group_id, error=error)
        return OffsetFetchResponseGroup(request.group_id, topics)

    def _delete_offsets(self, request: OffsetDeleteRequest, token: int, draft: Draft) -> None:
        if not request.group_id:
            raise InvalidGroupIdError("the group id is empty")
        group = self.table.group(request.group_id)
        group.validate_offset_delete()
        records, topics = self.offsets.delete(request, group)
        self._counts.offset_deletions += len(records)
        draft.records += records
        draft.answer(token, OffsetDeleteResponse(topics))

    def _partitions_deleted(self, request: PartitionsDeleted, token: int, draft: Draft) -> None:
        self._dropped |= dict.fromkeys(request.partitions, self.offsets.order)
        due_ms = self._drop(draft)
        if due_ms is not None:
            self.table.timers.schedule(DROPPING, due_ms)
        draft.answer(token, PartitionsDeletedDone())

    def _drop(self, draft: Draft) -> int | None:
        """The offsets of deleted partitions, as many as fit. When to go on with the rest: at once, in another
        decision."""
        if not self._take(self.offsets.of_partitions(self._dropped), draft):
            return draft.now_ms
        self._dropped.clear()
        return None

    def _expire_offsets(self, draft: Draft) -> int:
        """A piece of a round over all groups: what has expired, and the groups that have neither members nor offsets
        then. When to go on: at once within a round."""
        self._round = self._round or list(self.table.groups)
        looked_at = 0
        while self._round and looked_at < OFFSETS_LOOKED_AT_MAX:
            group = self.table.groups.get(self._round[-1])
            if group is not None:
                earlier = len(draft.records)
                is_all = self._take(self.offsets.expired(group, draft.now_ms), draft)
                expired = len(draft.records) - earlier
                self._counts.offset_expirations += expired
                if not is_all:
                    return draft.now_ms
                if group.is_empty and not self.offsets.has_more(group.group_id, expired):
                    draft.records += group.tombstones()
                looked_at += 1 + self.offsets.count(group.group_id)
            self._round.pop()
        if self._round:
            return draft.now_ms
        self.offsets.forget(draft.now_ms)
        return draft.now_ms + self._config.offsets_retention_check_interval_ms

    @staticmethod
    def _take(tombstones: Iterator[CoordinatorRecord], draft: Draft) -> bool:
        """Into the draft, until it is full; whether that was all."""
        size = sum(len(record.key) for record in draft.records)
        for record in tombstones:
            if size > TOMBSTONE_BYTES_MAX:
                return False
            draft.records.append(record)
            size += len(record.key)
        return True

    # Groups, as administrators see them

    def _describe(self, request: DescribeGroupsRequest, token: int, draft: Draft) -> None:
        draft.answer(token, DescribeGroupsResponse(tuple(self._described(group_id) for group_id in request.groups)))

    def _described(self, group_id: str) -> DescribedGroup:
        try:
            return self.table.group(group_id).described()
        except GroupIdNotFoundError as error:
            return DescribedGroup(group_id, GroupState.DEAD.value, error=error)

    def _list(self, request: ListGroupsRequest, token: int, draft: Draft) -> None:
        states = {state.strip().lower() for state in request.states_filter}
        types = {group_type.strip().lower() for group_type in request.types_filter}

        def passes(group: Group) -> bool:
            is_in_state = not states or group.state_name.lower() in states
            return is_in_state and (not types or group.group_type in types)

        groups = tuple(group.listed() for group in self.table.groups.values() if passes(group))
        draft.answer(token, ListGroupsResponse(groups))

    def _delete_groups(self, request: DeleteGroupsRequest, token: int, draft: Draft) -> None:
        results = tuple(self._delete_group(group_id, draft) for group_id in request.groups_names)
        draft.answer(token, DeleteGroupsResponse(results))

    def _delete_group(self, group_id: str, draft: Draft) -> DeletableGroupResult:
        try:
            group = self.table.group(group_id)
            group.validate_delete()
        except StratalogError as error:
            return DeletableGroupResult(group_id, error)
        draft.records += self.offsets.delete_all(group_id)
        draft.records += group.tombstones()
        return DeletableGroupResult(group_id)


def group_shard(place: ShardPlace) -> GroupShard:
    """A `ShardFactory`."""
    kinds = (lambda table: ModernGroups(table, place.image),)
    return GroupShard(place.config, place.ids, kinds, place.counts)
