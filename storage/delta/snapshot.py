"""The fold of a table's commits into a snapshot, and which commits survive an unclean stop (promise 5). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.removed import NO_PRODUCERS, RemovedObjects, producers_path
from stratalog.storage.delta.table import (
    EPOCH_OPERATIONS,
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    OPEN_WRITER_VERSION,
    PRODUCERS,
    PRODUCERS_VERSION,
    Commit,
    TableSnapshot,
)
from stratalog.storage.errors import ForeignCommitError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.producers import ProducerChanges

INITIAL_TXNS: Mapping[str, int] = {LOG_END: 0, LEADER_EPOCH: -1, LOG_START: 0, PRODUCERS_VERSION: 0}
"""Numbers of version 0 of every table: an empty log without an epoch."""
NO_COMMIT = ""
"""The id of the commit before version 0."""


class TableFold:
    """A snapshot under construction: `apply` commits in order, then `snapshot`.

    objects_named  for each version that was applied, in order: the objects that its commit names (`named_objects`)
    """

    def __init__(self, base: TableSnapshot | None, name: str) -> None:
        self.version = base.version if base else -1
        self.objects_named: list[tuple[str, ...]] = []
        self._properties: Mapping[str, str] = base.properties if base else {}
        self._files: dict[str, FileEntry] = {entry.path: entry for entry in base.files} if base else {}
        self._txns: dict[str, int] = dict(base.txns) if base else {}
        self._removed = RemovedObjects(base.removed if base else {})
        self._durable_version = self.version
        self._epoch_version = -1
        self._producer_changes: list[tuple[int, ProducerChanges]] = []
        self._writer_version = base.writer_version if base else OPEN_WRITER_VERSION
        self._name = name

    def apply(self, stored: StoredCommit) -> None:
        """Fold the next version. Raises ForeignCommitError naming it when stratalog did not write it."""
        version, commit = self.version + 1, stored.commit
        if commit.is_foreign:
            raise ForeignCommitError(
                f"{self._name}: version {version} was committed by another writer ({commit.operation}); "
                "only stratalog may commit to a live replica"
            )
        gone = [entry for path in commit.removes if (entry := self._files.pop(path, None)) is not None]
        self._removed.replay(version, commit, gone, self._txns.get(PRODUCERS, NO_PRODUCERS))
        for entry in commit.adds:
            self._files[entry.path] = entry
        self._txns.update(commit.txns)
        self.objects_named.append(named_objects(commit))
        note_producer_changes(self._producer_changes, version, commit)
        self._writer_version = commit.writer_version or self._writer_version
        if commit.operation in EPOCH_OPERATIONS:
            self._epoch_version = version
        if stored.properties is not None:
            self._properties = dict(stored.properties)
        self.version = version

    def snapshot(self) -> TableSnapshot:
        """The fold so far."""
        return TableSnapshot(
            self.version,
            tuple(self._files.values()),
            dict(self._txns),
            self._properties,
            self._removed.as_mapping(),
            self._durable_version,
            tuple(self._producer_changes),
            self._writer_version,
            self._epoch_version,
        )


def named_objects(commit: Commit) -> tuple[str, ...]:
    """The paths of the objects without which a commit is not whole: its data files, and the producer state it names."""
    number = commit.txns.get(PRODUCERS, NO_PRODUCERS)
    paths = tuple([entry.path for entry in commit.adds])
    return paths if number == NO_PRODUCERS else (*paths, producers_path(number))


def note_producer_changes(changes: list[tuple[int, ProducerChanges]], version: int, commit: Commit) -> None:
    """Add a version's changes to those since the last whole producer state."""
    if PRODUCERS_VERSION in commit.txns or PRODUCERS in commit.txns:
        changes.clear()
    elif commit.producers is not None:
        changes.append((version, commit.producers))


def sound_commits(
    stored: Sequence[StoredCommit],
    last_id: str | None,
    is_whole: Callable[[FileEntry], bool],
    has_producers: Callable[[int], bool],
) -> int:
    """The number of these consecutive readable commits that can be kept: up to the first that does not follow the one
    before it, whose id is `last_id` for the first of them, or whose data file is not whole.

    A file that a kept commit removed again may be gone. The producer state that the last of them names must be
    there; `has_producers` is asked for its number. Earlier ones may be deleted.
    """
    commits = [each.commit for each in stored]
    count = _following(stored, last_id)
    while True:
        kept = commits[:count]
        removed = {path for commit in kept for path in commit.removes}
        sound = next((i for i, c in enumerate(kept) if not _all_whole(c, removed, is_whole)), count)
        if sound == count:
            named = [(i, c.txns[PRODUCERS]) for i, c in enumerate(kept) if PRODUCERS in c.txns]
            position, number = named[-1] if named else (0, NO_PRODUCERS)
            if number == NO_PRODUCERS or has_producers(number):
                return count
            sound = position
        count = sound


def follows(stored: StoredCommit, last_id: str | None) -> bool:
    """Whether a commit belongs behind the commit `last_id` (`NO_COMMIT` = it is version 0, None = unknown).

    Version 0, and only that, defines the table. A later commit names none before it if its writer found none there,
    but a checkpoint.
    """
    if last_id == NO_COMMIT:
        return stored.previous_id is None
    if stored.properties is not None:
        return False
    return last_id is None or stored.previous_id in (None, last_id)


def _following(stored: Sequence[StoredCommit], last_id: str | None) -> int:
    """The number of commits that form a chain: after a power loss a file may hold blocks of another one, and so a
    commit that stood elsewhere, or the first one of another table."""
    if last_id == NO_COMMIT and _begins_as_another_table(stored):
        return 0
    for count, each in enumerate(stored):
        if not follows(each, last_id):
            return count
        last_id = each.commit.commit_id or None
    return len(stored)


def _begins_as_another_table(stored: Sequence[StoredCommit]) -> bool:
    """Whether version 0 is not the one of this table: versions 1 and 2 form a chain, and 1 names another commit."""
    if len(stored) < 3 or stored[1].previous_id is None:
        return False
    return follows(stored[2], stored[1].commit.commit_id) and not follows(stored[1], stored[0].commit.commit_id)


def _all_whole(commit: Commit, removed: set[str], is_whole: Callable[[FileEntry], bool]) -> bool:
    return all(entry.path in removed or is_whole(entry) for entry in commit.adds)
