"""The readable bounds of partitions, as their leaders publish them: high watermarks and log starts.

I/O: reads the leaders' progress objects, and the tables in storage domains. No broker is called.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from stratalog.replication.controller.election.eligible_leaders import effective_min_isr, topic_min_isr
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN
from stratalog.server.view.domain_tables import DomainTables
from stratalog.server.view.leader_progress import Watermarks
from stratalog.server.view.topology import ClusterTopology, LogId
from stratalog.storage import errors
from stratalog.storage.errors import StoreError
from stratalog.storage.records import TopicPartition

WAIT_MS_MIN, WAIT_MS_MAX = 2, 50


class PublishedWatermarks:
    """What leaders published so far. Thread-safe; calls may block on storage.

    timeout_ms  how long to wait for a partition's leader to start, unless a call says otherwise
    """

    def __init__(self, topology: ClusterTopology, tables: DomainTables, timeout_ms: int) -> None:
        """`tables`: of the partitions in storage domains."""
        self.timeout_ms = timeout_ms
        self._tables = tables
        self._topology = topology
        self._marks: dict[LogId, Watermarks] = {}
        """The largest bounds that were published. Invariant: the high watermark of a log id never decreases."""
        self._lock = threading.Lock()
        """Held for changes of `_marks`."""

    def of(
        self, topic_partition: TopicPartition, timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> Watermarks:
        """The newest published bounds, waiting up to `timeout_ms` for the leader of the current epoch to start.

        A leader whose ISR is under `min.insync.replicas` may publish no high watermark for long. Without `needs_end`
        it is not waited for: the log start is right then, and the high watermark may be too low.
        Raises LeaderNotAvailableError after that, UnknownTopicOrPartitionError.
        """
        timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._topology.clock.monotonic_ms() + timeout_ms
        pause_ms = WAIT_MS_MIN
        while True:
            self._topology.refresh()
            marks = self.published(topic_partition) or (None if needs_end else self._committed_before(topic_partition))
            if marks is not None:
                return marks
            if self._topology.clock.monotonic_ms() >= deadline_ms:
                raise errors.LeaderNotAvailableError(self._why_not_available(topic_partition, timeout_ms))
            self._topology.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, WAIT_MS_MAX)

    def of_all(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> dict[TopicPartition, Watermarks]:
        """As `of` for each; metadata, each leader's progress and each table in a storage domain are read once for all
        that have started."""
        wanted = list(topic_partitions)
        if len(wanted) < 2:
            return {tp: self.of(tp, timeout_ms, needs_end=needs_end) for tp in wanted}
        self._topology.refresh()
        states = [self._topology.partition_state(tp) for tp in wanted]
        self._tables.read(state for state in states if state.has_one_table)
        for leader in {state.leader for state in states if not state.has_one_table} - {NO_LEADER}:
            progress = self._topology.leader_progress(leader)
            if progress is not None:
                progress.poll()
        return {tp: self.published(tp, poll=False) or self.of(tp, timeout_ms, needs_end=needs_end) for tp in wanted}

    def published(self, topic_partition: TopicPartition, *, poll: bool = True) -> Watermarks | None:
        """As `of`, without waiting or refreshing metadata: None while the leader has not started.

        `poll` False is for many partitions at once, after `ProgressChanges.poll`.
        """
        state = self._topology.partition_state(topic_partition)
        log_id = self._topology.log_id(state)
        entry = self._tables.marks(state, poll=poll) if state.has_one_table else self._leader_entry(state, log_id, poll)
        if entry is None:
            return None
        with self._lock:
            known = self._marks.get(log_id)
            marks = self._marks[log_id] = entry if known is None else known.later(entry)
        return marks

    def published_now(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks | None]:
        """The newest published bounds of each; None where there are none. No leader is waited for, and each leader's
        progress is read once."""
        self._topology.progress.poll()
        self._tables.poll()
        found: dict[TopicPartition, Watermarks | None] = {}
        for topic_partition in topic_partitions:
            found[topic_partition] = None
            with suppress(StoreError, errors.LeaderNotAvailableError, errors.UnknownTopicOrPartitionError):
                found[topic_partition] = self.published(topic_partition, poll=False)
        return found

    def _leader_entry(self, state: PartitionRecord, log_id: LogId, poll: bool) -> Watermarks | None:
        if state.leader == NO_LEADER:
            return self._last_entry(state, log_id)
        leader = self._topology.leader_progress(state.leader)
        if leader is None:
            return None
        if poll:
            leader.poll()
        else:
            leader.poll_once()
        entry = leader.entry(state.topic_partition)
        if entry is None or (entry.topic_id, entry.leader_epoch) != (log_id[1], state.leader_epoch):
            return None
        return Watermarks.of(entry) if entry.high_watermark != UNKNOWN else None

    def _last_entry(self, state: PartitionRecord, log_id: LogId) -> Watermarks | None:
        """Without a leader, as after a stop of the whole cluster: the highest high watermark that a replica published
        since the last unclean election.

        Every member of the ISR has all records below it (promise 17), so readers need no broker.
        """
        published: list[Watermarks] = []
        for replica in state.replicas:
            with suppress(StoreError, errors.LogDirNotFoundError):
                leader = self._topology.leader_progress(replica)
                if leader is None:
                    continue
                leader.poll()
                entry = leader.entry(state.topic_partition)
                if entry is None or (entry.topic_id, entry.unclean) != log_id[1:]:
                    continue
                if entry.high_watermark != UNKNOWN:
                    published.append(Watermarks.of(entry))
        return max(published, key=lambda marks: marks.high_watermark, default=None)

    def _committed_before(self, topic_partition: TopicPartition) -> Watermarks | None:
        """What is readable of a leader that commits nothing, since its ISR is under `min.insync.replicas`.

        The leader has all that was committed before its epoch; what it and the others published is a lower bound.
        None when the leader has not started, or when it commits.
        """
        state = self._topology.partition_state(topic_partition)
        log_id = self._topology.log_id(state)
        if state.has_one_table:
            return None  # its table says what is committed, or that it is not there yet
        leader = self._topology.leader_progress(state.leader)
        entry = None if leader is None else leader.entry(topic_partition)
        min_isr = effective_min_isr(state.replicas, topic_min_isr(self._topology.image, state.topic))
        if len(state.isr) >= min_isr or entry is None:
            return None
        if (entry.topic_id, entry.leader_epoch) != (log_id[1], state.leader_epoch):
            return None
        before = self._last_entry(state, log_id)
        earlier = UNKNOWN if before is None else before.high_watermark
        committed = max(entry.log_start_offset, entry.known_committed, earlier)
        return replace(Watermarks.of(entry), high_watermark=committed)

    def for_reading(self, topic_partition: TopicPartition) -> Watermarks | None:
        """The published bounds; with the leader's root out of reach or its epoch not started, the last known ones."""
        try:
            published = self.published(topic_partition)
        except (StoreError, errors.LogDirNotFoundError):
            published = None
        known = published or self._marks.get(self._topology.log_id(self._topology.partition_state(topic_partition)))
        with suppress(StoreError, errors.LogDirNotFoundError):
            known = known or self._committed_before(topic_partition)
        return known

    def _why_not_available(self, topic_partition: TopicPartition, timeout_ms: int) -> str:
        state = self._topology.partition_state(topic_partition)
        if state.leader == NO_LEADER:
            return f"{topic_partition} has no leader; replicas {list(state.replicas)}, ISR {list(state.isr)}"
        return (
            f"{topic_partition}: leader {state.leader} of epoch {state.leader_epoch} "
            f"has not started within {timeout_ms} ms"
        )

    def starts_at(self, topic_partition: TopicPartition, marks: Watermarks, log_start_offset: int) -> None:
        """A replica's log starts above what was published: retention is local. It is the least start from now on."""
        log_id = self._topology.log_id(self._topology.partition_state(topic_partition))
        with self._lock:
            self._marks[log_id] = replace(self._marks.get(log_id, marks), log_start_offset=log_start_offset)
