"""Upkeep of one log in the background, in small steps: nothing here is needed for correctness. I/O: its log's table.

Checkpoints, clean-up of old commits, merges of small files, and deletion of what left the log. One committer
per table at a time does it: a leader's appender, or a follower's fetch task between copies. What takes long is done
by an executor through a handle of its own; the committer only decides, and commits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from zlib import crc32

from storage.codecs import codec_of_merge
from storage.errors import ObjectNotFoundError
from storage.log import PartitionLog
from storage.log_read import merged_rows
from storage.log_reader import LogReader
from storage.log_state import live_paths
from storage.merges import FILES_MIN, MergePlan, plan_merges, plan_taken_merges
from storage.removed import producers_path
from storage.table import Commit, Conflict, DataFile, FileEntry, LogTable

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DELETIONS_MAX = 500
"""How many objects one piece of work deletes at most."""
RECHECK_MS = 1_000

T = TypeVar("T")


class UpkeepWork(StrEnum):
    """What a step did."""

    CHECKPOINT = "checkpoint"
    CLEAN_LOG = "clean log"
    DELETE_FILES = "delete files"
    MERGE = "merge"
    TAKE_MERGE = "take merge"
    LOST_RACE = "lost race"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    """A step's work; `count` is of commits, files or objects; `version` is the table's afterwards."""

    work: UpkeepWork
    count: int
    version: int


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """When upkeep does what.

    checkpoint_commits  a checkpoint after so many commits: as many does a cold fold read at most …
    garbage_ms          … or when files that wait for a checkpoint to be deleted have waited for so long
    keep_commits        clean-up leaves at least so many commits …
    keep_ms             … and all of this age
    unreferenced_ms     a file that no commit ever named goes after this: a slow writer may still hand it over
    merge_files_min     fewer files than this are not merged while their run still grows
    merge_spread_files  each table's first merge comes up to so many files later than that, by its name: tables that
                        were made together must not merge all at once
    leader_first_ms     a follower waits so long for its leader's merge before it merges by itself
    bulk_bytes          files of this size are large enough, until the log has more than …
    live_files_max      … so many live files; while its owner is busy no larger merges are made up to twice as many
    """

    checkpoint_commits: int = 500
    garbage_ms: int = 600_000
    keep_commits: int = 1_000
    keep_ms: int = HOUR_MS
    unreferenced_ms: int = 7 * DAY_MS
    merge_files_min: int = FILES_MIN
    merge_spread_files: int = FILES_MIN
    leader_first_ms: int = 30_000
    bulk_bytes: int = 1 << 20
    live_files_max: int = 2_000


class Upkeep:
    """The upkeep of one log by the actor that owns it."""

    def __init__(
        self,
        log: PartitionLog,
        limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
        *,
        leader: LogReader | None = None,
    ) -> None:
        """`executor` does what takes long; None: the caller does. `leader`: the log that this one follows, if any,
        as its owner reads it."""
        self.log = log
        self._leader = leader
        self._executor = executor
        self._limits = limits or UpkeepLimits()
        self._running: tuple[Future[Any], Callable[[Any], UpkeepDone | None]] | None = None
        self._cleaning: Iterator[int] | None = None
        self._cleaned_ms = 0
        self._deleted_ms = 0
        self._sweep_day: int | None = None
        self._plan_at_count = self._first_plan_at_count()
        self._closed_run_end: int | None = None
        self._last_run = (-1, -1)
        self._pending: tuple[str, int] | None = None
        self._taken_version = -1
        self._taken: list[MergePlan] = []
        self._wake_version = 0

    def _first_plan_at_count(self) -> int:
        spread = self._limits.merge_spread_files
        return self._limits.merge_files_min + crc32(self.log.name.encode()) % spread if spread else 0

    def step(self, now_ms: int, high_watermark: int, leader_epoch: int, *, is_busy: bool = False) -> UpkeepDone | None:
        """Do at most one bounded piece of work, or have it done; None when there is nothing to do now.

        Without work it costs no I/O. `is_busy`: others need the machine more. Nothing is begun unless the log is at
        `leader_epoch`. Raises StoreError as the table does.
        """
        if self._running is not None:
            return self._finish()
        if self.log.leader_epoch != leader_epoch:
            return None
        if self._sweep_day is None:
            self._begin(now_ms)
        return (
            self._checkpoint(now_ms)
            or self._clean_log(now_ms)
            or self._delete_files(now_ms, leader_epoch)
            or self._merge(now_ms, high_watermark, leader_epoch, is_busy)
            or self._sweep(now_ms)
        )

    def needs_step(self, commit: Commit) -> bool:
        """Whether there may be something to do after this commit of the log; `rest_ms` tells what time brings."""
        run = (commit.adds[-1].segment, commit.adds[-1].leader_epoch) if commit.adds else self._last_run
        return self.log.version >= self._wake_version or run > self._last_run

    def rest_ms(self, now_ms: int) -> int:
        """After a step that did nothing: how long there is nothing to do unless the log changes."""
        if self._running is not None or self._sweep_day is None or self._cleaning is not None:
            return RECHECK_MS if self._sweep_day is None else 0
        due = [self._cleaned_ms + self._limits.keep_ms, (self._sweep_day + 1) * DAY_MS - self._sweep_offset_ms]
        if self._pending is not None or self._taken or self._closed_run_end is not None:
            due.append(now_ms + RECHECK_MS)
        oldest = next(iter(self.log.state.removed.items()), None)
        if oldest is not None:
            delay_ms = self.log.config.file_delete_delay_ms
            due.append(max(oldest[1].removed_ms + delay_ms, self._deleted_ms + self._delete_interval_ms))
        return max(0, min(due) - now_ms)

    # -- work in the background ---------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        self._cleaned_ms = self._deleted_ms = now_ms
        self._sweep_day = self._day_of(now_ms)

    def _start(self, work: Callable[[], T], finish: Callable[[T], UpkeepDone | None]) -> UpkeepDone | None:
        """Have `work` done, which touches nothing of the log's owner; then `finish` with what came of it."""
        if self._executor is None:
            return finish(work())
        self._running = (self._executor.submit(work), finish)
        return None

    def _finish(self) -> UpkeepDone | None:
        if self._running is None or not self._running[0].done():
            return None
        (future, finish), self._running = self._running, None
        return finish(future.result())

    def _done(self, work: UpkeepWork, count: int) -> UpkeepDone:
        return UpkeepDone(work, count, self.log.version)

    # -- checkpoints and clean-up -------------------------------------------------------------------------

    def _checkpoint(self, now_ms: int) -> UpkeepDone | None:
        log = self.log
        if not self._is_checkpoint_due(now_ms):
            return None
        return self._start(log.table.checkpointer(log.state.snapshot()), self._checkpointed)

    def _is_checkpoint_due(self, now_ms: int) -> bool:
        """Counted from the last one, so that restarts neither skip nor repeat it; each table's first one comes a little
        earlier, so that tables that were made together have not all their checkpoints together."""
        state, every = self.log.state, self._limits.checkpoint_commits
        jitter = crc32(self.log.name.encode()) % (every // 2) if state.durable_version < 0 and every > 1 else 0
        self._wake_version = max(state.durable_version, 0) + every - jitter
        if state.version >= self._wake_version:
            return True
        oldest = next(iter(state.removed.items()), None)
        if oldest is None or oldest[1].version <= state.durable_version:
            return False
        return now_ms - oldest[1].removed_ms >= max(self._limits.garbage_ms, self.log.config.file_delete_delay_ms)

    def _checkpointed(self, version: int) -> UpkeepDone:
        self.log.state.made_durable(version)
        self._cleaned_ms = -HOUR_MS
        return self._done(UpkeepWork.CHECKPOINT, 1)

    def _clean_log(self, now_ms: int) -> UpkeepDone | None:
        limits = self._limits
        if self._cleaning is None:
            if now_ms - self._cleaned_ms < limits.keep_ms:
                return None
            self._cleaned_ms = now_ms
            keep_from = min(self.log.version - limits.keep_commits, self.log.state.oldest_version_needed)
            self._cleaning = self.log.table.reopened().clean_log(keep_from, now_ms - limits.keep_ms)
        cleaning = self._cleaning
        return self._start(lambda: sum(1 for _ in islice(cleaning, DELETIONS_MAX)), self._cleaned)

    def _cleaned(self, count: int) -> UpkeepDone | None:
        if count < DELETIONS_MAX:
            self._cleaning = None
        return self._done(UpkeepWork.CLEAN_LOG, count) if count else None

    # -- deletion -----------------------------------------------------------------------------------------

    @property
    def _delete_interval_ms(self) -> int:
        return max(1, min(self.log.config.file_delete_delay_ms // 4, 10_000))

    def _delete_files(self, now_ms: int, leader_epoch: int) -> UpkeepDone | None:
        """Delete what left the log `file.delete.delay.ms` ago: files, and older producer states.

        Not before the commit that removed them is durable (a checkpoint stands above it): a power cut must not bring
        back a log that still names them. Not those that lay above the log end: a copy may bring back their records.
        """
        log = self.log
        if not log.state.removed or now_ms - self._deleted_ms < self._delete_interval_ms:
            return None
        if not self._due_objects(now_ms):
            self._deleted_ms = now_ms
            return None
        log.refresh()
        due = self._due_objects(now_ms)
        if log.leader_epoch != leader_epoch or len(due) < DELETIONS_MAX:
            self._deleted_ms = now_ms
        if log.leader_epoch != leader_epoch or not due:
            return None
        return self._start(partial(_delete, log.table.reopened(), due), partial(self._deleted, due))

    def _due_objects(self, now_ms: int) -> list[str]:
        """Oldest first, so that the search ends with the first that is too young."""
        state, due_ms = self.log.state, now_ms - self.log.config.file_delete_delay_ms
        due: list[str] = []
        for path, removed in state.removed.items():
            if removed.removed_ms > due_ms or removed.version > state.durable_version or len(due) == DELETIONS_MAX:
                break
            if removed.end_offset <= state.log_end_offset:
                due.append(path)
        return due

    def _deleted(self, paths: Sequence[str], _: None) -> UpkeepDone:
        self.log.state.removed.forget(paths)
        return self._done(UpkeepWork.DELETE_FILES, len(paths))

    # -- merges -------------------------------------------------------------------------------------------

    def _merge(self, now_ms: int, high_watermark: int, leader_epoch: int, is_busy: bool) -> UpkeepDone | None:
        plan = self._taken_merge(high_watermark) or self._own_merge(now_ms, high_watermark)
        files = self.log.files
        below = bisect_right(files, high_watermark, key=lambda entry: entry.end_offset)
        self._wake_version = min(self._wake_version, self.log.version + max(1, self._plan_at_count - below))
        if plan is None:
            return None
        limits = self._limits
        if is_busy and plan.size_bytes > limits.bulk_bytes and len(files) <= 2 * limits.live_files_max:
            self._plan_at_count, self._pending = below, self._pending or (plan.files[0].path, now_ms)
            return None
        self._pending = None
        finish = partial(self._merged, plan, now_ms, leader_epoch)
        if plan.taken is not None and self._leader is not None:
            source = self._leader.table.reopened()
            return self._start(partial(_taken_file, self.log.table.reopened(), source, plan.taken), finish)
        codec = codec_of_merge(self.log.config.compression_type)
        return self._start(partial(_merged_file, self.log.table.reopened(), plan, codec), finish)

    def _taken_merge(self, high_watermark: int) -> MergePlan | None:
        """A merged file of the leader to be copied. Looked for when the leader merged since the last look."""
        leader, log = self._leader, self.log
        if leader is None:
            return None
        if self._pending is not None:
            leader.refresh()
        if leader.leader_epoch != log.leader_epoch:
            self._taken = []
            return None
        if leader.state.swapped_version > self._taken_version:
            self._taken_version = leader.state.swapped_version
            plans = plan_taken_merges(log.files, leader.files)
            self._taken = [plan for plan in plans if plan.taken and plan.taken.path not in log.state.removed]
            self._taken.reverse()
        if self._taken and self._taken[-1].end_offset <= high_watermark:
            return self._taken.pop()
        return None

    def _own_merge(self, now_ms: int, high_watermark: int) -> MergePlan | None:
        log = self.log
        self._note_runs()
        below = bisect_right(log.files, high_watermark, key=lambda entry: entry.end_offset)
        is_closed = self._closed_run_end is not None and high_watermark >= self._closed_run_end
        if self._pending is not None and now_ms - self._pending[1] < self._patience_ms:
            return None
        if below < self._plan_at_count and not is_closed and self._pending is None:
            return None
        limits, bytes_max = self._limits, log.config.merged_bytes_max
        spared_bytes = limits.bulk_bytes if len(log.files) <= limits.live_files_max else None
        plans = plan_merges(log.files, high_watermark, bytes_max, limits.merge_files_min, spared_bytes)
        plan = next(iter(plans), None)
        if plan is None:
            self._plan_at_count = below + max(1, self._limits.merge_files_min // 2)
            self._closed_run_end = None if is_closed else self._closed_run_end
            self._pending = None
            return None
        first = plan.files[0].path
        if self._patience_ms and (self._pending is None or self._pending[0] != first):
            self._pending = (first, now_ms)
            return None
        return plan

    @property
    def _patience_ms(self) -> int:
        return self._limits.leader_first_ms if self._leader is not None else 0

    def _note_runs(self) -> None:
        """A new segment or leader epoch closes the run before it, which is then merged to the end."""
        if not self.log.files:
            return
        last = self.log.files[-1]
        if (last.segment, last.leader_epoch) != self._last_run:
            self._last_run = (last.segment, last.leader_epoch)
            self._closed_run_end = last.start_offset

    def _merged(self, plan: MergePlan, now_ms: int, leader_epoch: int, file: DataFile | None) -> UpkeepDone:
        """Swap the files, unless the log changed under the merge: a truncation, a newer epoch, or another merge."""
        log, first = self.log, plan.files[0]
        if file is None:
            return self._lost(plan, None)
        live = live_paths(log.files)
        if log.leader_epoch != leader_epoch or any(entry.path not in live for entry in plan.files):
            return self._lost(plan, file)
        merged = plan.taken or FileEntry(file, first.segment, first.leader_epoch, first.base_offset)
        outcome = log.replace_files(
            plan.files, [merged], leader_epoch=leader_epoch, operation="OPTIMIZE", now_ms=now_ms, data_change=False
        )
        if isinstance(outcome, Conflict):
            return self._lost(plan, file)
        self._plan_at_count = 0
        work = UpkeepWork.MERGE if plan.taken is None else UpkeepWork.TAKE_MERGE
        return self._done(work, len(plan.files))

    def _lost(self, plan: MergePlan, file: DataFile | None) -> UpkeepDone:
        """Drop the own file. One under the leader's name stays for the sweep: another session of this follower may be
        about to commit it."""
        if file is not None and plan.taken is None:
            self.log.table.delete_objects([file.path])
        self._taken, self._taken_version = [], -1
        self._plan_at_count = 0
        self.log.refresh()
        return self._done(UpkeepWork.LOST_RACE, len(plan.files) if file is not None else 0)

    # -- sweep --------------------------------------------------------------------------------------------

    @property
    def _sweep_offset_ms(self) -> int:
        return crc32(self.log.name.encode()) % DAY_MS

    def _day_of(self, now_ms: int) -> int:
        return (now_ms + self._sweep_offset_ms) // DAY_MS

    def _sweep(self, now_ms: int) -> UpkeepDone | None:
        """Once a day, at a time of the table's own, delete what no commit names and nobody wrote for a week.

        Listed first, folded afterwards.
        """
        if self._sweep_day is None or self._day_of(now_ms) <= self._sweep_day:
            return None
        self._sweep_day = self._day_of(now_ms)
        old_ms = now_ms - self._limits.unreferenced_ms
        return self._start(partial(_list_old, self.log.table.reopened(), old_ms), self._swept)

    def _swept(self, old: list[str]) -> UpkeepDone | None:
        self.log.refresh()
        state = self.log.state
        named = live_paths(state.files) | set(state.removed) | {producers_path(state.producers_number)}
        unnamed = [path for path in old if path not in named]
        if not unnamed:
            return None
        finish = partial(self._done, UpkeepWork.SWEEP, len(unnamed))
        return self._start(partial(_delete, self.log.table.reopened(), unnamed), lambda _: finish())


def _merged_file(table: LogTable, plan: MergePlan, codec: str) -> DataFile | None:
    """The files of a plan as one, on storage; None when one of them is gone."""
    first = plan.files[0]
    try:
        parts = [(table.read_file(entry.file), entry.base_offset) for entry in plan.files]
    except ObjectNotFoundError:
        return None
    return table.write_file(merged_rows(parts, first.base_offset), first.segment, codec)


def _taken_file(table: LogTable, leader: LogTable, taken: FileEntry) -> DataFile | None:
    """The leader's merged file on own storage, each page of it checked: it replaces files that are sound.

    None when it is gone there.
    """
    try:
        table.copy_file(leader, taken.file)
        table.read_file(taken.file)
    except ObjectNotFoundError:
        return None
    return taken.file


def _delete(table: LogTable, paths: Sequence[str]) -> None:
    table.delete_objects(paths)


def _list_old(table: LogTable, old_ms: int) -> list[str]:
    listed = [*table.list_objects("segment="), *table.list_objects("_producers/")]
    return [path for path, modified_ms in listed if modified_ms < old_ms]
