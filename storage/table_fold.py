"""The fold of a table's commits into a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from storage.commit_race import StoredCommit
from storage.errors import ForeignCommitError
from storage.table import LEADER_EPOCH, LOG_END, LOG_START, FileEntry, TableSnapshot

INITIAL_TXNS: Mapping[str, int] = {LOG_END: 0, LEADER_EPOCH: -1, LOG_START: 0}
"""What version 0 of every table states: an empty log without an epoch."""


class TableFold:
    """A snapshot under construction: `apply` commits in order, then `snapshot`."""

    def __init__(self, base: TableSnapshot | None, name: str) -> None:
        self.version = base.version if base else -1
        self._properties: Mapping[str, str] = base.properties if base else {}
        self._files: dict[str, FileEntry] = {entry.path: entry for entry in base.files} if base else {}
        self._txns: dict[str, int] = dict(base.txns) if base else {}
        self.added: dict[str, FileEntry] = {}
        """Live files that the applied commits added, without those of the base."""
        self._name = name

    def apply(self, stored: StoredCommit) -> None:
        """Fold the next version. Raises ForeignCommitError naming it when stratalog did not write it."""
        version, commit = self.version + 1, stored.commit
        if commit.is_foreign:
            raise ForeignCommitError(
                f"{self._name}: version {version} was committed by somebody else ({commit.operation}); "
                "only stratalog may commit to a live replica"
            )
        for path in commit.removes:
            self._files.pop(path, None)
            self.added.pop(path, None)
        for entry in commit.adds:
            self._files[entry.path] = self.added[entry.path] = entry
        self._txns.update(commit.txns)
        if stored.properties is not None:
            self._properties = dict(stored.properties)
        self.version = version

    def snapshot(self) -> TableSnapshot:
        """What was folded so far."""
        return TableSnapshot(self.version, tuple(self._files.values()), dict(self._txns), self._properties)
