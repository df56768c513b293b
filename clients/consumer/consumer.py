"""The consumer: committed records of assigned partitions, in offset order per partition, as records or as a table.

I/O: through a `ClusterView`, so from storage alone, or through another `view`; no broker has to run in this process.
Records above the high watermark and control records are never returned; with `isolation.level=read_committed` neither
are records above the last stable offset and aborted ones (`server.view.read_committed`). With a `group.id` it may be in
a group and commit its offsets (`clients.consumer.group_member`); then coordinators are called: brokers of this process,
or others (`clients.connected_cluster`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Self

import pyarrow as pa

from stratalog.clients.client_view import ClientView
from stratalog.clients.config import CONSUMER_CONFIGS, ConsumerConfig, split_connection_configs
from stratalog.clients.connected_cluster import ConnectedCluster, connected
from stratalog.clients.consumer.group_member import CommitCallback, ConsumerHooks, GroupMembership
from stratalog.clients.consumer.positions import (
    CONSUMED_SCHEMA,
    Position,
    Positions,
    consumed_table,
    consumer_records,
    deserialized,
    without_control,
)
from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from stratalog.clients.consumer.shared_notifications import ConsumerNotifications
from stratalog.clients.coordinator_calls import CoordinatorCalls, InProcessCalls
from stratalog.clients.records import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, SubscriptionPattern
from stratalog.replication.internal_topics import INTERNAL_TOPICS
from stratalog.replication.threads.dropped import DROPPED
from stratalog.server.bootstrap import Cluster
from stratalog.server.offset_spec import OffsetAndTimestamp
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import view_of
from stratalog.server.view.records import Fetched
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.clients")

CLOSE_TIMEOUT_MS = 30_000
IDLE_PAUSE_MS_MIN, IDLE_PAUSE_MS_MAX = 1, 20
EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"


class Consumer:
    """Reads assigned partitions, or its part of a group's. Not thread-safe, as in Kafka.

    cluster   a running `Cluster`, or the URL or path of its metadata root.
    group_id  as `group.id`: the group whose offsets it commits and that `subscribe` makes it a member of. With a
              metadata root its coordinator is called as a RemoteCluster does.
    config    Kafka's consumer configs by their dotted names; `settings` are the same as keywords
              (`auto_offset_reset="earliest"`). InvalidConfigError for an unknown or bad one. With a metadata root also
              those of connections (`security.protocol`, `stratalog.transport`).
    """

    def __init__(
        self,
        cluster: Cluster,
        config: Mapping[str, object] | None = None,
        *,
        view: ClientView | None = None,
        calls: CoordinatorCalls | None = None,
        **settings: object,
    ) -> None:
        given = {**(config or {}), **settings}
        own, connection = split_connection_configs(CONSUMER_CONFIGS, given) if isinstance(cluster, str) else (given, {})
        self.config = ConsumerConfig.from_settings(own, {})
        if view is None:
            own_view = view_of(self.config.isolation_level)(cluster, timeout_ms=self.config.default_api_timeout_ms)
            self._notifications = ConsumerNotifications.of_process(own_view, partial(ClusterView, cluster))
        else:
            self._notifications = ConsumerNotifications(view)
        self._view: ClientView = own_view if view is None else view
        DROPPED.when(self, self._notifications.close)
        self._positions = Positions()
        self._undecided: frozenset[TopicPartition] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._seen_sequence = -1
        self._is_closed = False
        self._group: GroupMembership | None = None
        self._connected: ConnectedCluster | None = None
        if self.config.group_id:
            hooks = ConsumerHooks(self._own, self._consumed, self._view, self._notifications.wake)
            if calls is None:
                called = self._connect(cluster, connection) if isinstance(cluster, str) else cluster
                calls = InProcessCalls(called, self._view.clock, self.config.request_timeout_ms)
            self._group = GroupMembership(self.config, calls, self._view.clock, hooks, self._view.ids.new_id())

    def _connect(self, root: str, connection: Mapping[str, object]) -> ConnectedCluster:
        """What calls the brokers of other processes, for this consumer alone."""
        shared = {"client.id": self.config.client_id, "request.timeout.ms": self.config.request_timeout_ms}
        made = self._connected = connected(root, {**shared, **connection}, self._view.stores)
        DROPPED.when(self, made.close)
        return made

    # -- assignment and position ---------------------------------------------------------------------------

    def assign(self, topic_partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, in no group; those that stay keep their position.

        With a `group.id` the others begin at the group's committed offset. UnknownTopicOrPartitionError;
        IllegalStateError while subscribed.
        """
        self._check_open()
        if self._group is not None and self._group.is_subscribed:
            raise errors.IllegalStateError(EXCLUSIVE)
        wanted = [TopicPartition(*tp) for tp in topic_partitions]
        self._view.refresh()
        for topic_partition in wanted:
            self._view.partition_state(topic_partition)
        self._own(wanted)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Be a member of the group for these topics, or for all whose whole name matches `pattern`, from the next poll.

        A `SubscriptionPattern` is matched by the group's coordinator (`group.protocol=consumer`, KIP-848).
        Topics need not exist yet. Without any it is `unsubscribe`. The listener is called for every rebalance.
        InvalidGroupIdError without a `group.id`, IllegalStateError after `assign`.
        """
        self._check_open()
        group = self._member()
        if self._positions.by_partition and not group.is_subscribed:
            raise errors.IllegalStateError(EXCLUSIVE)
        wanted = frozenset([topics] if isinstance(topics, str) else topics)
        if pattern is None and not wanted:
            self.unsubscribe()
            return
        if pattern is not None and wanted:
            raise errors.IllegalStateError(EXCLUSIVE)
        if isinstance(pattern, SubscriptionPattern):
            group.subscribe_to_regex(pattern.pattern, listener)
            self._pattern = None
            return
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._view.refresh()
        group.subscribe(wanted or self._matching(), self._pattern, listener)

    def subscription(self) -> set[str]:
        """The topics subscribed to; of a pattern, those that match it now."""
        return set(self._group.subscription()) if self._group is not None else set()

    def unsubscribe(self) -> None:
        """Leave the group, or read no partitions any more; nothing is committed."""
        self._check_open()
        if self._group is not None and self._group.is_subscribed:
            self._group.unsubscribe()
        self._own(())

    def _own(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions.assign(sorted(partitions))
        self._notifications.watch(self._positions.by_partition)
        decided = {tp for tp, position in self._positions.by_partition.items() if position.offset is not None}
        self._undecided = frozenset(self._positions.by_partition) - decided if self._group is not None else frozenset()

    def _matching(self) -> frozenset[str]:
        """The topics that the pattern matches now."""
        hidden = INTERNAL_TOPICS if self.config.exclude_internal_topics else frozenset()
        assert self._pattern is not None
        return frozenset(t for t in self._view.image.topic_ids if t not in hidden and self._pattern.fullmatch(t))

    def assign_all(self, topic: str) -> list[TopicPartition]:
        """Read all partitions of a topic; they are returned. UnknownTopicOrPartitionError."""
        self._view.refresh()
        wanted = list(self._view.partitions(topic))
        self.assign(wanted)
        return wanted

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions.by_partition)

    def seek(self, topic_partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """The next poll reads from `offset`; `auto.offset.reset` applies if it does not exist then."""
        if offset < 0:
            raise errors.InvalidRequestError("seek offset must not be a negative number")
        self._position(topic_partition).seek(offset)

    def seek_to_beginning(self, topic_partitions: Iterable[TopicPartition] = ()) -> None:
        """To the first readable offset; of all assigned partitions if none are named."""
        for topic_partition in list(topic_partitions) or self.assignment():
            marks = self._view.watermarks.of(topic_partition, needs_end=False)
            self._position(topic_partition).seek(marks.log_start_offset)

    def seek_to_end(self, topic_partitions: Iterable[TopicPartition] = ()) -> None:
        """To the end of what can be read; of all assigned partitions if none are named."""
        for topic_partition in list(topic_partitions) or self.assignment():
            self._position(topic_partition).seek(self._view.offsets.end_offsets([topic_partition])[topic_partition])

    def seek_to_time(self, timestamp_ms: int, topic_partitions: Iterable[TopicPartition] = ()) -> None:
        """To the first record at or after a time, else to the end; all assigned partitions if none are named."""
        wanted = list(topic_partitions) or sorted(self.assignment())
        found = self.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        for topic_partition, at in found.items():
            if at is None:
                self.seek_to_end([topic_partition])
            else:
                self.seek(topic_partition, at.offset)

    def position(self, topic_partition: TopicPartition | tuple[str, int]) -> int:
        """The offset of the next record to be returned: if none is decided, the committed one, else by reset."""
        position = self._position(topic_partition)
        if position.offset is None and self._group is not None:
            committed = self.committed([position.topic_partition])[position.topic_partition]
            if committed is not None:
                position.seek(committed.offset)
        if position.offset is None:
            return self._reset(position, self.config.default_api_timeout_ms)
        return position.offset

    def current_lag(self, topic_partition: TopicPartition | tuple[str, int]) -> int | None:
        """Offsets between the position and the high watermark; None while either is not known."""
        position = self._position(topic_partition)
        marks = self._view.watermarks.published(position.topic_partition)
        if marks is None or position.offset is None:
            return None
        return max(0, marks.high_watermark - position.offset)  # the mark may be older than a seek to the end

    def pause(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these until `resume`; their positions stay."""
        for topic_partition in topic_partitions:
            self._position(topic_partition).is_paused = True

    def resume(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._position(topic_partition).is_paused = False

    def paused(self) -> set[TopicPartition]:
        return {tp for tp, position in self._positions.by_partition.items() if position.is_paused}

    def beginning_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first readable offset of each."""
        return self._view.offsets.beginning_offsets(topic_partitions)

    def end_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each."""
        return self._view.offsets.end_offsets(topic_partitions)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first committed record at or after its time; None when there is none.

        InvalidRequestError for a negative time.
        """
        for topic_partition, timestamp_ms in timestamps_ms.items():
            if timestamp_ms < 0:
                raise errors.InvalidRequestError(
                    f"The target time for partition {topic_partition} is {timestamp_ms}. "
                    "The target time cannot be negative."
                )
        return {tp: self._view.offsets.offset_for_timestamp(tp, at) for tp, at in timestamps_ms.items()}

    # -- the group's offsets -------------------------------------------------------------------------------

    def commit_sync(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets, or all positions, and wait; retriable errors are tried again until `timeout_ms`.

        CommitFailedError when the consumer is not in its group any more, RebalanceInProgressError when it has to poll
        first; OffsetMetadataTooLargeError, FencedInstanceIdError, RequestTimedOutError, InvalidGroupIdError.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._member().commit_sync(self._consumed() if offsets is None else offsets, limit_ms)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit these offsets, or all positions, without waiting or trying again.

        `callback(offsets, error or None)` is called within a later poll, commit or close.
        """
        self._member().commit_async(self._consumed() if offsets is None else offsets, callback)

    def committed(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset of each partition; None without one. RequestTimedOutError, …"""
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._member().offsets.committed(topic_partitions, limit_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's member id and generation, for a transactional producer that commits its offsets."""
        return self._member().metadata()

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Join the group again with the next poll (KIP-568)."""
        self._member().rejoin(reason)

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(position.offset, "", position.leader_epoch)
            for tp, position in self._positions.by_partition.items()
            if position.offset is not None and self._is_current(position)
        }

    def _is_current(self, position: Position) -> bool:
        """Whether the partition exists, in the topic whose offset the position is."""
        exists = position.topic_partition in self._view.image.partitions
        return exists and position.is_in(self._topic_id_of(position))

    def _member(self) -> GroupMembership:
        self._check_open()
        if self._group is None:
            raise errors.InvalidGroupIdError(
                "To use the group management or offset commit APIs, you must provide a valid group.id in the consumer "
                "configuration."
            )
        return self._group

    # -- reading -----------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """Up to `max.poll.records` records, waiting up to `timeout_ms` for the first; an empty list after that.

        With `key.deserializer` and `value.deserializer` a record's data is what they make of it. Raises
        RecordDeserializationError, with the position at the record that was refused: a seek passes it;
        OffsetOutOfRangeError (`auto.offset.reset=none`), errors of a log, and those of the group; while a leader
        is being replaced, its partitions return nothing.
        """
        position = self._next_fetched(timeout_ms)
        records: list[ConsumerRecord] = []
        while position is not None and len(records) < self.config.max_poll_records:
            rows = position.take(self.config.max_poll_records - len(records))
            if not self._deserialize(position, consumer_records(position.topic_partition, rows), records):
                break
            position = self._positions.next_with_rows()
        return records

    def _deserialize(self, position: Position, found: Iterable[ConsumerRecord], records: list[ConsumerRecord]) -> bool:
        """Append the found records; False if one was refused after others, which are returned first, as in Kafka.

        The position is then at the refused one. RecordDeserializationError if it is the first.
        """
        of_keys, of_values = self.config.key_deserializer, self.config.value_deserializer
        if of_keys is None and of_values is None:
            records.extend(found)
            return True
        for record in found:
            try:
                records.append(deserialized(record, of_keys, of_values))
            except errors.RecordDeserializationError:
                position.seek(record.offset)
                self._positions.may_have_rows([position.topic_partition])
                if not records:
                    raise
                return False
        return True

    def poll_table(self, timeout_ms: int = 0) -> pa.Table:
        """As `poll`, about `fetch.max.bytes` as one table of `CONSUMED_SCHEMA`: the fast way to read.

        Deserializers do not apply.
        """
        position = self._next_fetched(timeout_ms)
        tables: list[pa.Table] = []
        size_bytes = 0
        while position is not None and size_bytes < self.config.fetch_max_bytes:
            rows = position.take(None)
            size_bytes += rows.nbytes
            tables.append(consumed_table(position.topic_partition, rows))
            position = self._positions.next_with_rows() or self._fetch()
        return pa.concat_tables(tables) if tables else CONSUMED_SCHEMA.empty_table()

    def _next_fetched(self, timeout_ms: int) -> Position | None:
        """A partition with fetched rows, after fetching and waiting as needed."""
        self._check_open()
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        pause_ms = IDLE_PAUSE_MS_MIN
        while True:
            if self._group is not None:
                self._group.poll()
            found = self._positions.next_with_rows() or self._fetch()
            left_ms = deadline_ms - clock.monotonic_ms()
            if found is not None or left_ms <= 0:
                return found
            due_ms = self._group.next_due_ms() if self._group is not None else None
            if due_ms is not None:
                left_ms = min(left_ms, max(1, due_ms - clock.monotonic_ms()))
            if self._positions.are_all_read:
                self._notifications.wait(left_ms, min(pause_ms, left_ms))
            else:  # a leader is awaited, and its start shows in places that `wait` does not watch
                clock.sleep_ms(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, IDLE_PAUSE_MS_MAX)

    def _fetch(self) -> Position | None:
        """Fetch from one partition after the other until there are rows; a partition with rows, None when none has."""
        if self._notifications.poll():
            try:
                self._view.refresh(self._notifications.metadata_age_ms)
            except StratalogError as reason:
                if not _will_pass(reason):
                    raise
            self._view.changes.poll()
        self._seen_sequence, moved = self._view.changes.moved_since(self._seen_sequence)
        self._positions.may_have_rows(moved)
        if self._group is not None:
            if moved is None and self._pattern is not None:  # metadata changed
                self._group.resubscribe(self._matching(), self._pattern)
            self._begin_at_committed(self._group)
        has_fetched = self._view.records.any_at_once(self._fetch_one, self._positions.in_turn())
        return self._positions.next_with_rows() if has_fetched else None

    def _begin_at_committed(self, group: GroupMembership) -> None:
        """Start newly assigned partitions at the group's committed offset, if there is one."""
        by_partition = self._positions.by_partition
        self._undecided = frozenset(tp for tp in self._undecided if by_partition[tp].offset is None)
        found = group.offsets.ahead(self._undecided) if self._undecided else None
        if found is None:
            return
        self._undecided = frozenset()
        for topic_partition, committed in found.items():
            if committed is not None:
                by_partition[topic_partition].seek(committed.offset)
                by_partition[topic_partition].leader_epoch = committed.leader_epoch

    def _fetch_one(self, position: Position) -> bool:
        """Whether rows of the partition were fetched. Called also from several threads, for a partition each."""
        if position.topic_partition in self._undecided:
            return False
        try:
            offset = self._reset(position, timeout_ms=0) if position.offset is None else position.offset
            # Raises where the topic is deleted.
            marks = self._view.watermarks.published(position.topic_partition, poll=False)
            topic_id = self._topic_id_of(position)
            if not position.is_in(topic_id):
                _LOG.warning(
                    "%s was deleted and created again: auto.offset.reset applies, since offset %s was of topic id %s",
                    *(position.topic_partition, offset, position.topic_id),
                )
                position.forget()
                offset = self._reset(position, timeout_ms=0)
            if marks is not None and offset == marks.high_watermark:
                position.topic_id = topic_id
                self._positions.has_no_more(position)
                return False
            fetched = self._read(position, offset)
            if self._topic_id_of(position) != topic_id:
                return False  # of the old topic or of the new one: the next visit decides where to read
            position.put(without_control(fetched.rows), fetched.next_offset)
            position.topic_id = topic_id
            if position.has_rows():
                self._positions.fetched(position)
            return position.has_rows()
        except StratalogError as reason:
            # A leader is being replaced, or its storage is out of reach: nothing to read for now.
            if not _will_pass(reason):
                raise
            return False

    def _topic_id_of(self, position: Position) -> str | None:
        """The id of the position's topic in the metadata as it is here; None where that has none of the name."""
        return self._view.image.topic_ids.get(position.topic_partition.topic)

    def _read(self, position: Position, offset: int) -> Fetched:
        limit = self.config.max_partition_fetch_bytes
        try:
            return self._view.records.fetch(position.topic_partition, offset, limit, timeout_ms=0)
        except errors.OffsetOutOfRangeError:
            if self.config.auto_offset_reset == "none":
                raise errors.OffsetOutOfRangeError(
                    "Fetch position out of range with no reset policy for partitions: "
                    f"{{{position.topic_partition}={offset}}}"
                ) from None
        reset_to = self._reset(position, timeout_ms=0)
        return self._view.records.fetch(position.topic_partition, reset_to, limit, timeout_ms=0)

    def _reset(self, position: Position, timeout_ms: int) -> int:
        policy = self.config.auto_offset_reset
        if policy == "none":
            raise errors.OffsetOutOfRangeError(
                f"Undefined offset with no reset policy for partitions: [{position.topic_partition}]"
            )
        at_end, wanted = policy != "earliest", [position.topic_partition]
        with suppress(StratalogError):  # a leader out of reach may have been replaced: see below
            # `poll` has just polled progress, and may have a thousand positions to decide.
            marks = None if timeout_ms else self._view.watermarks.published(position.topic_partition, poll=False)
            if marks is not None:
                offset = marks.log_start_offset
                if at_end:
                    offset = self._view.offsets.readable_end(position.topic_partition, marks)
                position.seek(offset)
                return offset
        found = self._view.offsets.end_offsets if at_end else self._view.offsets.beginning_offsets
        offset = found(wanted, timeout_ms)[position.topic_partition]
        position.seek(offset)
        return offset

    # -- ending ------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit if `enable.auto.commit` and leave the group, within `timeout_ms`; further calls are refused."""
        if self._is_closed:
            return
        try:
            if self._group is not None:
                self._group.close(timeout_ms)
        finally:
            self._is_closed = True
            self._own(())
            self._notifications.close()
            if self._connected is not None:
                self._connected.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.UnknownServerError("This consumer has already been closed.")

    def _position(self, topic_partition: TopicPartition | tuple[str, int]) -> Position:
        position = self._positions.by_partition.get(TopicPartition(*topic_partition))
        if position is None:
            raise errors.InvalidRequestError(f"No current assignment for partition {TopicPartition(*topic_partition)}")
        self._positions.may_have_rows([position.topic_partition])  # after a seek, for instance
        return position


def _will_pass(reason: StratalogError) -> bool:
    if isinstance(reason, errors.CorruptMessageError):
        return False
    return reason.retriable or isinstance(reason, errors.LogDirNotFoundError)
