"""The fold of a table's commits into the state of one log. Pure.

`LogState.replay` is the only mutator. Folding a commit costs as much as the commit adds; only a commit that
removes files (a merge, a truncation) goes over the whole list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from stratalog.storage.delta.removed import NO_PRODUCERS, RemovedObjects
from stratalog.storage.delta.snapshot import note_producer_changes
from stratalog.storage.delta.table import (
    EPOCH_PREFIX,
    ERASED,
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS,
    PRODUCERS_VERSION,
    REMOVED_EPOCH,
    Commit,
    TableSnapshot,
)
from stratalog.storage.errors import CorruptMessageError, ForeignCommitError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import GONE_TOMBSTONES, CleanerCheckpoint
from stratalog.storage.log.leader_epochs import EpochEntry, LeaderEpochCache
from stratalog.storage.log.segments import LogSegment, segments_of
from stratalog.storage.log.time_index import TimeIndex
from stratalog.storage.producers import ProducerChanges

TOPIC_ID_PROPERTY = "stratalog.topic-id"


SEALED_EPOCH = 2**31 - 1
"""The leader epoch in the table of a replica that is to be deleted. Nobody ever leads under it, so nobody writes to
such a table any more, and nobody reads it."""


class LogState:
    """One log at table version `version`. `files` are ordered by offset.

    `removed` is what left the log and may still lie on storage: it may be deleted at any time. Only who writes the
    log needs to know; others set `remembers_removed` False. `durable_version` is of the checkpoint that the fold
    began with, or of a newer one, `swapped_version` of the newest commit that took files out. `producer_changes` are
    those of the versions after `producers_version`, as far as they lie after `folded_from`, the fold's checkpoint.
    `times` is the time index of `files`, `garbage_bytes` the size of the files that left the log since the last
    checkpoint that this fold knows of.
    """

    def __init__(self, snapshot: TableSnapshot, name: str, *, remembers_removed: bool = True) -> None:
        self.name = name
        self.version = snapshot.version
        self.durable_version = self.folded_from = snapshot.durable_version
        self.producer_changes: list[tuple[int, ProducerChanges]] = list(snapshot.producer_changes)
        self.swapped_version = snapshot.version
        self.properties = snapshot.properties
        self.files: list[FileEntry] = sorted(snapshot.files, key=_start_of)
        self.times = TimeIndex()
        self.removed = RemovedObjects(snapshot.removed if remembers_removed else {})
        self._remembers_removed = remembers_removed
        self.garbage_bytes = 0
        self.log_end_offset, self.log_start_offset, self.leader_epoch = 0, 0, -1
        self._txns: dict[str, int] = {}
        self._epoch_starts: dict[int, int] = {}
        self._epochs: LeaderEpochCache | None = None
        self._segments: list[LogSegment] | None = None
        self._state_txns(snapshot.txns)

    @property
    def producers_number(self) -> int:
        return self._txns.get(PRODUCERS, NO_PRODUCERS)

    @property
    def producers_version(self) -> int | None:
        """The version as of which the object of `producers_number` holds; None: it holds, and no commit changes it."""
        return self._txns.get(PRODUCERS_VERSION)

    @property
    def has_producer_changes(self) -> bool:
        """Whether a commit after `producers_version` carries changes, or may."""
        stated = self._txns.get(PRODUCERS_VERSION)
        return bool(self.producer_changes) or (stated is not None and stated < self.folded_from)

    @property
    def oldest_version_needed(self) -> int:
        """Clean-up keeps the commits from here on: they may carry changes that no whole producer state holds yet."""
        stated = self._txns.get(PRODUCERS_VERSION)
        return self.version if stated is None else stated

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
    def cleaner(self) -> CleanerCheckpoint:
        """How far the log is compacted."""
        return CleanerCheckpoint.from_txns(self._txns)

    @property
    def gone_tombstones_end(self) -> int:
        """The offset below which tombstones may have gone; 0 for a log that was never compacted."""
        return self._txns.get(GONE_TOMBSTONES, 0)

    def txn_number(self, name: str) -> int:
        """The number last stated under a name; 0 when there is none."""
        return self._txns.get(name, 0)

    @property
    def erase_again_txns(self) -> dict[str, int]:
        """What a commit states that takes the log's end off: it may come back from a replica that has not erased."""
        return {ERASED: 0} if self.txn_number(ERASED) else {}

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
        gone = self._remove(commit) if commit.removes else []
        if self._remembers_removed:
            self.removed.replay(version, commit, gone, self.producers_number)
        for entry in commit.adds:
            self._add(entry)
        self._state_txns(commit.txns)
        note_producer_changes(self.producer_changes, version, commit)
        if gone:
            self.garbage_bytes += sum(entry.file.size_bytes for entry in gone)
        self.version = version

    def made_durable(self, version: int) -> None:
        """A checkpoint of this version stands: all up to it outlives a power cut."""
        self.durable_version = max(self.durable_version, version)
        self.garbage_bytes = 0

    def snapshot(self) -> TableSnapshot:
        """The fold as a value that later commits do not change."""
        epochs = {f"{EPOCH_PREFIX}{epoch}": start for epoch, start in self._epoch_starts.items()}
        return TableSnapshot(
            self.version,
            tuple(self.files),
            {**self._txns, **epochs},
            self.properties,
            self.removed.as_mapping(),
            self.durable_version,
        )

    def _add(self, entry: FileEntry) -> None:
        if self.files and entry.start_offset < self.files[-1].end_offset:
            self.times.forget_from(bisect_left(self.files, entry.start_offset, key=_start_of))
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

    def _remove(self, commit: Commit) -> list[FileEntry]:
        paths = set(commit.removes)
        gone = [entry for entry in self.files if entry.path in paths]
        if gone:
            self.times.forget_from(bisect_left(self.files, gone[0].start_offset, key=_start_of))
        self.files = [entry for entry in self.files if entry.path not in paths]
        self._segments = None
        self.swapped_version = self.version + 1
        return gone

    def _state_txns(self, txns: Mapping[str, int]) -> None:
        for name, value in txns.items():
            if name.startswith(EPOCH_PREFIX):
                self._state_epoch(int(name.removeprefix(EPOCH_PREFIX)), value)
            else:
                self._txns[name] = value
        self.log_end_offset = self._txns.get(LOG_END, 0)
        self.leader_epoch = self._txns.get(LEADER_EPOCH, -1)
        if self.log_start_offset != self._txns.get(LOG_START, 0):
            self.log_start_offset = self._txns[LOG_START]
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
