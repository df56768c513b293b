"""A chore is one kind of upkeep of one log; `storage.upkeep.upkeep` runs them. I/O: through the log.

A chore decides and commits in the loop of the log's owner. Long parts are `Work`, which an executor does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar
from zlib import crc32

from stratalog.storage.cadence import DAY_MS, HOUR_MS
from stratalog.storage.delta.table import Commit
from stratalog.storage.errors import DamagedFileError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import live_paths
from stratalog.storage.upkeep.merge_plan import FILES_MIN

OVERDUE_BACKLOG = 4
"""Pieces of work above which the backlog of a chore is overdue."""

T = TypeVar("T")


def wait_end_ms(since_ms: int, wait_ms: int, now_ms: int) -> int:
    """The time at which a wait of the wall clock ends. One that seems to begin more than its length from now began
    before the clock was set back, nobody knows how long ago: it ends now.

    >>> wait_end_ms(100, 60, 120), wait_end_ms(100, 60, 90), wait_end_ms(100, 60, 30)
    (160, 160, 30)
    """
    return now_ms if since_ms > now_ms + wait_ms else since_ms + wait_ms


class UpkeepWork(StrEnum):
    """The work of a step."""

    FLUSH = "flush"
    CHECKPOINT = "checkpoint"
    CLEAN_LOG = "clean log"
    DELETE_FILES = "delete files"
    RETENTION = "retention"
    COMPACTION = "compaction"
    MERGE = "merge"
    COPY_MERGE = "copy merge"
    LOST_RACE = "lost race"
    VACUUM = "vacuum"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    """The result of a step; `count` is of commits, files or objects; `version` is the table's afterwards."""

    work: UpkeepWork
    count: int
    version: int


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """The limits at which chores begin.

    checkpoint_commits  commits between two checkpoints: a first fold reads no more than these
    far_checkpoint_commits  the same where each read is a request: the next leader in a storage domain waits for them
    garbage_ms          a checkpoint is also due when removed files have waited for one so long
    garbage_bytes       and when the files that wait for one are so large together
    keep_commits        commits that clean-up leaves at least
    keep_ms             age up to which clean-up leaves all commits
    keep_commits_max    but no more of them than so many, since a busy log makes thousands a minute, and on a far store
                        those of `cadence.COMMITS_KEPT`
    unreferenced_ms     age at which a file that no commit names is deleted: a slow writer may still hand it over
    retention_check_ms  interval of retention checks (`log.retention.check.interval.ms`)
    scrub_ms            interval in which every data file on a local disk is read and its checksums verified
    merge_files_min     fewer files than this are not merged while their run still grows
    merge_spread_files  spread of each table's first merge, by its name: those made together must not merge at once
    leader_first_ms     time that a follower waits for its leader's merge before it merges itself
    bulk_bytes          files of this size are not merged, unless the log has more than `live_files_max`
    live_files_max      live files above which all files are merged; above twice as many also while the owner is busy
    slowdown_count      files or commits of overdue work above which appends are slowed (`storage.upkeep.append_pause`)
    stop_count          files or commits of overdue work from which on appends are all but stopped
    """

    checkpoint_commits: int = 500
    far_checkpoint_commits: int = 100
    garbage_ms: int = 600_000
    garbage_bytes: int = 256 << 20
    keep_commits: int = 1_000
    keep_ms: int = HOUR_MS
    keep_commits_max: int = 5_000
    unreferenced_ms: int = 7 * DAY_MS
    retention_check_ms: int = 300_000
    scrub_ms: int = DAY_MS
    merge_files_min: int = FILES_MIN
    merge_spread_files: int = FILES_MIN
    leader_first_ms: int = 30_000
    bulk_bytes: int = 1 << 20
    live_files_max: int = 2_000
    slowdown_count: int = 5_000
    stop_count: int = 10_000


@dataclass(frozen=True, slots=True)
class UpkeepView:
    """A chore's input: the log as its owner folded it, and what the owner knows besides.

    high_watermark  records above it are not touched; -1 = not known
    leader_epoch    the epoch of the log, under which commits are made
    is_busy         the machine has more urgent work
    """

    log: PartitionLog
    now_ms: int
    high_watermark: int
    leader_epoch: int
    is_busy: bool = False

    def done(self, work: UpkeepWork, count: int) -> UpkeepDone:
        """The result, with the table's present version."""
        return UpkeepDone(work, count, self.log.version)

    def still_has(self, files: Iterable[FileEntry]) -> bool:
        """Whether the log is still at this leader epoch and has these files."""
        live = live_paths(self.log.files)
        return self.log.leader_epoch == self.leader_epoch and all(entry.path in live for entry in files)

    def check_there(self, files: Sequence[FileEntry]) -> None:
        """After a file of these was found gone: DamagedFileError when the newest fold of the log still has it."""
        log = self.log
        log.refresh()
        if not self.still_has(files):
            return  # it was replaced, and deleted afterwards
        try:
            log.table.check_files([entry.file for entry in files], bits=False)
        except DamagedFileError:
            log.refresh_for_sure()
            if self.still_has(files):
                raise

    def checkpoint(self) -> Work[int]:
        """The work of a checkpoint."""
        write, is_written = self.log.checkpoint()

        def finish(version: int) -> UpkeepDone:
            is_written()
            self.log.state.made_durable(version)
            return self.done(UpkeepWork.CHECKPOINT, 1)

        return Work(write, finish)


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """The long part of a chore.

    run     touches nothing of the log's owner; it has a handle of its own (`table.reopened()`)
    finish  runs in the owner's loop with the result: checks that the decision still holds, and commits; or returns
            more work
    """

    run: Callable[[], T]
    finish: Callable[[T], Work[Any] | UpkeepDone | None]


class Chore(Protocol):
    """One kind of upkeep. A subclass needs only `begin`."""

    def begin(self, view: UpkeepView, /) -> Work[Any] | UpkeepDone | None:
        """Begin one bounded piece: `Work`; or the result, if the piece was short; or None, if nothing is due.

        Called only while the log is at `view.leader_epoch` and no other chore's work is running. When nothing is due
        it must cost no I/O and little time. Raises StoreError as the table does: it is retried later.
        """

    def rest_ms(self, _view: UpkeepView, /) -> int | None:
        """Time until something may be due although the log does not change; None: never."""
        return None

    @property
    def is_overdue(self) -> bool:
        """Whether the backlog is so large that the next piece must follow the last one at once."""
        return False

    @property
    def overdue_count(self) -> int:
        """Files or commits of the backlog that would be done by now if upkeep had enough of the machine."""
        return 0

    def needs_step(self, _commit: Commit, /) -> bool:
        """Whether something may be due after this commit, which is folded. Called at every append."""
        return False


class Timetable:
    """One check in each interval of the wall clock, at a time of the table's own.

    The time alone decides, so a successor continues: a fetch session is shorter than an interval. The first check is in
    the interval after the first call, as Kafka waits a little after a start, and after the clock was set back.
    """

    def __init__(self, name: str, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._offset_ms = crc32(name.encode()) % interval_ms
        self._checked: int | None = None

    def is_due(self, now_ms: int) -> bool:
        if self._checked is None:
            self.checked(now_ms)
        return self.rest_ms(now_ms) == 0

    def checked(self, now_ms: int) -> None:
        """The check of this interval is done."""
        self._checked = (now_ms + self._offset_ms) // self._interval_ms

    def rest_ms(self, now_ms: int) -> int:
        """Time until a check is due."""
        interval, passed_ms = divmod(now_ms + self._offset_ms, self._interval_ms)
        return 0 if self._checked is not None and interval != self._checked else self._interval_ms - passed_ms
