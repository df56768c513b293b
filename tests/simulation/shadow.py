"""The content of each replica's table, record by record, folded with every commit, for the invariants. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.storage.delta.table import ERASED, LEADER_EPOCH, LOG_END, LOG_START, Commit
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.state import TOPIC_ID_PROPERTY
from stratalog.storage.records import CONTROL_ATTRIBUTE
from stratalog.storage.transactions import marker_of
from tests.storage.memory_table import MemoryFiles


class ShadowRecord(NamedTuple):
    """One record. Two replicas hold the same record when these are equal."""

    epoch: int
    value: bytes | None
    key: bytes | None
    producer_id: int
    producer_epoch: int
    sequence: int

    def __str__(self) -> str:
        """`m2`, or `key=m2 (producer 7, epoch 0, sequence 3)`."""
        value = "null" if self.value is None else self.value.decode(errors="backslashreplace")
        text = value if self.key is None else f"{self.key.decode(errors='backslashreplace')}={value}"
        if self.producer_id < 0:
            return text
        return f"{text} (producer {self.producer_id}, epoch {self.producer_epoch}, sequence {self.sequence})"


class ShadowMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    is_commit: bool


COLUMNS = ("offset_delta", "attributes", "value", "key", "producer_id", "producer_epoch", "sequence")


class ShadowRemoval(NamedTuple):
    """The removal of a file from the log: by which version at the latest, and when."""

    version: int
    at_ms: int


@dataclass(slots=True)
class Shadow:
    """The fold of one replica's table, naive and independent of the product's."""

    files: MemoryFiles
    topic_id: str
    records: dict[int, ShadowRecord] = field(default_factory=dict)
    markers: dict[int, ShadowMarker] = field(default_factory=dict)
    entries: dict[str, FileEntry] = field(default_factory=dict)
    removed: dict[str, ShadowRemoval] = field(default_factory=dict)
    log_start: int = 0
    log_end: int = 0
    leader_epoch: int = -1
    erased: int = 0
    erased_version: int = -1
    version: int = -1

    def apply(self, version: int, commit: Commit, rows: RowsCache) -> None:
        """Fold the next version."""
        for path in commit.removes:
            entry = self.entries.pop(path, None)
            self.removed[path] = ShadowRemoval(version, self.files.modified_ms.get(version, 0))
            for offset, _ in rows.of(self.files, entry) if entry is not None else ():
                self.records.pop(offset, None)
            for offset in rows.markers_of(self.files, entry) if entry is not None else ():
                self.markers.pop(offset, None)
        for entry in commit.adds:
            self.entries[entry.path] = entry
            self.removed.pop(entry.path, None)
            self.records.update(rows.of(self.files, entry))
            self.markers.update(rows.markers_of(self.files, entry))
        self.log_start = commit.txns.get(LOG_START, self.log_start)
        self.log_end = commit.txns.get(LOG_END, self.log_end)
        self.leader_epoch = commit.txns.get(LEADER_EPOCH, self.leader_epoch)
        if commit.txns.get(ERASED, self.erased) != self.erased:
            self.erased, self.erased_version = commit.txns[ERASED], version
        self.version = version

    def not_deleted(self, version: int) -> set[str]:
        """The files that versions up to this one removed and that are on storage. One that was written again since is
        not counted: a session that slept copied it, and its commit lost the race."""
        stored = self.files.modified_ms
        return {
            path
            for path, removal in self.removed.items()
            if removal.version <= version and path in self.files.data_files and stored[path] <= removal.at_ms
        }

    def readable(self) -> dict[int, ShadowRecord]:
        """The records that a reader may receive."""
        return {o: r for o, r in sorted(self.records.items()) if self.log_start <= o < self.log_end}


class RowsCache:
    """The records of data files by name: a copy has its original's name, so each file is read once."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[list[tuple[int, ShadowRecord]], dict[int, ShadowMarker]]] = {}

    def of(self, files: MemoryFiles, entry: FileEntry) -> list[tuple[int, ShadowRecord]]:
        """(offset, record) of a file as a commit placed it."""
        return self._parts_of(files, entry)[0]

    def markers_of(self, files: MemoryFiles, entry: FileEntry) -> dict[int, ShadowMarker]:
        """Its markers by offset."""
        return self._parts_of(files, entry)[1]

    def _parts_of(
        self, files: MemoryFiles, entry: FileEntry
    ) -> tuple[list[tuple[int, ShadowRecord]], dict[int, ShadowMarker]]:
        key = f"{entry.base_offset}/{entry.leader_epoch}/{entry.path}"
        known = self._rows.get(key)
        if known is None:
            known = self._rows[key] = ([], {})
            table = files.data_files[entry.path]
            columns = [table[name].to_pylist() for name in COLUMNS]
            for delta, attributes, *rest in zip(*columns, strict=True):
                record, offset = ShadowRecord(entry.leader_epoch, *rest), entry.base_offset + delta
                if not attributes & CONTROL_ATTRIBUTE:
                    known[0].append((offset, record))
                elif (marker := marker_of(record.key, record.value)) is not None:  # otherwise emptied by compaction
                    known[1][offset] = ShadowMarker(record.producer_id, marker.is_commit)
        return known


def folded(files: MemoryFiles, rows: RowsCache, end_version: int | None = None) -> Shadow:
    """A shadow made again, as after a power cut: up to the first version that cannot be read, below `end_version`."""
    checkpoint = files.checkpoint
    shadow = Shadow(files, topic_id_of(files))
    if checkpoint is not None:
        commit = Commit("", "CHECKPOINT", 0, adds=checkpoint.files, txns=checkpoint.txns)
        shadow.apply(checkpoint.version, commit, rows)
        for path, removed in checkpoint.removed.items():
            shadow.removed[path] = ShadowRemoval(checkpoint.version, removed.removed_ms)
    for version, commit in _readable_commits(files, shadow.version + 1):
        if version == end_version:
            break
        shadow.apply(version, commit, rows)
    return shadow


def topic_id_of(files: MemoryFiles) -> str:
    """The topic id of a table, from version 0 or the checkpoint."""
    first = files.commits.get(0)
    properties = files.checkpoint.properties if files.checkpoint is not None else first.properties if first else None
    return (properties or {}).get(TOPIC_ID_PROPERTY, "")


def _readable_commits(files: MemoryFiles, version: int) -> Iterator[tuple[int, Commit]]:
    while (stored := files.commits.get(version)) is not None:
        if any(entry.path not in files.data_files for entry in stored.commit.adds):
            return
        yield version, stored.commit
        version += 1
