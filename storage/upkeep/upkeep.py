"""Upkeep of one log in the background, in small steps: nothing here is needed for correctness. I/O: its log's table.

One committer per table at a time does it: a leader's appender, or a follower's fetch task between copies. It is a
list of chores (`storage.upkeep.chore`) that take turns. What takes long is done by an executor through a handle of its
own; the committer only decides, and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any
from zlib import crc32

from stratalog.storage.clock import Clock
from stratalog.storage.delta.removed import producers_path
from stratalog.storage.delta.table import Commit, LogTable
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS, PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.state import LogState, live_paths
from stratalog.storage.upkeep.append_pause import append_pause_ms
from stratalog.storage.upkeep.chore import (
    DAY_MS,
    HOUR_MS,
    RECHECK_MS,
    Chore,
    UpkeepDone,
    UpkeepLimits,
    UpkeepView,
    UpkeepWork,
    Work,
)
from stratalog.storage.upkeep.cleaner import Cleaner
from stratalog.storage.upkeep.erase import Erase
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.flush_upkeep import Flush
from stratalog.storage.upkeep.merging import Merging
from stratalog.storage.upkeep.retention_upkeep import Retention
from stratalog.storage.upkeep.scrub import Scrub

DELETIONS_MAX = 500
"""How many objects one piece of work deletes at most …"""
DELETIONS_MS = 500
"""… within this time: beside a busy disk a deletion takes milliseconds, and merges must have their turn."""
DELETE_INTERVAL_MS_MAX = 1_000
"""So often it is looked for what is due at most: a little at a time, as who waits for the machine meanwhile …"""
DURABLE_RECHECK_MS = 10_000
"""… and so often for what is not removed durably yet, which it may become without a step of ours."""
BEHIND_TIMES = 4
"""Who has so many times more to do than suits one piece of work is behind."""


class Upkeep:
    """The upkeep of one log by the actor that owns it."""

    def __init__(
        self,
        log: PartitionLog,
        limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
        *,
        leader: LogReader | None = None,
        applies_cleanup_policy: bool = True,
        erases: Callable[[], Sequence[Erase]] = tuple,
    ) -> None:
        """`executor` does what takes long; None: the caller does. `leader`: the log that this one follows, if any,
        as its owner reads it. `applies_cleanup_policy`: whether old records go as the topic's configs say. `erases`:
        what is to be erased, by id."""
        limits = limits or UpkeepLimits()
        self.log = log
        self._limits = limits
        self._executor = executor
        self._chores: list[Chore] = [Flush(log), Checkpoints(log, limits), Deletion(log), Erasure(erases)]
        if applies_cleanup_policy:
            self._chores += [Retention(log, limits), Cleaner(log)]
        self._chores += [Merging(log, limits, leader), Sweep(log, limits), Scrub(limits)]
        self._falling_behind = _with_own("overdue_count", self._chores)
        self._woken = _with_own("needs_step", self._chores)
        self._next_chore = 0
        self._running: tuple[Future[Any], Work[Any]] | None = None
        self._view: UpkeepView | None = None

    def step(self, now_ms: int, high_watermark: int, leader_epoch: int, *, is_busy: bool = False) -> UpkeepDone | None:
        """Do at most one bounded piece of work, or have it done; None when there is nothing to do now.

        Without work it costs no I/O. `is_busy`: others need the machine more. Nothing is begun unless the log is at
        `leader_epoch`. Raises StoreError as the table does.
        """
        if self._running is not None:
            done = self._finish()
            if done is not None or self._running is not None:
                return done
        if self.log.leader_epoch != leader_epoch:
            return None
        self._view = UpkeepView(self.log, now_ms, high_watermark, leader_epoch, is_busy)
        for turn in range(self._next_chore, self._next_chore + len(self._chores)):
            done = self._go_on(self._chores[turn % len(self._chores)].begin(self._view))
            if done is not None or self._running is not None:
                self._next_chore = (turn + 1) % len(self._chores)  # one that always has work leaves some to the others
                return done
        return None

    @property
    def has_result(self) -> bool:
        """Whether the executor has done what it was given."""
        return self._running is not None and self._running[0].done()

    @property
    def is_behind(self) -> bool:
        """Whether there is so much to do that the next step must follow the last one at once."""
        return self.log.is_folded and any(chore.is_behind for chore in self._chores)

    @property
    def overdue_count(self) -> int:
        """How many files or commits the chore that is furthest behind is behind with. Asked at every append."""
        return max([chore.overdue_count for chore in self._falling_behind]) if self.log.is_folded else 0

    def append_pause_ms(self, file_count: int) -> int:
        """How long the next append has to wait after one that added so many files; 0: not at all."""
        limits = self._limits
        return append_pause_ms(self.overdue_count, limits.slowdown_count, limits.stop_count, file_count)

    def needs_step(self, commit: Commit) -> bool:
        """Whether there may be something to do after this commit of the log; `rest_ms` tells what time brings."""
        return any(chore.needs_step(commit) for chore in self._woken)

    def rest_ms(self, now_ms: int) -> int:
        """After a step that did nothing: how long there is nothing to do unless the log changes."""
        if self._running is not None:
            return 0
        if self._view is None:
            return RECHECK_MS
        view = replace(self._view, now_ms=now_ms)
        rests = (chore.rest_ms(view) for chore in self._chores)
        return max(0, min((rest for rest in rests if rest is not None), default=HOUR_MS))

    def _go_on(self, begun: Work[Any] | UpkeepDone | None) -> UpkeepDone | None:
        while isinstance(begun, Work):
            if self._executor is not None:
                self._running = (self._executor.submit(begun.run), begun)
                return None
            begun = begun.finish(begun.run())
        return begun

    def _finish(self) -> UpkeepDone | None:
        if self._running is None or not self._running[0].done():
            return None
        (future, work), self._running = self._running, None
        return self._go_on(work.finish(future.result()))


def _with_own(name: str, chores: Iterable[Chore]) -> list[Chore]:
    """The chores with an answer of their own: the others need not be asked at every append."""
    return [chore for chore in chores if getattr(type(chore), name) is not getattr(Chore, name)]


class Checkpoints(Chore):
    """Checkpoints, and clean-up of the commits below them."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._log = log
        self._limits = limits
        self._due_version = 0
        self._cleaning: Iterator[int] | None = None
        self._cleaning_pieces = 0
        self._cleaning_began = self._cleaning_owed = self._left_over = 0
        self._cleaned_ms: int | None = None

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        if self._cleaned_ms is None:
            self._cleaned_ms = view.now_ms
        log = view.log
        if self._is_checkpoint_due(view):
            # The two sessions of a follower take turns: one that the other wrote counts.
            adopted = min(log.table.adopt_checkpoint(), log.version)
            if adopted > log.state.durable_version:
                log.state.made_durable(adopted)
        if self._is_checkpoint_due(view):
            return Work(log.table.checkpointer(log.state.snapshot()), partial(self._checkpointed, view))
        if self._cleaning is None:
            if view.now_ms - self._cleaned_ms < self._limits.keep_ms:
                return None
            self._cleaned_ms = view.now_ms
            keep_from = min(log.version - self._limits.keep_commits, _oldest_version_needed(log.state))
            self._cleaning = log.table.reopened().clean_log(keep_from, view.now_ms - self._limits.keep_ms)
            self._cleaning_pieces, self._cleaning_began = 0, log.version
            self._cleaning_owed = log.version - self._left_over
        cleaning = self._cleaning
        return Work(partial(_advance, cleaning, log.clock), partial(self._cleaned, view))

    def _is_checkpoint_due(self, view: UpkeepView) -> bool:
        """Counted from the last one, so that restarts neither skip nor repeat it; each table's first one comes earlier
        by a share of its own, so that those of tables that were made together are spread over the whole time between
        two: each makes durable what all tables wrote since the one before it, whichever table that was."""
        state, every = view.log.state, self._limits.checkpoint_commits
        jitter = crc32(view.log.name.encode()) % (every - every // 10) if state.durable_version < 0 else 0
        self._due_version = max(state.durable_version, 0) + every - jitter
        if state.version >= self._due_version or state.garbage_bytes >= self._limits.garbage_bytes:
            return True
        garbage_due_ms = self._garbage_due_ms(view)
        return garbage_due_ms is not None and view.now_ms >= garbage_due_ms

    def _garbage_due_ms(self, view: UpkeepView) -> int | None:
        """When the oldest removed object shall be durably removed; None if it is, or there is none."""
        oldest = next(iter(view.log.state.removed.items()), None)
        if oldest is None or oldest[1].version <= view.log.state.durable_version:
            return None
        return oldest[1].removed_ms + max(self._limits.garbage_ms, view.log.config.file_delete_delay_ms)

    def _checkpointed(self, view: UpkeepView, version: int) -> UpkeepDone:
        view.log.state.made_durable(version)
        self._cleaned_ms = view.now_ms - self._limits.keep_ms
        return view.done(UpkeepWork.CHECKPOINT, 1)

    def _cleaned(self, view: UpkeepView, cleaned: tuple[int, bool]) -> UpkeepDone | None:
        count, is_over = cleaned
        self._cleaning_pieces += 1
        self._cleaning_owed += count
        if is_over:
            self._cleaning, self._cleaning_pieces = None, 0
            # What fell due meanwhile is left: no more than was committed meanwhile, at a steady pace.
            made = self._log.version - self._cleaning_began
            self._left_over = max(0, min(self._log.version - self._cleaning_owed, made))
        return view.done(UpkeepWork.CLEAN_LOG, count) if count else None

    def rest_ms(self, view: UpkeepView) -> int:
        if self._cleaning is not None or self._cleaned_ms is None:
            return 0
        clean_due_ms = self._cleaned_ms + self._limits.keep_ms
        garbage_due_ms = self._garbage_due_ms(view)
        return (clean_due_ms if garbage_due_ms is None else min(clean_due_ms, garbage_due_ms)) - view.now_ms

    @property
    def is_behind(self) -> bool:
        overdue = self._log.version - self._due_version
        return self._cleaning_pieces > BEHIND_TIMES or overdue > BEHIND_TIMES * self._limits.checkpoint_commits

    @property
    def overdue_count(self) -> int:
        """Commits above those that a cold fold is to read; or those made while clean-up goes on, less those it removed,
        with what the clean-up before left over: a long clean-up of what piled up while nobody was there is no reason to
        hold anybody back, unless it does not keep pace."""
        state = self._log.state
        unfolded = state.version - max(state.durable_version, 0) - self._limits.checkpoint_commits
        return max(unfolded, state.version - self._cleaning_owed if self._cleaning is not None else 0)

    def needs_step(self, _commit: Commit) -> bool:
        return self._log.version >= self._due_version or self._log.state.garbage_bytes >= self._limits.garbage_bytes


def _oldest_version_needed(state: LogState) -> int:
    """A power cut may take the log back to its checkpoint, whose whole producer state is so much older at most."""
    return min(state.oldest_version_needed, state.durable_version - WHOLE_PRODUCERS_COMMITS)


class Deletion(Chore):
    """Deletes what left the log `file.delete.delay.ms` ago: files, and older producer states.

    Not before the commit that removed them is durable (a checkpoint stands above it): a power cut must not bring
    back a log that still names them. Not those that lay above the log end: a copy may bring back their records.
    """

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._looked_ms: int | None = None
        self._full_pieces = 0
        self._removed_before = 0

    def begin(self, view: UpkeepView) -> Work[tuple[int, bool]] | None:
        if self._looked_ms is None:
            self._looked_ms = view.now_ms
        log = view.log
        if not log.state.removed or view.now_ms - self._looked_ms < _delete_interval_ms(log):
            return None
        if not _due_objects(log, view.now_ms):
            self._looked_ms = view.now_ms
            return None
        log.refresh()
        due = _due_objects(log, view.now_ms)
        if not self._full_pieces:
            self._removed_before = len(log.state.removed)
        if log.leader_epoch != view.leader_epoch or not due:
            self._looked_ms, self._full_pieces = view.now_ms, 0
            return None
        self._full_pieces += 1
        deleting = _deletions(log.table.reopened(), due)
        return Work(partial(_advance, deleting, log.clock), partial(self._deleted, view, due))

    def _deleted(self, view: UpkeepView, due: Sequence[str], deleted: tuple[int, bool]) -> UpkeepDone:
        count, is_over = deleted
        if is_over:
            self._looked_ms, self._full_pieces = view.now_ms, 0
        view.log.state.removed.forget(due[:count])
        return view.done(UpkeepWork.DELETE_FILES, count)

    def rest_ms(self, view: UpkeepView) -> int | None:
        oldest = next(iter(view.log.state.removed.items()), None)
        if oldest is None or self._looked_ms is None:
            return None
        is_durable = oldest[1].version <= view.log.state.durable_version
        interval_ms = _delete_interval_ms(view.log) if is_durable else DURABLE_RECHECK_MS
        due_ms = oldest[1].removed_ms + view.log.config.file_delete_delay_ms
        return max(due_ms, self._looked_ms + interval_ms) - view.now_ms

    @property
    def is_behind(self) -> bool:
        return self._full_pieces > BEHIND_TIMES

    @property
    def overdue_count(self) -> int:
        """By how many what left the log has grown while one full piece followed another."""
        return len(self._log.state.removed) - self._removed_before if self._full_pieces else 0


class Sweep(Chore):
    """Once a day, at a time of the table's own, deletes what no commit names and nobody wrote for a week."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._limits = limits
        self._offset_ms = crc32(log.name.encode()) % DAY_MS
        self._swept_day: int | None = None

    def begin(self, view: UpkeepView) -> Work[list[str]] | None:
        today = (view.now_ms + self._offset_ms) // DAY_MS
        if self._swept_day is None:
            self._swept_day = today
        if today <= self._swept_day:
            return None
        self._swept_day = today
        table, old_ms = view.log.table.reopened(), view.now_ms - self._limits.unreferenced_ms
        return Work(partial(_list_old, table, old_ms), partial(self._listed, view))

    def _listed(self, view: UpkeepView, old: Sequence[str]) -> Work[None] | None:
        """Folded after the listing: what was committed meanwhile is named."""
        view.log.refresh()
        state = view.log.state
        named = live_paths(state.files) | set(state.removed) | {producers_path(state.producers_number)}
        unnamed = [path for path in old if path not in named]
        if not unnamed:
            return None
        done = partial(view.done, UpkeepWork.SWEEP, len(unnamed))
        return Work(partial(view.log.table.reopened().delete_objects, unnamed), lambda _: done())

    def rest_ms(self, view: UpkeepView) -> int | None:
        return None if self._swept_day is None else (self._swept_day + 1) * DAY_MS - self._offset_ms - view.now_ms


def _delete_interval_ms(log: PartitionLog) -> int:
    return max(100, min(log.config.file_delete_delay_ms // 4, DELETE_INTERVAL_MS_MAX))


def _due_objects(log: PartitionLog, now_ms: int) -> list[str]:
    """Oldest first, so that the search ends with the first that is too young."""
    state, due_ms = log.state, now_ms - log.config.file_delete_delay_ms
    due: list[str] = []
    for path, removed in state.removed.items():
        if removed.removed_ms > due_ms or removed.version > state.durable_version or len(due) == DELETIONS_MAX:
            break
        if removed.end_offset <= state.log_end_offset:
            due.append(path)
    return due


def _deletions(table: LogTable, paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        table.delete_objects([path])
        yield path


def _advance(deletions: Iterator[object], clock: Clock) -> tuple[int, bool]:
    """Let deletions go on for one piece of work: how many there were, and whether none is left."""
    end_ms, count = clock.monotonic_ms() + DELETIONS_MS, 0
    for _ in islice(deletions, DELETIONS_MAX):
        count += 1
        if clock.monotonic_ms() >= end_ms:
            return count, False
    return count, count < DELETIONS_MAX


def _list_old(table: LogTable, old_ms: int) -> list[str]:
    listed = [*table.list_objects("segment="), *table.list_objects("_producers/")]
    return [path for path, modified_ms in listed if modified_ms < old_ms]
