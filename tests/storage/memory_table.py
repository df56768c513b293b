"""A `LogTable` in memory, for tests of rules and for simulation: the real commit race without any encoding. Pure.

Every low-level call passes `MemoryDisk.access` twice, before its effect (`create`) and after it (`create:done`): there
a simulation switches actors, or loses a request or its response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.checkpoint import checkpoint_file, stray_versions
from stratalog.storage.delta.commit_race import CommitRace, StoredCommit
from stratalog.storage.delta.newest import newest_fold, point_to, pointed
from stratalog.storage.delta.removed import producers_path
from stratalog.storage.delta.shared_tail import withdraw_tail
from stratalog.storage.delta.snapshot import INITIAL_TXNS, NO_COMMIT, sound_commits
from stratalog.storage.delta.table import (
    NO_OBJECTS,
    WRITER_VERSION,
    Ahead,
    Commit,
    Committed,
    Conflict,
    LogTable,
    TableSnapshot,
)
from stratalog.storage.delta.tail_recovery import TailCut, cut_above, settled_cut
from stratalog.storage.errors import CorruptMessageError, ObjectNotFoundError, StoreUnavailableError
from stratalog.storage.files.batch_file import describe, file_path, placed_path
from stratalog.storage.files.codecs import ZSTD
from stratalog.storage.files.damage import DAMAGE_PATH, Damage, check_whole
from stratalog.storage.files.data_file import DataFile, FileEntry, PartitionValues, RowsWanted
from stratalog.storage.objects.port import always
from stratalog.storage.records import FewRows, table_of_rows


def _no_access(operation: str, table: str, detail: str) -> None:
    pass


def _no_time() -> int:
    return 0


@dataclass(slots=True)
class MemoryFiles:
    """One table on a disk. A commit that is None is torn: there, but unreadable.

    pointer       the version in `_last_checkpoint`, -1 = none; a writer that slept may put an older one
    synced        versions that were synced one by one
    checkpointed  the version up to which all are durable, since a checkpoint stands for them
    """

    commits: dict[int, StoredCommit | None] = field(default_factory=dict)
    data_files: dict[str, pa.Table] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    modified_ms: dict[str | int, int] = field(default_factory=dict)
    checkpoints: dict[int, TableSnapshot] = field(default_factory=dict)
    pointer: int = -1
    synced: set[int] = field(default_factory=set)
    checkpointed: int = -1

    @property
    def durable_version(self) -> int:
        """The version up to which a power loss leaves the log: a synced commit above a lost one is lost, too."""
        version = self.checkpointed
        while version + 1 in self.synced:
            version += 1
        return version

    @property
    def checkpoint(self) -> TableSnapshot | None:
        """The newest checkpoint, wherever the pointer is."""
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else None


@dataclass(slots=True)
class MemoryDisk:
    """The tables of one root. `access(operation, table, detail)` may switch actors or raise StoreUnavailableError:
    before the effect the call is not applied, after it (`...:done`) the response is lost. `now_ms` dates objects. A
    copied file is written in so many pieces, each an `access`.
    Messages name tables by `root`. `kept_ms`: the age up to which commits stay, as on a far store."""

    access: Callable[[str, str, str], None] = _no_access
    now_ms: Callable[[], int] = _no_time
    tables: dict[str, MemoryFiles] = field(default_factory=dict)
    root: str = "memory://"
    copied_pieces: int = 0
    kept_ms: int = 0

    def files_of(self, table: str) -> MemoryFiles:
        files = self.tables.get(table)
        if files is None:
            files = self.tables[table] = MemoryFiles()
        return files

    def commit_log(self, table: str) -> MemoryCommitLog:
        """The commits of one table."""
        return MemoryCommitLog(self, table)

    def sync_all(self) -> None:
        """Everything survives a power loss."""
        for files in self.tables.values():
            files.synced.update(files.commits)

    def answered(self, table: str, version: int, stored: Commit) -> None:
        """Called with every commit whose writer is answered that it is part of the log."""

    def file_deleted(self, table: str, files: MemoryFiles, path: str) -> None:
        """A data file of a table was deleted: a simulation checks that no commit names it."""

    def lose_unsynced(self) -> None:
        """A power loss: every table loses its commits after the last `sync=True`."""
        for files in self.tables.values():
            for version in [v for v in files.commits if v > files.durable_version]:
                del files.commits[version]


class MemoryCommitLog:
    """The commits of one table on a `MemoryDisk`: `commit_race.CommitLog` without encoding."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self.disk = disk
        self._name = name

    @property
    def name(self) -> str:
        return f"{self.disk.root}/{self._name}"

    @property
    def files(self) -> MemoryFiles:
        return self.disk.files_of(self._name)

    def create_version(self, version: int, stored: StoredCommit) -> bool:
        detail = f"_delta_log/{version}"
        self.disk.access("create", self._name, detail)
        files = self.files
        created = version not in files.commits
        if created:
            files.commits[version] = stored
            files.modified_ms[version] = self.disk.now_ms()
        self.disk.access("create:done", self._name, detail)
        return created

    def read_version(self, version: int) -> StoredCommit | None:
        detail = f"_delta_log/{version}"
        self.disk.access("get", self._name, detail)
        commits = self.files.commits
        found = commits.get(version)
        torn = found is None and version in commits
        self.disk.access("get:done", self._name, detail)
        if torn:
            raise CorruptMessageError(f"{self.name}: version {version} is unreadable: torn")
        return found

    def has_version(self, version: int, commit_id: str | None) -> bool:
        detail = f"_delta_log/{version}"
        self.disk.access("head", self._name, detail)
        commits = self.files.commits
        found = commits.get(version)
        stands = version in commits if commit_id is None else found is not None and found.commit.commit_id == commit_id
        self.disk.access("head:done", self._name, detail)
        return stands

    def delete_version(self, version: int, commit_id: str) -> None:
        """As on an object store: whatever stands there when the deletion arrives is deleted."""
        files = self.files
        if self.has_version(version, commit_id):
            self.delete_from(files, version, alone=True)

    def delete_from(self, files: MemoryFiles, version: int, *, alone: bool = False) -> None:
        """Delete a version of the table whose files these are, with its checkpoint unless `alone`."""
        detail = f"_delta_log/{version}"
        self.disk.access("delete", self._name, detail)
        self.deleted(files, version, alone=alone)
        self.disk.access("delete:done", self._name, detail)

    def deleted(self, files: MemoryFiles, version: int, *, alone: bool) -> None:
        if not alone:
            files.checkpoints.pop(version, None)
        files.commits.pop(version, None)
        files.synced.discard(version)

    def replace_version(self, version: int, old: StoredCommit, new: StoredCommit) -> None:
        detail = f"_delta_log/{version}"
        self.disk.access("replace", self._name, detail)
        self.replaced(self.files, version, old, new)
        self.disk.access("replace:done", self._name, detail)

    def replaced(self, files: MemoryFiles, version: int, old: StoredCommit, new: StoredCommit) -> bool:
        """Whether the commit still stood there."""
        found = files.commits.get(version)
        if found is None or found.commit.commit_id != old.commit.commit_id:
            return False
        files.commits[version] = new
        files.synced.discard(version)
        files.modified_ms[version] = self.disk.now_ms()
        return True

    def raw_version(self, version: int) -> object | None:
        detail = f"_delta_log/{version}"
        self.disk.access("get", self._name, detail)
        commits = self.files.commits
        found = (commits[version],) if version in commits else None
        self.disk.access("get:done", self._name, detail)
        return found

    def put_in_place(self, version: int, found: object | None, new: StoredCommit) -> None:
        """As on a local disk, where the comparison and the replacement are two steps."""
        detail, files = f"_delta_log/{version}", self.files
        if self.raw_version(version) != found:
            return
        self.disk.access("replace", self._name, detail)
        files.commits[version] = new
        files.synced.add(version)
        files.modified_ms[version] = self.disk.now_ms()
        self.disk.access("replace:done", self._name, detail)

    def checkpoint_hint(self) -> int:
        self.disk.access("get", self._name, "_delta_log/_last_checkpoint")
        pointer = self.files.pointer
        self.disk.access("get:done", self._name, "_delta_log/_last_checkpoint")
        return pointer

    def newest_checkpoint(self) -> int:
        return next(iter(self.checkpoints()), -1)

    def checkpoints(self) -> list[int]:
        self.disk.access("list", self._name, "_delta_log/")
        versions = sorted(self.files.checkpoints, reverse=True)
        self.disk.access("list:done", self._name, "_delta_log/")
        return versions

    def own_version(self, version: int) -> StoredCommit | None:
        try:
            return self.read_version(version)
        except CorruptMessageError:
            return None

    def has_checkpoint(self, version: int) -> bool:
        """No access of its own: it follows the read of the pointer, between which and this nothing is decided."""
        return version in self.files.checkpoints

    def read_checkpoint(self, version: int) -> TableSnapshot | None:
        if version < 0:
            return None
        detail = f"_delta_log/{checkpoint_file(version)}"
        self.disk.access("get", self._name, detail)
        found = self.files.checkpoints.get(version)
        self.disk.access("get:done", self._name, detail)
        return found

    def put_checkpoint(self, snapshot: TableSnapshot) -> None:
        """Everything up to it is then durable."""
        detail = f"_delta_log/{checkpoint_file(snapshot.version)}"
        self.disk.access("put", self._name, detail)
        # As tombstones on a disk, which do not carry the version that removed their object.
        removed = {path: each._replace(version=snapshot.version) for path, each in snapshot.removed.items()}
        stored = replace(snapshot, durable_version=snapshot.version, removed=removed)
        self.files.checkpoints[snapshot.version] = stored
        self.files.modified_ms[checkpoint_file(snapshot.version)] = self.disk.now_ms()
        self.made_durable(snapshot.version)
        self.disk.access("put:done", self._name, detail)

    def put_pointer(self, version: int) -> None:
        self.disk.access("put", self._name, "_delta_log/_last_checkpoint")
        self.files.pointer = version
        self.disk.access("put:done", self._name, "_delta_log/_last_checkpoint")

    def made_durable(self, version: int) -> None:
        """Make everything up to this version survive a power loss."""
        self.files.checkpointed = max(self.files.checkpointed, version)


class MemoryLogTable(LogTable):
    """`LogTable` on a `MemoryDisk`; several handles on one name see one table."""

    def __init__(self, disk: MemoryDisk, name: str, ids: Ids) -> None:
        self._disk = disk
        self._name = name
        self._ids = ids
        self._log = disk.commit_log(name)
        self.kept_ms = disk.kept_ms
        self._race = CommitRace(self._log, disk.kept_ms)
        self._unsynced: set[int] = set()

    @property
    def name(self) -> str:
        return self._log.name

    def create(self, properties: Mapping[str, str], timestamp_ms: int, commit_id: str) -> bool:
        commit = Commit(commit_id, "CREATE TABLE", timestamp_ms, txns=INITIAL_TXNS, writer_version=WRITER_VERSION)
        created = self._race.create(commit, properties)
        if created:
            self._log.made_durable(0)
        return created

    def snapshot(self) -> TableSnapshot | None:
        found = newest_fold(self._log)
        if found is None:
            return None
        fold, last_id, table_id = found
        self._race.loaded(fold.version, last_id, table_id)
        return fold.snapshot()

    def read_commit(self, version: int) -> Commit | None:
        return self._race.read(version)

    def read_on(self, version: int, count_max: int) -> Sequence[Commit]:
        if self.kept_ms:
            return self._race.read_on(version, count_max)
        commit = self.read_commit(version)
        return () if commit is None else (commit,)

    def read_commits(self, start: int, end: int) -> Sequence[Commit] | None:
        found = [self.read_commit(version) for version in range(start, end)]
        return None if None in found else [commit for commit in found if commit is not None]

    def still_stands(self) -> bool:
        return self._race.still_stands()

    def commit(
        self,
        version: int,
        commit: Commit,
        *,
        sync: bool = False,
        since: int | None = None,
        clock: Clock | None = None,
    ) -> Committed | Conflict:
        outcome = self._race.commit(version, commit, clock)
        if isinstance(outcome, Committed):
            self._disk.answered(self._name, version, commit)
            self._unsynced.add(version)
            if sync:
                self.flusher(version, since)()
        return outcome

    def flusher(self, version: int, since: int | None) -> Callable[[], None]:
        """The own commits and those from `since` on are synced, and no others."""
        others = set() if since is None else set(range(since, version + 1))
        synced, self._unsynced = self._unsynced | others, set()
        return partial(self._log.files.synced.update, synced)

    def write_file(self, rows: pa.Table | FewRows, values: PartitionValues | None, _codec: str = ZSTD, /) -> DataFile:
        table = table_of_rows(rows) if isinstance(rows, tuple) else rows
        path = file_path(values, self._ids.new_id(), "00000000")
        self._put_file(path, table)
        return describe(table, path, table.nbytes)

    def place_files(self, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
        return [self._placed(entry) for entry in entries]

    def _placed(self, entry: FileEntry) -> FileEntry:
        path = placed_path(entry.path, entry.partition_values)
        if path == entry.path:
            return entry
        rows = self._log.files.data_files.get(entry.path)
        if rows is None:
            raise ObjectNotFoundError(f"{self.name}/{entry.path} does not exist")
        self._put_file(path, rows)
        return replace(entry, file=replace(entry.file, path=path))

    def copy_file(self, source: LogTable, file: DataFile) -> None:
        """In pieces, as on a disk whose files have their names from the beginning: another session may copy the same
        file between two of them, and each may fail."""
        rows = source.read_file(file)
        part, files = rows.slice(0, 0), self._log.files
        if file.path in files.data_files or not self._create_file(file.path, part):
            self._put_file(file.path, rows)  # there is one of another session, or of an earlier try
            return
        try:
            for _ in range(self._disk.copied_pieces):
                self._disk.access("put:piece", self._name, file.path)
        except StoreUnavailableError:
            self._remove_failed(files, file.path, part)
            raise
        if files.data_files.get(file.path) is part:
            files.data_files[file.path] = rows

    def _create_file(self, path: str, table: pa.Table) -> bool:
        """Make a file unless there is one, as with O_EXCL."""
        self._disk.access("put", self._name, path)
        files = self._log.files
        if path in files.data_files:
            return False
        files.data_files[path] = table
        files.modified_ms[path] = self._disk.now_ms()
        self._disk.access("put:done", self._name, path)
        return True

    def _remove_failed(self, files: MemoryFiles, path: str, part: pa.Table) -> None:
        """Remove the part of a file that could not be copied; what another session put there meanwhile stays."""
        if files.data_files.get(path) is part:
            self._delete_file(files, path)

    def _delete_file(self, files: MemoryFiles, path: str) -> None:
        if files.data_files.pop(path, None) is not None:
            files.modified_ms.pop(path, None)
            self._disk.file_deleted(self._name, files, path)

    def copy_files(self, source: LogTable, files: Sequence[DataFile]) -> None:
        for file in files:
            self.copy_file(source, file)

    def ahead(self, _files: Sequence[DataFile]) -> None:
        """Nothing is gained by it."""

    def read_file(
        self,
        file: DataFile,
        columns: Sequence[str] | None = None,
        wanted: RowsWanted | None = None,
        ahead: Ahead | None = None,
    ) -> pa.Table:
        self._disk.access("get", self._name, file.path)
        table = self._log.files.data_files.get(file.path)
        self._disk.access("get:done", self._name, file.path)
        if table is None:
            raise ObjectNotFoundError(f"{self.name}/{file.path} does not exist")
        return table if columns is None else table.select(list(columns))

    def read_files(self, files: Sequence[DataFile]) -> pa.Table:
        return pa.concat_tables([self.read_file(file) for file in files])

    def has_file(self, file: DataFile) -> bool:
        self._disk.access("head", self._name, file.path)
        return file.path in self._log.files.data_files

    @property
    def decays(self) -> bool:
        return False

    def check_files(self, files: Sequence[DataFile], *, bits: bool) -> None:
        """As in the port, without an `access`."""
        for file in files:
            check_whole(file.size_bytes if file.path in self._log.files.data_files else None, self.name, file)

    def check_bits(self, file: DataFile) -> None:
        """Memory has no wrong bits: a file is there or not."""
        self.read_file(file)

    def damage(self) -> Damage | None:
        data = self._log.files.objects.get(DAMAGE_PATH)
        return None if data is None else Damage.from_json(data)

    def note_damage(self, damage: Damage | None) -> None:
        objects = self._log.files.objects
        if damage is None:
            objects.pop(DAMAGE_PATH, None)
        else:
            objects[DAMAGE_PATH] = damage.to_json()

    def read_object(self, path: str) -> bytes:
        self._disk.access("get", self._name, path)
        data = self._log.files.objects.get(path)
        self._disk.access("get:done", self._name, path)
        if data is None:
            raise ObjectNotFoundError(f"{self.name}/{path} does not exist")
        return data

    def write_object(self, path: str, data: bytes) -> None:
        self._disk.access("put", self._name, path)
        files = self._log.files
        files.objects[path] = data
        files.modified_ms[path] = self._disk.now_ms()
        self._disk.access("put:done", self._name, path)

    def delete_objects(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.access("delete", self._name, path)
            files = self._log.files
            files.objects.pop(path, None)
            self._delete_file(files, path)
            files.modified_ms.pop(path, None)
            self._disk.access("delete:done", self._name, path)

    def list_objects(self, prefix: str) -> list[tuple[str, int]]:
        self._disk.access("list", self._name, prefix)
        files = self._log.files
        paths = [*files.objects, *files.data_files]
        found = sorted((path, files.modified_ms[path]) for path in paths if path.startswith(prefix))
        self._disk.access("list:done", self._name, prefix)
        return found

    def checkpointer(self, snapshot: TableSnapshot, objects: Mapping[str, bytes] = NO_OBJECTS) -> Callable[[], int]:
        version, commit_id, log = snapshot.version, self._race.id_of(snapshot.version), self._log

        def write_checkpoint() -> int:
            for path, data in objects.items():
                self.write_object(path, data)
            if pointed(log) >= version:
                return version
            if not log.has_version(version, commit_id):
                raise StoreUnavailableError(f"{log.name}: version {version} is gone or replaced")
            log.put_checkpoint(snapshot)
            point_to(log, version)
            return version

        return write_checkpoint

    def adopt_checkpoint(self) -> int:
        return pointed(self._log)

    def reopened(self) -> MemoryLogTable:
        return MemoryLogTable(self._disk, self._name, self._ids)

    def clean_log(self, keep_from_version: int, keep_from_ms: int, crowded_below: int = 0) -> Iterator[int]:
        files = self._log.files
        checkpoint = pointed(self._log)
        limit = min(keep_from_version, checkpoint)
        settled_ms = files.modified_ms.get(checkpoint_file(checkpoint), 0) - self._disk.kept_ms
        strays = set(stray_versions(files.commits, self._newest_checkpoint(files)))
        for version in sorted(v for v in files.commits if v < limit and v not in strays):
            if self._disk.kept_ms and files.modified_ms.get(version, 0) > settled_ms:
                return
            if files.modified_ms.get(version, 0) >= keep_from_ms and version >= crowded_below:
                return
            self._log.delete_from(files, version)
            yield version

    @staticmethod
    def _newest_checkpoint(files: MemoryFiles) -> int:
        return max(files.checkpoints, default=-1)

    def delete_strays(self, before_ms: int) -> int:
        files = self._log.files
        self._disk.access("list", self._name, "_delta_log/")
        strays = stray_versions(files.commits, self._newest_checkpoint(files))
        found = [version for version in strays if files.modified_ms.get(version, 0) < before_ms]
        for version in found:
            self._log.delete_from(files, version)
        return len(found)

    def has_rested(self) -> bool:
        files = self._disk.tables.get(self._name)
        if not self.kept_ms or files is None:
            return True
        newest_ms = files.modified_ms.get(max(files.commits, default=-1), 0)
        return self._disk.now_ms() - newest_ms >= self.kept_ms

    def drop(self, is_still: Callable[[], bool] = always) -> bool:
        files = self._log.files
        if not is_still():
            return False
        self._disk.access("delete", self._name, "_delta_log")
        found = self._disk.tables.get(self._name)
        if found is files:
            del self._disk.tables[self._name]
        self._race.forget()
        self._disk.access("delete:done", self._name, "_delta_log")
        return found is None or found is files

    def recover_tail(self) -> int:
        files = self._log.files
        cut = settled_cut(self.name, self._listed, self._examined)
        for version in cut.dropped:
            self._log.delete_from(files, version)
        self._race.forget()
        return cut.kept

    def withdraw_tail(self) -> int:
        if self.kept_ms:
            return -1  # as on an object store, where writes are durable once they are answered
        cut = withdraw_tail(self._log, self._listed, lambda entry, _bits: self._is_whole(entry), self._has_producers)
        if cut.dropped:
            self._race.forget()
        return cut.kept

    def _listed(self) -> tuple[tuple[int, ...], int]:
        self._disk.access("list", self._name, "_delta_log")
        checkpoint = self._log.files.checkpoint
        return tuple(sorted(self._log.files.commits)), checkpoint.version if checkpoint else -1

    def _examined(self, listed: tuple[tuple[int, ...], int]) -> TailCut:
        versions, base = listed
        readable: list[StoredCommit] = []
        with suppress(CorruptMessageError):
            while (stored := self._log.read_version(base + 1 + len(readable))) is not None:
                readable.append(stored)
        last = self._log.files.commits.get(base)
        last_id = NO_COMMIT if base < 0 else last.commit.commit_id if last else None
        sound = sound_commits(readable, last_id, self._is_whole, self._has_producers)
        return cut_above(base + sound, versions)

    def _is_whole(self, entry: FileEntry) -> bool:
        self._disk.access("head", self._name, entry.path)
        return entry.path in self._log.files.data_files

    def _has_producers(self, number: int) -> bool:
        self._disk.access("head", self._name, producers_path(number))
        return producers_path(number) in self._log.files.objects

    def _put_file(self, path: str, table: pa.Table) -> None:
        self._disk.access("put", self._name, path)
        files = self._log.files
        files.data_files[path] = table
        files.modified_ms[path] = self._disk.now_ms()
        self._disk.access("put:done", self._name, path)
