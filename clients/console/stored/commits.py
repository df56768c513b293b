"""The commit that brought an offset into a replica's table, and the one that wrote the file it is in now.

I/O: reads commits of the table, through a handle of its own. Commits are cleaned up after a while: then the answer is
not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stratalog.storage.delta.table import LOG_END, Commit, LogTable

COMMITS_READ_MAX = 1_000
"""Commits that one search reads in turn, at most."""

READ_TOGETHER = 32
ReadCommit = Callable[[int], Commit | None]
"""A commit by its version; None when it was cleaned up."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit of a replica's table."""

    version: int
    operation: str
    timestamp_ms: int
    commit_id: str

    @classmethod
    def of(cls, version: int, commit: Commit) -> TableCommit:
        return cls(version, commit.operation, commit.timestamp_ms, commit.commit_id)


class CommitReader:
    """A `ReadCommit` for versions up to `newest`. It has a handle of its own, so the fold of `table` does not change.

    Commits are kept in memory once they were read. After two adjacent versions the next `READ_TOGETHER` in the same
    direction are read at once, which on an object store takes as long as one.
    """

    def __init__(self, table: LogTable, newest: int) -> None:
        self._table = table.reopened()
        self._newest = newest
        self._known: dict[int, Commit | None] = {}
        self._reads_together = True

    def __call__(self, version: int) -> Commit | None:
        if version not in self._known and not self._has_read_together(version):
            self._known[version] = self._table.read_commit(version)
        return self._known[version]

    def _has_read_together(self, version: int) -> bool:
        """Read this version and those next to it in the direction of the search. False, and nothing is read, where no
        adjacent version was read before, or where clean-up has deleted one of them."""
        end = version + 1
        if version - 1 in self._known:
            end = min(version + READ_TOGETHER, self._newest + 1)
        start = max(0, end - READ_TOGETHER) if version + 1 in self._known else version
        if not self._reads_together or end - start < 2:
            return False
        found = self._table.read_commits(start, end)
        self._reads_together = found is not None
        self._known.update(zip(range(start, end), found or (), strict=False))
        return found is not None


def commit_of_offset(read: ReadCommit, newest: int, offset: int, leader_epoch: int) -> TableCommit | None:
    """The commit after which the log had the record at this offset: the append on a leader, the copy on a follower.

    newest        version of the table; the log has the offset there
    leader_epoch  of the record: a log that was cut had another one there before
    None when that commit was cleaned up.
    """
    found = _by_halves(read, newest, offset)
    if found is None:
        return None
    if _covers(found[1], offset, leader_epoch):
        return TableCommit.of(*found)
    is_first = not found[0] or read(found[0] - 1) is None
    return None if is_first else _from_newest(read, newest, offset)  # the log was cut in between


def _by_halves(read: ReadCommit, newest: int, offset: int) -> tuple[int, Commit] | None:
    """The first version whose log ends above the offset, if the end never went back."""
    low, high = 0, newest
    found: tuple[int, Commit] | None = None
    while low <= high:
        middle = (low + high) // 2
        commit = read(middle)
        if commit is not None and commit.txns.get(LOG_END, 0) > offset:
            found, high = (middle, commit), middle - 1
        else:
            low = middle + 1
    return found


def _from_newest(read: ReadCommit, newest: int, offset: int) -> TableCommit | None:
    found: tuple[int, Commit] | None = None
    for version in range(newest, max(-1, newest - COMMITS_READ_MAX), -1):
        commit = read(version)
        if commit is None:
            return None
        if commit.txns.get(LOG_END, 0) <= offset:
            return None if found is None else TableCommit.of(*found)
        found = version, commit
    return None


def commit_of_file(read: ReadCommit, newest: int, path: str, since: int) -> TableCommit | None:
    """The commit that put a data file into the table: the append or copy, or a later merge or compaction.

    since  the version from which on commits are read, at most `COMMITS_READ_MAX`
    """
    for version in range(since, min(newest, since + COMMITS_READ_MAX) + 1):
        commit = read(version)
        if commit is not None and any(entry.path == path for entry in commit.adds):
            return TableCommit.of(version, commit)
    return None


def oldest_version(read: ReadCommit, newest: int) -> int:
    """The oldest version whose commit is still there."""
    low, high = 0, newest
    while low < high:
        middle = (low + high) // 2
        if read(middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


def _covers(commit: Commit, offset: int, leader_epoch: int) -> bool:
    return any(
        entry.start_offset <= offset < entry.end_offset and entry.leader_epoch == leader_epoch for entry in commit.adds
    )
