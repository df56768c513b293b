"""Objects that left a log and may still be on storage: replaced or truncated files, older producer states. Pure.

Commits remove them, checkpoints carry them as Delta's tombstones, so every handle on the table knows what is left to
delete. None is forgotten before it is deleted. The handle that deletes an object forgets it, and its next checkpoint no
longer names it. Its next commit states `txn stratalog.deleted`, by which the other handles forget it too: a standby
fetch session folds the log for as long as the active one deletes.

A busy log removes a hundred thousand files within the time for which they stay. So a checkpoint names most of them by
lists: objects of `LIST_FILES` paths each, written once, before the checkpoint that names them in place of their files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from stratalog.storage.clock import Ids
from stratalog.storage.delta.table import DELETED, PRODUCERS, Commit, RemovedObject
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.data_file import FileEntry

NO_PRODUCERS = 0
"""Value of `txn stratalog.producers` when no producer is known: there is no object."""
PRODUCERS_DIRECTORY = "_producers/"
LISTS_DIRECTORY = "_removed/"
"""Directory of the lists."""
LIST_FILES = 500
"""Files of a list: as many are listed at a time, and fewer stay in checkpoints by themselves."""


def producers_path(number: int) -> str:
    """The path of the producer state of `txn stratalog.producers` = `number`."""
    return f"{PRODUCERS_DIRECTORY}{number:016x}.json"


def is_list(path: str) -> bool:
    """Whether a removed object is a list of others."""
    return path.startswith(LISTS_DIRECTORY)


class RemovedList(NamedTuple):
    """A list to be written, and the objects that it stands for, oldest first."""

    path: str
    objects: Mapping[str, RemovedObject]

    def to_json(self) -> bytes:
        return json.dumps([[path, each.removed_ms] for path, each in self.objects.items()]).encode()

    @property
    def as_removed(self) -> RemovedObject:
        """The list as one of the removed objects."""
        each = list(self.objects.values())
        newest_ms, end_offset = max(one.removed_ms for one in each), max(one.end_offset for one in each)
        return RemovedObject(each[0].version, newest_ms, end_offset, each[-1].version)


def listed_files(data: bytes, name: str) -> list[tuple[str, int]]:
    """(path, when it was removed) of a list's files. CorruptMessageError when it is no list."""
    try:
        return [(str(path), int(removed_ms)) for path, removed_ms in json.loads(data)]
    except (ValueError, TypeError) as reason:
        raise CorruptMessageError(f"{name}: the list of removed files is unreadable: {reason}") from reason


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

    def may_name(self, entry: FileEntry, *paths: str) -> bool:
        """Whether a file may be among them under one of these paths, so that its object may be deleted at any time.
        Lists are not read for it: their files end below the log's end, and only a truncation brings one back."""
        if any(path in self._by_path for path in paths):
            return True
        ends = (each.end_offset for path, each in self._by_path.items() if is_list(path))
        return entry.start_offset < max(ends, default=0)

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

    def lists_due(self, ids: Ids, log_end_offset: int, later_than_ms: int) -> Sequence[RemovedList]:
        """The lists that the next checkpoint may name in place of files.

        ids             names of new lists
        log_end_offset  files that end above it are not listed: a copy may bring them back under their names
        later_than_ms   nor are those that were removed until then: they are due soon
        """
        files = [
            (path, each)
            for path, each in self._by_path.items()
            if not is_list(path)
            and not path.startswith(PRODUCERS_DIRECTORY)
            and each.end_offset <= log_end_offset
            and each.removed_ms > later_than_ms
        ]
        ends = range(LIST_FILES, len(files) + 1, LIST_FILES)
        parts = [dict(files[end - LIST_FILES : end]) for end in ends]
        return [RemovedList(f"{LISTS_DIRECTORY}{ids.new_id()}.json", part) for part in parts]

    def replaced_by(self, lists: Sequence[RemovedList]) -> None:
        """These lists were written: name them in place of their objects, of which some may be deleted by now."""
        first_of = {next(iter(each.objects)): each for each in lists}
        listed = {path for each in lists for path in each.objects}
        made: dict[str, RemovedObject] = {}
        for path, each in self._by_path.items():
            if path in first_of:
                made[first_of[path].path] = first_of[path].as_removed
            if path not in listed:
                made[path] = each
        for one in lists:  # whose first file is deleted
            made.setdefault(one.path, one.as_removed)
        self._by_path = made

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
        oldest = takewhile(lambda item: item[1].version <= version, self._by_path.items())
        self.forget([path for path, each in oldest if max(each.version, each.last_version) <= version])
