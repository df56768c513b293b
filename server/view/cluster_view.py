"""The cluster as readers see it, from storage alone: topics, leaders, high watermarks, committed records.

I/O: folds the metadata log, polls the leaders' progress objects, reads partition tables. No broker is called.
A stale view is safe: records that a leader once published as committed stay committed, so an old image only
delays. High watermarks never go back within one view, but for an unclean election or a topic that is created again.

No lock is held for all of it. The metadata log, each progress object and each partition have one of their own, for
their folds; the image and what was published so far are there without these, and data files are read without a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from stratalog.replication.controller.eligible_leaders import effective_min_isr, topic_min_isr
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import (
    METADATA_COMMITS,
    METADATA_FOLDER,
    METADATA_PARTITION,
    MetadataLog,
    open_metadata,
)
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.replication.stores import Stores, client_stores
from stratalog.server.bootstrap import Cluster, root_of, shared_metadata_of
from stratalog.server.offset_spec import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
    ListedOffset,
    OffsetAndTimestamp,
    OffsetSpec,
)
from stratalog.server.view.leader_progress import LeaderEntries, PublishedProgress, own_registers_of
from stratalog.server.view.news import NewsWait, Place
from stratalog.server.view.partition_logs import PartitionLogs, PartitionReplicas, check_topic
from stratalog.server.view.shared_read import SharedRead
from stratalog.storage.cadence import IdlePause, Poll
from stratalog.storage.clock import Clock, Ids, RandomIds, SystemClock
from stratalog.storage.errors import (
    LeaderNotAvailableError,
    LogDirNotFoundError,
    OffsetOutOfRangeError,
    StoreError,
    TableReplacedError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.log.reader import LogReader, PlannedRead
from stratalog.storage.log.rows import no_rows
from stratalog.storage.log.state import NOTHING_REMOVED, RemovedRecords
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.distance import Distance, farthest
from stratalog.storage.objects.together import run_together
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import NO_TRANSACTIONS, AbortedTransaction, Transactions

_LOG = line_logger("stratalog.clients")

DEFAULT_TIMEOUT_MS = 30_000
WAIT_MS_MIN, WAIT_MS_MAX = 2, 50
PROGRESS = Poll(
    "leaders' progress and metadata, by a view, where each poll is a request to an object store",
    "a consumer of a quiet topic sees a record half a second later",
    share=10,
    longest_ms=500,
)
LOOKS_AT_ONCE = 16
"""The number of partitions that `at_once` looks at in an object store at a time: a look is a few requests in a row."""

T = TypeVar("T")

_LogId = tuple[TopicPartition, str, int]
"""A partition, the topic's id and the number of unclean elections: of one log id, an offset has one record for ever."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The readable offsets of a partition, `[log_start_offset, high_watermark)`, as the leader published them for the
    topic with this id.

    removed  what of the leader's log, up to this version, may be gone that was read before
    """

    log_start_offset: int
    high_watermark: int
    leader_epoch: int
    version: int
    topic_id: str
    removed: RemovedRecords = NOTHING_REMOVED


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


class ClusterView:
    """Refreshes itself where needed. Thread-safe; calls may block on storage.

    cluster     a running `Cluster`, with whose brokers it shares the fold of the metadata log and what they publish; or
                the URL or path of its metadata root.
    timeout_ms  how long to wait for a partition's leader to start before LeaderNotAvailableError.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        stores: Stores | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.root = root_of(cluster)
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.stores = stores or client_stores(self.ids)
        self._shared_metadata = shared_metadata_of(cluster)
        self.metadata = self._open_metadata()
        self._timeout_ms = timeout_ms
        self.metadata_version = 0
        """Counts the folds that changed the image: what was made of the image holds while this stays."""
        self._folds = SharedRead(self._fold)
        self._folded_ms: int | None = None
        self._partitions: dict[str, tuple[TopicPartition, ...]] = {}
        self._available: dict[str, tuple[int, ...]] = {}
        self._progress = PublishedProgress(self.stores, own_registers_of(cluster))
        self._news = NewsWait(self.clock)
        self._idle = IdlePause(PROGRESS, self.clock.monotonic_ms())
        self._waited_for = -1
        self._marks: dict[_LogId, Watermarks] = {}
        self._marks_lock = threading.Lock()
        self._logs = PartitionLogs(self.stores, self.clock)
        try:
            self.refresh()
        except LogDirNotFoundError as reason:
            raise LogDirNotFoundError(f"{reason}. {self._where_metadata_is()}") from reason

    def _open_metadata(self) -> MetadataLog:
        return open_metadata(self.stores, self.root, self.clock, self.ids, shared=self._shared_metadata)

    def _where_metadata_is(self) -> str:
        """What to do about a root without metadata."""
        below = f"{self.root.rstrip('/')}/{METADATA_FOLDER}"
        if self.stores.objects(self.root).list(f"{METADATA_FOLDER}/{METADATA_COMMITS}"):
            return f"This is a cluster's folder: use its metadata root, {below}"
        return f"Give the cluster's metadata root, mostly the folder {METADATA_FOLDER} beside the brokers' roots"

    # -- topology ----------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The fold as of the last refresh."""
        return self.metadata.image

    def refresh(self, max_age_ms: int = 0) -> bool:
        """Fold new metadata unless that was less than `max_age_ms` ago; True when something changed.

        With 0, all that was committed before the call is folded. With an age nothing is waited for: while another
        thread folds, the image is used as it is.
        """
        before = self.metadata_version
        if not max_age_ms:
            self._folds.run()
        elif self.is_older_than(max_age_ms):
            self._folds.run_if_free()
        return self.metadata_version != before

    def is_older_than(self, max_age_ms: int) -> bool:
        """Whether metadata was last folded so long ago, or may have been committed since, as far as `wait` knows."""
        folded_ms = self._folded_ms
        return folded_ms is None or self.clock.monotonic_ms() - folded_ms >= max_age_ms

    def _fold(self) -> None:
        now_ms = self.clock.monotonic_ms()
        self._folded_ms = now_ms  # before the read: a `wait` that hears of a later commit must not be overruled
        try:
            changed = bool(self.metadata.refresh())
        except TableReplacedError as reason:
            changed = self._fold_anew(reason)
        except BaseException:
            self._folded_ms = None
            raise
        if changed:
            self._forget_topology()

    def _fold_anew(self, reason: TableReplacedError) -> bool:
        """The metadata root lost its newest commits, which this view had folded, as in a power cut before their sync.
        Always True: the image is another."""
        _LOG.warning("folding the metadata log anew: %s", reason)
        metadata = self._open_metadata()
        metadata.refresh()
        self.metadata = metadata
        self._progress.clear()
        return True

    def _forget_topology(self) -> None:
        self.metadata_version += 1
        self._partitions, self._available = {}, {}
        self._progress.all_moved()

    def propose(self, decide: Callable[[ClusterImage], Result[T]]) -> T:
        """Decide on the newest metadata image and commit the records, as the admin client does."""
        with self._folds.lock:
            try:
                response = self.metadata.propose(decide)
            except TableReplacedError as reason:  # nothing was committed
                self._fold_anew(reason)
                response = self.metadata.propose(decide)
            self._forget_topology()
            return response

    def topics(self) -> list[str]:
        """All topics by name."""
        self.refresh()
        return sorted(self.image.topic_ids)

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """The topic's partitions in order. UnknownTopicOrPartitionError when there is no such topic."""
        found = self._partitions.get(topic)
        if found is not None:
            return found
        self.refresh()
        known = self._partitions  # a fold that changes something puts another one there
        found = tuple(self.image.partitions_of(topic)) if topic in self.image.topic_ids else ()
        if not found:
            raise UnknownTopicOrPartitionError(f"topic '{topic}' does not exist")
        known[topic] = found
        return found

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """Numbers of the topic's partitions that have a leader, as of the last refresh."""
        found = self._available.get(topic)
        if found is not None:
            return found
        partitions, known = self.partitions(topic), self._available
        states = [self.image.partitions.get(tp) for tp in partitions]
        found = tuple(state.partition for state in states if state is not None and state.leader != NO_LEADER)
        known[topic] = found
        return found

    def partition_count(self, topic: str) -> int:
        """As of the last refresh; 0 of an unknown topic."""
        return len(self.image.partitions_by_topic.get(topic, ()))

    def topic_name(self, topic_id: str) -> str | None:
        """As of the last refresh; None for an unknown id."""
        return next((name for name, known in self.image.topic_ids.items() if known == topic_id), None)

    def partition_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the replicas of the topics' partitions, without those of brokers that have none."""
        image = self.image
        rack_of = {broker: state.registration.rack for broker, state in image.brokers.items()}
        return {
            tp: frozenset(rack for each in image.partitions[tp].replicas if (rack := rack_of.get(each)))
            for topic in topics
            for tp in image.partitions_of(topic)
        }

    def partition_state(self, topic_partition: TopicPartition) -> PartitionRecord:
        """Leader, ISR and epochs as of the last refresh. UnknownTopicOrPartitionError when unknown even after one."""
        if topic_partition not in self.image.partitions:
            self.refresh()
        return self.image.partition(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> int:
        """The leader's broker id as of the last refresh, -1 when there is none."""
        return self.partition_state(topic_partition).leader

    def leader_root(self, topic_partition: TopicPartition) -> str | None:
        """The leader's root as of the last refresh; None when there is none."""
        leader = self.image.brokers.get(self.leader(topic_partition))
        return None if leader is None else leader.registration.root

    # -- offsets -----------------------------------------------------------------------------------------

    def watermarks(
        self, topic_partition: TopicPartition, timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> Watermarks:
        """The newest published bounds, waiting up to `timeout_ms` for the leader of the current epoch to start.

        A leader whose ISR is under `min.insync.replicas` may publish no high watermark for long. Without `needs_end`
        it is not waited for: the log start is right then, and the high watermark may be too low.
        Raises LeaderNotAvailableError after that, UnknownTopicOrPartitionError.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        pause_ms = WAIT_MS_MIN
        while True:
            self.refresh()
            marks = self.published(topic_partition) or (None if needs_end else self._committed_before(topic_partition))
            if marks is not None:
                return marks
            if self.clock.monotonic_ms() >= deadline_ms:
                raise LeaderNotAvailableError(self._why_not_available(topic_partition, timeout_ms))
            self.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, WAIT_MS_MAX)

    def all_watermarks(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> dict[TopicPartition, Watermarks]:
        """As `watermarks` of each; metadata and each leader's progress are read once for all that have started."""
        wanted = list(topic_partitions)
        if len(wanted) < 2:
            return {tp: self.watermarks(tp, timeout_ms, needs_end=needs_end) for tp in wanted}
        self.refresh()
        for leader in {self.partition_state(tp).leader for tp in wanted} - {NO_LEADER}:
            progress = self._leader_progress(leader)
            if progress is not None:
                progress.poll()
        return {
            tp: self.published(tp, poll=False) or self.watermarks(tp, timeout_ms, needs_end=needs_end) for tp in wanted
        }

    def at_once(self, look: Callable[[TopicPartition], T], topic_partitions: Iterable[TopicPartition]) -> list[T]:
        """What `look` returns for each partition, in order; where looks make requests, several at a time."""
        wanted = list(topic_partitions)
        if len(wanted) < 2 or not self.distance.is_far:
            return [look(tp) for tp in wanted]
        with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(wanted)), thread_name_prefix="view-looks") as pool:
            return run_together(pool, [partial(look, tp) for tp in wanted])

    def poll_progress(self) -> None:
        """Read the progress of every leader known so far: one small object a broker."""
        self._progress.poll()

    @property
    def requests_per_poll(self) -> int:
        """How many requests to object stores `refresh` and `poll_progress` make together; files here need none."""
        return sum(each.requests_per_call for each in self._distances())

    @property
    def distance(self) -> Distance:
        """FAR where `refresh` or `poll_progress` makes requests to an object store."""
        return farthest(self._distances())

    def _distances(self) -> list[Distance]:
        stores = [self.stores.objects(self.root), *(store for store, _ in self._progress.places().values())]
        return [store.distance for store in stores]

    def moved_since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]:
        """The sequence for the next call, and the partitions whose progress moved after `sequence` (at first -1).

        None: any partition's may have, since metadata changed. Does not read progress: see `poll_progress`.
        """
        return self._progress.moved_since(sequence)

    def moved_among(self, topic_partitions: Iterable[TopicPartition], sequence: int) -> list[TopicPartition]:
        """Those whose progress may have moved after `sequence`. Does not read progress, as `moved_since`."""
        return self._progress.moved_among(topic_partitions, sequence)

    def wait(self, timeout_ms: float, poll_ms: float) -> None:
        """Wait until leaders known so far or the metadata log may have news, at most `timeout_ms`.

        Where storage cannot be watched, it returns after `poll_ms`, or later while an object store has no news.
        """
        poll_ms = max(poll_ms, self._remote_pause_ms())
        metadata: Place = (self.stores.objects(self.root), f"{METADATA_PARTITION}/_delta_log/")
        if "metadata" in self._news.wait({**self._progress.places(), "metadata": metadata}, timeout_ms, poll_ms):
            self._folded_ms = None  # the next refresh reads

    def _remote_pause_ms(self) -> int:
        """The pause between polls that time without news allows; 0 where polls are no requests to object stores."""
        if not self.distance.is_far:
            return 0
        now_ms, (sequence, _) = self.clock.monotonic_ms(), self._progress.moved_since(self._waited_for)
        if sequence != self._waited_for:
            self._waited_for = sequence
            self._idle.news(now_ms)
        return self._idle.pause_ms(now_ms)

    def wake(self) -> None:
        """End a `wait` that is under way in another thread."""
        self._news.wake()

    def published(self, topic_partition: TopicPartition, *, poll: bool = True) -> Watermarks | None:
        """As `watermarks`, without waiting or refreshing metadata: None while the leader has not started.

        `poll` False is for many partitions at once, after `poll_progress`.
        """
        state = self.partition_state(topic_partition)
        log_id = self._log_id(state)
        entry = self._leader_entry(state, log_id, poll)
        if entry is None:
            return None
        with self._marks_lock:
            known = self._marks.get(log_id)
            marks = self._marks[log_id] = entry if known is None else _later(known, entry)
        return marks

    def readable_end(self, _: TopicPartition, marks: Watermarks) -> int:
        return marks.high_watermark

    def beginning_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still readable."""
        found = self.all_watermarks(topic_partitions, timeout_ms, needs_end=False)
        return {tp: marks.log_start_offset for tp, marks in found.items()}

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each partition: the offset after its last committed record."""
        found = self.all_watermarks(topic_partitions, timeout_ms)
        return {tp: marks.high_watermark for tp, marks in found.items()}

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, timeout_ms: int | None = None
    ) -> OffsetAndTimestamp | None:
        """The first committed record with this timestamp or a later one; None when there is none."""
        marks = self.watermarks(topic_partition, timeout_ms)
        found = self._look_up(topic_partition, marks, lambda log, _: log.offset_for_timestamp(timestamp_ms))
        return None if found.offset == UNKNOWN_OFFSET else OffsetAndTimestamp(found.offset, found.timestamp_ms)

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset:
        """The offset that `spec` asks for among the committed records; no table is read for the log's ends."""
        marks = self.watermarks(topic_partition, timeout_ms, needs_end=spec.timestamp != EARLIEST_TIMESTAMP)
        if spec.timestamp == EARLIEST_TIMESTAMP:
            return ListedOffset(marks.log_start_offset)
        if spec.timestamp == LATEST_TIMESTAMP:
            return ListedOffset(marks.high_watermark, leader_epoch=marks.leader_epoch)
        if spec.timestamp == MAX_TIMESTAMP:
            return self._look_up(topic_partition, marks, LogReader.offset_of_max_timestamp)
        return self._look_up(topic_partition, marks, lambda log, _: log.offset_for_timestamp(spec.timestamp))

    def _look_up(
        self,
        topic_partition: TopicPartition,
        marks: Watermarks,
        look_up: Callable[[LogReader, int], tuple[int, int] | None],
    ) -> ListedOffset:
        """What `look_up(log, end)` finds, if it is committed: below `end`."""
        with self._logs.of(topic_partition).lock:
            log, end = self._readable_log(topic_partition, marks)
            found = look_up(log, end)
            if found is None or found[0] >= end:
                return ListedOffset(UNKNOWN_OFFSET)
            return ListedOffset(*found, log.epochs.epoch_at(found[0]))

    def look_at_log(
        self, topic_partition: TopicPartition, look: Callable[[LogReader], T], timeout_ms: int, *, poll: bool = True
    ) -> T:
        """What `look` returns for the leader's log or an equal one. LeaderNotAvailableError after `timeout_ms`.

        Others who look at the same partition wait meanwhile. Without `poll` the log may be older than what was
        published since progress was read.
        """
        marks = None if poll else self.published(topic_partition, poll=False)
        marks = marks or self.watermarks(topic_partition, timeout_ms, needs_end=False)
        with self._logs.of(topic_partition).lock:
            return look(self._readable_log(topic_partition, marks)[0])

    # -- records -----------------------------------------------------------------------------------------

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
    ) -> Fetched:
        """As `read`, with the next offset to read: compaction may have removed every record of a long range.

        columns  of `READ_SCHEMA`, in its order, `offset`, `producer_id` and `attributes` among them; None: all
        """
        marks = self._marks_up_to(topic_partition, offset, timeout_ms)
        readable = self._readable(topic_partition, marks, offset, end_offset)
        if readable is None:
            return Fetched(no_rows(), offset)
        bounds = offset, max_bytes, readable.end_offset

        def read(planned: PlannedRead) -> pa.Table:
            return (planned if columns is None else replace(planned, columns=columns)).read()

        rows = readable.replicas.read(readable.log, readable.topic_id, *bounds, read)
        next_offset = rows["offset"][-1].as_py() + 1 if rows.num_rows else readable.end_offset
        return Fetched(self._kept(rows, readable.transactions.aborted_between(offset, next_offset)), next_offset)

    def _marks_up_to(self, topic_partition: TopicPartition, offset: int, timeout_ms: int | None) -> Watermarks:
        marks = self._marks_for_reading(topic_partition)
        if marks is None or offset > marks.high_watermark:
            marks = self.watermarks(topic_partition, timeout_ms)
        return marks

    def committed_rows(self, topic_partition: TopicPartition, max_bytes: int) -> Iterator[pa.Table]:
        """All committed records of a partition as of now, in tables of about `max_bytes`. Raises as `fetch`."""
        marks = self.watermarks(topic_partition)
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
            log, readable_end = self._readable_log(topic_partition, marks)
            topic_id, root, log_start_offset = log.topic_id, replicas.root_of(log), log.log_start_offset
            transactions = self._transactions_of(log)
        end = min(wanted_end, readable_end)
        if offset >= end:
            return None
        if offset < log_start_offset:  # retention is local: `beginning_offsets` has to return this one from now on
            log_id = self._log_id(self.partition_state(topic_partition))
            with self._marks_lock:
                self._marks[log_id] = replace(self._marks.get(log_id, marks), log_start_offset=log_start_offset)
        return _Readable(replicas, log, topic_id, root, end, transactions)

    def _transactions_of(self, _: LogReader) -> Transactions:
        """Those whose records may not be returned, of the very fold whose files are read then."""
        return NO_TRANSACTIONS

    def _kept(self, rows: pa.Table, _: Sequence[AbortedTransaction]) -> pa.Table:
        """`rows` without those of aborted transactions."""
        return rows

    def _readable_log(self, topic_partition: TopicPartition, marks: Watermarks) -> tuple[LogReader, int]:
        """A replica's log and the end of its readable offsets: the leader's, else one that follows its epoch.

        A follower's table that shows the current epoch has been truncated to what the leader has (promise 7). Called
        under the partition's lock.
        """
        state = self.partition_state(topic_partition)
        if self._log_id(state)[1] != marks.topic_id:
            raise LeaderNotAvailableError(f"{topic_partition}: the topic was created again: ask anew")
        reason: StoreError | LogDirNotFoundError | None = None
        for replica in sorted(state.replicas, key=lambda r: (r != state.leader, r not in state.isr)):
            try:
                log = self._log(topic_partition, replica)
                if log.version < marks.version or not log.has_started(state.leader_epoch) or replica != state.leader:
                    log.refresh()
                check_topic(log, self._log_id(state)[1])
            except (StoreError, LogDirNotFoundError) as failure:
                reason = reason or failure
                continue
            has_it_all = state.leader == NO_LEADER and replica in state.isr
            if log.has_started(state.leader_epoch) or has_it_all:
                return log, min(marks.high_watermark, log.log_end_offset)
        raise LeaderNotAvailableError(f"{topic_partition}: no replica is readable: {reason}") from reason

    def producers(self, topic_partition: TopicPartition, broker_id: int) -> ProducerStates:
        """A replica's current state of producers and their transactions."""
        with self._logs.of(topic_partition).lock:
            (log := self._log(topic_partition, broker_id)).refresh()
            return log.producers

    def _log(self, topic_partition: TopicPartition, broker_id: int) -> LogReader:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise LogDirNotFoundError(f"{topic_partition}: broker {broker_id} has never registered")
        topic_id = self.image.topic_ids.get(topic_partition.topic, "")
        return self._logs.of(topic_partition).log(broker.registration.root, topic_id)

    # -- progress ----------------------------------------------------------------------------------------

    def _leader_entry(self, state: PartitionRecord, log_id: _LogId, poll: bool) -> Watermarks | None:
        if state.leader == NO_LEADER:
            return self._last_entry(state, log_id)
        leader = self._leader_progress(state.leader)
        if leader is None:
            return None
        if poll:
            leader.poll()
        else:
            leader.poll_once()
        entry = leader.entry(state.topic_partition)
        if entry is None or (entry.topic_id, entry.leader_epoch) != (log_id[1], state.leader_epoch):
            return None
        return _watermarks(entry) if entry.high_watermark != UNKNOWN else None

    def _last_entry(self, state: PartitionRecord, log_id: _LogId) -> Watermarks | None:
        """Without a leader, as after a stop of the whole cluster: the highest high watermark that a replica published
        since the last unclean election.

        Every member of the ISR has all records below it (promise 17), so readers need no broker.
        """
        published: list[Watermarks] = []
        for replica in state.replicas:
            with suppress(StoreError, LogDirNotFoundError):
                leader = self._leader_progress(replica)
                if leader is None:
                    continue
                leader.poll()
                entry = leader.entry(state.topic_partition)
                if entry is None or (entry.topic_id, entry.unclean) != log_id[1:]:
                    continue
                if entry.high_watermark != UNKNOWN:
                    published.append(_watermarks(entry))
        return max(published, key=lambda marks: marks.high_watermark, default=None)

    def _committed_before(self, topic_partition: TopicPartition) -> Watermarks | None:
        """What is readable of a leader that commits nothing, since its ISR is under `min.insync.replicas`.

        The leader has all that was committed before its epoch; what it and the others published is a lower bound.
        None when the leader has not started, or when it commits.
        """
        state = self.partition_state(topic_partition)
        log_id = self._log_id(state)
        leader = self._leader_progress(state.leader)
        entry = None if leader is None else leader.entry(topic_partition)
        min_isr = effective_min_isr(state.replicas, topic_min_isr(self.image, state.topic))
        if len(state.isr) >= min_isr or entry is None:
            return None
        if (entry.topic_id, entry.leader_epoch) != (log_id[1], state.leader_epoch):
            return None
        before = self._last_entry(state, log_id)
        earlier = UNKNOWN if before is None else before.high_watermark
        committed = max(entry.log_start_offset, entry.known_committed, earlier)
        return replace(_watermarks(entry), high_watermark=committed)

    def _leader_progress(self, leader: int) -> LeaderEntries | None:
        return self._progress.of(self.image.brokers.get(leader))

    def _marks_for_reading(self, topic_partition: TopicPartition) -> Watermarks | None:
        """The published bounds; with the leader's root out of reach or its epoch not started, the last known ones."""
        try:
            published = self.published(topic_partition)
        except (StoreError, LogDirNotFoundError):
            published = None
        known = published or self._marks.get(self._log_id(self.partition_state(topic_partition)))
        with suppress(StoreError, LogDirNotFoundError):
            known = known or self._committed_before(topic_partition)
        return known

    def topic_config(self, topic: str, broker_id: int | None = None) -> LogConfig:
        """The topic's configs as of the last refresh; `broker_id`: as that broker has them."""
        return LogConfig.from_properties(self.image.topic_config(topic, broker_id))

    def _log_id(self, state: PartitionRecord) -> _LogId:
        return state.topic_partition, self.image.topic_ids.get(state.topic, ""), state.unclean

    def _why_not_available(self, topic_partition: TopicPartition, timeout_ms: int) -> str:
        state = self.partition_state(topic_partition)
        if state.leader == NO_LEADER:
            return f"{topic_partition} has no leader; replicas {list(state.replicas)}, ISR {list(state.isr)}"
        return (
            f"{topic_partition}: leader {state.leader} of epoch {state.leader_epoch} "
            f"has not started within {timeout_ms} ms"
        )


def _watermarks(entry: ReplicaProgress) -> Watermarks:
    removed = RemovedRecords(entry.removed_version, entry.removed_end)
    bounds = entry.log_start_offset, entry.high_watermark, entry.leader_epoch, entry.version
    return Watermarks(*bounds, entry.topic_id, removed)


def _later(known: Watermarks, published: Watermarks) -> Watermarks:
    return replace(
        published,
        log_start_offset=max(known.log_start_offset, published.log_start_offset),
        high_watermark=max(known.high_watermark, published.high_watermark),
    )
