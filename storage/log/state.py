"""The fold of a table's commits into the state of one log. Pure.

`LogState.replay` folds the next commit. It costs as much as the commit adds; only a commit that removes files (a merge,
a truncation) goes over the whole list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stratalog.storage.delta.removed import NO_PRODUCERS, RemovedObjects
from stratalog.storage.delta.snapshot import note_producer_changes
from stratalog.storage.delta.table import (
    DELETED,
    EPOCH_OPERATIONS,
    EPOCH_PREFIX,
    ERASE_POSITION,
    ERASE_PREFIX,
    ERASED,
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS,
    PRODUCERS_VERSION,
    REMOVED_EPOCH,
    Commit,
    RemovedObject,
    TableSnapshot,
)
from stratalog.storage.errors import CorruptMessageError, ForeignCommitError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import CleanerCheckpoint
from stratalog.storage.log.leader_epochs import EpochEntry, LeaderEpochCache
from stratalog.storage.log.segments import LogSegment, segments_of, start_of
from stratalog.storage.log.time_index import TimeIndex
from stratalog.storage.producers import ProducerChanges
from stratalog.storage.transactions import OffsetAndEpoch

TOPIC_ID_PROPERTY = "stratalog.topic-id"
PRODUCERS_FROM_PROPERTY = "stratalog.producers-from"
"""The first producer id that nobody had when the topic's first table was made; absent in tables of older releases."""


SEALED_EPOCH = 2**31 - 1
"""The leader epoch in a sealed table: that of a replica that is to be deleted. No broker ever leads under it, so such a
table is neither written nor read any more."""


class RemovedRecords(NamedTuple):
    """What was read from an earlier version of a table than `version`, or written to it, may hold records below
    `end_offset` that the log has no more: compaction or an erasure removed them. (0, 0): none was removed.

    Those below the log start, and those of a log that was truncated, which begins a leader epoch, are not counted.
    """

    version: int = 0
    end_offset: int = 0

    def concerns(self, offset: int, version: int) -> bool:
        """Whether a record at `offset`, as read from table version `version`, may be gone."""
        return offset < self.end_offset and version < self.version


NOTHING_REMOVED: Final = RemovedRecords()


class LogState:
    """One log at table version `version`. `files` are ordered by offset.

    removed           objects that left the log and may still lie on storage: they may be deleted at any time. Only the
                      writer of the log needs them; others pass `remembers_removed` False
    folded_from       version of the checkpoint that the fold began with
    durable_version   of the newest checkpoint that this fold knows of
    swapped_version   of the newest commit that removed files
    producer_changes  those after `producers_version`, as far as they lie after `folded_from`
    times             the time index of `files`
    epoch_version     of the newest commit after `folded_from` that began a leader epoch or truncated the log; -1 = none
    writer_version    of Delta's protocol, that the table asks of those who commit
    garbage_bytes     size of the files that left the log since the last checkpoint that this fold knows of
    removed_records   as far as the commits of this fold show it: of those up to its beginning, everything is suspect
    """

    def __init__(self, snapshot: TableSnapshot, name: str, *, remembers_removed: bool = True) -> None:
        self.name = name
        self.version = snapshot.version
        self.durable_version = self.folded_from = snapshot.durable_version
        self.producer_changes: list[tuple[int, ProducerChanges]] = list(snapshot.producer_changes)
        self.swapped_version = snapshot.version
        self.properties = snapshot.properties
        self.writer_version = snapshot.writer_version
        self.epoch_version = snapshot.epoch_version
        self.files: list[FileEntry] = sorted(snapshot.files, key=start_of)
        self.times = TimeIndex()
        self.removed = RemovedObjects(snapshot.removed if remembers_removed else {})
        self._remembers_removed = remembers_removed
        self.garbage_bytes = 0
        self._deleted_version = 0
        self.log_end_offset, self.log_start_offset, self.leader_epoch = 0, 0, -1
        self._txns: dict[str, int] = {}
        self._epoch_starts: dict[int, int] = {}
        self._epochs: LeaderEpochCache | None = None
        self._segments: list[LogSegment] | None = None
        self._record_txns(snapshot.txns)
        suspect = RemovedRecords(snapshot.version, self.log_end_offset)
        self.removed_records = suspect if self.log_end_offset else NOTHING_REMOVED

    @property
    def producers_number(self) -> int:
        return self._txns.get(PRODUCERS, NO_PRODUCERS)

    @property
    def producers_version(self) -> int | None:
        """The version whose producer state is the object of `producers_number`; None: that is the newest state."""
        return self._txns.get(PRODUCERS_VERSION)

    @property
    def has_producer_changes(self) -> bool:
        """Whether a commit after `producers_version` may carry changes."""
        whole = self.producers_version
        return bool(self.producer_changes) or (whole is not None and whole < self.folded_from)

    @property
    def oldest_version_needed(self) -> int:
        """The version from which on clean-up keeps commits: they may carry changes that no whole producer state has."""
        whole = self.producers_version
        return self.version if whole is None else whole

    @property
    def topic_id(self) -> str:
        return self.properties.get(TOPIC_ID_PROPERTY, "")

    @property
    def producers_from(self) -> int:
        """Producers with an id below this are older than the log."""
        return int(self.properties.get(PRODUCERS_FROM_PROPERTY, "0"))

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
        """The segment that appends go to: the last one."""
        return self.segments[-1] if self.segments else None

    @property
    def cleaner(self) -> CleanerCheckpoint:
        """The log cleaner's position."""
        return CleanerCheckpoint.from_txns(self._txns)

    @property
    def oldest_removed(self) -> RemovedObject | None:
        """The object that left the log first, of those that may still lie on storage."""
        return self.removed.oldest

    @property
    def deleted_txns(self) -> dict[str, int]:
        """The txn of the next commit by which other handles forget what this one has deleted since the last."""
        return {DELETED: self._deleted_version} if self._deleted_version > self.txn_number(DELETED) else {}

    @property
    def erased_ms(self) -> int:
        """Time of the last commit that removed files for an erasure: what left the log until then may hold an erased
        record. 0: there was none."""
        erasures = (n for name, n in self._txns.items() if name.startswith(ERASE_PREFIX) and name.endswith(".ms"))
        return max(erasures, default=0)

    def txn_number(self, name: str) -> int:
        """The last value of a txn; 0 if there is none."""
        return self._txns.get(name, 0)

    def erase_again_txns(self, end_offset: int) -> dict[str, int]:
        """Txns of a commit after which the log ends at `end_offset`, without what was above, or without an epoch that
        began there: a copy may bring records back from a replica that has not erased."""
        again = {ERASED: 0, ERASE_POSITION: end_offset}
        return {name: number for name, number in again.items() if self.txn_number(name) > number}

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log_end_offset, self.leader_epoch)

    @property
    def position_txns(self) -> dict[str, int]:
        """Txns of every commit: files do not show them, since records at either end may be gone."""
        return position_txns(self.log_end_offset, self.leader_epoch, self.log_start_offset)

    def epoch_txns(self, wanted: LeaderEpochCache) -> dict[str, int]:
        """The `txn stratalog.epoch.<e>` after which the log's epoch entries are `wanted`."""
        if wanted == self.epochs:
            return {}
        starts = dict(wanted.entries)
        changed = {f"{EPOCH_PREFIX}{e}": o for e, o in starts.items() if self._epoch_starts.get(e) != o}
        removed = {f"{EPOCH_PREFIX}{e}": REMOVED_EPOCH for e in self._epoch_starts if e not in starts}
        return {**removed, **changed}

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
        self._record_txns(commit.txns)
        if gone and commit.data_change:
            self._note_removed(version, gone)
        self.writer_version = commit.writer_version or self.writer_version
        if commit.operation in EPOCH_OPERATIONS:
            self.epoch_version = version
        note_producer_changes(self.producer_changes, version, commit)
        if gone:
            self.garbage_bytes += sum(entry.file.size_bytes for entry in gone)
        self.version = version

    def made_durable(self, version: int) -> None:
        """A checkpoint of this version was written: everything up to it survives a power cut."""
        self.durable_version = max(self.durable_version, version)
        self.garbage_bytes = 0

    def deleted(self, paths: Iterable[str]) -> None:
        """These removed objects are not on storage any more.

        What was removed below the checkpoint that the fold began with has the checkpoint's version here, not its own.
        While such an object is left, no version is known up to which everything is deleted.
        """
        self.removed.forget(paths)
        oldest = self.removed.oldest
        if oldest is None:
            self._deleted_version = self.version
        elif oldest.version > self.folded_from:
            self._deleted_version = oldest.version - 1

    def snapshot(self) -> TableSnapshot:
        """The fold as an immutable value."""
        epochs = {f"{EPOCH_PREFIX}{epoch}": start for epoch, start in self._epoch_starts.items()}
        return TableSnapshot(
            self.version,
            tuple(self.files),
            {**self._txns, **epochs},
            self.properties,
            self.removed.as_mapping(),
            self.durable_version,
            writer_version=self.writer_version,
        )

    def _add(self, entry: FileEntry) -> None:
        if self.files and entry.start_offset < self.files[-1].end_offset:
            self.times.forget_from(bisect_left(self.files, entry.start_offset, key=start_of))
            insort(self.files, entry, key=start_of)
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
            self.times.forget_from(bisect_left(self.files, gone[0].start_offset, key=start_of))
        self.files = [entry for entry in self.files if entry.path not in paths]
        self._segments = None
        self.swapped_version = self.version + 1
        return gone

    def _note_removed(self, version: int, gone: list[FileEntry]) -> None:
        """These files left the log, and not all of their records are in others."""
        ends = [entry.end_offset for entry in gone if entry.end_offset > self.log_start_offset]
        if ends:
            end_offset = min(max(*ends, self.removed_records.end_offset), self.log_end_offset)
            self.removed_records = RemovedRecords(version, end_offset)

    def _record_txns(self, txns: Mapping[str, int]) -> None:
        for name, value in txns.items():
            if name.startswith(EPOCH_PREFIX):
                self._record_epoch(int(name.removeprefix(EPOCH_PREFIX)), value)
            else:
                self._txns[name] = value
        self.log_end_offset = self._txns.get(LOG_END, 0)
        self.leader_epoch = self._txns.get(LEADER_EPOCH, -1)
        if self.log_start_offset != self._txns.get(LOG_START, 0):
            self.log_start_offset = self._txns[LOG_START]
            self._epochs = None

    def _record_epoch(self, epoch: int, start_offset: int) -> None:
        self._epochs = None
        if start_offset == REMOVED_EPOCH:
            self._epoch_starts.pop(epoch, None)
        else:
            self._epoch_starts[epoch] = start_offset


def position_txns(log_end_offset: int, leader_epoch: int, log_start_offset: int) -> dict[str, int]:
    """The txns of a log's position."""
    return {LOG_END: log_end_offset, LEADER_EPOCH: leader_epoch, LOG_START: log_start_offset}


def live_paths(files: Iterable[FileEntry]) -> set[str]:
    """The paths of these files."""
    return {entry.path for entry in files}
