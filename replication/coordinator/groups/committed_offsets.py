"""The offsets that one partition of `__consumer_offsets` holds, committed and in open transactions. Pure.

An offset is one record; the newest of a key counts. Offsets of a transaction wait, by producer id, for its marker:
after a commit they count unless a plain commit follows them in the log; after an abort they are dropped. A tombstone
removes an offset, and those that wait. An offset is of a topic id: a later topic of that name has none.

Offsets expire `offsets.retention.minutes` (7 days) after their group became empty; while a group has members, offsets
of topics that it dropped expire that long after their commit, as do offsets without a group (KIP-211). An offset whose
partition has one in an open transaction stays.

Records of a decision are folded at once, but those of a transaction when they are stored. So their place in the order
is recorded at the decision (`expect`), and a tombstone removes them even before they are stored.

Source: Kafka's `OffsetMetadataManager`. Kafka compares record offsets to find the newer of two commits; here it is the
order of the decisions, which is the log's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.records import (
    NO_TIMESTAMP,
    OffsetCommitValue,
    encode_offset_commit,
    offset_commit_key,
)
from stratalog.replication.coordinator.groups.table import Group
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord, HeldOffset
from stratalog.replication.requests.groups import (
    NO_RETENTION_TIME_MS,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from stratalog.storage import errors
from stratalog.storage.cadence import MINUTE_MS
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_ID, IdentifiedPartition, TopicPartition
from stratalog.wire.consumer_protocol import partitions_by_topic


class CommittedOffset(NamedTuple):
    """`order`: its number among all commits that were folded or decided, from 1."""

    order: int
    value: OffsetCommitValue


Offsets = dict[str, dict[TopicPartition, CommittedOffset]]
"""By group id and partition."""


class PendingOffset(NamedTuple):
    """An offset of a transaction, decided at `since_ms` and not stored yet; the log may refuse its producer."""

    committed: CommittedOffset
    since_ms: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    seen_ms: int


class CommittedOffsets:
    """Folded by `replay` and `end_transaction`. `is_loaded`: replayed records are those of the shard's decisions."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._retention_ms = config.offsets_retention_minutes * MINUTE_MS
        self._offsets: Offsets = {}
        self._pending: dict[int, Offsets] = {}
        self._open: dict[str, set[int]] = {}
        self._decided: dict[str, dict[tuple[int, TopicPartition], list[PendingOffset]]] = {}
        self._producers: dict[int, _Producer] = {}
        self._order = 0
        self.is_loaded = False

    # The fold

    def replay(
        self, group_id: str, partition: TopicPartition, value: OffsetCommitValue | None, producer_id: int
    ) -> bool:
        """Fold a commit, a transaction's commit (`producer_id`), or a tombstone. False for a transaction's commit that
        was removed before it was stored."""
        if value is None:
            self._remove(group_id, partition)
            return True
        if producer_id == NO_PRODUCER_ID:
            self._offsets.setdefault(group_id, {})[partition] = self._next(value)
            return True
        committed = self._stored(group_id, (producer_id, partition), value) if self.is_loaded else self._next(value)
        if committed is None:
            return False
        self._open.setdefault(group_id, set()).add(producer_id)
        self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[partition] = committed
        return True

    def committed_by_group(self) -> dict[str, dict[TopicPartition, HeldOffset]]:
        """The committed offsets of each group; any thread may call it."""
        return {
            group_id: {each: HeldOffset(at.value.offset, at.value.topic_id) for each, at in offsets.copy().items()}
            for group_id, offsets in self._offsets.copy().items()
        }

    def _next(self, value: OffsetCommitValue) -> CommittedOffset:
        self._order += 1
        return CommittedOffset(self._order, value)

    def expect(
        self, group_id: str, producer_id: int, values: Iterable[tuple[TopicPartition, OffsetCommitValue]], now_ms: int
    ) -> None:
        """A transaction's commits were decided; they are replayed when they are stored, perhaps after later commits."""
        for partition, value in values:
            decided = self._decided.setdefault(group_id, {})
            decided.setdefault((producer_id, partition), []).append(PendingOffset(self._next(value), now_ms))

    def _stored(
        self, group_id: str, key: tuple[int, TopicPartition], value: OffsetCommitValue
    ) -> CommittedOffset | None:
        """The expected commit that is stored; those before it were refused, as commits are stored in order. None if it
        was removed before it was stored."""
        expected = self._decided.get(group_id, {}).get(key, [])
        for at, (committed, _) in enumerate(expected):
            if committed.value == value:
                del expected[: at + 1]
                if not expected:
                    self._stop_expecting(group_id, [key])
                return committed
        return None

    def _stop_expecting(self, group_id: str, keys: Iterable[tuple[int, TopicPartition]]) -> None:
        decided = self._decided[group_id]
        for key in keys:
            del decided[key]
        if not decided:
            del self._decided[group_id]

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        _remove(self._offsets, group_id, partition)
        for producer in list(self._open.get(group_id, ())):
            _remove(self._pending[producer], group_id, partition)
            if group_id not in self._pending[producer]:
                self._close(group_id, producer)
        if group_id in self._decided:
            self._stop_expecting(group_id, [key for key in self._decided[group_id] if key[1] == partition])

    def _close(self, group_id: str, producer_id: int) -> None:
        """The producer has no offset of the group in a transaction anymore."""
        self._open[group_id].discard(producer_id)
        if not self._open[group_id]:
            del self._open[group_id]
        if not self._pending.get(producer_id):
            self._pending.pop(producer_id, None)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """A marker: the offsets of the producer's transaction count from now on, or are dropped."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            self._close(group_id, producer_id)
            if not is_commit:
                continue
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
        topics: tuple[OffsetCommitRequestTopic, ...],
        now_ms: int,
        topic_ids: Mapping[str, str],
        retention_time_ms: int = NO_RETENTION_TIME_MS,
    ) -> tuple[list[tuple[TopicPartition, OffsetCommitValue]], tuple[OffsetCommitResponseTopic, ...]]:
        """The values to store by partition, and the answers. OFFSET_METADATA_TOO_LARGE for a partition with metadata
        longer than `offset.metadata.max.bytes` (4,096), which Kafka counts in characters. A `retention_time_ms` gives
        the offsets an expiry time. `topic_ids`: the ids of topics that the request names."""
        expire_timestamp = NO_TIMESTAMP if retention_time_ms == NO_RETENTION_TIME_MS else now_ms + retention_time_ms
        values: list[tuple[TopicPartition, OffsetCommitValue]] = []
        answers = []
        for topic in topics:
            partitions, current = [], topic_ids.get(topic.name, "")
            topic_id = topic.topic_id or current
            for each in topic.partitions:
                error = _topic_error(topic, current) or self._metadata_error(each)
                partitions.append(OffsetCommitResponsePartition(each.partition_index, error))
                if error is None:
                    value = OffsetCommitValue(
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                        now_ms,
                        expire_timestamp,
                        topic_id,
                    )
                    values.append((TopicPartition(topic.name, each.partition_index), value))
            answers.append(OffsetCommitResponseTopic(topic.name, tuple(partitions)))
        return values, tuple(answers)

    def _metadata_error(self, partition: OffsetCommitRequestPartition) -> errors.OffsetMetadataTooLargeError | None:
        length, length_max = len(partition.committed_metadata or ""), self._config.offset_metadata_max_bytes
        if length <= length_max:
            return None
        return errors.OffsetMetadataTooLargeError(f"{length} > {length_max} characters (offset.metadata.max.bytes)")

    def validate_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH for an epoch that a newer one has fenced, before its append is refused."""
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise errors.InvalidProducerEpochError(f"producer {producer_id}: epoch {producer_epoch} < {known.epoch}")

    # Fetches

    def fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool, topic_ids: Mapping[str, str]
    ) -> tuple[OffsetFetchResponseTopic, ...]:
        """The partitions asked for, or all with an offset. Without a committed offset: -1 and no error; so it is with
        one of another topic of that name. With `require_stable`: UNSTABLE_OFFSET_COMMIT for a partition with an offset
        in an open transaction (KIP-447). `topic_ids`: the ids of topics that the request names."""
        offsets = self._offsets.get(request.group_id, {})
        if request.topics is None:
            known = (each for each, committed in offsets.items() if _is_of(committed, topic_ids.get(each.topic, "")))
            wanted = [OffsetFetchRequestTopic(name, tuple(at)) for name, at in partitions_by_topic(known).items()]
        else:
            wanted = list(request.topics)
        return tuple(
            OffsetFetchResponseTopic(
                topic.name,
                tuple(
                    self._fetched(
                        request.group_id,
                        IdentifiedPartition(
                            topic.topic_id or topic_ids.get(topic.name, ""), TopicPartition(topic.name, at)
                        ),
                        offsets,
                        require_stable,
                    )
                    for at in topic.partition_indexes
                ),
            )
            for topic in wanted
        )

    def _fetched(
        self,
        group_id: str,
        identified: IdentifiedPartition,
        offsets: dict[TopicPartition, CommittedOffset],
        require_stable: bool,
    ) -> OffsetFetchResponsePartition:
        partition = identified.topic_partition
        if require_stable and self.has_pending(group_id, partition):
            unstable = errors.UnstableOffsetCommitError(
                f"{partition} has an offset of group {group_id} in an open transaction"
            )
            return OffsetFetchResponsePartition(partition.partition, error=unstable)
        committed = offsets.get(partition)
        if committed is None or not _is_of(committed, identified.topic_id):
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
        """Tombstones; GROUP_SUBSCRIBED_TO_TOPIC for topics that members read (KIP-496). No offset is no error."""
        records: list[CoordinatorRecord] = []
        answers = []
        for topic in request.topics:
            error = None
            if group.is_subscribed_to(topic.name):
                error = errors.GroupSubscribedToTopicError(f"group {request.group_id} reads {topic.name}")
            partitions = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            if error is None:
                found = self._all_of(request.group_id)
                records += [_tombstone(request.group_id, each) for each in partitions if each in found]
            partition_answers = tuple(OffsetCommitResponsePartition(each.partition, error) for each in partitions)
            answers.append(OffsetCommitResponseTopic(topic.name, partition_answers))
        return records, tuple(answers)

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for every offset of a group, waiting ones included."""
        return [_tombstone(group_id, partition) for partition in self._all_of(group_id)]

    def expired(self, group: Group, now_ms: int, topic_ids: Mapping[str, str]) -> Iterator[CoordinatorRecord]:
        """Tombstones for the offsets of a group that have expired by now, and for those of topics that are gone: a
        coordinator that took over meanwhile was not notified of their deletion."""
        is_subscribed = cache(group.is_subscribed_to)
        for partition, committed in self._offsets.get(group.group_id, {}).items():
            value = committed.value
            if topic_ids and value.topic_id and topic_ids.get(partition.topic) != value.topic_id:
                is_over = now_ms - value.commit_timestamp >= cadence.OFFSET_GONE.ms
            else:
                is_over = not is_subscribed(partition.topic) and self._is_over(group, value, now_ms)
            if is_over and partition not in self._of_transactions(group.group_id):
                yield _tombstone(group.group_id, partition)

    def _is_over(self, group: Group, value: OffsetCommitValue, now_ms: int) -> bool:
        since_ms = group.retained_from_ms(value.commit_timestamp)
        if since_ms is None:
            return False
        if value.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp
        return now_ms - since_ms >= self._retention_ms

    def count(self, group_id: str) -> int:
        """The number of a group's committed offsets."""
        return len(self._offsets.get(group_id, ()))

    @property
    def total(self) -> int:
        """The number of committed offsets of all groups. Any thread may call it."""
        return sum(len(offsets) for offsets in list(self._offsets.values()))

    def has_more(self, group_id: str, expired: int) -> bool:
        """Whether a group has more offsets than those `expired`, or one of a transaction."""
        is_pending = group_id in self._open or bool(self._decided.get(group_id))
        return is_pending or self.count(group_id) > expired

    def of_partitions(self, last_orders: Mapping[IdentifiedPartition, int]) -> Iterator[CoordinatorRecord]:
        """Tombstones for these partitions' offsets in every group, up to the commit of that `order` of each; none for
        offsets of another topic of that name."""
        last = {each.topic_partition: (each.topic_id, order) for each, order in last_orders.items()}
        for group_id in {*self._offsets, *self._open, *self._decided}:
            for partition, committed in self._all_of(group_id).items():
                topic_id, order = last.get(partition, ("", -1))
                if committed.order <= order and _is_of(committed, topic_id):
                    yield _tombstone(group_id, partition)

    @property
    def order(self) -> int:
        """The number of commits that were folded or decided."""
        return self._order

    def forget(self, now_ms: int) -> None:
        """Drop producers without a record for a day and without an open transaction, and pending offsets that the log
        refused."""
        self._producers = {
            producer_id: producer
            for producer_id, producer in self._producers.items()
            if producer_id in self._pending or now_ms - producer.seen_ms < cadence.PRODUCER_EPOCH_KEPT.ms
        }
        oldest_ms = now_ms - cadence.OFFSET_PENDING.ms
        for group_id, decided in list(self._decided.items()):
            refused = [key for key, expected in decided.items() if expected[-1].since_ms < oldest_ms]
            self._stop_expecting(group_id, refused)

    def _all_of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """The committed offset of each partition, else the one that waits."""
        return self._of_transactions(group_id) | self._offsets.get(group_id, {})

    def _of_transactions(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Offsets that wait for a marker or are not stored yet."""
        found: dict[TopicPartition, CommittedOffset] = {}
        for producer in self._open.get(group_id, ()):
            found |= self._pending[producer].get(group_id, {})
        for (_, partition), expected in self._decided.get(group_id, {}).items():
            found[partition] = expected[-1].committed
        return found


def _topic_error(topic: OffsetCommitRequestTopic, current: str) -> StratalogError | None:
    """The error of a commit for another topic than the one that has the name by now: it would replace that one's."""
    if "" in (current, topic.topic_id) or topic.topic_id == current:
        return None
    return errors.UnknownTopicOrPartitionError(
        f"topic '{topic.name}' has id {current}, the commit is for {topic.topic_id}"
    )


def _is_of(committed: CommittedOffset, topic_id: str) -> bool:
    """Whether the offset is of this topic, as far as both ids are known."""
    return "" in (topic_id, committed.value.topic_id) or committed.value.topic_id == topic_id


def _remove(offsets: Offsets, group_id: str, partition: TopicPartition) -> None:
    of_group = offsets.get(group_id)
    if of_group is not None:
        of_group.pop(partition, None)
        if not of_group:
            del offsets[group_id]


def commit_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> CoordinatorRecord:
    """The record that commits an offset."""
    key = offset_commit_key(group_id, partition.topic, partition.partition)
    return CoordinatorRecord(key, encode_offset_commit(value))


def _tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(offset_commit_key(group_id, partition.topic, partition.partition), None)
