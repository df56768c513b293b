"""One replica's log to read: its fold, kept up to date, its records, and look-ups by time. I/O: through its table.

A reader commits nothing, so any process may open one, also on a live replica. `storage.log.partition_log.PartitionLog`
is a reader that also writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage import cadence, errors
from stratalog.storage.clock import Clock
from stratalog.storage.delta.removed import NO_PRODUCERS, producers_path
from stratalog.storage.delta.table import PRODUCERS, Commit, LogTable, TableSnapshot
from stratalog.storage.files.data_file import FileEntry, RowsWanted
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.rows import (
    MARKER_COLUMNS,
    PRODUCER_COLUMNS,
    TIME_COLUMNS,
    as_read,
    file_columns,
    first_at_or_after,
    has_control_records,
    is_read_to,
    producer_batches,
    read_schema,
    rows_between,
)
from stratalog.storage.log.segments import LogSegment, files_between
from stratalog.storage.log.state import SEALED_EPOCH, LogState
from stratalog.storage.log.time_index import straddling_file
from stratalog.storage.producers import ProducerStates, StoredBatch
from stratalog.storage.records import timestamp_range
from stratalog.storage.transactions import AbortedTransaction, LastStableOffset

RESOLVE_TRIES = 5
"""Repetitions of a look-up whose object was deleted meanwhile."""
READ_ON_MAX = 128
"""Commits that a fold asks for at a time, at most."""

NO_TIMESTAMP = -1
"""Stands for a record's missing timestamp in Kafka's protocol."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """A read of records in `[start_offset, end_offset)`; the fold that it was planned with may move on meanwhile.

    version            of the table, as it was folded, and the leader epoch that it shows
    removed_version    of the newest commit that removed records, or may have; see `LogState.removed_records`
    entries            the files to read, in order; the last ones are left out when `max_bytes` are reached before them
    decoded_bytes_max  about where it ends, however little the records take on storage; None: `max_bytes` alone counts
    """

    table: LogTable
    entries: tuple[FileEntry, ...]
    start_offset: int
    end_offset: int
    max_bytes: int
    columns: Sequence[str] | None = None
    decoded_bytes_max: int | None = None
    version: int = 0
    leader_epoch: int = -1
    removed_version: int = 0

    def read(self) -> pa.Table:
        """As `LogReader.read`. ObjectNotFoundError when a file was deleted since the fold: plan again after a fold."""
        parts: list[tuple[pa.Table, FileEntry]] = []
        start_offset, bound, columns = self.start_offset, self.end_offset, self.columns
        size_bytes, decoded_bytes, names = 0, 0, file_columns(columns)
        ahead = self.table.ahead([entry.file for entry in self.entries]) if len(self.entries) > 1 else None
        for entry in self.entries:
            if parts and size_bytes + entry.file.size_bytes > self.max_bytes:
                break
            base, left_bytes = entry.base_offset, max(0, self.max_bytes - size_bytes)
            left_decoded = None if self.decoded_bytes_max is None else self.decoded_bytes_max - decoded_bytes
            wanted: RowsWanted | None = RowsWanted(start_offset - base, bound - base, None, left_bytes, left_decoded)
            is_inside = start_offset <= entry.start_offset and entry.end_offset <= bound
            if is_inside and entry.file.size_bytes <= left_bytes and left_decoded is None:
                wanted = None  # one read of the whole file is the cheapest
            found = self.table.read_file(entry.file, names, wanted, ahead)
            rows = rows_between(found, entry, start_offset, bound)
            if rows.num_rows:
                parts.append((rows, entry))
                size_bytes += entry.file.size_bytes * found.num_rows // entry.file.record_count
                decoded_bytes += found.nbytes
            is_enough = self.decoded_bytes_max is not None and 0 < self.decoded_bytes_max <= decoded_bytes
            if is_enough or not is_read_to(found, entry, bound):
                break
        return as_read(parts, columns) if parts else read_schema(columns).empty_table()


class LogReader:
    """A replica's log, to read. The constructor does no I/O; the first use folds the table."""

    remembers_removed = False
    """Whether the fold keeps the objects that left the log: a writer deletes them, and must not reuse their names."""

    reads_only = True
    """Whether a table that was made again is read as it is; a writer gets TableReplacedError instead."""

    def __init__(self, table: LogTable, clock: Clock) -> None:
        self.table = table
        self.clock = clock
        self.load_count = 0
        """How often the whole table was folded. Between two of these folds the log may have lost its newest commits
        and got others, so what was derived commit by commit begins again."""
        self._state: LogState | None = None
        self._producers = ProducerStates()
        self._last_stable_offset = LastStableOffset()
        self._producers_version = -1
        self._is_in_doubt = False
        self._checked_ms = 0

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def is_folded(self) -> bool:
        """Whether the table was read."""
        return self._state is not None

    @property
    def state(self) -> LogState:
        """The fold as of the last refresh or own commit; read-only for callers."""
        if self._state is None:
            self._load()
        assert self._state is not None
        return self._state

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def topic_id(self) -> str:
        return self.state.topic_id

    @property
    def leader_epoch(self) -> int:
        """The epoch that this replica has started; -1 before the first."""
        return (self._state or self.state).leader_epoch

    def has_started(self, leader_epoch: int) -> bool:
        """Whether this epoch or a later one began in the table, so that the table shows that epoch's log."""
        return leader_epoch <= self.leader_epoch < SEALED_EPOCH

    @property
    def log_start_offset(self) -> int:
        return (self._state or self.state).log_start_offset

    @property
    def log_end_offset(self) -> int:
        return (self._state or self.state).log_end_offset

    @property
    def epochs(self) -> LeaderEpochCache:
        return self.state.epochs

    @property
    def files(self) -> Sequence[FileEntry]:
        """The live files, ordered by offset."""
        return self.state.files

    @property
    def segments(self) -> Sequence[LogSegment]:
        return self.state.segments

    @property
    def producers(self) -> ProducerStates:
        """Producer and sink state up to the log end: read on first use, then folded with the log."""
        if self._producers_version == self.state.version:
            return self._producers
        return self._resolving(self._fold_producers)

    @property
    def cached_producers(self) -> ProducerStates | None:
        """`producers` if nothing has to be read for them, else None."""
        return self._producers if self._producers_version == self.state.version else None

    def _fold_producers(self) -> ProducerStates:
        state = self.state
        self._producers = self._read_producers(state)
        self._producers_version = state.version
        return self._producers

    def fold_ahead(self) -> None:
        """Fold producer state and segments before their first use. Raises as `producers` does."""
        _ = self.producers, self.segments

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which the outcome of every transaction is known: Kafka's LSO.

        It is the high watermark while no transaction is open, but never above the log end of this fold: a fold that
        clean-up has overtaken is stale for a while, and knows nothing of later transactions.
        """
        producers = self.producers  # may fold, so before the log end
        return self._last_stable_offset.of(producers.transactions, min(high_watermark, self.log_end_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Those with a record in `[start_offset, end_offset)`, by first offset, as in a Fetch response."""
        return self.producers.transactions.aborted_between(start_offset, end_offset)

    def refresh(self, commits_max: int | None = None) -> bool:
        """Fold the new commits, at most `commits_max`; whether anything changed.

        A table that was made again is read again; a writer gets TableReplacedError, unless the new one is of the same
        topic.
        Raises ForeignCommitError, CorruptMessageError, UnknownTopicOrPartitionError (no table).
        """
        if self._state is None:
            self._load()
            return True
        before = self._state
        try:
            changed = self._fold_new_commits(commits_max)
            is_position_gone = not changed and self._is_position_cleaned_up()
        except errors.TableReplacedError:
            if not self.reads_only:
                raise
            self.table = self.table.reopened()
            self._load()
            return True
        if is_position_gone:
            self._load()
            self._check_same_topic(before)
            changed = self.state.version != before.version
        return changed

    def _check_same_topic(self, before: LogState) -> None:
        """A new topic of the same name may have made its table in this place: it must not be written to."""
        if self.reads_only or self.state.topic_id == before.topic_id:
            return
        found_id, self._state = self.state.topic_id, before
        self._is_in_doubt = True
        raise errors.TableReplacedError(
            f"{self.name}: the table is of topic {found_id} by now, was of {before.topic_id}: open it again"
        )

    def _fold_new_commits(self, commits_max: int | None = None) -> bool:
        state = self.state
        before = state.version
        end = None if commits_max is None else before + commits_max
        while count_max := READ_ON_MAX if end is None else min(READ_ON_MAX, end - state.version):
            commits = self.table.read_on(state.version + 1, count_max)
            for commit in commits:
                self._replay(commit)
            if not commits:
                break
        if state.version != before:
            self._is_in_doubt = False
            self._checked_ms = self.clock.monotonic_ms()
        return state.version != before

    def _replay(self, commit: Commit) -> None:
        """Fold the next version, and its producer changes if the producer state is known."""
        state = self.state
        is_known = self._producers_version == state.version
        state.replay(state.version + 1, commit)
        if is_known and (commit.producers is not None or PRODUCERS not in commit.txns):
            self._producers_version = state.version
            if commit.producers is not None:
                self._producers = self._producers.with_changes(commit.producers)

    def _is_position_cleaned_up(self) -> bool:
        """Whether clean-up has deleted the version of the fold; checked when in doubt, and in intervals."""
        now_ms = self.clock.monotonic_ms()
        if not self._is_in_doubt and now_ms - self._checked_ms < cadence.VERSION_CHECK.ms:
            return False
        is_gone = self.table.read_commit(self.state.version) is None
        self._checked_ms = now_ms
        self._is_in_doubt = False
        return is_gone

    def _load(self) -> None:
        snapshot = self.table.snapshot()
        if snapshot is None:
            raise errors.UnknownTopicOrPartitionError(f"{self.name}: there is no table")
        self._loaded(snapshot)

    def _loaded(self, snapshot: TableSnapshot) -> None:
        """The table was folded anew."""
        self._state = LogState(snapshot, self.name, remembers_removed=self.remembers_removed)
        self.load_count += 1
        self._producers_version = -1
        self._is_in_doubt = False
        self._checked_ms = self.clock.monotonic_ms()

    def refresh_for_sure(self) -> bool:
        """`refresh` that folds every commit before the call. After clean-up has deleted the version of the fold,
        `refresh` may miss new commits for up to `cadence.VERSION_CHECK`."""
        self._is_in_doubt = True
        return self.refresh()

    def read(
        self, start_offset: int, max_bytes: int, end_offset: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Records from `start_offset` on, below `end_offset` (default: log end), as `READ_SCHEMA` or `columns` of it.

        Whole files until `max_bytes` on storage are reached; of a first file that is larger, as many row groups, at
        least one. An empty result: there are no records up to the bound. Raises OffsetOutOfRangeError below the log
        start or above the log end.
        """
        return self._resolving(lambda: self.plan_read(start_offset, max_bytes, end_offset, columns).read())

    def read_range(
        self, start_offset: int, end_offset: int, max_bytes: int = 1 << 24, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """All records in `[start_offset, end_offset)` as tables of about `max_bytes` on storage each.

        columns  columns of `READ_SCHEMA`, `offset` among them; None: all
        """
        while start_offset < end_offset:
            table = self.read(start_offset, max_bytes, end_offset, columns)
            if table.num_rows == 0:
                return
            yield table
            start_offset = table["offset"][-1].as_py() + 1

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record with this timestamp or a later one: (offset, its timestamp); None if there is none.

        A binary search over the files and one row group's two columns, however long the log is (Kafka's
        `UnifiedLog.fetchOffsetByTimestamp`).
        """
        return self._resolving(lambda: self._find_timestamp(timestamp_ms))

    def offset_of_max_timestamp(self, end_offset: int) -> tuple[int, int] | None:
        """The first record with the largest timestamp below `end_offset`: (offset, its timestamp). KIP-734.

        Times before 1970 count less than none at all, as in Kafka (`LogSegment.maxTimestampSoFar` begins with -1): when
        there are no others, the first record without a timestamp is found, with -1. None when each has such a time.
        """
        return self._resolving(lambda: self._find_max_timestamp(end_offset))

    def plan_read(
        self, start_offset: int, max_bytes: int, end_offset: int | None = None, columns: Sequence[str] | None = None
    ) -> PlannedRead:
        """The files that `read` would read, of the fold as it is: `PlannedRead.read` reads them in any thread."""
        state = self.state
        if not state.log_start_offset <= start_offset <= state.log_end_offset:
            raise errors.OffsetOutOfRangeError(
                f"{self.name}: offset {start_offset} is outside [{state.log_start_offset}, {state.log_end_offset}]"
            )
        bound = state.log_end_offset if end_offset is None else min(end_offset, state.log_end_offset)
        entries: list[FileEntry] = []
        size_bytes = 0
        for entry in files_between(state.files, start_offset, bound):
            if size_bytes > max_bytes:
                break
            # Of the first file a part may be read, or nothing: it does not count.
            size_bytes += entry.file.size_bytes if entries else 0
            entries.append(entry)
        bounds, shown = (start_offset, bound, max_bytes), (state.version, state.leader_epoch)
        removed_version = state.removed_records.version
        return PlannedRead(self.table, tuple(entries), *bounds, columns, None, *shown, removed_version)

    def _find_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        state = self.state
        start = state.log_start_offset
        straddling = straddling_file(state.files, start)
        found = self._first_in(straddling, timestamp_ms) if straddling is not None else None
        if found is not None:
            return found
        entry = state.times.first_file(state.files, start, timestamp_ms)
        return self._first_in(entry, timestamp_ms) if entry is not None else None

    def _first_in(self, entry: FileEntry, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record of a file, from the log start on, with this timestamp or a later one."""
        greatest = entry.file.max_timestamp_ms
        if greatest is None or greatest < timestamp_ms:
            return None
        start = self.state.log_start_offset
        is_hidden_in = entry.start_offset < start  # then the row group that is found may have hidden rows only
        wanted = RowsWanted(max(0, start - entry.base_offset), None, timestamp_ms, None if is_hidden_in else 0)
        rows = self.table.read_file(entry.file, TIME_COLUMNS, wanted)
        return first_at_or_after(rows, entry, timestamp_ms, start)

    def _find_max_timestamp(self, end_offset: int) -> tuple[int, int] | None:
        state = self.state
        start, end = state.log_start_offset, min(end_offset, state.log_end_offset)
        inside = state.times.max_timestamp_ms(state.files, start, end)
        times = [] if inside is None else [inside]
        for edge in dict.fromkeys((straddling_file(state.files, start), straddling_file(state.files, end))):
            if edge is None:
                continue
            wanted = RowsWanted(start - edge.base_offset, end - edge.base_offset)
            rows = rows_between(self.table.read_file(edge.file, TIME_COLUMNS, wanted), edge, start, end)
            latest = timestamp_range(rows["timestamp"])[1]
            if latest is not None:
                times.append(latest)
        largest_ms = max(times, default=NO_TIMESTAMP)
        return self._first_undated(start, end) if largest_ms < 0 else self._find_timestamp(largest_ms)

    def _first_undated(self, start: int, end: int) -> tuple[int, int] | None:
        """The first record in `[start, end)` without a timestamp, and -1."""
        for entry in files_between(self.state.files, start, end):
            wanted = RowsWanted(max(0, start - entry.base_offset), end - entry.base_offset)
            rows = rows_between(self.table.read_file(entry.file, TIME_COLUMNS, wanted), entry, start, end)
            row = pc.index(pc.is_null(rows["timestamp"]), True).as_py()
            if row >= 0:
                return entry.base_offset + rows["offset_delta"][row].as_py(), NO_TIMESTAMP
        return None

    def _resolving(self, look_up: Callable[[], T]) -> T:
        """Run a look-up; when an object is gone, as after a merge or clean-up, refresh and repeat it.

        UnknownTopicOrPartitionError when the table is another topic's by then, which was created again: what the caller
        looks for is not there.
        """
        topic_id = self.topic_id
        for _ in range(RESOLVE_TRIES):
            try:
                return look_up()
            except errors.ObjectNotFoundError:
                if not self.refresh_for_sure():
                    raise
            self._check_still_of(topic_id)
        return look_up()

    def _check_still_of(self, topic_id: str) -> None:
        if self.topic_id != topic_id:
            raise errors.UnknownTopicOrPartitionError(
                f"{self.name}: the table is of topic id {self.topic_id}, not of {topic_id} any more"
            )

    def _batches_in(self, entry: FileEntry) -> list[StoredBatch]:
        rows = self.table.read_file(entry.file, PRODUCER_COLUMNS)
        if has_control_records(rows):
            rows = self.table.read_file(entry.file, MARKER_COLUMNS)
        return producer_batches(rows, entry.base_offset, self.clock.wall_ms())

    def _read_producers(self, state: LogState) -> ProducerStates:
        """The last whole state with the changes since; ObjectNotFoundError when clean-up has deleted either."""
        states = self._read_whole_producers(state)
        whole = state.folded_from if state.producers_version is None else state.producers_version
        commits = self.table.read_commits(whole + 1, state.folded_from + 1)
        if commits is None:
            raise errors.ObjectNotFoundError(
                f"{self.name}: a version of {whole + 1} to {state.folded_from} with producer state was cleaned up"
            )
        for commit in commits:
            if commit.producers is not None:
                states = states.with_changes(commit.producers)
        for _, changes in state.producer_changes:
            states = states.with_changes(changes)
        return states

    def _read_whole_producers(self, state: LogState) -> ProducerStates:
        number = state.producers_number
        if number == NO_PRODUCERS:
            return ProducerStates(forgotten_below=state.producers_from)
        data = self.table.read_object(producers_path(number))
        try:
            return ProducerStates.from_json(data)
        except ValueError as reason:
            raise errors.CorruptMessageError(f"{self.name}/{producers_path(number)}: {reason}") from reason
