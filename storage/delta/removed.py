"""Objects that left a log and may still be on storage: replaced or truncated files, older producer states. Pure.

Commits remove them, checkpoints carry them as Delta's tombstones, so every handle on the table knows what is left to
delete. The handle that deletes an object forgets it, and its next checkpoint no longer names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stratalog.storage.delta.table import PRODUCERS, Commit, RemovedObject
from stratalog.storage.files.data_file import FileEntry

NO_PRODUCERS = 0
"""Value of `txn stratalog.producers` when no producer is known: there is no object."""
REMOVED_KEPT = 20_000
"""Removed objects that a fold remembers; the vacuum of unreferenced files finds those that it forgot."""


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

    def as_mapping(self) -> Mapping[str, RemovedObject]:
        """A copy that later commits do not change."""
        return dict(self._by_path)

    def forget(self, paths: Iterable[str]) -> None:
        """These objects are deleted."""
        for path in paths:
            self._by_path.pop(path, None)

    def replay(self, version: int, commit: Commit, gone: Iterable[FileEntry], producers_number: int) -> None:
        """Remember what a commit removed from the log: `gone` files, and the producer state named before it."""
        for entry in gone:
            self._by_path[entry.path] = RemovedObject(version, commit.timestamp_ms, entry.end_offset)
        number = commit.txns.get(PRODUCERS, producers_number)
        if number != producers_number and producers_number != NO_PRODUCERS:
            self._by_path[producers_path(producers_number)] = RemovedObject(version, commit.timestamp_ms, 0)
        for entry in commit.adds:
            self._by_path.pop(entry.path, None)
        if PRODUCERS in commit.txns:
            self._by_path.pop(producers_path(number), None)
        while len(self._by_path) > REMOVED_KEPT:
            del self._by_path[next(iter(self._by_path))]
