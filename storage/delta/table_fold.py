"""The fold of a table's commits into a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.removed import NO_PRODUCERS, RemovedObjects
from stratalog.storage.delta.table import (
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS,
    PRODUCERS_VERSION,
    Commit,
    FileEntry,
    TableSnapshot,
)
from stratalog.storage.errors import ForeignCommitError
from stratalog.storage.producers import ProducerChanges

INITIAL_TXNS: Mapping[str, int] = {LOG_END: 0, LEADER_EPOCH: -1, LOG_START: 0, PRODUCERS_VERSION: 0}
"""What version 0 of every table states: an empty log without an epoch."""


class TableFold:
    """A snapshot under construction: `apply` commits in order, then `snapshot`."""

    def __init__(self, base: TableSnapshot | None, name: str) -> None:
        self.version = base.version if base else -1
        self._properties: Mapping[str, str] = base.properties if base else {}
        self._files: dict[str, FileEntry] = {entry.path: entry for entry in base.files} if base else {}
        self._txns: dict[str, int] = dict(base.txns) if base else {}
        self._removed = RemovedObjects(base.removed if base else {})
        self._durable_version = self.version
        self._producer_changes: list[tuple[int, ProducerChanges]] = []
        self._name = name

    def apply(self, stored: StoredCommit) -> None:
        """Fold the next version. Raises ForeignCommitError naming it when stratalog did not write it."""
        version, commit = self.version + 1, stored.commit
        if commit.is_foreign:
            raise ForeignCommitError(
                f"{self._name}: version {version} was committed by somebody else ({commit.operation}); "
                "only stratalog may commit to a live replica"
            )
        gone = [entry for path in commit.removes if (entry := self._files.pop(path, None)) is not None]
        self._removed.replay(version, commit, gone, self._txns.get(PRODUCERS, NO_PRODUCERS))
        for entry in commit.adds:
            self._files[entry.path] = entry
        self._txns.update(commit.txns)
        note_producer_changes(self._producer_changes, version, commit)
        if stored.properties is not None:
            self._properties = dict(stored.properties)
        self.version = version

    def snapshot(self) -> TableSnapshot:
        """What was folded so far."""
        return TableSnapshot(
            self.version,
            tuple(self._files.values()),
            dict(self._txns),
            self._properties,
            self._removed.as_mapping(),
            self._durable_version,
            tuple(self._producer_changes),
        )


def note_producer_changes(changes: list[tuple[int, ProducerChanges]], version: int, commit: Commit) -> None:
    """Bring the changes since the last whole producer state up to the next version."""
    if PRODUCERS_VERSION in commit.txns or PRODUCERS in commit.txns:
        changes.clear()
    elif commit.producers is not None:
        changes.append((version, commit.producers))
