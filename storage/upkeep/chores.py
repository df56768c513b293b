"""The small chores of one log. I/O: through the log and its table.

Flush        syncs a log whose `flush.ms` has passed without an append (Kafka: `LogManager.flushDirtyLogs`)
Checkpoints  writes Delta's checkpoints, and deletes the commits that nothing needs any more
Deletion     deletes what left the log `stratalog.snapshot.retention.ms` ago, or earlier where it must not stay
Vacuum       deletes files that no commit names, and commits of no log, after a week
Scrub        reads every data file of a local disk now and then, to find decayed bits while another replica is sound
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from zlib import crc32

from stratalog.storage import cadence
from stratalog.storage.cadence import DAY_MS
from stratalog.storage.clock import Clock
from stratalog.storage.delta.removed import (
    LIST_FILES,
    LISTS_DIRECTORY,
    PRODUCERS_DIRECTORY,
    is_list,
    listed_files,
    producers_path,
)
from stratalog.storage.delta.table import Commit, LogTable, RemovedObject
from stratalog.storage.errors import CorruptMessageError, DamagedFileError, ObjectNotFoundError
from stratalog.storage.files.batch_file import DATA_DIRECTORIES
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS_MAX, PartitionLog
from stratalog.storage.log.state import LogState, live_paths
from stratalog.storage.upkeep.chore import (
    OVERDUE_BACKLOG,
    Chore,
    Timetable,
    UpkeepDone,
    UpkeepLimits,
    UpkeepView,
    UpkeepWork,
    Work,
    wait_end_ms,
)

T = TypeVar("T")

CHECKPOINT_ENTRIES = 20
"""Entries of a checkpoint (live and removed files) for each commit since the one before, at most. A checkpoint costs as
much as it has entries; so each commit pays for a constant number of them, however many files wait for deletion."""
DELETIONS_MAX = 500
"""Objects that one piece of work deletes at most."""
DELETIONS_BULK = 100
"""Objects of one call to the store, between two of which the time is checked."""
FREE_SHARE_MIN = 0.1
"""Share of a disk, of its bytes or its files, below which no file is kept for readers of older versions."""
SLOTS = 1_440
"""Time slots of a scrub of the whole log, one for each minute of a day."""


class Flush(Chore):
    """Syncs what was appended and not synced for `flush.ms`."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def begin(self, view: UpkeepView) -> Work[None] | None:
        if self.rest_ms(view) != 0:
            return None
        log, version, record_count = self._log, self._log.version, self._log.flushing.record_count
        flush = log.table.flusher(version, log.flushing.others_from)
        return Work(flush, partial(self._flushed, view, version, record_count))

    def _flushed(self, view: UpkeepView, version: int, record_count: int, _: None) -> UpkeepDone:
        """Commits made meanwhile are not covered."""
        others_from = None if self._log.version == version else version + 1
        self._log.flushing.synced(record_count, others_from)
        return view.done(UpkeepWork.FLUSH, record_count)

    def rest_ms(self, _view: UpkeepView) -> int | None:
        return self._log.flushing.wait_ms(self._log.config)

    def needs_step(self, _commit: Commit) -> bool:
        return self._log.flushing.wait_ms(self._log.config) is not None


@dataclass(frozen=True, slots=True)
class CleanUp:
    """How far one clean-up of commits is. Each commit that is made makes an older one due.

    began      the log's version when it began
    left_over  commits that were due then. Invariant: no more than were made during the clean-up before
    deleted    commits that it has deleted. Invariant: it never decreases
    pieces     of its work that are done. Invariant: 0 only before the first one

    >>> clean_up = CleanUp(began=100, left_over=10)
    >>> [each.owed(version=120) for each in (clean_up, clean_up.after_piece(25))]
    [30, 5]
    >>> [each.left(version=120) for each in (clean_up, clean_up.after_piece(25), clean_up.after_piece(99))]
    [20, 5, 0]
    """

    began: int
    left_over: int
    deleted: int = 0
    pieces: int = 0

    def after_piece(self, count: int) -> CleanUp:
        """After a piece of work that deleted so many commits."""
        return replace(self, deleted=self.deleted + count, pieces=self.pieces + 1)

    def owed(self, version: int) -> int:
        """Commits that are due and not deleted, at this version of the log; below 0 if it deleted older ones, too."""
        return version - self.began + self.left_over - self.deleted

    def left(self, version: int) -> int:
        """At its end: commits that it leaves. At a steady rate no more are due than were made meanwhile."""
        return max(0, min(self.owed(version), version - self.began))


class Checkpoints(Chore):
    """Writes checkpoints, and cleans up the commits below them."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._log = log
        self._limits = limits
        self._due_version = 0
        """The version from which on a checkpoint is due, as of the last step."""
        self._cleaning: Iterator[int] | None = None
        """The clean-up that is under way: it deletes as it is advanced."""
        self._clean_up: CleanUp | None = None
        """How far it is. Invariant: None exactly when `_cleaning` is."""
        self._left_over = 0
        """What the last clean-up left. Invariant: it changes only when one ends."""
        self._cleaned_ms: int | None = None
        """When the last clean-up began; None before the first step. A checkpoint moves it back: one is due then."""

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        if self._cleaned_ms is None:
            self._cleaned_ms = view.now_ms
        log = view.log
        if self._is_checkpoint_due(view):
            # A follower has two sessions in turn: a checkpoint of the other one counts.
            adopted = min(log.table.adopt_checkpoint(), log.version)
            if adopted > log.state.durable_version:
                log.state.made_durable(adopted)
        if self._is_checkpoint_due(view):
            work = view.checkpoint()
            return Work(work.run, lambda version: self._checkpointed(view, work.finish(version)))
        if self._cleaning is None:
            if view.now_ms < wait_end_ms(self._cleaned_ms, self._limits.keep_ms, view.now_ms):
                return None
            self._cleaned_ms = view.now_ms
            keep_from = min(log.version - self._limits.keep_commits, _oldest_version_needed(log.state))
            crowded_below = log.version - self._limits.keep_commits_max
            keep_from_ms = view.now_ms - self._limits.keep_ms
            self._cleaning = log.table.reopened().clean_log(keep_from, keep_from_ms, crowded_below)
            self._clean_up = CleanUp(log.version, self._left_over)
        cleaning = self._cleaning
        return Work(partial(_advance, cleaning, log.clock), partial(self._cleaned, view))

    def _is_checkpoint_due(self, view: UpkeepView) -> bool:
        """Commits are counted from the last checkpoint, so that restarts neither skip nor repeat one. A table's first
        checkpoint is earlier by a number of its own, which spreads those of tables that were made together: each one
        makes durable what all tables have written."""
        state, every = view.log.state, self._commits_between
        jitter = crc32(view.log.name.encode()) % (every - every // 10) if state.durable_version < 0 else 0
        self._due_version = max(state.durable_version, 0) + every - jitter
        if self._is_backlog_large(state):
            return True
        garbage_due_ms = self._garbage_due_ms(view)
        return garbage_due_ms is not None and view.now_ms >= garbage_due_ms

    @property
    def _commits_between(self) -> int:
        """Commits between two checkpoints."""
        state, most = self._log.state, self._limits.checkpoint_commits
        commits = min(most, self._limits.far_checkpoint_commits) if self._log.table.kept_ms else most
        return max(commits, (len(state.files) + len(state.removed)) // CHECKPOINT_ENTRIES)

    def _garbage_due_ms(self, view: UpkeepView) -> int | None:
        """When the removal of the oldest removed object has to be durable; None if it is, or there is none."""
        oldest = view.log.state.oldest_removed
        if oldest is None or oldest.version <= view.log.state.durable_version:
            return None
        wait_ms = max(self._limits.garbage_ms, view.log.config.removed_ms_max)
        return wait_end_ms(oldest.removed_ms, wait_ms, view.now_ms)

    def _checkpointed(self, view: UpkeepView, done: T) -> T:
        self._cleaned_ms = view.now_ms - self._limits.keep_ms
        return done

    def _cleaned(self, view: UpkeepView, cleaned: tuple[int, bool]) -> UpkeepDone | None:
        count, is_over = cleaned
        assert self._clean_up is not None
        self._clean_up = self._clean_up.after_piece(count)
        if is_over:
            self._left_over = self._clean_up.left(self._log.version)
            self._cleaning = self._clean_up = None
        return view.done(UpkeepWork.CLEAN_LOG, count) if count else None

    def rest_ms(self, view: UpkeepView) -> int:
        if self._cleaning is not None or self._cleaned_ms is None:
            return 0
        clean_due_ms = wait_end_ms(self._cleaned_ms, self._limits.keep_ms, view.now_ms)
        garbage_due_ms = self._garbage_due_ms(view)
        return (clean_due_ms if garbage_due_ms is None else min(clean_due_ms, garbage_due_ms)) - view.now_ms

    @property
    def is_overdue(self) -> bool:
        overdue, pieces = self._log.version - self._due_version, self._clean_up.pieces if self._clean_up else 0
        return pieces > OVERDUE_BACKLOG or overdue > OVERDUE_BACKLOG * self._commits_between

    @property
    def overdue_count(self) -> int:
        """Commits beyond those that a first fold is to read. During a clean-up also the commits made since it began,
        plus those that the one before left, less those deleted: a long clean-up after a pause does not slow appends,
        unless it deletes fewer than are made."""
        state = self._log.state
        unfolded = state.version - max(state.durable_version, 0) - self._commits_between
        return max(unfolded, self._clean_up.owed(state.version) if self._clean_up else 0)

    def needs_step(self, _commit: Commit) -> bool:
        return self._is_backlog_large(self._log.state)

    def _is_backlog_large(self, state: LogState) -> bool:
        return state.version >= self._due_version or state.garbage_bytes >= self._limits.garbage_bytes


def _oldest_version_needed(state: LogState) -> int:
    """The first commit that clean-up keeps: a power cut may truncate the table to its checkpoint, and the last whole
    producer state below that is older by at most so many commits."""
    return min(state.oldest_version_needed, state.durable_version - WHOLE_PRODUCERS_COMMITS_MAX)


class Deletion(Chore):
    """Deletes files and older producer states that left the log so long ago that nobody reads them any more.

    The commit that removed them has to be durable (a checkpoint is above it): after a power cut the log must not name
    them again. Files above the log end stay: a copy may bring back their records. If fewer objects are deleted than
    become due, appends wait (`overdue_count`); no object is forgotten.
    """

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._checked_ms: int | None = None
        """When nothing was due the last time; None before the first step."""
        self._full_pieces = 0
        """Pieces of work since nothing that was due was left. Invariant: 0 after a piece that deleted all of it."""
        self._counted_ms = 0
        """When the due objects were counted."""
        self._due_count = 0
        """As of then, less those deleted since."""
        self._due_count_first = 0
        """As of the first of the full pieces. Invariant: while `_full_pieces` is above 0 both counts are of these."""

    def begin(self, view: UpkeepView) -> Work[int] | None:
        if self._checked_ms is None:
            self._checked_ms = view.now_ms
        log = view.log
        if log.left_names:
            left, log.left_names = log.left_names[:DELETIONS_MAX], log.left_names[DELETIONS_MAX:]
            delete = partial(_delete, log.table.reopened(), left, log.clock, frozenset())
            return Work(delete, partial(self._left_deleted, view, left))
        if not log.state.removed or view.now_ms < wait_end_ms(self._checked_ms, _delete_interval_ms(log), view.now_ms):
            return None
        has_room = log.table.free_share >= FREE_SHARE_MIN
        if next(_due_objects(log, view.now_ms, has_room=has_room), None) is None:
            self._checked_ms = view.now_ms
            return None
        log.refresh()
        due = _first_of(_due_objects(log, view.now_ms, has_room=has_room))
        if log.leader_epoch != view.leader_epoch or not due:
            self._checked_ms, self._full_pieces = view.now_ms, 0
            return None
        self._count_due(view, has_room=has_room)
        self._full_pieces += 1
        delete = partial(_delete, log.table.reopened(), due, log.clock, frozenset(live_paths(log.files)))
        return Work(delete, partial(self._deleted, view, due))

    def _count_due(self, view: UpkeepView, *, has_room: bool) -> None:
        """Count them at the first of several full pieces, then once a second: the count goes over all of them."""
        if self._full_pieces and view.now_ms - self._counted_ms < cadence.DELETE_INTERVAL.ms:
            return
        due = _due_objects(view.log, view.now_ms, has_room=has_room)
        self._counted_ms, self._due_count = view.now_ms, sum(map(_file_count, due))
        if not self._full_pieces:
            self._due_count_first = self._due_count

    def _left_deleted(self, view: UpkeepView, left: Sequence[str], count: int) -> UpkeepDone:
        view.log.left_names += left[count:]
        return view.done(UpkeepWork.DELETE_FILES, count)

    def _deleted(self, view: UpkeepView, due: Sequence[str], count: int) -> UpkeepDone:
        if count == len(due) and sum(map(_file_count, due)) < DELETIONS_MAX:
            self._checked_ms, self._full_pieces = view.now_ms, 0
        view.log.state.deleted(due[:count])
        deleted = sum(map(_file_count, due[:count]))
        self._due_count -= deleted
        return view.done(UpkeepWork.DELETE_FILES, deleted)

    def rest_ms(self, view: UpkeepView) -> int | None:
        if view.log.left_names:
            return 0
        oldest = view.log.state.oldest_removed
        if oldest is None or self._checked_ms is None:
            return None
        is_durable = oldest.version <= view.log.state.durable_version
        interval_ms = _delete_interval_ms(view.log) if is_durable else cadence.DURABLE_RECHECK.ms
        due_ms = min(_due_ms(view.log, path, each, view.now_ms) for path, each in _oldest_of_each_kind(view.log))
        due_ms = min(due_ms, view.now_ms + cadence.ROOM_RECHECK.ms)
        return max(due_ms, wait_end_ms(self._checked_ms, interval_ms, view.now_ms)) - view.now_ms

    def needs_step(self, _commit: Commit) -> bool:
        return bool(self._log.left_names)

    @property
    def is_overdue(self) -> bool:
        return self._full_pieces > OVERDUE_BACKLOG

    @property
    def overdue_count(self) -> int:
        """Growth of the number of due objects since one full piece of work follows another: those of a retention, or
        of the time before a start, slow no append."""
        return self._due_count - self._due_count_first if self._full_pieces else 0


def _delete_interval_ms(log: PartitionLog) -> int:
    return max(100, min(log.config.file_delete_delay_ms // 4, cadence.DELETE_INTERVAL.ms))


def _due_ms(log: PartitionLog, path: str, removed: RemovedObject, now_ms: int, *, has_room: bool = True) -> int:
    """When a removed object is to be deleted. Readers of an older version need files, but not producer state; an
    erasure is over only when no file has its records; and a full disk takes no append."""
    is_awaited = path.startswith(PRODUCERS_DIRECTORY) or removed.removed_ms <= log.state.erased_ms or not has_room
    delay_ms = log.config.file_delete_delay_ms if is_awaited else log.config.removed_ms_max
    return wait_end_ms(removed.removed_ms, delay_ms, now_ms)


def _oldest_of_each_kind(log: PartitionLog) -> Iterator[tuple[str, RemovedObject]]:
    """The first data file or list, and the first producer state."""
    kinds: set[bool] = set()
    for path, removed in log.state.removed.items():
        kind = path.startswith(PRODUCERS_DIRECTORY)
        if kind not in kinds:
            yield path, removed
        kinds.add(kind)
        if len(kinds) == 2:
            return


def _due_objects(log: PartitionLog, now_ms: int, *, has_room: bool) -> Iterator[str]:
    """The removed objects to delete, oldest first."""
    state = log.state
    for path, removed in state.removed.items():
        if removed.version > state.durable_version:
            return
        is_due = _due_ms(log, path, removed, now_ms, has_room=has_room) <= now_ms
        if is_due and removed.end_offset <= state.log_end_offset:
            yield path


def _file_count(path: str) -> int:
    return LIST_FILES if is_list(path) else 1


def _first_of(paths: Iterator[str]) -> list[str]:
    """The first of these that stand for no more than `DELETIONS_MAX` files."""
    found: list[str] = []
    count = 0
    while count < DELETIONS_MAX and (path := next(paths, "")):
        found.append(path)
        count += _file_count(path)
    return found


def _delete(table: LogTable, paths: Sequence[str], clock: Clock, live: Set[str]) -> int:
    """Delete these objects, and what those of them list, for one piece of work; how many of them, from the first on."""
    end_ms, count, alone = clock.monotonic_ms() + cadence.DELETIONS.ms, 0, list[str]()
    for path in paths:
        if is_list(path):
            alone = _delete_bulks(table, [*alone, *(each for each in _listed(table, path) if each not in live)])
        count += 1
        alone.append(path)
        if len(alone) >= DELETIONS_BULK:
            alone = _delete_bulks(table, alone)
        if clock.monotonic_ms() >= end_ms:
            break
    _delete_bulks(table, alone)
    return count


def _delete_bulks(table: LogTable, paths: list[str]) -> list[str]:
    """Delete all of these; none is left."""
    for first in range(0, len(paths), DELETIONS_BULK):
        table.delete_objects(paths[first : first + DELETIONS_BULK])
    return []


def _listed(table: LogTable, path: str) -> list[str]:
    """The files of a list; none when it is gone, or was lost in a power cut: the vacuum finds them."""
    try:
        return [listed for listed, _ in listed_files(table.read_object(path), f"{table.name}/{path}")]
    except (ObjectNotFoundError, CorruptMessageError):
        return []


def _advance(deletions: Iterator[object], clock: Clock) -> tuple[int, bool]:
    """Run deletions of commits for one piece of work: (how many, whether none is left)."""
    end_ms, count = clock.monotonic_ms() + cadence.DELETIONS.ms, 0
    for _ in islice(deletions, DELETIONS_MAX):
        count += 1
        if clock.monotonic_ms() >= end_ms:
            return count, False
    return count, count < DELETIONS_MAX


class Vacuum(Chore):
    """Once a day deletes files that no commit names, and commits that clean-up does not meet, older than a week."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._limits = limits
        self._timetable = Timetable(log.name, DAY_MS)

    def begin(self, view: UpkeepView) -> Work[tuple[int, list[str]]] | None:
        if not self._timetable.is_due(view.now_ms):
            return None
        self._timetable.checked(view.now_ms)
        kept_ms = max(self._limits.unreferenced_ms, view.log.config.removed_ms_max + DAY_MS)  # lists are not read
        table, old_ms = view.log.table.reopened(), view.now_ms - kept_ms
        return Work(lambda: (table.delete_strays(old_ms), _list_old(table, old_ms)), partial(self._listed, view))

    def _listed(self, view: UpkeepView, found: tuple[int, Sequence[str]]) -> Work[None] | UpkeepDone | None:
        """The fold after the listing names the files that were committed meanwhile."""
        strays, old = found
        view.log.refresh()
        state = view.log.state
        named = live_paths(state.files) | set(state.removed) | {producers_path(state.producers_number)}
        unnamed = [path for path in old if path not in named]
        if not unnamed:
            return view.done(UpkeepWork.VACUUM, strays) if strays else None
        delete = partial(view.log.table.reopened().delete_objects, unnamed)
        return Work(delete, lambda _: view.done(UpkeepWork.VACUUM, strays + len(unnamed)))

    def rest_ms(self, view: UpkeepView) -> int:
        return self._timetable.rest_ms(view.now_ms)


def _list_old(table: LogTable, old_ms: int) -> list[str]:
    directories = (*DATA_DIRECTORIES, PRODUCERS_DIRECTORY, LISTS_DIRECTORY)
    listed = [found for directory in directories for found in table.list_objects(directory)]
    return [path for path, modified_ms in listed if modified_ms < old_ms]


class Scrub(Chore):
    """Checks that every data file exists when upkeep begins, and then reads each one once in `scrub_ms`.

    The time alone decides which files are due, so a successor continues. Each slot also folds new commits, so that a
    foreign commit to an idle log is noticed.
    """

    def __init__(self, limits: UpkeepLimits) -> None:
        self._pass_ms = limits.scrub_ms
        self._slot_ms = max(cadence.SCRUB_SLOT.ms, limits.scrub_ms // SLOTS)
        self._slot: int | None = None

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """Raises the errors of `refresh`; the end of its work raises DamagedFileError naming the file."""
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
        return self._slot_ms - view.now_ms % self._slot_ms if view.log.table.decays else None


def files_of_slot(files: Sequence[DataFile], slot: int, slots: int) -> Sequence[DataFile]:
    """The part of a log that is due in time slot `slot`, when a scrub of the log has `slots` of them.

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
        return None  # merged away meanwhile
    return None


def _judge(view: UpkeepView, damaged: DamagedFileError | None) -> UpkeepDone | None:
    """A file that left the log meanwhile may be gone."""
    if damaged is not None and any(entry.path == damaged.path for entry in view.log.files):
        raise damaged
    return None
