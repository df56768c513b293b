"""The offsets that one partition of `__consumer_offsets` holds, committed and in open transactions. Pure.

An offset is one record; the newest of a key counts. What a transaction commits waits, by producer id, for its marker:
committed, it counts unless a plain commit came after it in the log; aborted, it is forgotten. A tombstone removes an
offset, also the waiting ones.

Offsets expire `offsets.retention.minutes` (7 days) after their group became empty; while a group has members, those of
topics that it dropped count from their commit; of users without a group from their commit, too (KIP-211). An offset
whose partition has one in an open transaction stays.

Source: Kafka's `OffsetMetadataManager`. Kafka compares record offsets to tell which of two commits is newer; here it
is the order of the fold, which is the log's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from replication.config import BrokerConfig
from replication.coordinator_shard import CoordinatorRecord
from replication.group_records import NO_TIMESTAMP, OffsetCommitValue, encode_offset_commit, offset_commit_key
from replication.group_requests import (
    NO_RETENTION_TIME_MS,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from replication.group_table import Group
from storage.errors import (
    GroupSubscribedToTopicError,
    InvalidProducerEpochError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from storage.records import NO_PRODUCER_ID, TopicPartition

MINUTE_MS = 60_000
PRODUCER_EPOCH_KEPT_MS = 24 * 60 * MINUTE_MS
"""For how long a producer's newest epoch is remembered, to refuse older ones; the log refuses them for good."""


class CommittedOffset(NamedTuple):
    """`order`: its number among all commits that were folded, from 1."""

    order: int
    value: OffsetCommitValue


Offsets = dict[str, dict[TopicPartition, CommittedOffset]]
"""By group id and partition."""


@dataclass(slots=True)
class _Producer:
    epoch: int
    seen_ms: int


class CommittedOffsets:
    """Folded by `replay` and `end_transaction` alone; the other methods give records and answers and change nothing."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._retention_ms = config.offsets_retention_minutes * MINUTE_MS
        self._offsets: Offsets = {}
        self._pending: dict[int, Offsets] = {}
        self._open: dict[str, set[int]] = {}
        self._producers: dict[int, _Producer] = {}
        self._order = 0

    # The fold

    def replay(
        self, group_id: str, partition: TopicPartition, value: OffsetCommitValue | None, producer_id: int
    ) -> None:
        """One record: a commit, a transaction's commit (`producer_id`), or a tombstone."""
        if value is None:
            _remove(self._offsets, group_id, partition)
            for producer in self._open.get(group_id, ()):
                _remove(self._pending[producer], group_id, partition)
            return
        self._order += 1
        offsets = self._offsets
        if producer_id != NO_PRODUCER_ID:
            offsets = self._pending.setdefault(producer_id, {})
            self._open.setdefault(group_id, set()).add(producer_id)
        offsets.setdefault(group_id, {})[partition] = CommittedOffset(self._order, value)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """A marker: what the producer committed in its transaction counts from here on, or never."""
        pending = self._pending.pop(producer_id, {})
        for group_id, producers in list(self._open.items()):
            producers.discard(producer_id)
            if not producers:
                del self._open[group_id]
        if not is_commit:
            return
        for group_id, offsets in pending.items():
            counting = self._offsets.setdefault(group_id, {})
            for partition, committed in offsets.items():
                present = counting.get(partition)
                if present is None or committed.order > present.order:
                    counting[partition] = committed

    def see_producer(self, producer_id: int, producer_epoch: int, timestamp_ms: int) -> None:
        """A transactional record or a marker of that producer."""
        known = self._producers.get(producer_id)
        epoch = producer_epoch if known is None else max(producer_epoch, known.epoch)
        self._producers[producer_id] = _Producer(epoch, timestamp_ms)

    # Commits

    def commit(
        self,
        group_id: str,
        topics: tuple[OffsetCommitRequestTopic, ...],
        now_ms: int,
        retention_time_ms: int = NO_RETENTION_TIME_MS,
    ) -> tuple[list[CoordinatorRecord], tuple[OffsetCommitResponseTopic, ...]]:
        """A record for each offset, but those whose metadata is longer than `offset.metadata.max.bytes` (4,096), which
        Kafka counts in characters: OFFSET_METADATA_TOO_LARGE each. A retention of its own gives it an expiry time."""
        expire_timestamp = NO_TIMESTAMP if retention_time_ms == NO_RETENTION_TIME_MS else now_ms + retention_time_ms
        records: list[CoordinatorRecord] = []
        answers = []
        for topic in topics:
            partitions = []
            for each in topic.partitions:
                error = self._metadata_error(each)
                partitions.append(OffsetCommitResponsePartition(each.partition_index, error))
                if error is None:
                    value = OffsetCommitValue(
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                        now_ms,
                        expire_timestamp,
                    )
                    key = offset_commit_key(group_id, topic.name, each.partition_index)
                    records.append(CoordinatorRecord(key, encode_offset_commit(value)))
            answers.append(OffsetCommitResponseTopic(topic.name, tuple(partitions)))
        return records, tuple(answers)

    def _metadata_error(self, partition: OffsetCommitRequestPartition) -> OffsetMetadataTooLargeError | None:
        length, length_max = len(partition.committed_metadata or ""), self._config.offset_metadata_max_bytes
        if length <= length_max:
            return None
        return OffsetMetadataTooLargeError(f"{length} > {length_max} characters (offset.metadata.max.bytes)")

    def validate_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH for one that a newer one has fenced, before its append is refused."""
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise InvalidProducerEpochError(f"producer {producer_id}: epoch {producer_epoch} < {known.epoch}")

    # Fetches

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool) -> tuple[OffsetFetchResponseTopic, ...]:
        """The partitions asked for, or all with an offset. Nothing committed is offset -1 without an error;
        with `require_stable` one in an open transaction is UNSTABLE_OFFSET_COMMIT (KIP-447)."""
        offsets = self._offsets.get(request.group_id, {})
        if request.topics is None:
            wanted: dict[str, list[int]] = {}
            for partition in offsets:
                wanted.setdefault(partition.topic, []).append(partition.partition)
        else:
            wanted = {topic.name: list(topic.partition_indexes) for topic in request.topics}
        return tuple(
            OffsetFetchResponseTopic(
                topic,
                tuple(
                    self._fetched(request.group_id, TopicPartition(topic, number), offsets, require_stable)
                    for number in numbers
                ),
            )
            for topic, numbers in wanted.items()
        )

    def _fetched(
        self,
        group_id: str,
        partition: TopicPartition,
        offsets: dict[TopicPartition, CommittedOffset],
        require_stable: bool,
    ) -> OffsetFetchResponsePartition:
        if require_stable and self.has_pending(group_id, partition):
            unstable = UnstableOffsetCommitError(
                f"{partition} has an offset of group {group_id} in an open transaction"
            )
            return OffsetFetchResponsePartition(partition.partition, error=unstable)
        committed = offsets.get(partition)
        if committed is None:
            return OffsetFetchResponsePartition(partition.partition)
        value = committed.value
        return OffsetFetchResponsePartition(partition.partition, value.offset, value.leader_epoch, value.metadata)

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset of that partition."""
        return any(partition in self._pending[producer].get(group_id, {}) for producer in self._open.get(group_id, ()))

    # Removal

    def delete(
        self, request: OffsetDeleteRequest, group: Group
    ) -> tuple[list[CoordinatorRecord], tuple[OffsetCommitResponseTopic, ...]]:
        """Tombstones; GROUP_SUBSCRIBED_TO_TOPIC for topics that members read (KIP-496). Without an offset: success."""
        records: list[CoordinatorRecord] = []
        answers = []
        for topic in request.topics:
            error = None
            if group.is_subscribed_to(topic.name):
                error = GroupSubscribedToTopicError(f"group {request.group_id} reads {topic.name}")
            partitions = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            if error is None:
                found = self._all_of(request.group_id)
                records += [_tombstone(request.group_id, each) for each in partitions if each in found]
            told = tuple(OffsetCommitResponsePartition(each.partition, error) for each in partitions)
            answers.append(OffsetCommitResponseTopic(topic.name, told))
        return records, tuple(answers)

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for every offset of a group, waiting ones included."""
        return [_tombstone(group_id, partition) for partition in self._all_of(group_id)]

    def expired(self, group: Group, now_ms: int) -> Iterator[CoordinatorRecord]:
        """Tombstones for the offsets of a group that have expired by now."""
        for partition, (_, value) in self._offsets.get(group.group_id, {}).items():
            if group.is_subscribed_to(partition.topic):
                continue
            since_ms = group.retained_from_ms(value.commit_timestamp)
            if since_ms is None:
                continue
            if value.expire_timestamp != NO_TIMESTAMP:
                is_over = now_ms >= value.expire_timestamp
            else:
                is_over = now_ms - since_ms >= self._retention_ms
            if is_over and not self.has_pending(group.group_id, partition):
                yield _tombstone(group.group_id, partition)

    def has_more(self, group_id: str, expired: int) -> bool:
        """Whether a group has more offsets than those `expired`, or one in an open transaction."""
        return len(self._offsets.get(group_id, ())) > expired or group_id in self._open

    def of_partitions(self, last_orders: Mapping[TopicPartition, int]) -> Iterator[CoordinatorRecord]:
        """Tombstones for these partitions' offsets in every group, up to the commit of that `order` of each."""
        for group_id in {*self._offsets, *self._open}:
            for partition, committed in self._all_of(group_id).items():
                if committed.order <= last_orders.get(partition, -1):
                    yield _tombstone(group_id, partition)

    @property
    def order(self) -> int:
        """How many commits were folded."""
        return self._order

    def forget_producers(self, now_ms: int) -> None:
        """Those that have not been seen for a day and have no transaction open."""
        kept = {
            producer_id: producer
            for producer_id, producer in self._producers.items()
            if producer_id in self._pending or now_ms - producer.seen_ms < PRODUCER_EPOCH_KEPT_MS
        }
        self._producers = kept

    def _all_of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Of each partition what counts, else what waits."""
        found: dict[TopicPartition, CommittedOffset] = {}
        for producer in self._open.get(group_id, ()):
            found |= self._pending[producer].get(group_id, {})
        return found | self._offsets.get(group_id, {})


def _remove(offsets: Offsets, group_id: str, partition: TopicPartition) -> None:
    of_group = offsets.get(group_id)
    if of_group is not None:
        of_group.pop(partition, None)
        if not of_group:
            del offsets[group_id]


def _tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(offset_commit_key(group_id, partition.topic, partition.partition), None)
