"""One replica's table as a real Delta table on an object store: `LogTable` as DESIGN §3 lays it out.

I/O: data files, small objects and commits, all through the `ObjectStore` port; checkpoints through deltalake.
Layout below the table's directory: `_delta_log/`, `segment=<20 digits>/`, `_producers/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from storage import batch_file
from storage.checkpoint import commit_version
from storage.clock import Ids
from storage.commit_race import CommitRace
from storage.delta_commits import DeltaCommitLog
from storage.errors import CorruptMessageError, KafkaStorageError, ObjectNotFoundError, StoreUnavailableError
from storage.store import ObjectStore
from storage.table import Commit, Committed, Conflict, DataFile, FileEntry, LogTable, TableSnapshot
from storage.table_fold import INITIAL_TXNS, TableFold
from storage.tail_recovery import sound_commits

SNAPSHOT_TRIES = 10


class DeltaLogTable:
    """`LogTable` at `directory` below a store's root. `ids` names data files."""

    def __init__(self, store: ObjectStore, directory: str, ids: Ids) -> None:
        self._store = store
        self._directory = directory
        self._ids = ids
        self._log = DeltaCommitLog(store, directory)
        self._race = CommitRace(self._log)
        self._unsynced: dict[str, None] = {}
        self._syncing: tuple[tuple[str, ...], threading.Event] = ((), threading.Event())

    @property
    def name(self) -> str:
        return self._log.name

    def create(self, properties: Mapping[str, str], timestamp_ms: int, commit_id: str) -> bool:
        commit = Commit(commit_id, "CREATE TABLE", timestamp_ms, txns=INITIAL_TXNS)
        created = self._race.create(commit, properties)
        if created:
            self._store.sync([self._log.path_of(0)])
        return created

    def snapshot(self) -> TableSnapshot | None:
        for _ in range(SNAPSHOT_TRIES):
            fold, last_id = self._tail(self._log.read_checkpoint(self._log.checkpoint_hint()))
            if fold.version < 0:  # no pointer to a checkpoint that can be read, and version 0 is gone
                fold, last_id = self._tail(self._log.newest_usable_checkpoint())
            if fold.version < 0:
                self._log.check_no_table()
                return None
            if self._log.checkpoint_hint() > fold.version:
                continue  # a clean-up cut the tail while it was being read
            self._race.saw(fold.version, last_id)
            return fold.snapshot()
        raise CorruptMessageError(
            f"{self.name}: the commits end below checkpoint {self._log.checkpoint_hint()}, which is unreadable"
        )

    def read_commit(self, version: int) -> Commit | None:
        return self._race.read(version)

    def commit(self, version: int, commit: Commit, *, sync: bool = False) -> Committed | Conflict:
        if sync:
            self._sync_all()
        outcome = self._race.commit(version, commit)
        if isinstance(outcome, Committed):
            self._note_unsynced(self._log.path_of(version))
            if sync:
                self._sync_all()
        return outcome

    def write_file(self, table: pa.Table, segment: int) -> DataFile:
        data, crc = batch_file.encode(table)
        path = batch_file.file_path(segment, self._ids.new_id(), crc)
        self._put(path, data)
        return batch_file.describe(table, path, len(data))

    def copy_file(self, source: LogTable, file: DataFile) -> None:
        if not isinstance(source, DeltaLogTable):
            raise KafkaStorageError(f"{self.name}: {file.path} can be copied from a Delta table only")
        data = source.read_object(file.path)
        batch_file.check(data, f"{source.name}/{file.path}")
        self._put(file.path, data)

    def read_file(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        rows = batch_file.decode(self.read_object(file.path), f"{self.name}/{file.path}", columns)
        if rows.num_rows != file.record_count:
            raise CorruptMessageError(f"{self.name}/{file.path}: {rows.num_rows} records, expected {file.record_count}")
        return rows

    def has_file(self, file: DataFile) -> bool:
        return self._store.size(f"{self._directory}/{file.path}") == file.size_bytes

    def read_object(self, path: str) -> bytes:
        return self._store.get(f"{self._directory}/{path}")

    def write_object(self, path: str, data: bytes) -> None:
        self._put(path, data)

    def delete_objects(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._store.delete(f"{self._directory}/{path}")
            self._unsynced.pop(f"{self._directory}/{path}", None)

    def list_objects(self, prefix: str) -> list[tuple[str, int]]:
        root = f"{self._directory}/"
        found = self._store.list(root + prefix)
        return [
            (meta.path.removeprefix(root), meta.last_modified_ms)
            for meta in found
            if not meta.path.startswith(root + "_delta_log/")
        ]

    def checkpoint(self) -> int:
        """As the port says. On a local disk everything it stands for is made durable first: clean-up and
        `recover_tail` rely on that."""
        fold, _ = self._tail(self._log.newest_usable_checkpoint())
        if fold.version < 0:
            raise ObjectNotFoundError(f"{self.name}: there is no table to checkpoint")
        version = fold.version
        if self._log.checkpoint_hint() >= version:
            return version
        if not self._store.durable_on_answer:
            live = [f"{self._directory}/{entry.path}" for entry in fold.added.values()]
            self._store.sync([*live, self._log.path_of(version), self._directory])
        self._write_checkpoint(version)
        self._store.sync(self._log.checkpoint_paths(version))
        self._unsynced.clear()
        return version

    def checkpointer(self) -> Callable[[], int]:
        """As the port says. What this handle has not synced yet, the other one syncs before its checkpoint."""
        other = DeltaLogTable(self._store, self._directory, self._ids)
        other._unsynced = dict(self._unsynced)
        paths, is_done = tuple(self._unsynced), threading.Event()
        self._syncing = (paths, is_done)

        def write_checkpoint() -> int:
            other._sync_all()
            is_done.set()
            return other.checkpoint()

        return write_checkpoint

    def _forget_synced(self) -> None:
        """Once the other handle has synced them, the paths that it took over are no longer owed."""
        paths, is_done = self._syncing
        if is_done.is_set():
            self._syncing = ((), threading.Event())
            for path in paths:
                self._unsynced.pop(path, None)

    def clean_log(self, keep_from_version: int, keep_from_ms: int) -> int:
        """As the port says; checkpoints below the limits go too."""
        limit = min(keep_from_version, self._log.checkpoint_hint())
        deleted = 0
        for meta in self._log.list_log():  # by path, so commits ascending
            version = commit_version(meta.path)
            if version is None or version >= limit:
                continue
            if meta.last_modified_ms >= keep_from_ms:
                limit = version
                break
            self._store.delete(meta.path)
            deleted += 1
        self._log.delete_checkpoints_below(limit)
        return deleted

    def drop(self) -> None:
        self._store.delete_tree(self._directory, self._ids.new_id())
        self._race.forget()
        self._unsynced.clear()

    def recover_tail(self) -> int:
        """After an unclean stop of a local disk: drop the commits from the first unreadable one, or one whose
        data file is missing or short, newest first. Returns the version kept, -1 when nothing is left.

        Call it before anything of the table is published, with no other handle at work. Only what lies above
        the newest usable checkpoint is looked at: `checkpoint` made the rest durable.
        """
        # Listed before it is read: a commit that somebody makes meanwhile is none of the stop's.
        versions = [commit_version(meta.path) for meta in self._log.list_log()]
        base = self._log.newest_usable_checkpoint()
        first = base.version + 1 if base else 0
        readable = self._readable_commits(first)
        kept = first + sound_commits(readable, self._is_whole) - 1
        for version in sorted((v for v in versions if v is not None and v > kept), reverse=True):
            self._log.delete_version(version)
        self._log.drop_checkpoints_except(base.version if base else -1)
        self._store.sync([self._log.path_of(max(kept, 0))])
        self._race.forget()
        return kept

    def _tail(self, base: TableSnapshot | None) -> tuple[TableFold, str | None]:
        """The fold of a checkpoint and the commits after it, and the id of its last commit if known."""
        fold = TableFold(base, self.name)
        last_id = self._log.id_at(base.version) if base else None
        while (stored := self._log.read_version(fold.version + 1)) is not None:
            fold.apply(stored)
            last_id = stored.commit.commit_id
        return fold, last_id

    def _write_checkpoint(self, version: int) -> None:
        try:
            DeltaTable(f"{self._store.url}/{self._directory}", version=version).create_checkpoint()
        except (DeltaError, OSError) as reason:
            raise StoreUnavailableError(f"{self.name}: no checkpoint of version {version}: {reason}") from reason

    def _readable_commits(self, first: int) -> list[Commit]:
        readable: list[Commit] = []
        try:
            while (stored := self._log.read_version(first + len(readable))) is not None:
                readable.append(stored.commit)
        except CorruptMessageError:
            pass  # what is torn ends the log
        return readable

    def _is_whole(self, entry: FileEntry) -> bool:
        return self.has_file(entry.file)

    def _put(self, path: str, data: bytes) -> None:
        full = f"{self._directory}/{path}"
        self._store.put(full, data)
        self._note_unsynced(full)

    def _note_unsynced(self, path: str) -> None:
        self._forget_synced()
        if not self._store.durable_on_answer:
            self._unsynced[path] = None

    def _sync_all(self) -> None:
        if self._unsynced:
            self._store.sync(list(self._unsynced))
            self._unsynced.clear()
