"""Objects that left a log and may still be on storage: replaced or truncated files, older producer states. Pure.

Commits remove them, checkpoints carry them as Delta's tombstones, so every handle on the table knows what is left to
delete. None is forgotten before it is deleted, so there are as many as leave the log within `file.delete.delay.ms`. The
handle that deletes an object forgets it, and its next checkpoint no longer names it. Its next commit states
`txn stratalog.deleted`, by which the other handles forget it too: a standby fetch session folds the log for as long as
the active one deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from stratalog.storage.delta.table import DELETED, PRODUCERS, Commit, RemovedObject
from stratalog.storage.files.data_file import FileEntry

NO_PRODUCERS = 0
"""Value of `txn stratalog.producers` when no producer is known: there is no object."""


def producers_path(number: int) -> str:
    """The path of the producer state of `txn stratalog.producers` = `number`."""
    return f"_producers/{number:016x}.json"


class RemovedObjects:
    """The objects, by path, that left one log, oldest first: never one that the log still names."""

    def __init__(self, known: Mapping[str, RemovedObject]) -> None:
        self._by_path = dict(known)

    def __contains__(self, path: object) -> bool:
        return path in self._by_path

    def __len__(self) -> int:
        return len(self._by_path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_path)

    def items(self) -> Iterable[tuple[str, RemovedObject]]:
        """(path, what is known of it), oldest first."""
        return self._by_path.items()

    @property
    def oldest(self) -> RemovedObject | None:
        """The object that left the log first."""
        return next(iter(self._by_path.values()), None)

    def as_mapping(self) -> Mapping[str, RemovedObject]:
        """A copy that later commits do not change."""
        return dict(self._by_path)

    def forget(self, paths: Iterable[str]) -> None:
        """These objects are deleted."""
        for path in paths:
            self._by_path.pop(path, None)

    def replay(self, version: int, commit: Commit, gone: Iterable[FileEntry], producers_number: int) -> None:
        """Remember what a commit removed from the log: `gone` files, and the producer state named before it."""
        if DELETED in commit.txns:
            self._forget_up_to(commit.txns[DELETED])
        for entry in gone:
            self._by_path[entry.path] = RemovedObject(version, commit.timestamp_ms, entry.end_offset)
        number = commit.txns.get(PRODUCERS, producers_number)
        if number != producers_number and producers_number != NO_PRODUCERS:
            self._by_path[producers_path(producers_number)] = RemovedObject(version, commit.timestamp_ms, 0)
        for entry in commit.adds:
            self._by_path.pop(entry.path, None)
        if PRODUCERS in commit.txns:
            self._by_path.pop(producers_path(number), None)

    def _forget_up_to(self, version: int) -> None:
        """Everything that versions up to this one removed is deleted, by this handle or another one."""
        self.forget([path for path, _ in takewhile(lambda item: item[1].version <= version, self._by_path.items())])
