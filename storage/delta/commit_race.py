"""The commit algorithm that both tables share: which writer wins a version (promises 1, 3). Pure, over a `CommitLog`.

A create-if-absent of version N is the lock, but two things can spoil its result:

- **Orphaned commits.** Clean-up deletes old commits, after which a writer that slept can create N once more. Clean-up
  is ascending and stays below the newest checkpoint, so a win at N counts when N-1, *the very commit that was
  folded*, still exists. If it does not, `_judge` distinguishes an orphaned commit from a real one that clean-up
  overtook, by the newest checkpoint and by the id of its predecessor which N+1 carries. Where the table was made again
  while a writer slept, another N-1 stands than the one that was folded: N is orphaned then, whatever is checkpointed.
- **Ambiguous results.** A retried PUT finds its own object, or its response is lost: N is read back, and the own
  commit id there means that the create was ours.

An orphan above the newest checkpoint is not deleted: its version will be made again, and a deletion whose client gave
it up may arrive after that. A commit without content that follows the one before it takes the orphan's place instead,
on condition that the orphan still stands. Below the checkpoint no version is made again, and orphans there are deleted.

**What needs no read.** Where nothing deletes a commit before it is `kept_ms` old, by clean-up or with its table, a
handle that has itself created N-1 less than half as long ago knows when the answer for N arrives that N was created
behind it: N-1 and whatever had been at N would still be there. It knows that time by its own clocks, from before the
request for N-1 on. Where the monotonic and the wall clock do not agree that it was so short, the process or the
machine has slept, or a clock was set, and N-1 is read. A table that was deleted with its topic may be replaced at any
time: N is answered then, is of nobody's log, and its records were of the deleted topic.

The writer of an orphaned commit may die before it withdraws it. So a fold takes N only behind the very N-1 that it
folded: N-1 that is gone without a checkpoint above it was removed with its table, and N is of nobody's log.

A request whose client gave it up may create N after its writer has looked, even twice. Each commit therefore names its
table: the id of the commit that created it. A commit of a table that is gone is no part of the one that was made in its
place: folds end before it, and the next writer of N puts a commit without content there. One that names this table,
but another N-1, is damage: a version was lost, and nobody but recovery may take away what shows it.

What cannot be known (own commit neither there nor refuted) is StoreUnavailableError: it may have been applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import Commit, Committed, Conflict
from stratalog.storage.errors import CorruptMessageError, KafkaStorageError, StoreUnavailableError, TableReplacedError

READ_TRIES = 10
"""Reads of a commit that does not follow the one before it, while its writer may withdraw it."""


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit as stored.

    previous_id  the commit id of the version before it; None when its writer found none there, but a checkpoint
    properties   the table's properties: version 0 alone has them
    named_table  the id of the table's first commit; None in version 0, and where an earlier stratalog wrote it
    """

    commit: Commit
    previous_id: str | None
    properties: Mapping[str, str] | None = None
    named_table: str | None = None

    @property
    def table_id(self) -> str | None:
        """The commit id of the version 0 that created this commit's table; None when it is unknown."""
        return self.commit.commit_id if self.properties is not None else self.named_table

    def is_of_another(self, table_id: str | None) -> bool:
        """Whether this commit is known to be of another table than `table_id`."""
        return None not in (table_id, self.table_id) and self.table_id != table_id


@dataclass(frozen=True, slots=True)
class Moment:
    """One time by both clocks of a machine: the monotonic one may stand still while the machine sleeps.

    >>> Moment(1_000, 50_000).is_within(60, Moment(1_059, 50_059))
    True
    >>> [Moment(1_000, 50_000).is_within(60, Moment(1_001, wall_ms)) for wall_ms in (50_001, 90_000, 0)]
    [True, False, False]
    """

    monotonic_ms: int
    wall_ms: int

    @staticmethod
    def now(clock: Clock) -> Moment:
        """The present one."""
        return Moment(clock.monotonic_ms(), clock.wall_ms())

    def is_within(self, limit_ms: int, later: Moment) -> bool:
        """Whether less than `limit_ms` has passed until `later`, by both clocks."""
        return max(later.monotonic_ms - self.monotonic_ms, abs(later.wall_ms - self.wall_ms)) < limit_ms


@dataclass(frozen=True, slots=True)
class _Made:
    """A commit of this handle that is part of the log and was not there when its request was `sent`."""

    version: int
    commit_id: str
    sent: Moment


class CommitLog(Protocol):
    """The low-level calls of a table's log. Each may raise StoreUnavailableError."""

    @property
    def name(self) -> str: ...

    def create_version(self, version: int, stored: StoredCommit) -> bool:
        """Create if absent; False when the version exists."""

    def read_version(self, version: int) -> StoredCommit | None:
        """The commit of a version, None when there is none. CorruptMessageError when it is unreadable."""

    def has_version(self, version: int, commit_id: str | None) -> bool:
        """Whether the version exists, and carries this commit id unless that is None."""

    def delete_version(self, version: int, commit_id: str) -> None:
        """Delete one version if it carries this commit id."""

    def replace_version(self, version: int, old: StoredCommit, new: StoredCommit) -> None:
        """Put another commit in this one's place; whatever else stands there, or nothing, is left as it is."""

    def checkpoint_hint(self) -> int:
        """A checkpoint's version by the cheap pointer, -1 when there is none; it may lag."""

    def newest_checkpoint(self) -> int:
        """The newest checkpoint's version by listing, -1 when there is none."""


def withdrawn(orphan: StoredCommit, previous: StoredCommit) -> StoredCommit:
    """The commit without content that takes an orphan's place behind the commit `previous`."""
    commit_id, timestamp_ms = f"{orphan.commit.commit_id}.withdrawn", orphan.commit.timestamp_ms
    commit = Commit(commit_id, "WITHDRAW", timestamp_ms, data_change=False)
    return StoredCommit(commit, previous.commit.commit_id, named_table=previous.table_id)


def is_left_over(log: CommitLog, version: int, stored: StoredCommit, table_id: str | None) -> bool:
    """Whether the commit `stored` at `version` is left over from a deleted table, in whose place `table_id` was made.

    False where a commit of `table_id` stands at the next version: then a version of this table was lost here.
    """
    if version == 0 or not stored.is_of_another(table_id):
        return False
    above = log.read_version(version + 1)
    return above is None or above.is_of_another(table_id)


class CommitRace:
    """The commit algorithm for one handle on a table. Remembers the newest commit that the handle saw."""

    def __init__(self, log: CommitLog, kept_ms: int = 0) -> None:
        """`kept_ms`: the age below which nothing deletes a commit; 0: any may be deleted."""
        self._log = log
        self._kept_ms = kept_ms
        self._made: _Made | None = None
        """The newest commit that this handle has made, unless its answer was lost."""
        self._seen_version = -1
        self._seen_id: str | None = None
        self._table_id: str | None = None

    def saw(self, version: int, stored: StoredCommit) -> None:
        """Remember a folded commit: the next commit is decided on the newest of these."""
        if version >= self._seen_version:
            self._seen_version, self._seen_id = version, stored.commit.commit_id
            self._table_id = stored.table_id or self._table_id

    def loaded(self, version: int, commit_id: str | None, table_id: str | None) -> None:
        """Remember the newest commit of a fold from scratch: those seen before may be of a table that is gone."""
        self._made = None
        self._seen_version, self._seen_id, self._table_id = version, commit_id, table_id

    def id_of(self, version: int) -> str | None:
        """The id of the newest commit that the handle saw, if that is this version."""
        return self._seen_id if version == self._seen_version else None

    def still_stands(self) -> bool:
        """Whether the newest commit that the handle saw still exists: not cleaned up, the table not made again."""
        return self._seen_version >= 0 and self._log.has_version(self._seen_version, self._seen_id)

    def forget(self) -> None:
        """Start again, after the table was dropped or its tail was cut."""
        self._made = None
        self._seen_version, self._seen_id, self._table_id = -1, None, None

    def create(self, commit: Commit, properties: Mapping[str, str]) -> bool:
        """Win version 0; False when the table exists already, even if its version 0 was cleaned up."""
        if not self._is_before_clean_up():
            return False
        return isinstance(self._race(0, StoredCommit(commit, None, properties)), Committed)

    def commit(self, version: int, commit: Commit, clock: Clock | None = None) -> Committed | Conflict:
        """Create `version`; Committed only when it is part of the log that was folded. `clock` may spare a read; None:
        none is spared."""
        if version < 1:
            raise KafkaStorageError(f"{self._log.name}: version {version} is not committed but made by create()")
        previous_id, table_id = self._seen_id, self._table_id
        if self._seen_version != version - 1:
            previous = self._log.read_version(version - 1)
            if previous is None and self._log.newest_checkpoint() != version - 1:
                return Conflict(version)
            previous_id, table_id = (previous.commit.commit_id, previous.table_id) if previous else (None, None)
        return self._race(version, StoredCommit(commit, previous_id, named_table=table_id), clock)

    def read(self, version: int) -> Commit | None:
        """The commit at a version, None when absent, cleaned up (one alone below a checkpoint is orphaned) or of a
        table that is gone.

        Raises TableReplacedError when the commit that this handle saw is another one by now or was removed, and
        CorruptMessageError when that one stands and a commit stays behind it that does not follow.
        """
        stored = self._log.read_version(version)
        return self._checked(version, stored) if stored is not None else None

    def read_on(self, version: int, count_max: int) -> list[Commit]:
        """The commits from `version` on, at most `count_max`. Empty where `read` returns None; raises as `read`.

        All of them are read first, then the commit before them that this handle saw is looked for once. If it still
        exists, clean-up, which deletes in ascending order, has deleted none of them, so no version had another commit.
        Those count that form a chain, each naming the one before it. The next call begins where the chain ends.
        """
        run: list[StoredCommit] = []
        last_id = self.id_of(version - 1)
        while len(run) < count_max and (stored := self._log.read_version(version + len(run))) is not None:
            is_next = last_id is not None and stored.previous_id == last_id
            if is_next or not run:
                run.append(stored)
            if not is_next:
                break
            last_id = stored.commit.commit_id
        if len(run) < 2 or not self.still_stands():
            first = self._checked(version, run[0]) if run else None
            return [first] if first is not None else []
        for number, stored in enumerate(run):
            self.saw(version + number, stored)
        return [stored.commit for stored in run]

    def _checked(self, version: int, stored: StoredCommit) -> Commit | None:
        """The commit `stored` that was read at a version, by the rules of `read`. While it does not follow the commit
        before it, the version is read again, `READ_TRIES` times in all."""
        found: StoredCommit | None = stored
        for tries in range(READ_TRIES):
            if tries:
                found = self._log.read_version(version)
            if found is None or not self._has_its_predecessor(version, found):
                return None
            if self.id_of(version) is None and is_left_over(self._log, version, found, self._table_id):
                return None
            if self._follows_what_was_seen(version, found):
                self.saw(version, found)
                return found.commit
            stored = found
        raise CorruptMessageError(
            f"{self._log.name}: version {version} follows commit {stored.previous_id}, "
            f"but version {version - 1} is commit {self._seen_id}"
        )

    def read_range(self, start: int, end: int) -> list[Commit] | None:
        """The versions `[start, end)`, which were folded; None when clean-up has passed one of them.

        The last one counts as in `read`, and each of the others is the one that its successor names. Raises
        TableReplacedError.
        """
        found: list[StoredCommit] = []
        for version in range(start, end):
            stored = self._log.read_version(version)
            if stored is None or (found and stored.previous_id not in (None, found[-1].commit.commit_id)):
                return None
            found.append(stored)
        if found and not self._has_its_predecessor(end - 1, found[-1]):
            return None
        return [stored.commit for stored in found]

    def _has_its_predecessor(self, version: int, stored: StoredCommit) -> bool:
        """Whether the commit before one that was read stands, or was cleaned up a moment ago; False where it was
        cleaned up long ago. TableReplacedError when neither is so."""
        if version == 0 or self._log.has_version(version - 1, self.id_of(version - 1)):
            return True
        newest = self._log.newest_checkpoint()
        if newest < version - 1 or self._log.has_version(version - 1, None):
            raise self._replaced(version - 1)
        if newest <= version and self.id_of(version - 1) not in (None, stored.previous_id):
            raise self._replaced(version - 1)
        return newest <= version

    def _follows_what_was_seen(self, version: int, stored: StoredCommit) -> bool:
        """TableReplacedError when another commit stands at the version of the newest one that was seen."""
        if self.id_of(version) not in (None, stored.commit.commit_id):
            raise self._replaced(version)
        seen_id = self.id_of(version - 1)
        return seen_id is None or (stored.properties is None and stored.previous_id in (None, seen_id))

    def _replaced(self, version: int) -> TableReplacedError:
        return TableReplacedError(
            f"{self._log.name}: version {version} is not commit {self.id_of(version)} any more, as it was read: the "
            "table was replaced, open it again"
        )

    def _race(self, version: int, stored: StoredCommit, clock: Clock | None = None) -> Committed | Conflict:
        sent = Moment.now(clock) if clock is not None and self._kept_ms else None
        found, is_first = self._created(version, stored)
        if found.commit.commit_id != stored.commit.commit_id:
            if is_left_over(self._log, version, found, stored.table_id):
                self._withdraw(version, found, stored.previous_id)
            return Conflict(version)
        is_known = is_first and clock is not None and self._has_just_made(version - 1, stored.previous_id, clock)
        is_part = is_known or self._stands_before(version, stored)
        outcome = Committed(version) if is_part else self._judge(version, stored)
        if isinstance(outcome, Committed):
            self.saw(version, stored)
            self._made = _Made(version, stored.commit.commit_id, sent) if is_first and sent is not None else None
        return outcome

    def _has_just_made(self, version: int, commit_id: str | None, clock: Clock) -> bool:
        """Whether this handle has made this commit so short a time ago that nothing can have deleted it, nor any
        commit after it."""
        made = self._made
        return (
            made is not None
            and (made.version, made.commit_id) == (version, commit_id)
            and made.sent.is_within(self._kept_ms // 2, Moment.now(clock))
        )

    def _created(self, version: int, stored: StoredCommit) -> tuple[StoredCommit, bool]:
        """Try to create the version; the commit that then stands there, ours or another writer's, and whether the
        answer said that this request has created it."""
        try:
            if self._log.create_version(version, stored):
                return stored, True
        except StoreUnavailableError:
            found = self._log.read_version(version)
            if found is None:
                raise
            return found, False
        found = self._log.read_version(version)
        if found is None:
            raise self._unknown(version, stored)
        return found, False

    def _stands_before(self, version: int, stored: StoredCommit) -> bool:
        if version == 0:
            return self._is_before_clean_up()
        return self._log.has_version(version - 1, stored.previous_id)

    def _is_before_clean_up(self) -> bool:
        """Whether version 0 cannot have been cleaned up. A pointer alone does not tell: it may be all that a writer
        that slept has put where an earlier table was deleted."""
        return self._log.checkpoint_hint() <= 0 or self._log.newest_checkpoint() <= 0

    def _judge(self, version: int, stored: StoredCommit) -> Committed | Conflict:
        """A win whose predecessor is gone or another one: a real commit that clean-up overtook, or an orphaned one?

        Versions at or above the newest checkpoint are never cleaned up, and clean-up is ascending: a real N
        below it that still exists has a successor, and that one names N's commit id. Another N-1 that clean-up cannot
        have passed is the table's own: then N is orphaned, since no fold continues with a commit that does not follow.
        """
        newest = self._log.newest_checkpoint()
        is_behind_another = self._is_behind_another(version, newest)
        if newest == version - 1 and not is_behind_another:
            return Committed(version)
        successor = self._log.read_version(version + 1)
        own = self._log.read_version(version)
        if own is None or own.commit.commit_id != stored.commit.commit_id:
            raise self._unknown(version, stored)
        if is_behind_another:
            self._withdraw(version, own, None)
            return Conflict(version)
        if successor is not None and successor.previous_id == stored.commit.commit_id:
            return Committed(version)
        if successor is None and newest == version:
            return Committed(version)
        self._log.delete_version(version, own.commit.commit_id)
        return Conflict(version)

    def _withdraw(self, version: int, orphan: StoredCommit, previous_id: str | None) -> None:
        """Let a commit without content, which follows the one that stands before it, take the orphan's place; only
        behind the commit `previous_id`, unless that is None."""
        before = self._log.read_version(version - 1)
        # None: clean-up has just passed it, and the orphan is below a checkpoint
        if before is not None and previous_id in (None, before.commit.commit_id):
            self._log.replace_version(version, orphan, withdrawn(orphan, before))

    def _is_behind_another(self, version: int, newest_checkpoint: int) -> bool:
        """Whether another commit than the one that was folded stands before this version, where clean-up cannot have
        been."""
        return version > 0 and newest_checkpoint < version and self._log.has_version(version - 1, None)

    def _unknown(self, version: int, stored: StoredCommit) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._log.name}: version {version} was cleaned up before commit {stored.commit.commit_id} "
            "could be read back: it may or may not have been applied"
        )
