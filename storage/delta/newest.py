"""Where a fold of a table begins, and what the pointer to the newest checkpoint may name. Pure, over a `CheckpointLog`.

`_last_checkpoint` is a hint: a writer of a checkpoint that slept may put back an older one. Clean-up is ascending and
stays below the newest checkpoint, so a checkpoint whose own commit still stands leads to the newest version. One whose
commit is gone may lie below commits that are gone too; only a listing shows whether a newer checkpoint stands above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stratalog.storage.delta.commit_race import CommitLog, StoredCommit, is_left_over
from stratalog.storage.delta.snapshot import NO_COMMIT, TableFold, follows
from stratalog.storage.delta.table import TableSnapshot
from stratalog.storage.errors import CorruptMessageError

SNAPSHOT_TRIES = 10
"""Folds that are tried while other writers clean up, or withdraw a commit that does not follow."""


class CheckpointLog(CommitLog, Protocol):
    """A `CommitLog` with its checkpoints."""

    def own_version(self, version: int) -> StoredCommit | None:
        """The commit of a version; None when it is absent, foreign or unreadable."""

    def checkpoints(self) -> Sequence[int]:
        """The versions of all checkpoints by listing, newest first."""

    def has_checkpoint(self, version: int) -> bool:
        """Whether a checkpoint is there, readable or not."""

    def read_checkpoint(self, version: int) -> TableSnapshot | None:
        """A checkpoint; None when it is absent or unreadable."""

    def put_pointer(self, version: int) -> None:
        """Name this checkpoint as the newest one."""


@dataclass(slots=True)
class _Tail:
    """A fold. `base_stands`: the commit of its checkpoint still exists. `broken`: why its next commit is not folded.
    `last_id` and `table_id` are None where they are unknown."""

    fold: TableFold
    last_id: str | None
    table_id: str | None
    base_stands: bool
    broken: str = ""


def newest_fold(log: CheckpointLog) -> tuple[TableFold, str | None, str | None] | None:
    """The fold of the newest version, with the id of its commit and of its table if known; None when there is no table.

    The usual case lists nothing. Raises CorruptMessageError when no fold reaches the newest checkpoint, or when a
    commit that does not follow the one before it stays.
    """
    broken = ""
    for _ in range(SNAPSHOT_TRIES):
        tail = _tail_of(log, log.read_checkpoint(log.checkpoint_hint()))
        if not tail.base_stands:
            tail = _above(log, tail)
        if tail.fold.version < 0 and not tail.broken:
            _check_no_table(log)
            return None
        broken = tail.broken
        if not broken and (log.checkpoint_hint() <= tail.fold.version or log.newest_checkpoint() <= tail.fold.version):
            return tail.fold, tail.last_id, tail.table_id
        # otherwise clean-up deleted from the tail while it was read, or the writer of an orphaned commit deletes it
    raise CorruptMessageError(
        broken or f"{log.name}: the commits end below checkpoint {log.checkpoint_hint()}, which is unreadable"
    )


def newest_readable(log: CheckpointLog) -> TableSnapshot | None:
    """The newest checkpoint that can be read, by listing."""
    return next((found for version in log.checkpoints() if (found := log.read_checkpoint(version)) is not None), None)


def pointed(log: CheckpointLog) -> int:
    """The checkpoint that the pointer names; -1 when there is no pointer, or not this checkpoint: the writer of the
    pointer may have slept until the table was deleted, and another one was made in its place."""
    version = log.checkpoint_hint()
    return version if version < 0 or log.has_checkpoint(version) else -1


def point_to(log: CheckpointLog, version: int) -> None:
    """Name the checkpoint that was just written, unless its writer can know of a newer one.

    The writer may sleep before the pointer is put. If its own commit is cleaned up afterwards, a newer checkpoint
    stands, and that one is named.
    """
    while pointed(log) < version:
        log.put_pointer(version)
        if log.has_version(version, None) or (newest := log.newest_checkpoint()) <= version:
            return  # at the latest when the table was deleted meanwhile
        version = newest


def _tail_of(log: CheckpointLog, base: TableSnapshot | None) -> _Tail:
    fold = TableFold(base, log.name)
    own = log.own_version(base.version) if base is not None else None
    last_id = NO_COMMIT if base is None else own.commit.commit_id if own is not None else None
    tail = _Tail(fold, last_id, own.table_id if own is not None else None, base_stands=last_id is not None)
    while (stored := log.read_version(fold.version + 1)) is not None:
        if is_left_over(log, fold.version + 1, stored, tail.table_id) and log.has_version(fold.version, tail.last_id):
            break
        if not follows(stored, tail.last_id):
            tail.broken = (
                f"{log.name}: version {fold.version + 1} follows commit {stored.previous_id}, "
                f"but version {fold.version} is commit {tail.last_id}"
            )
            break
        fold.apply(stored)
        tail.last_id, tail.table_id = stored.commit.commit_id, stored.table_id or tail.table_id
    if fold.version < 0:
        tail.base_stands = False  # neither a pointer to a readable checkpoint nor version 0
    return tail


def _above(log: CheckpointLog, tail: _Tail) -> _Tail:
    """The fold from the newest checkpoint, if that is above the one with which `tail` began."""
    newest = newest_readable(log)
    return tail if newest is None or newest.version <= tail.fold.version else _tail_of(log, newest)


def _check_no_table(log: CheckpointLog) -> None:
    """When neither version 0 nor a checkpoint can be read: CorruptMessageError if there are checkpoints."""
    versions = log.checkpoints()
    if versions:
        raise CorruptMessageError(f"{log.name}: version 0 is gone and no checkpoint of {versions} is readable")
