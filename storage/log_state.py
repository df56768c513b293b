"""The fold of a table's commits into the state of one log. Pure.

`LogState.replay` is the only mutator. Folding a commit costs as much as the commit adds; only a commit that
removes files (a merge, a truncation) goes over the whole list.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage.epochs import EpochEntry, LeaderEpochCache
from storage.errors import CorruptMessageError, ForeignCommitError
from storage.segments import LogSegment, segments_of
from storage.table import (
    EPOCH_PREFIX,
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS,
    REMOVED_EPOCH,
    Commit,
    FileEntry,
    TableSnapshot,
)

TOPIC_ID_PROPERTY = "stratalog.topic-id"
NO_PRODUCERS = 0
"""`txn stratalog.producers` = 0: nothing is known of any producer, and there is no object."""
REMOVED_FILES_KEPT = 20_000
"""How many removed files a fold remembers; the sweep of unreferenced files finds what it forgot."""


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a commit took out of the log at `removed_ms`, and that is still on storage."""

    entry: FileEntry
    version: int
    removed_ms: int


class StatedProducers(NamedTuple):
    """`txn stratalog.producers` was stated as `number` by `version` at `stated_ms`."""

    version: int
    number: int
    stated_ms: int


def producers_path(number: int) -> str:
    """Where the producer state of `txn stratalog.producers` = `number` lies."""
    return f"_producers/{number:016x}.json"


class LogState:
    """One log at table version `version`. `files` are ordered by offset.

    `removed` are the files, by path, that left the log since `first_version`, as far as they are remembered: their
    objects may be deleted at any time. `producer_numbers` is what `txn stratalog.producers` was since then.
    """

    def __init__(self, snapshot: TableSnapshot, name: str) -> None:
        self.name = name
        self.version = snapshot.version
        self.first_version = snapshot.version
        self.properties = snapshot.properties
        self.files: list[FileEntry] = sorted(snapshot.files, key=_start_of)
        self.removed: dict[str, RemovedFile] = {}
        self.producer_numbers: deque[StatedProducers] = deque()
        self._txns: dict[str, int] = {}
        self._epoch_starts: dict[int, int] = {}
        self._epochs: LeaderEpochCache | None = None
        self._segments: list[LogSegment] | None = None
        self._state_txns(snapshot.txns)
        self.producer_numbers.append(StatedProducers(snapshot.version, self.producers_number, 0))

    @property
    def log_end_offset(self) -> int:
        return self._txns.get(LOG_END, 0)

    @property
    def log_start_offset(self) -> int:
        return self._txns.get(LOG_START, 0)

    @property
    def leader_epoch(self) -> int:
        return self._txns.get(LEADER_EPOCH, -1)

    @property
    def producers_number(self) -> int:
        return self._txns.get(PRODUCERS, NO_PRODUCERS)

    @property
    def topic_id(self) -> str:
        return self.properties.get(TOPIC_ID_PROPERTY, "")

    @property
    def epochs(self) -> LeaderEpochCache:
        """The epoch entries from the log start on."""
        if self._epochs is None:
            entries = tuple(EpochEntry(e, o) for e, o in sorted(self._epoch_starts.items()))
            self._epochs = LeaderEpochCache(entries).truncate_from_start(self.log_start_offset)
        return self._epochs

    @property
    def segments(self) -> list[LogSegment]:
        if self._segments is None:
            self._segments = segments_of(self.files)
        return self._segments

    @property
    def active_segment(self) -> LogSegment | None:
        """The segment that is being written: the last one."""
        return self.segments[-1] if self.segments else None

    @property
    def position_txns(self) -> dict[str, int]:
        """What every commit states again, since adds can lose it."""
        return {
            LOG_END: self.log_end_offset,
            LEADER_EPOCH: self.leader_epoch,
            LOG_START: self.log_start_offset,
        }

    def epoch_txns(self, wanted: LeaderEpochCache) -> dict[str, int]:
        """The `txn stratalog.epoch.<e>` that turn this log's stated epoch entries into `wanted`."""
        starts = dict(wanted.entries)
        stated = {f"{EPOCH_PREFIX}{e}": o for e, o in starts.items() if self._epoch_starts.get(e) != o}
        removed = {f"{EPOCH_PREFIX}{e}": REMOVED_EPOCH for e in self._epoch_starts if e not in starts}
        return {**removed, **stated}

    def replay(self, version: int, commit: Commit) -> None:
        """Fold the next version. Raises ForeignCommitError when stratalog did not write it."""
        if commit.is_foreign:
            raise ForeignCommitError(
                f"{self.name}: version {version} ({commit.operation}) was not committed by stratalog"
            )
        if version != self.version + 1:
            raise CorruptMessageError(f"{self.name}: version {version} cannot follow version {self.version}")
        if commit.removes:
            self._remove(commit)
        for entry in commit.adds:
            self._add(entry)
        self._state_txns(commit.txns)
        self.version = version
        if PRODUCERS in commit.txns:
            self.producer_numbers.append(StatedProducers(version, commit.txns[PRODUCERS], commit.timestamp_ms))
            if len(self.producer_numbers) > REMOVED_FILES_KEPT:
                self.producer_numbers.popleft()

    def forget_removed(self, paths: Iterable[str]) -> None:
        """The objects of these removed files are deleted."""
        for path in paths:
            self.removed.pop(path, None)

    def _add(self, entry: FileEntry) -> None:
        if self.files and entry.start_offset < self.files[-1].end_offset:
            insort(self.files, entry, key=_start_of)
            self._segments = None
            return
        self.files.append(entry)
        if self._segments is None:
            return
        if self._segments and self._segments[-1].base_offset == entry.segment:
            self._segments[-1] = self._segments[-1].with_file(entry)
        else:
            self._segments.extend(segments_of([entry]))

    def _remove(self, commit: Commit) -> None:
        gone = set(commit.removes)
        kept: list[FileEntry] = []
        for entry in self.files:
            if entry.path in gone:
                self.removed[entry.path] = RemovedFile(entry, self.version + 1, commit.timestamp_ms)
            else:
                kept.append(entry)
        self.files = kept
        self._segments = None
        for path in list(self.removed)[: max(0, len(self.removed) - REMOVED_FILES_KEPT)]:
            del self.removed[path]

    def _state_txns(self, txns: Mapping[str, int]) -> None:
        for name, value in txns.items():
            if name.startswith(EPOCH_PREFIX):
                self._state_epoch(int(name.removeprefix(EPOCH_PREFIX)), value)
            else:
                self._txns[name] = value
        if LOG_START in txns:
            self._epochs = None

    def _state_epoch(self, epoch: int, start_offset: int) -> None:
        self._epochs = None
        if start_offset == REMOVED_EPOCH:
            self._epoch_starts.pop(epoch, None)
        else:
            self._epoch_starts[epoch] = start_offset


def live_paths(files: Iterable[FileEntry]) -> set[str]:
    """The paths of files that are in the log."""
    return {entry.path for entry in files}


def _start_of(entry: FileEntry) -> int:
    return entry.start_offset
