"""The chore that compacts one log. I/O: reads and writes data files, and swaps them in commits of its log.

A pass reads the keys of the dirty section into an offset map, then cleans the log group by group, oldest first: the
records of a group that stay are written as new files, which replace the group's files in one commit, so a reader finds
the old group or the new one. The last commit carries the cleaner's position, and removes the aborted transactions below
it from producer state, since none of their records is left. Each commit before states how far the pass has come: a
cleaner of another process maps the same section, and continues with the groups that are left. Kafka's `LogCleaner` and
`Cleaner`; the rules are in `storage.upkeep.compaction`.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from stratalog.storage import cadence
from stratalog.storage.delta.table import Commit, Conflict, LogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.codecs import codec_of_merge
from stratalog.storage.files.data_file import FileEntry, PartitionValues, RowsWanted
from stratalog.storage.log.cleaner_checkpoint import PassUnderWay
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.rows import merged_rows, rows_between
from stratalog.storage.log.segments import end_of
from stratalog.storage.log.state import live_paths
from stratalog.storage.topic_config import INT_MAX, LONG_MAX
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.cleaned_transactions import AbortedRecords, CleanedTransactions
from stratalog.storage.upkeep.compaction import (
    MAP_BYTES_MAX,
    MAP_COLUMNS,
    Cleaning,
    KeyedRows,
    LogToClean,
    OffsetMap,
    Retained,
    grouped,
    is_due,
    last_batch_ends,
    log_to_clean,
    survivors,
    transaction_columns,
)

WORK_BYTES = 16 << 20
"""Bytes on storage of the files of one piece of work, at most, so that other work can run in between."""
WORK_RECORDS = 1 << 20
"""Records of the files of one piece of work, at most."""
PIECE_BYTES = 4 << 20
"""Bytes of a large file that are read at once."""
LOOKUP_BYTES = 16 << 20
"""Arrow bytes of the keys that are looked up in the offset map at once."""
OUTPUT_BYTES = 32 << 20
"""Arrow bytes of the rows that are gathered before they are written as a file."""
PROGRESS_BYTES = 256 << 20
"""Bytes on storage of unchanged files after which a pass commits how far it has come."""
COMMIT_TRIES = 5


class CleanerTurn:
    """The right to clean: one log of a process at a time, since each pass keeps an offset map in memory; the dirtiest
    first. Kafka: `log.cleaner.threads` of 1, `grabFilthiestCompactedLog`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: weakref.ref[Cleaner] | None = None
        self._held_ms = 0
        self._bids: weakref.WeakKeyDictionary[Cleaner, tuple[float, int]] = weakref.WeakKeyDictionary()

    def acquire(self, cleaner: Cleaner, dirty_ratio: float, now_ms: int) -> bool:
        """Whether it is this cleaner's turn, which then lasts until `release`."""
        with self._lock:
            holder = self._holder() if self._holder is not None else None
            is_free = holder is None or not 0 <= now_ms - self._held_ms < cadence.CLEANER_LEASE.ms
            if holder is not cleaner and not (is_free and self._is_dirtiest(cleaner, dirty_ratio, now_ms)):
                self._bids[cleaner] = (dirty_ratio, now_ms)
                return False
            self._bids.pop(cleaner, None)
            self._holder, self._held_ms = weakref.ref(cleaner), now_ms
            return True

    def _is_dirtiest(self, cleaner: Cleaner, dirty_ratio: float, now_ms: int) -> bool:
        others = (bid for other, bid in self._bids.items() if other is not cleaner)
        return not any(
            ratio > dirty_ratio and 0 <= now_ms - asked_ms < 2 * cadence.RECHECK.ms for ratio, asked_ms in others
        )

    def reset(self) -> None:
        """Release the turn and drop all requests for it."""
        with self._lock:
            self._holder = None
            self._bids.clear()

    def release(self, cleaner: Cleaner) -> None:
        """End this cleaner's turn, if it has it."""
        with self._lock:
            if self._holder is not None and self._holder() is cleaner:
                self._holder = None


SHARED_TURN = CleanerTurn()
"""The turn of this process."""


class GroupRewrite:
    """The new files of one group: `adds` replace `removes`. A file of which all records stay is kept, unless its
    segment changes."""

    def __init__(self, table: LogTable, rules: Cleaning, segment: int, codec: str, bytes_max: int) -> None:
        self._table = table
        self._rules = rules
        self._segment = segment
        self._codec = codec
        self._bytes_max = bytes_max
        self._parts: list[tuple[pa.Table, FileEntry]] = []
        self._bytes = 0
        self.removes: list[FileEntry] = []
        self.adds: list[FileEntry] = []

    def clean(self, files: Sequence[FileEntry], *, is_last: bool) -> bool:
        """Clean the next files; `is_last`: none follow. False when one of them is gone."""
        try:
            for entry, parts in zip(files, self._retained_of(files), strict=True):
                self._clean(entry, parts)
        except ObjectNotFoundError:
            return False
        if is_last:
            self._write()
        pa.default_memory_pool().release_unused()
        return True

    def _retained_of(self, files: Sequence[FileEntry]) -> list[list[Retained]]:
        """The decision on each file's rows, part by part."""
        retained: list[list[Retained]] = [[] for _ in files]
        gathered: list[tuple[int, KeyedRows]] = []
        size_bytes = 0

        def decide() -> None:
            decided = self._rules.retained([rows for _, rows in gathered])
            for (number, _), part in zip(gathered, decided, strict=True):
                retained[number].append(part)

        for number, entry in enumerate(files):
            columns, aborted = self._rules.columns_needed(entry.start_offset), self._rules.transactions.aborted
            for rows in keyed_rows(self._table, entry, columns, aborted):
                gathered.append((number, rows))
                size_bytes += rows.size_bytes
                if size_bytes >= LOOKUP_BYTES:
                    decide()
                    gathered, size_bytes = [], 0
        if gathered:
            decide()
        return retained

    def _clean(self, entry: FileEntry, parts: Sequence[Retained]) -> None:
        if entry.segment == self._segment and not any(part.is_changed for part in parts):
            self._write()
            return
        self.removes.append(entry)
        stays, emptied, marked = (np.concatenate(each) for each in list(zip(*parts, strict=True))[:3])
        first = 0
        for rows in pieces(self._table, entry):
            here = slice(first, first + rows.num_rows)
            retained = Retained(stays[here], emptied[here], marked[here], is_changed=True)
            kept = survivors(rows, retained, self._rules.transactions.horizon_ms)
            if kept.num_rows:
                self._keep(kept, entry)
            first += rows.num_rows

    def _keep(self, rows: pa.Table, entry: FileEntry) -> None:
        if self._parts:
            first = self._parts[0][1]
            if entry.leader_epoch != first.leader_epoch or entry.end_offset - 1 - first.base_offset > INT_MAX:
                self._write()
        self._parts.append((rows, entry))
        self._bytes += rows.nbytes
        if self._bytes >= self._bytes_max:
            self._write()

    def _write(self) -> None:
        if not self._parts:
            return
        first = self._parts[0][1]
        rows = merged_rows([(part, entry.base_offset) for part, entry in self._parts], first.base_offset)
        self._parts, self._bytes = [], 0
        values = PartitionValues(self._segment, first.leader_epoch, first.base_offset)
        self.adds.append(FileEntry(self._table.write_file(rows, values, self._codec), *values))


@dataclass(slots=True)
class _Pass:
    """A pass under way.

    first_dirty_offset  the cleaner's position when it began: the pass ends if another one reaches its end
    end_offset          the end of the section to be mapped; once the map is complete or full that of the pass
    mapped_end          the end of what is in the map
    cleaned_end         the groups below it are cleaned
    is_stated           whether a commit has stated the end of the pass: the map goes up to it, full or not
    unstated_bytes      of files that were found unchanged since the last commit
    rewrite             the group that is being cleaned
    """

    dirty_ratio: float
    rules: Cleaning
    leader_epoch: int
    first_dirty_offset: int
    started_ms: int
    end_offset: int
    mapped_end: int
    cleaned_end: int = 0
    is_stated: bool = False
    unstated_bytes: int = 0
    rewrite: GroupRewrite | None = None

    def skip_to(self, cleaned_end: int) -> None:
        """Another process has cleaned what lies below."""
        if cleaned_end > self.cleaned_end:
            self.cleaned_end = cleaned_end
            self.rules.transactions.is_whole = False


@dataclass(frozen=True, slots=True)
class _GroupLeft:
    """What is left of a group that is being cleaned: its files, and the end of the whole group."""

    view: UpkeepView
    files: Sequence[FileEntry]
    group_end: int


class Cleaner(Chore):
    """Compacts one log when it is dirty enough, a group at a time."""

    def __init__(
        self,
        log: PartitionLog,
        turn: CleanerTurn = SHARED_TURN,
        map_bytes_max: int = MAP_BYTES_MAX,
        cleans_below: Callable[[], int] = lambda: LONG_MAX,
    ) -> None:
        """`cleans_below` returns the offset from which on nothing is cleaned."""
        self._log = log
        self._cleans_below = cleans_below
        self._turn = turn
        self._map_bytes_max = map_bytes_max
        self._pass: _Pass | None = None
        self._seen_segment = -1
        self._is_waiting = False

    def needs_step(self, commit: Commit) -> bool:
        is_rolled = bool(commit.adds) and commit.adds[-1].segment > self._seen_segment
        return is_rolled and self._log.config.is_compacted

    def rest_ms(self, _view: UpkeepView) -> int | None:
        if not self._log.config.is_compacted or len(self._log.segments) < 2:
            return None
        return cadence.RECHECK.ms if self._is_waiting else cadence.CLEANER_RECHECK.ms

    def begin(self, view: UpkeepView) -> Work[int | None] | Work[bool] | UpkeepDone | None:
        self._is_waiting = False
        self._seen_segment = self._log.files[-1].segment if self._log.files else -1
        if not self._log.config.is_compacted:
            self._end()
            return None
        under_way = self._pass
        if under_way is not None and self._may_continue(under_way, view.now_ms):
            return self._continue(under_way, view)
        self._end()
        return self._begin_pass(view)

    def _may_continue(self, under_way: _Pass, now_ms: int) -> bool:
        """Whether a pass may clean its next group. A pass whose work or commit failed is abandoned: its files are left
        to the vacuum, since its commit may have been made."""
        is_between = under_way.rewrite is None and self._stands(under_way)
        return is_between and self._turn.acquire(self, under_way.dirty_ratio, now_ms)

    def _begin_pass(self, view: UpkeepView) -> Work[int | None] | Work[bool] | UpkeepDone | None:
        """Begin a pass, or continue the one that another process has begun."""
        log, high_watermark = self._log, min(view.high_watermark, self._cleans_below())
        stated = self._stated()
        now_ms = view.now_ms
        dirty = self._below(high_watermark, now_ms)
        if stated is None and not is_due(dirty, log.config, is_busy=view.is_busy, now_ms=now_ms):
            self._is_waiting = is_due(self._below(LONG_MAX, now_ms), log.config, now_ms=now_ms)
            return None
        producers = log.producers  # may fold, so before the plan
        last_offsets = last_batch_ends(producers, high_watermark)
        to_clean = self._below(log.last_stable_offset(high_watermark), now_ms)
        state, retention_ms = log.state, log.config.delete_retention_ms
        stated = self._stated()
        if stated is not None:
            # its last records may be gone since, by an erasure: what counts is where that begins which stays
            may_begin = stated.end_offset <= state.segments[len(to_clean.segments)].base_offset
        else:
            may_begin = is_due(to_clean, log.config, is_busy=view.is_busy, now_ms=now_ms)
        if last_offsets is None or not may_begin or not self._turn.acquire(self, to_clean.dirty_ratio, now_ms):
            self._is_waiting = True
            return None
        tombstones_end = state.cleaner.due_tombstones_end(now_ms, retention_ms)
        transactions = CleanedTransactions.of(producers, high_watermark, tombstones_end, now_ms, retention_ms)
        begun = self._pass = _Pass(
            to_clean.dirty_ratio,
            Cleaning(OffsetMap(self._map_bytes_max), tombstones_end, last_offsets, transactions),
            view.leader_epoch,
            state.cleaner.first_dirty_offset,
            now_ms,
            to_clean.end_offset if stated is None else stated.end_offset,
            to_clean.first_dirty_offset,
            is_stated=stated is not None,
        )
        if stated is not None:
            self._skip(begun, stated)
        return self._continue(begun, view)

    def _below(self, stable_offset: int, now_ms: int) -> LogToClean:
        state, lag_ms = self._log.state, self._log.config.min_compaction_lag_ms
        first_dirty = max(state.cleaner.first_dirty_offset, state.log_start_offset)
        return log_to_clean(state.segments, first_dirty, stable_offset, now_ms - lag_ms if lag_ms else LONG_MAX)

    def _stated(self) -> PassUnderWay | None:
        """The pass that the log's commits state as under way, unless a merge has spanned its end since, or the active
        segment has it: what was above was cut off, and appends went on in the segment below."""
        cleaner = self._log.state.cleaner
        stated = cleaner.under_way
        if stated is None or stated.end_offset <= max(cleaner.first_dirty_offset, self._log.log_start_offset):
            return None
        segments = self._log.state.segments
        is_in_active = bool(segments) and stated.end_offset > segments[-1].base_offset
        return None if is_in_active or self._spans(stated.end_offset) else stated

    def _spans(self, offset: int) -> bool:
        """Whether a file begins below this offset and ends above it."""
        files = self._log.files
        at = bisect_right(files, offset, key=end_of)
        return at < len(files) and files[at].start_offset < offset

    def _stands(self, under_way: _Pass) -> bool:
        """Whether the pass may go on with the log as it is now; appends, merges and retention do not matter. Another
        session of the same follower may have cleaned groups of the same pass meanwhile."""
        log, stated = self._log, self._stated()
        if (log.leader_epoch, log.state.cleaner.first_dirty_offset) != (
            under_way.leader_epoch,
            under_way.first_dirty_offset,
        ):
            return False
        if log.log_end_offset < under_way.end_offset or self._spans(under_way.end_offset):
            return False
        if stated is None:
            return not under_way.is_stated
        if stated.end_offset != under_way.end_offset:
            return False
        under_way.is_stated = True
        self._skip(under_way, stated)
        return True

    def _skip(self, under_way: _Pass, stated: PassUnderWay) -> None:
        """Skip what another process has cleaned, unless tombstones that have become due since may lie there."""
        if under_way.rules.tombstones_end <= self._log.state.cleaner.gone_tombstones_end:
            under_way.skip_to(stated.cleaned_end)

    def _continue(self, under_way: _Pass, view: UpkeepView) -> Work[int | None] | Work[bool] | UpkeepDone:
        """The next part of the map, or the next group."""
        is_full = under_way.rules.latest.is_full and not under_way.is_stated
        unmapped = self._files_between(under_way.mapped_end, under_way.end_offset)
        if unmapped and not is_full:
            files = _first_files(unmapped)
            run = partial(
                _map_files, self._log.table.reopened(), files, under_way.rules, ends_full=not under_way.is_stated
            )
            return Work(run, partial(self._mapped, under_way, view, files))
        if not under_way.is_stated:
            under_way.end_offset = under_way.mapped_end
        return self._next_group(under_way, view)

    def _files_between(self, start_offset: int, end_offset: int) -> Sequence[FileEntry]:
        """The live files that reach above the first offset and not above the last one."""
        files = self._log.files
        return files[bisect_right(files, start_offset, key=end_of) : bisect_right(files, end_offset, key=end_of)]

    def _mapped(
        self, under_way: _Pass, view: UpkeepView, files: Sequence[FileEntry], count: int | None
    ) -> Work[int | None] | Work[bool] | UpkeepDone:
        if count is None:
            view.check_there(files)
        if count is None or not self._stands(under_way):
            return self._lost(view)
        under_way.mapped_end = files[count - 1].end_offset
        return self._continue(under_way, view)

    def _next_group(self, under_way: _Pass, view: UpkeepView) -> Work[bool]:
        log, cleaned_end, end_offset = self._log, under_way.cleaned_end, under_way.end_offset
        left = [each for each in log.segments if each.end_offset > cleaned_end and each.base_offset < end_offset]
        group = next(iter(grouped(left, end_offset, log.config)), ())
        segments = {segment.base_offset for segment in group}
        files = [entry for entry in self._files_between(cleaned_end, end_offset) if entry.segment in segments]
        rewrite = under_way.rewrite = GroupRewrite(
            log.table.reopened(),
            under_way.rules,
            group[0].base_offset if group else 0,
            codec_of_merge(log.config),
            min(OUTPUT_BYTES, log.config.merged_bytes_max),
        )
        group_end = files[-1].end_offset if files else end_offset
        return self._rewrite_some(under_way, rewrite, _GroupLeft(view, files, group_end))

    def _rewrite_some(self, under_way: _Pass, rewrite: GroupRewrite, left: _GroupLeft) -> Work[bool]:
        some = _first_files(left.files)
        rest = replace(left, files=left.files[len(some) :])
        run = partial(rewrite.clean, some, is_last=not rest.files)
        return Work(run, partial(self._rewritten, under_way, rewrite, rest, some))

    def _rewritten(
        self, under_way: _Pass, rewrite: GroupRewrite, left: _GroupLeft, done: Sequence[FileEntry], is_whole: bool
    ) -> Work[bool] | UpkeepDone:
        if not is_whole:
            left.view.check_there(done)
        if not is_whole or not self._stands(under_way):
            return self._lost(left.view)
        under_way.unstated_bytes += sum(each.file.size_bytes for each in done)
        if left.files:
            return self._rewrite_some(under_way, rewrite, left)
        is_last = not self._files_between(left.group_end, under_way.end_offset)
        if not rewrite.removes and not is_last and under_way.unstated_bytes < PROGRESS_BYTES:
            under_way.cleaned_end = left.group_end
            return self._next_group(under_way, left.view)
        return self._swap(under_way, rewrite, left)

    def _swap(self, under_way: _Pass, rewrite: GroupRewrite, left: _GroupLeft) -> UpkeepDone:
        """Commit the group's new files and how far the pass has come, with the last group the new position."""
        log, view = self._log, left.view
        for _ in range(COMMIT_TRIES):
            producers = log.producers  # may fold
            live = live_paths(log.files)
            if not self._stands(under_way) or not all(entry.path in live for entry in rewrite.removes):
                break
            before, end_offset = log.state.cleaner, under_way.end_offset
            is_last = not self._files_between(left.group_end, end_offset)
            after, aborted_end = before.without_tombstones(under_way.rules.tombstones_end), 0
            if not is_last:
                after = after.within_pass(end_offset, left.group_end)
            else:
                after = after.after_pass(end_offset, under_way.started_ms, log.config.delete_retention_ms)
                if producers.without_aborted(end_offset) is not producers:
                    after, aborted_end = after.without_aborted(end_offset), end_offset
            outcome = log.replace_files(
                rewrite.removes,
                rewrite.adds,
                leader_epoch=under_way.leader_epoch,
                operation="COMPACT",
                now_ms=view.now_ms,
                txns=after.txns_after(before),
                aborted_end=aborted_end,
            )
            if not isinstance(outcome, Conflict):
                under_way.rewrite, under_way.is_stated, under_way.unstated_bytes = None, True, 0
                under_way.cleaned_end = left.group_end
                if is_last:
                    self._end()
                return view.done(UpkeepWork.COMPACTION, len(rewrite.removes))
            log.refresh()
        return self._lost(view)

    def _lost(self, view: UpkeepView) -> UpkeepDone:
        """Delete the new files of a group that was not committed, and refresh. The pass ends if it no longer stands."""
        under_way = self._pass
        rewrite = under_way.rewrite if under_way is not None else None
        if rewrite is not None:
            self._log.table.delete_objects([entry.path for entry in rewrite.adds])
        self._log.refresh()
        if under_way is not None:
            under_way.rewrite = None
            if not self._stands(under_way):
                self._end()
        return view.done(UpkeepWork.LOST_RACE, len(rewrite.removes) if rewrite is not None else 0)

    def _end(self) -> None:
        self._pass = None
        self._turn.release(self)


def pieces(table: LogTable, entry: FileEntry, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """A data file's rows in parts of at least one row, so that a large file is never wholly in memory."""
    start_offset = entry.start_offset
    while start_offset < entry.end_offset:
        wanted = RowsWanted(start_offset - entry.base_offset, bytes_max=PIECE_BYTES)
        rows = rows_between(table.read_file(entry.file, columns, wanted), entry, start_offset, entry.end_offset)
        yield rows
        start_offset = entry.base_offset + rows["offset_delta"][-1].as_py() + 1


def keyed_rows(
    table: LogTable, entry: FileEntry, columns: Sequence[str], aborted: AbortedRecords
) -> Iterator[KeyedRows]:
    """The data that decide on a data file's rows, in parts, from `columns` and those that transactions need."""
    for rows in pieces(table, entry, columns):
        more = transaction_columns(rows)
        known = {name: rows[name] for name in rows.column_names}
        if more:
            first, last = (rows["offset_delta"][at].as_py() for at in (0, -1))
            found = table.read_file(entry.file, ("offset_delta", *more), RowsWanted(first, last + 1))
            found = rows_between(found, entry, entry.base_offset + first, entry.base_offset + last + 1)
            known |= {name: found[name] for name in more}
        yield KeyedRows.of(pa.table(known) if more else rows, entry.base_offset, aborted)


def _first_files(files: Sequence[FileEntry]) -> Sequence[FileEntry]:
    """The first of these files, as many as belong to one piece of work."""
    size_bytes = record_count = 0
    for count, entry in enumerate(files):
        size_bytes, record_count = size_bytes + entry.file.size_bytes, record_count + entry.file.record_count
        if count and (size_bytes > WORK_BYTES or record_count > WORK_RECORDS):
            return files[:count]
    return files


def _map_files(table: LogTable, files: Sequence[FileEntry], rules: Cleaning, *, ends_full: bool) -> int | None:
    """Add the keys of these files to the map, with `ends_full` until it is full: the number of files added; None when
    one is gone."""
    try:
        for count, entry in enumerate(files):
            if count and ends_full and rules.latest.is_full:
                return count
            for rows in keyed_rows(table, entry, MAP_COLUMNS, rules.transactions.aborted):
                rules.latest.put(rows)
    except ObjectNotFoundError:
        return None
    return len(files)
