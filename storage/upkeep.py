"""Upkeep of one log in the background, in small steps: nothing here is needed for correctness. I/O: its log's table.

Checkpoints, clean-up of old commits, merges of small files, and deletion of what left the log. One committer
per table at a time does it: a leader's appender, or a follower's fetch task between copies.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import StrEnum

from storage.errors import ObjectNotFoundError
from storage.log import PartitionLog
from storage.log_read import merged_rows
from storage.log_state import NO_PRODUCERS, live_paths, producers_path
from storage.merges import MergePlan, plan_merges
from storage.table import Conflict, FileEntry

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DELETIONS_MAX = 1_000
"""How many objects one step deletes at most."""


class UpkeepWork(StrEnum):
    """What a step did."""

    CHECKPOINT = "checkpoint"
    CLEAN_LOG = "clean log"
    DELETE_FILES = "delete files"
    DELETE_PRODUCERS = "delete producers"
    MERGE = "merge"
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

    checkpoint_commits  a checkpoint every so many commits
    keep_commits        clean-up leaves at least so many commits …
    keep_ms             … and all of this age
    unreferenced_ms     a file that no commit ever named goes after this: a slow writer may still hand it over
    """

    checkpoint_commits: int = 200
    keep_commits: int = 1_000
    keep_ms: int = HOUR_MS
    unreferenced_ms: int = 7 * DAY_MS


class Upkeep:
    """The upkeep of one log by the actor that owns it."""

    def __init__(
        self,
        log: PartitionLog,
        limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
    ) -> None:
        """`executor` writes the checkpoints, each of which takes about 100 ms; None: the caller does."""
        self._log = log
        self._executor = executor
        self._running: Future[int] | None = None
        self._limits = limits or UpkeepLimits()
        self._checkpointed_version: int | None = None
        self._durable_version = -1
        self._cleaned_ms = 0
        self._is_cleaning_due = False
        self._deleted_ms = 0
        self._swept_ms = 0
        self._merged_at: tuple[int, int] | None = None

    def step(self, now_ms: int, high_watermark: int, leader_epoch: int) -> UpkeepDone | None:
        """Do at most one bounded piece of work; None when there is nothing to do, which costs no I/O.

        Nothing is done unless the log is at `leader_epoch`. Raises StoreError as the table does.
        """
        if self._log.leader_epoch != leader_epoch:
            return None
        if self._checkpointed_version is None:
            self._begin(now_ms)
        return (
            self._checkpoint()
            or self._clean_log(now_ms)
            or self._delete_files(now_ms, leader_epoch)
            or self._delete_producers(now_ms)
            or self._merge(now_ms, high_watermark, leader_epoch)
            or self._sweep(now_ms)
        )

    def _begin(self, now_ms: int) -> None:
        self._checkpointed_version = self._log.version
        self._cleaned_ms = self._deleted_ms = now_ms
        self._swept_ms = now_ms - DAY_MS + HOUR_MS

    def _done(self, work: UpkeepWork, count: int) -> UpkeepDone:
        return UpkeepDone(work, count, self._log.version)

    def _checkpoint(self) -> UpkeepDone | None:
        """At every multiple of `checkpoint_commits`, so that restarts neither skip nor repeat it."""
        if self._running is not None:
            return self._finish_checkpoint()
        every, before = self._limits.checkpoint_commits, self._checkpointed_version or 0
        if self._log.version // every <= before // every:
            return None
        if self._executor is not None:
            self._running = self._executor.submit(self._log.table.checkpointer())
            return None
        return self._checkpointed(self._log.table.checkpoint())

    def _finish_checkpoint(self) -> UpkeepDone | None:
        running = self._running
        if running is None or not running.done():
            return None
        self._running = None
        return self._checkpointed(running.result())

    def _checkpointed(self, version: int) -> UpkeepDone:
        self._checkpointed_version = self._durable_version = version
        self._is_cleaning_due = True
        return self._done(UpkeepWork.CHECKPOINT, 1)

    def _clean_log(self, now_ms: int) -> UpkeepDone | None:
        limits = self._limits
        if not self._is_cleaning_due and now_ms - self._cleaned_ms < limits.keep_ms:
            return None
        self._is_cleaning_due = False
        self._cleaned_ms = now_ms
        count = self._log.table.clean_log(self._log.version - limits.keep_commits, now_ms - limits.keep_ms)
        return self._done(UpkeepWork.CLEAN_LOG, count) if count else None

    def _delete_files(self, now_ms: int, leader_epoch: int) -> UpkeepDone | None:
        """Delete files that left the log `file.delete.delay.ms` ago.

        Not before the commit that removed them is durable (a checkpoint or a synced commit stands above it): a power
        cut must not bring back a log that still names them. Not those that lay above the log end: a copy
        may bring them back under the same name.
        """
        delay_ms = self._log.config.file_delete_delay_ms
        if not self._log.state.removed or now_ms - self._deleted_ms < max(1, delay_ms // 4):
            return None
        self._deleted_ms = now_ms
        self._log.refresh()
        if self._log.leader_epoch != leader_epoch:
            return None
        state = self._log.state
        live = live_paths(state.files)
        due = [
            path
            for path, removed in state.removed.items()
            if now_ms - removed.removed_ms >= delay_ms
            and removed.version <= max(self._durable_version, self._log.durable_version)
            and removed.entry.end_offset <= state.log_end_offset
            and path not in live
        ][:DELETIONS_MAX]
        if not due:
            return None
        self._log.table.delete_objects(due)
        state.forget_removed(due)
        return self._done(UpkeepWork.DELETE_FILES, len(due))

    def _delete_producers(self, now_ms: int) -> UpkeepDone | None:
        """Delete producer states that were replaced before the commits that are kept."""
        stated = self._log.state.producer_numbers
        kept_from = self._log.version - self._limits.keep_commits
        due_ms = now_ms - self._log.config.file_delete_delay_ms
        gone: list[int] = []
        while len(stated) > 1 and len(gone) < DELETIONS_MAX:
            if stated[1].version > kept_from or stated[1].stated_ms > due_ms:
                break
            gone.append(stated.popleft().number)
        named = {entry.number for entry in stated} | {NO_PRODUCERS}
        paths = [producers_path(number) for number in dict.fromkeys(gone) if number not in named]
        if not paths:
            return None
        self._log.table.delete_objects(paths)
        return self._done(UpkeepWork.DELETE_PRODUCERS, len(paths))

    def _merge(self, now_ms: int, high_watermark: int, leader_epoch: int) -> UpkeepDone | None:
        log = self._log
        if self._merged_at == (log.version, high_watermark):
            return None
        plans = plan_merges(log.files, high_watermark, log.config.merged_bytes_max)
        if not plans:
            self._merged_at = (log.version, high_watermark)
            return None
        return self._merge_files(plans[0], now_ms, leader_epoch)

    def _merge_files(self, plan: MergePlan, now_ms: int, leader_epoch: int) -> UpkeepDone:
        log, first = self._log, plan.files[0]
        try:
            parts = [(log.table.read_file(entry.file), entry.base_offset) for entry in plan.files]
        except ObjectNotFoundError:
            log.refresh()
            return self._done(UpkeepWork.LOST_RACE, 0)
        file = log.table.write_file(merged_rows(parts, first.base_offset), first.segment)
        merged = FileEntry(file, first.segment, first.leader_epoch, first.base_offset)
        outcome = log.replace_files(
            plan.files, [merged], leader_epoch=leader_epoch, operation="OPTIMIZE", now_ms=now_ms, data_change=False
        )
        if isinstance(outcome, Conflict):
            log.table.delete_objects([file.path])
            log.refresh()
            return self._done(UpkeepWork.LOST_RACE, len(plan.files))
        return self._done(UpkeepWork.MERGE, len(plan.files))

    def _sweep(self, now_ms: int) -> UpkeepDone | None:
        """Once a day, delete what no commit names and nobody wrote for a week. Listed first, folded afterwards."""
        if now_ms - self._swept_ms < DAY_MS:
            return None
        self._swept_ms = now_ms
        old_ms = now_ms - self._limits.unreferenced_ms
        table = self._log.table
        listed = [*table.list_objects("segment="), *table.list_objects("_producers/")]
        self._log.refresh()
        state = self._log.state
        named = live_paths(state.files) | set(state.removed)
        named |= {producers_path(stated.number) for stated in state.producer_numbers}
        unnamed = [path for path, modified_ms in listed if modified_ms < old_ms and path not in named]
        if not unnamed:
            return None
        table.delete_objects(unnamed[:DELETIONS_MAX])
        return self._done(UpkeepWork.SWEEP, len(unnamed[:DELETIONS_MAX]))
