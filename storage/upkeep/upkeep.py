"""Upkeep of one log in small steps; correctness does not depend on it. I/O: its log's table.

One committer per table at a time does it: a leader's appender, or a follower's fetch task between copies. Its chores
(`storage.upkeep.chore`) run in turn. An executor does their long parts through a handle of its own; the committer only
decides and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from stratalog.storage import cadence
from stratalog.storage.cadence import HOUR_MS
from stratalog.storage.delta.table import Commit
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.topic_config import LONG_MAX
from stratalog.storage.upkeep.append_pause import append_pause_ms
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepLimits, UpkeepView, Work
from stratalog.storage.upkeep.chores import Checkpoints, Deletion, Flush, Scrub, Vacuum
from stratalog.storage.upkeep.cleaner import Cleaner
from stratalog.storage.upkeep.erase import Erase
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.merging import Merging
from stratalog.storage.upkeep.retention import Retention


class Upkeep:
    """The upkeep of one log by the actor that owns it."""

    def __init__(
        self,
        log: PartitionLog,
        limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
        *,
        leader: LogReader | None = None,
        cleans_below: Callable[[], int] = lambda: LONG_MAX,
        erases: Callable[[], Sequence[Erase]] = tuple,
    ) -> None:
        """
        executor      does the long parts; None: the caller does
        leader        the log that this one follows, if any, as its owner reads it
        cleans_below  returns the offset from which on compaction removes nothing
        erases        returns the requests to erase records, by id
        """
        limits = limits or UpkeepLimits()
        self.log = log
        self._limits = limits
        self._executor = executor
        self._chores: list[Chore] = [Flush(log), Checkpoints(log, limits), Deletion(log), Erasure(erases)]
        self._chores += [Retention(log, limits), Cleaner(log, cleans_below=cleans_below)]
        self._chores += [Merging(log, limits, leader), Vacuum(log, limits), Scrub(limits)]
        self._measured = _with_own("overdue_count", self._chores)
        self._notified = _with_own("needs_step", self._chores)
        self._next_chore = 0
        self._running: tuple[Future[Any], Work[Any]] | None = None
        self._view: UpkeepView | None = None

    def step(
        self, now_ms: int, high_watermark: int, leader_epoch: int, *, is_busy: bool = False, may_begin: bool = True
    ) -> UpkeepDone | None:
        """Begin or end at most one bounded piece of work; None when nothing is due.

        Without work it costs no I/O. `is_busy`: the machine has more urgent work. `may_begin` False: only end what was
        begun. Nothing is begun unless the log is at `leader_epoch`. Raises StoreError as the table does.
        """
        if self._running is not None:
            done = self._finish()
            if done is not None or self._running is not None:
                return done
        if self.log.leader_epoch != leader_epoch or not may_begin:
            return None
        self._view = UpkeepView(self.log, now_ms, high_watermark, leader_epoch, is_busy)
        for turn in range(self._next_chore, self._next_chore + len(self._chores)):
            done = self._continue(self._chores[turn % len(self._chores)].begin(self._view))
            if done is not None or self._running is not None:
                self._next_chore = (turn + 1) % len(self._chores)  # one that always has work starves no other
                return done
        return None

    @property
    def is_working(self) -> bool:
        """Whether the executor has work of this log, or its result."""
        return self._running is not None

    @property
    def has_result(self) -> bool:
        """Whether the executor has finished its work."""
        return self._running is not None and self._running[0].done()

    @property
    def is_overdue(self) -> bool:
        """Whether a backlog is so large that the next step must follow the last one at once."""
        return self.log.is_folded and any(chore.is_overdue for chore in self._chores)

    @property
    def overdue_count(self) -> int:
        """The largest `overdue_count` of the chores. Called at every append."""
        return max([chore.overdue_count for chore in self._measured]) if self.log.is_folded else 0

    def append_pause_ms(self, file_count: int) -> int:
        """The pause of the next append after one that added so many files; 0: none."""
        limits = self._limits
        return append_pause_ms(self.overdue_count, limits.slowdown_count, limits.stop_count, file_count)

    def needs_step(self, commit: Commit) -> bool:
        """Whether something may be due after this commit of the log."""
        return any(chore.needs_step(commit) for chore in self._notified)

    def rest_ms(self, now_ms: int) -> int:
        """After a step that did nothing: the time until something may be due although the log does not change."""
        if self._running is not None:
            return 0
        if self._view is None:
            return cadence.RECHECK.ms
        view = replace(self._view, now_ms=now_ms)
        rests = (chore.rest_ms(view) for chore in self._chores)
        return max(0, min((rest for rest in rests if rest is not None), default=HOUR_MS))

    def _continue(self, begun: Work[Any] | UpkeepDone | None) -> UpkeepDone | None:
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
        return self._continue(work.finish(future.result()))


def _with_own(name: str, chores: Iterable[Chore]) -> list[Chore]:
    """The chores that override this method: the others need no call at every append."""
    return [chore for chore in chores if getattr(type(chore), name) is not getattr(Chore, name)]
