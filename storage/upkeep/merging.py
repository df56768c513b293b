"""The chore that merges small files of one log, or copies its leader's merges. I/O: its log's table.

`storage.upkeep.merge_plan` decides which files are merged. An executor reads and writes a merge through a handle of its
own; it is committed only if the log's epoch and all of its files are still the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial
from zlib import crc32

from stratalog.storage import cadence
from stratalog.storage.delta.table import Commit, Conflict, LogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.codecs import codec_of_merge
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.rows import rebased_rows
from stratalog.storage.log.segments import end_of, start_of
from stratalog.storage.upkeep.append_pause import excess_files
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepLimits, UpkeepView, UpkeepWork, Work, wait_end_ms
from stratalog.storage.upkeep.merge_plan import MergePlan, plan_copied_merges, plan_merges


class Merging(Chore):
    """Merges one log's small files below the high watermark."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits, leader: LogReader | None = None) -> None:
        """`leader`: the log that this one follows, if any, as its owner reads it."""
        self._log = log
        self._limits = limits
        self._leader = leader
        spread = crc32(log.name.encode()) % limits.merge_spread_files if limits.merge_spread_files else 0
        self._plan_at_count = limits.merge_files_min + spread
        self._closed_run_end: int | None = None
        self._last_run = (-1, -1)
        self._pending: tuple[str, int] | None = None
        self._planned_version = -1
        self._to_copy: list[MergePlan] = []
        self._wake_version = 0
        self._sealed_excess = ((-1, 0, 0), 0)

    def needs_step(self, commit: Commit) -> bool:
        run = (commit.adds[-1].segment, commit.adds[-1].leader_epoch) if commit.adds else self._last_run
        return self._log.version >= self._wake_version or run > self._last_run

    def rest_ms(self, _view: UpkeepView) -> int | None:
        is_waiting = self._pending is not None or bool(self._to_copy) or self._closed_run_end is not None
        return cadence.RECHECK.ms if is_waiting else None

    @property
    def is_overdue(self) -> bool:
        return len(self._log.files) > self._limits.live_files_max

    @property
    def overdue_count(self) -> int:
        """Live files beyond those that merging would leave; only a swap or a roll recounts sealed segments."""
        segments, bytes_max = self._log.segments, self._log.config.merged_bytes_max
        if not segments:
            return 0
        counted = (self._log.state.swapped_version, len(segments), bytes_max)
        if self._sealed_excess[0] != counted:
            self._sealed_excess = (counted, sum(excess_files(each, bytes_max) for each in segments[:-1]))
        return self._sealed_excess[1] + excess_files(segments[-1], bytes_max)

    def begin(self, view: UpkeepView) -> Work[DataFile | None] | None:
        log, limits = self._log, self._limits
        plan = self._leaders_merge(view.high_watermark) or self._own_merge(view)
        below = bisect_right(log.files, view.high_watermark, key=end_of)
        self._wake_version = log.version + max(1, self._plan_at_count - below)
        if plan is None:
            return None
        if view.is_busy and plan.size_bytes > limits.bulk_bytes and len(log.files) <= 2 * limits.live_files_max:
            self._plan_at_count, self._pending = below, self._pending or (plan.files[0].path, view.now_ms)
            return None
        self._pending = None
        finish = partial(self._merged, plan, view)
        if plan.copied is not None and self._leader is not None:
            source = self._leader.table.reopened()
            return Work(partial(_copied_file, log.table.reopened(), source, plan.copied), finish)
        return Work(partial(_merged_file, log.table.reopened(), plan, codec_of_merge(log.config)), finish)

    def _leaders_merge(self, high_watermark: int) -> MergePlan | None:
        """A merged file of the leader to copy, planned again when the leader has merged since."""
        leader, log = self._leader, self._log
        if leader is None:
            return None
        if self._pending is not None:
            leader.refresh()
        if leader.leader_epoch != log.leader_epoch:
            self._to_copy = []
            return None
        if leader.state.swapped_version > self._planned_version:
            self._planned_version = leader.state.swapped_version
            # Compacted records stay compacted: an emptied record must not come back, nor count for a transaction.
            uncleaned = bisect_left(log.files, log.state.cleaner.cleaned_end, key=start_of)
            plans = plan_copied_merges(log.files[uncleaned:], leader.files)[::-1]
            self._to_copy = [plan for plan in plans if plan.copied and plan.copied.path not in log.state.removed]
        if self._to_copy and self._to_copy[-1].end_offset <= high_watermark:
            return self._to_copy.pop()
        return None

    def _own_merge(self, view: UpkeepView) -> MergePlan | None:
        log, limits = self._log, self._limits
        self._track_runs()
        below = bisect_right(log.files, view.high_watermark, key=end_of)
        is_closed = self._closed_run_end is not None and view.high_watermark >= self._closed_run_end
        if self._pending is not None and view.now_ms < wait_end_ms(self._pending[1], self._patience_ms, view.now_ms):
            return None
        if below < self._plan_at_count and not is_closed and self._pending is None:
            return None
        spared_bytes = limits.bulk_bytes if len(log.files) <= limits.live_files_max else None
        bytes_max, files_min = log.config.merged_bytes_max, limits.merge_files_min
        plans = plan_merges(log.files, view.high_watermark, bytes_max, files_min, spared_bytes)
        if not plans:
            self._plan_at_count = below + max(1, files_min // 2)
            self._closed_run_end = None if is_closed else self._closed_run_end
            self._pending = None
            return None
        first = plans[0].files[0].path
        if self._patience_ms and (self._pending is None or self._pending[0] != first):
            self._pending = (first, view.now_ms)
            return None
        return plans[0]

    @property
    def _patience_ms(self) -> int:
        return self._limits.leader_first_ms if self._leader is not None else 0

    def _track_runs(self) -> None:
        """A new segment or leader epoch closes the run before it, which is then merged to its end."""
        if not self._log.files:
            return
        last = self._log.files[-1]
        if (last.segment, last.leader_epoch) != self._last_run:
            self._last_run = (last.segment, last.leader_epoch)
            self._closed_run_end = last.start_offset

    def _merged(self, plan: MergePlan, view: UpkeepView, file: DataFile | None) -> UpkeepDone:
        """Swap the files, unless a truncation, a newer epoch or another merge changed the log meanwhile."""
        log, first = self._log, plan.files[0]
        if file is None and plan.copied is None:
            view.check_there(plan.files)
        if file is None or not view.still_has(plan.files):
            return self._lost(plan, view, file)
        merged = replace(plan.copied or first, file=file)
        outcome = log.replace_files(
            plan.files,
            [merged],
            leader_epoch=view.leader_epoch,
            operation="OPTIMIZE",
            now_ms=view.now_ms,
            data_change=False,
        )
        if isinstance(outcome, Conflict):
            return self._lost(plan, view, file)
        self._plan_at_count = 0
        work = UpkeepWork.MERGE if plan.copied is None else UpkeepWork.COPY_MERGE
        return view.done(work, len(plan.files))

    def _lost(self, plan: MergePlan, view: UpkeepView, file: DataFile | None) -> UpkeepDone:
        """Delete the own file. A file under the leader's name stays until the vacuum: another session of this follower
        may commit it. Without a file the leader has merged further: the next plan follows its next swap."""
        if file is not None and plan.copied is None:
            self._log.table.delete_objects([file.path])
        self._to_copy = []
        if file is not None:
            self._planned_version = -1
        self._plan_at_count = 0
        self._log.refresh()
        return view.done(UpkeepWork.LOST_RACE, len(plan.files) if file is not None else 0)


def _merged_file(table: LogTable, plan: MergePlan, codec: str) -> DataFile | None:
    """The files of a plan merged into a new one; None when one of them is gone."""
    first = plan.files[0]
    try:
        rows = table.read_files([entry.file for entry in plan.files])
    except ObjectNotFoundError:
        return None
    bases = [(entry.file.record_count, entry.base_offset) for entry in plan.files]
    return table.write_file(rebased_rows(rows, bases, first.base_offset), first.partition_values, codec)


def _copied_file(table: LogTable, leader: LogTable, copied: FileEntry) -> DataFile | None:
    """The leader's merged file on own storage, with all of its bits checked, since it replaces sound files; None when
    it is gone there."""
    try:
        table.copy_file(leader, copied.file)
        table.check_bits(copied.file)
        return table.place_files([copied])[0].file
    except ObjectNotFoundError:
        return None
