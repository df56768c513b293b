"""A chore: one kind of upkeep of one log, as `storage.upkeep.upkeep` has it done. I/O: what each chore does through the
log.

A chore decides and commits in the loop of the log's owner; what takes long is `Work`, done by an executor meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from stratalog.storage.delta.table import Commit
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.upkeep.merge_plan import FILES_MIN

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RECHECK_MS = 1_000
"""How soon to look again for what neither a commit nor a known time brings, as a risen high watermark."""

T = TypeVar("T")


class UpkeepWork(StrEnum):
    """What a step did."""

    FLUSH = "flush"
    CHECKPOINT = "checkpoint"
    CLEAN_LOG = "clean log"
    DELETE_FILES = "delete files"
    RETENTION = "retention"
    COMPACTION = "compaction"
    MERGE = "merge"
    TAKE_MERGE = "take merge"
    LOST_RACE = "lost race"
    VACUUM = "vacuum"
    ERASE = "erase"


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
    garbage_ms          … or when files that wait for a checkpoint to be deleted have waited for so long …
    garbage_bytes       … or are so large together
    keep_commits        clean-up leaves at least so many commits …
    keep_ms             … and all of this age
    unreferenced_ms     a file that no commit ever named goes after this: a slow writer may still hand it over
    retention_check_ms  pause between two looks for segments to be deleted (`log.retention.check.interval.ms`)
    scrub_ms            every data file on a local disk is read once in this time, and its checksums verified
    merge_files_min     fewer files than this are not merged while their run still grows
    merge_spread_files  each table's first merge comes up to so many files later than that, by its name: tables that
                        were made together must not merge all at once
    leader_first_ms     a follower waits so long for its leader's merge before it merges by itself
    bulk_bytes          files of this size are large enough, until the log has more than …
    live_files_max      … so many live files; while its owner is busy no larger merges are made up to twice as many
    slowdown_count      appends are slowed while upkeep is behind with more files or commits than this …
    stop_count          … and all but stopped from here on (`storage.upkeep.append_pause`)
    """

    checkpoint_commits: int = 500
    garbage_ms: int = 600_000
    garbage_bytes: int = 256 << 20
    keep_commits: int = 1_000
    keep_ms: int = HOUR_MS
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
    """What a chore decides on: the log as its owner folded it, and what the owner knows besides.

    high_watermark  what lies above it is left alone; -1 = not known
    leader_epoch    the epoch that the log is at; commits are made under it
    is_busy         others need the machine more
    """

    log: PartitionLog
    now_ms: int
    high_watermark: int
    leader_epoch: int
    is_busy: bool = False

    def done(self, work: UpkeepWork, count: int) -> UpkeepDone:
        """What was done, with the table's version as of now."""
        return UpkeepDone(work, count, self.log.version)


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """What takes long. `run` touches nothing of the log's owner (it has a handle of its own: `table.reopened()`);
    `finish` takes what came of it, in the owner's loop, looks whether the log is still what was decided on, and
    commits; or it has more work done."""

    run: Callable[[], T]
    finish: Callable[[T], Work[Any] | UpkeepDone | None]


class Chore(Protocol):
    """One kind of upkeep. A class that names this as its base needs only `begin`."""

    def begin(self, view: UpkeepView, /) -> Work[Any] | UpkeepDone | None:
        """One bounded piece: work to be done; or it was short and is done; or there is nothing to do now.

        Called only while the log is at `view.leader_epoch` and no other chore's work is under way. Nothing to do must
        cost no I/O and little time. Raises StoreError as the table does: tried again later.
        """
        ...

    def rest_ms(self, _view: UpkeepView, /) -> int | None:
        """After a `begin` that had nothing to do: how long that stays so unless the log changes; None: for ever."""
        return None

    @property
    def is_overdue(self) -> bool:
        """Whether there is so much to do that the next piece must follow the last one at once."""
        return False

    @property
    def overdue_count(self) -> int:
        """How many files or commits it is behind with: what would long be done, had it enough of the machine."""
        return 0

    def needs_step(self, _commit: Commit, /) -> bool:
        """Whether there may be something to do after this commit of the log, which is folded. Asked at every append."""
        return False


OVERDUE_BACKLOG = 4
"""Who has so many times more to do than suits one piece of work is behind."""
