"""Committed records of partitions, read from the tables of their replicas.

I/O: folds and reads partition tables. Each partition has a lock of its own for its folds; data files are read without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.view.leader_progress import Watermarks
from stratalog.server.view.partition_logs import PartitionLogs, PartitionReplicas, check_topic
from stratalog.server.view.progress_changes import ProgressChanges
from stratalog.server.view.topology import ClusterTopology
from stratalog.server.view.watermarks import PublishedWatermarks
from stratalog.storage.errors import LeaderNotAvailableError, LogDirNotFoundError, OffsetOutOfRangeError, StoreError
from stratalog.storage.log.reader import LogReader, PlannedRead
from stratalog.storage.log.rows import no_rows
from stratalog.storage.objects.together import run_together
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import NO_TRANSACTIONS, AbortedTransaction, Transactions

LOOKS_AT_ONCE = 16
"""The number of items that `at_once` looks at in an object store at a time: a look is a few requests in a row."""

T = TypeVar("T")
Item = TypeVar("Item")


class Isolation(Protocol):
    """Which committed records a reader gets (`isolation.level`)."""

    def readable_end(self, log: LogReader, marks: Watermarks, end: int) -> int:
        """Where the reader's records end, of a log that is committed up to `end`."""

    def transactions_of(self, log: LogReader) -> Transactions:
        """Those whose records may not be returned, of the very fold whose files are read then."""

    def kept(self, rows: pa.Table, aborted: Sequence[AbortedTransaction]) -> pa.Table:
        """`rows` without those of aborted transactions."""


class ReadUncommitted:
    """All committed records, those of open and aborted transactions among them."""

    def readable_end(self, _log: LogReader, _marks: Watermarks, end: int) -> int:
        return end

    def transactions_of(self, _log: LogReader) -> Transactions:
        return NO_TRANSACTIONS

    def kept(self, rows: pa.Table, _aborted: Sequence[AbortedTransaction]) -> pa.Table:
        return rows


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of a partition as `READ_SCHEMA`; the next fetch starts at `next_offset`."""

    rows: pa.Table
    next_offset: int


class _Readable(NamedTuple):
    """A replica's log for a read up to `end_offset`, and the transactions of the same fold."""

    replicas: PartitionReplicas
    log: LogReader
    topic_id: str
    root: str
    end_offset: int
    transactions: Transactions


class CommittedRecords:
    """Reads what was published as committed. Thread-safe; calls may block on storage."""

    def __init__(
        self,
        topology: ClusterTopology,
        logs: PartitionLogs,
        watermarks: PublishedWatermarks,
        changes: ProgressChanges,
        isolation: Isolation,
    ) -> None:
        self._topology = topology
        self._watermarks = watermarks
        self._changes = changes
        self._isolation = isolation
        self._logs = logs

    def locked(self, topic_partition: TopicPartition) -> AbstractContextManager[object]:
        """The lock of the partition's folds, under which `readable_log` is called."""
        return self._logs.of(topic_partition).lock

    def read_from_log(
        self, topic_partition: TopicPartition, look: Callable[[LogReader], T], timeout_ms: int, *, poll: bool = True
    ) -> T:
        """What `look` returns for the leader's log or an equal one. LeaderNotAvailableError after `timeout_ms`.

        Others who look at the same partition wait meanwhile. Without `poll` the log may be older than what was
        published since progress was read.
        """
        marks = None if poll else self._watermarks.published(topic_partition, poll=False)
        marks = marks or self._watermarks.of(topic_partition, timeout_ms, needs_end=False)
        with self._logs.of(topic_partition).lock:
            return look(self.readable_log(topic_partition, marks)[0])

    def read(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        timeout_ms: int | None = None,
    ) -> pa.Table:
        """Committed records from `offset` on, below `end_offset`, as `READ_SCHEMA`: about `max_bytes`, or one file's.

        The table is empty when there are none (yet). Raises OffsetOutOfRangeError below the log's start or past its
        high watermark, LeaderNotAvailableError, UnknownTopicOrPartitionError.
        """
        return self.fetch(topic_partition, offset, max_bytes, end_offset, timeout_ms).rows

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        timeout_ms: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        decoded_bytes_max: int | None = None,
    ) -> Fetched:
        """As `read`, with the next offset to read: compaction may have removed every record of a long range.

        columns            of `READ_SCHEMA`, in its order, with `offset`, `producer_id` and `attributes`; None: all
        decoded_bytes_max  about how much memory the records may take: a small file may hold large ones
        """
        marks = self._marks_up_to(topic_partition, offset, timeout_ms)
        readable = self._readable(topic_partition, marks, offset, end_offset)
        if readable is None:
            return Fetched(no_rows(), offset)
        bounds = offset, max_bytes, readable.end_offset

        def read(planned: PlannedRead) -> pa.Table:
            wanted = planned if columns is None else replace(planned, columns=columns)
            bounded = wanted if decoded_bytes_max is None else replace(wanted, decoded_bytes_max=decoded_bytes_max)
            return bounded.read()

        rows = readable.replicas.read(readable.log, readable.topic_id, *bounds, read)
        next_offset = rows["offset"][-1].as_py() + 1 if rows.num_rows else readable.end_offset
        aborted = readable.transactions.aborted_between(offset, next_offset)
        return Fetched(self._isolation.kept(rows, aborted), next_offset)

    def _marks_up_to(self, topic_partition: TopicPartition, offset: int, timeout_ms: int | None) -> Watermarks:
        marks = self._watermarks.for_reading(topic_partition)
        if marks is None or offset > marks.high_watermark:
            marks = self._watermarks.of(topic_partition, timeout_ms)
        return marks

    def committed_rows(self, topic_partition: TopicPartition, max_bytes: int) -> Iterator[pa.Table]:
        """All committed records of a partition as of now, in tables of about `max_bytes`. Raises as `fetch`."""
        marks = self._watermarks.of(topic_partition)
        offset = marks.log_start_offset
        while offset < marks.high_watermark:
            fetched = self.fetch(topic_partition, offset, max_bytes, marks.high_watermark)
            yield fetched.rows
            offset = fetched.next_offset

    def read_planned(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        end_offset: int,
        read: Callable[[str, PlannedRead], T],
        timeout_ms: int | None = None,
    ) -> tuple[T | None, int]:
        """As `fetch`, but `read` reads the records, those of aborted transactions among them: what it returns, and the
        end of what it was given to read. (None, offset) when there is nothing.

        read  gets a replica's root and what to read there; ObjectNotFoundError when a file was deleted since
        """
        marks = self._marks_up_to(topic_partition, offset, timeout_ms)
        readable = self._readable(topic_partition, marks, offset, end_offset)
        if readable is None:
            return None, offset
        bounds = offset, max_bytes, readable.end_offset
        found = readable.replicas.read(readable.log, readable.topic_id, *bounds, partial(read, readable.root))
        return found, readable.end_offset

    def _readable(
        self, topic_partition: TopicPartition, marks: Watermarks, offset: int, end_offset: int | None
    ) -> _Readable | None:
        """Where records from `offset` on are read; None when there are none. OffsetOutOfRangeError."""
        if not marks.log_start_offset <= offset <= marks.high_watermark:
            raise OffsetOutOfRangeError(
                f"{topic_partition}: offset {offset} is outside "
                f"[{marks.log_start_offset}, {marks.high_watermark}], the committed records"
            )
        wanted_end = marks.high_watermark if end_offset is None else min(end_offset, marks.high_watermark)
        if offset >= wanted_end:
            return None
        replicas = self._logs.of(topic_partition)
        with replicas.lock:
            log, readable_end = self.readable_log(topic_partition, marks)
            topic_id, root, log_start_offset = log.topic_id, replicas.root_of(log), log.log_start_offset
            transactions = self._isolation.transactions_of(log)
        end = min(wanted_end, readable_end)
        if offset >= end:
            return None
        if offset < log_start_offset:  # `beginning_offsets` has to return this one from now on
            self._watermarks.starts_at(topic_partition, marks, log_start_offset)
        return _Readable(replicas, log, topic_id, root, end, transactions)

    def readable_log(self, topic_partition: TopicPartition, marks: Watermarks) -> tuple[LogReader, int]:
        """A replica's log and the end of its readable offsets: the leader's, else one that follows its epoch.

        A follower's table that shows the current epoch has been truncated to what the leader has (promise 7). A table
        in a storage domain is never truncated: it is read also before its next leader has begun. Called under the
        partition's lock.
        """
        state = self._topology.partition_state(topic_partition)
        if self._topology.log_id(state)[1] != marks.topic_id:
            raise LeaderNotAvailableError(f"{topic_partition}: the topic was created again: ask again")
        reason: StoreError | LogDirNotFoundError | None = None
        for replica in sorted(state.replicas, key=lambda r: (r != state.leader, r not in state.isr)):
            try:
                log = self._log(topic_partition, replica)
                if log.version < marks.version or not log.has_started(state.leader_epoch) or replica != state.leader:
                    log.refresh()
                check_topic(log, self._topology.log_id(state)[1])
            except (StoreError, LogDirNotFoundError) as failure:
                reason = reason or failure
                continue
            is_led = state.leader != NO_LEADER
            has_it_all = state.has_one_table or (not is_led and state.is_held_in_sync(replica))
            if log.has_started(state.leader_epoch) or has_it_all:
                end = min(marks.high_watermark, log.log_end_offset)
                return log, self._isolation.readable_end(log, marks, end)
        raise LeaderNotAvailableError(f"{topic_partition}: no replica is readable: {reason}") from reason

    def producers(self, topic_partition: TopicPartition, broker_id: int) -> ProducerStates:
        """A replica's current state of producers and their transactions."""
        with self._logs.of(topic_partition).lock:
            (log := self._log(topic_partition, broker_id)).refresh()
            return log.producers

    def _log(self, topic_partition: TopicPartition, broker_id: int) -> LogReader:
        root = self._topology.replica_root(topic_partition, broker_id)
        if root is None:
            raise LogDirNotFoundError(f"{topic_partition}: broker {broker_id} has never registered")
        topic_id = self._topology.image.topic_ids.get(topic_partition.topic, "")
        return self._logs.of(topic_partition).log(root, topic_id)

    def any_at_once(self, look: Callable[[Item], bool], items: Iterable[Item]) -> bool:
        """Call `look` with one item after the other until it returns True; whether it did. In an object store it is
        called with `LOOKS_AT_ONCE` items at a time, in threads, and all of these calls are made."""
        waiting = iter(items)
        while group := list(islice(waiting, LOOKS_AT_ONCE if self._changes.distance.is_far else 1)):
            if any(self.at_once(look, group)):
                return True
        return False

    def at_once(self, look: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
        """What `look` returns for each item, in order; in an object store it is called in several threads."""
        wanted = list(items)
        if len(wanted) < 2 or not self._changes.distance.is_far:
            return [look(item) for item in wanted]
        with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(wanted)), thread_name_prefix="view-looks") as pool:
            return run_together(pool, [partial(look, item) for item in wanted])
