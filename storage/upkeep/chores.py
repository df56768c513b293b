"""The chores of one log that are small: checkpoints and clean-up, deletion, vacuum, flush, retention, scrub.

I/O: through the log and its table.

Checkpoints  Delta's checkpoints, and the commits that nobody needs any more
Deletion     files that left the log are deleted after `file.delete.delay.ms`
Vacuum        files that no commit names are deleted after a week
Flush        Kafka's `LogManager.flushDirtyLogs`: a log whose `flush.ms` has passed without an append is synced
Retention    expired segments leave the log in one commit; readers that hold an older fold read on until the deletion
Scrub        data files are read now and then, so that decayed bits are found while a clean copy lives; only where the
             owner answers for the bits, as on a local disk: an object store checks what it holds by itself
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any
from zlib import crc32

from stratalog.storage.clock import Clock
from stratalog.storage.delta.removed import producers_path
from stratalog.storage.delta.table import Commit, Conflict, LogTable
from stratalog.storage.errors import DamagedFileError, ObjectNotFoundError
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS, PartitionLog
from stratalog.storage.log.state import LogState, live_paths
from stratalog.storage.upkeep.chore import (
    DAY_MS,
    OVERDUE_BACKLOG,
    RECHECK_MS,
    Chore,
    UpkeepDone,
    UpkeepLimits,
    UpkeepView,
    UpkeepWork,
    Work,
)
from stratalog.storage.upkeep.retention import expired_segments

DELETIONS_MAX = 500
"""How many objects one piece of work deletes at most …"""


DELETIONS_MS = 500
"""… within this time: beside a busy disk a deletion takes milliseconds, and merges must have their turn."""


DELETE_INTERVAL_MS_MAX = 1_000
"""So often it is looked for what is due at most: a little at a time, as who waits for the machine meanwhile …"""


DURABLE_RECHECK_MS = 10_000
"""… and so often for what is not removed durably yet, which it may become without a step of ours."""


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
    def is_overdue(self) -> bool:
        overdue = self._log.version - self._due_version
        return self._cleaning_pieces > OVERDUE_BACKLOG or overdue > OVERDUE_BACKLOG * self._limits.checkpoint_commits

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
    def is_overdue(self) -> bool:
        return self._full_pieces > OVERDUE_BACKLOG

    @property
    def overdue_count(self) -> int:
        """By how many what left the log has grown while one full piece followed another."""
        return len(self._log.state.removed) - self._removed_before if self._full_pieces else 0


class Vacuum(Chore):
    """Once a day, at a time of the table's own, deletes what no commit names and nobody wrote for a week."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._limits = limits
        self._offset_ms = crc32(log.name.encode()) % DAY_MS
        self._vacuumed_day: int | None = None

    def begin(self, view: UpkeepView) -> Work[list[str]] | None:
        today = (view.now_ms + self._offset_ms) // DAY_MS
        if self._vacuumed_day is None:
            self._vacuumed_day = today
        if today <= self._vacuumed_day:
            return None
        self._vacuumed_day = today
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
        done = partial(view.done, UpkeepWork.VACUUM, len(unnamed))
        return Work(partial(view.log.table.reopened().delete_objects, unnamed), lambda _: done())

    def rest_ms(self, view: UpkeepView) -> int | None:
        return None if self._vacuumed_day is None else (self._vacuumed_day + 1) * DAY_MS - self._offset_ms - view.now_ms


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


class Flush(Chore):
    """Makes durable what was appended and not synced for `flush.ms`."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def begin(self, view: UpkeepView) -> Work[None] | None:
        if self.rest_ms(view) != 0:
            return None
        log, version, record_count = self._log, self._log.version, self._log.flushing.record_count
        flush = log.table.flusher(version, log.flushing.first_owed(log.config))
        return Work(flush, partial(self._flushed, view, version, record_count))

    def _flushed(self, view: UpkeepView, version: int, record_count: int, _: None) -> UpkeepDone:
        """What was committed meanwhile is not synced by this."""
        others_from = None if self._log.version == version else version + 1
        self._log.flushing.synced(record_count, others_from)
        return view.done(UpkeepWork.FLUSH, record_count)

    def rest_ms(self, _view: UpkeepView) -> int | None:
        return self._log.flushing.wait_ms(self._log.config)

    def needs_step(self, _commit: Commit) -> bool:
        return self._log.flushing.wait_ms(self._log.config) is not None


class Retention(Chore):
    """Looks once in each `log.retention.check.interval.ms` of the wall clock, at a time of the table's own.

    So it is told by the time alone, whoever takes the upkeep over: a fetch session is shorter than the interval. Who
    begins does not look before the next interval does, as Kafka waits a little after a start.
    """

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._interval_ms = limits.retention_check_ms
        self._offset_ms = crc32(log.name.encode()) % self._interval_ms
        self._checked: int | None = None

    def begin(self, view: UpkeepView) -> UpkeepDone | None:
        interval = (view.now_ms + self._offset_ms) // self._interval_ms
        if self._checked is None:
            self._checked = interval
        if interval <= self._checked or view.high_watermark < 0:
            return None
        log, state = view.log, view.log.state
        expired = expired_segments(
            state.segments, state.log_start_offset, state.log_end_offset, view.high_watermark, view.now_ms, log.config
        )
        if expired is None:
            self._checked = interval
            return None
        below = bisect_left(log.files, expired.end_offset, key=lambda entry: entry.start_offset)
        outcome = log.replace_files(
            log.files[:below],
            (),
            leader_epoch=view.leader_epoch,
            operation="RETENTION",
            now_ms=view.now_ms,
            data_change=True,
            log_start=expired.end_offset,
        )
        if isinstance(outcome, Conflict):
            log.refresh()
            return view.done(UpkeepWork.LOST_RACE, 0)
        self._checked = interval
        return view.done(UpkeepWork.RETENTION, expired.count)

    def rest_ms(self, view: UpkeepView) -> int:
        interval, passed_ms = divmod(view.now_ms + self._offset_ms, self._interval_ms)
        is_due = self._checked is not None and interval > self._checked
        return RECHECK_MS if is_due else self._interval_ms - passed_ms


SLOTS = 1_440
"""A pass over a log is cut into so many parts, one for each minute of a day."""


SLOT_MS_MIN = 1_000


class Scrub(Chore):
    """Every file is there and whole: all are looked for when upkeep begins, and each is read once in a pass.

    Which files have their turn is told by the time alone, so it is the same for whoever takes the upkeep over. Each
    turn also folds what is new, so that a foreign commit to an idle log is noticed.
    """

    def __init__(self, limits: UpkeepLimits) -> None:
        self._pass_ms = limits.scrub_ms
        self._slot_ms = max(SLOT_MS_MIN, limits.scrub_ms // SLOTS)
        self._slot: int | None = None

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """Raises DamagedFileError naming the file once its work is done, and what `refresh` of the log raises."""
        if not view.log.table.decays:
            return None
        slot, is_first = view.now_ms // self._slot_ms, self._slot is None
        if slot == self._slot or (view.is_busy and not is_first):
            return None
        self._slot = slot
        view.log.refresh()
        files = [entry.file for entry in view.log.files]
        due = files if is_first else files_of_slot(files, slot, max(1, self._pass_ms // self._slot_ms))
        if not due:
            return None
        return Work(partial(_found, view.log.table.reopened(), due, bits=not is_first), partial(_judge, view))

    def rest_ms(self, view: UpkeepView) -> int | None:
        if not view.log.table.decays:
            return None
        return self._slot_ms - view.now_ms % self._slot_ms


def files_of_slot(files: Sequence[DataFile], slot: int, slots: int) -> Sequence[DataFile]:
    """The part of a log that has its turn in time slot `slot`, when a pass has `slots` of them.

    With 3 files and 6 slots: one file in slots 1, 3 and 5, none in the others.
    """
    part = slot % slots
    return files[len(files) * part // slots : len(files) * (part + 1) // slots]


def _found(table: LogTable, files: Sequence[DataFile], *, bits: bool) -> DamagedFileError | None:
    try:
        table.check_files(files, bits=bits)
    except DamagedFileError as damaged:
        return damaged
    except ObjectNotFoundError:
        return None  # it was merged away while it was being read
    return None


def _judge(view: UpkeepView, damaged: DamagedFileError | None) -> UpkeepDone | None:
    """A file that left the log meanwhile need not be there any more."""
    if damaged is not None and any(entry.path == damaged.path for entry in view.log.files):
        raise damaged
    return None
