"""One replica's table as a real Delta table on an object store: the `LogTable` of the product.

I/O: data files, small objects, commits and checkpoints, all through the `ObjectStore` port.
Layout below the table's directory: `_delta_log/`, `segment=…/leader_epoch=…/base_offset=…/`, `_handed/`, `_producers/`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from stratalog.storage import cadence
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.checkpoint import commit_version, covered_count
from stratalog.storage.delta.commit_race import CommitRace, StoredCommit
from stratalog.storage.delta.commits import DeltaCommitLog
from stratalog.storage.delta.newest import newest_fold, newest_readable, point_to, pointed
from stratalog.storage.delta.removed import NO_PRODUCERS, producers_path
from stratalog.storage.delta.shared_tail import withdraw_tail
from stratalog.storage.delta.snapshot import INITIAL_TXNS, NO_COMMIT, named_objects, sound_commits
from stratalog.storage.delta.table import (
    NO_OBJECTS,
    PRODUCERS,
    PRODUCERS_VERSION,
    WRITER_VERSION,
    Ahead,
    Commit,
    Committed,
    Conflict,
    LogTable,
    TableSnapshot,
)
from stratalog.storage.delta.tail_recovery import TailCut, cut_above, settled_cut
from stratalog.storage.errors import CorruptMessageError, KafkaStorageError, ObjectNotFoundError, StoreUnavailableError
from stratalog.storage.files import batch_file
from stratalog.storage.files.cache import CachedRows, FileCache, joined
from stratalog.storage.files.codecs import ZSTD
from stratalog.storage.files.damage import (
    DAMAGE_PATH,
    Damage,
    check_bits,
    check_footer,
    check_whole,
    has_sound_footer,
    read_part,
    read_whole,
)
from stratalog.storage.files.data_file import DataFile, FileEntry, PartitionValues, RowsWanted
from stratalog.storage.files.files_ahead import FilesAhead
from stratalog.storage.files.row_groups import Footers
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, always
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import FewRows

KERNEL_COPY_BYTES = 64 << 10
"""Size of the smallest file that the kernel copies."""
SMALL_PIECES_BYTES = 64 << 10
"""Bytes of one write of a file that is written piece by piece: smaller pieces are joined."""
NOW_PATH = "_now.json"
"""An object of a table that is to be deleted, written to learn the time of the store."""
TAIL_COMMITS = 8
"""Commits after the newest checkpoint that a fold expects: a few requests too many are cheaper than another round."""
TAIL_BYTES = 64 << 10
"""Bytes of a copied file's end that are checked: footers are a few KiB, unless keys and values are long."""


class DeltaLogTable(LogTable):
    """`LogTable` at `directory` below a store's root. `ids` names data files.

    `cache` keeps the rows of files that are written here; copies do not fill it.
    """

    def __init__(
        self,
        store: ObjectStore,
        directory: str,
        ids: Ids,
        cache: FileCache | None = None,
        kept_ms: int = cadence.COMMITS_KEPT.ms,
    ) -> None:
        """`kept_ms`: the age up to which commits stay where each read is a request; the same for all handles."""
        self._store = store
        self.kept_ms = kept_ms if store.distance.is_far and store.durable_on_answer else 0
        self._directory = directory
        self._ids = ids
        self._cache = cache
        self._log = DeltaCommitLog(store, directory)
        self._race = CommitRace(self._log, self.kept_ms)
        self._footers = Footers()
        self._unsynced: dict[str, None] = {}
        self._syncing: tuple[tuple[str, ...], threading.Event] = ((), threading.Event())
        self._loaded: dict[int, tuple[str, ...]] = {}
        """What the commits name that were read when the table was loaded, until they are synced."""

    @property
    def name(self) -> str:
        return self._log.name

    def create(self, properties: Mapping[str, str], timestamp_ms: int, commit_id: str) -> bool:
        commit = Commit(commit_id, "CREATE TABLE", timestamp_ms, txns=INITIAL_TXNS, writer_version=WRITER_VERSION)
        created = self._race.create(commit, properties)
        if created:
            self._store.sync([self._log.path_of(0)])
        return created

    def snapshot(self) -> TableSnapshot | None:
        with self._log.reading_ahead(TAIL_COMMITS):
            found = newest_fold(self._log)
        if found is None:
            return None
        fold, last_id, table_id = found
        self._race.loaded(fold.version, last_id, table_id)
        if not self._store.durable_on_answer:
            first = fold.version + 1 - len(fold.objects_named)
            self._loaded = dict(enumerate(fold.objects_named, first))
        return fold.snapshot()

    def read_commit(self, version: int) -> Commit | None:
        return self._race.read(version)

    def read_on(self, version: int, count_max: int) -> Sequence[Commit]:
        if not self._store.distance.is_far:
            commit = self._race.read(version)
            return () if commit is None else (commit,)
        with self._log.reading_ahead():
            return self._race.read_on(version, count_max)

    def read_commits(self, start: int, end: int) -> Sequence[Commit] | None:
        with self._log.reading_ahead(end - start):
            return self._race.read_range(start, end)

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
        for entry in commit.adds:  # also those that another handle or process wrote
            self._owe_sync(f"{self._directory}/{entry.path}")
        if sync:
            self._owe_commits(since, version)
            self._sync_all()
        outcome = self._race.commit(version, commit, clock)
        if isinstance(outcome, Committed):
            self._owe_sync(self._log.path_of(version))
            for path in commit.removes:
                self._unsynced.pop(f"{self._directory}/{path}", None)
            if self._cache is not None and commit.removes:
                self._cache.discard(self.name, commit.removes)
            if sync:
                self._sync_all()
        return outcome

    def write_file(self, rows: pa.Table | FewRows, values: PartitionValues | None, codec: str = ZSTD, /) -> DataFile:
        path, size_bytes = self._write_in_pieces(rows, values, codec)
        if not path:
            data, crc = batch_file.encode(rows, codec)
            path, size_bytes = batch_file.file_path(values, self._ids.new_id(), crc), len(data)
            self._put_new(path, data)
        if self._cache is not None:
            self._cache.put(self.name, path, rows)
        return batch_file.describe(rows, path, size_bytes)

    def _write_in_pieces(self, rows: pa.Table | FewRows, values: PartitionValues | None, codec: str) -> tuple[str, int]:
        """(path, size) of a large file that is written while it is encoded, so that its checksum and name are known
        last; ("", 0) where it is small, or the store cannot."""
        if not batch_file.is_large(rows):
            return "", 0
        path, size_bytes = "", 0

        def fill(descriptor: int) -> str:
            nonlocal path, size_bytes

            def written(start: int, length: int) -> bytes:
                return os.pread(descriptor, length, start)

            opened = pa.OSFile(f"/proc/self/fd/{descriptor}", "wb")
            with opened, pa.BufferedOutputStream(opened, SMALL_PIECES_BYTES) as sink:
                batch_file.write(rows, sink, codec, written)
            size_bytes = os.fstat(descriptor).st_size
            crc = batch_file.written_crc(written, size_bytes)
            path = batch_file.file_path(values, self._ids.new_id(), crc)
            return f"{self._directory}/{path}"

        if not self._store.put_filled(f"{self._directory}/{batch_file.data_directory(values)}", fill):
            return "", 0
        self._owe_sync(f"{self._directory}/{path}")
        return path, size_bytes

    def place_files(self, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
        return self._store.each(self._placed, entries)

    def _placed(self, entry: FileEntry) -> FileEntry:
        path = batch_file.placed_path(entry.path, entry.partition_values)
        if path == entry.path:
            return entry
        self._store.copy_within(f"{self._directory}/{entry.path}", f"{self._directory}/{path}")
        self._owe_sync(f"{self._directory}/{path}")
        return replace(entry, file=replace(entry.file, path=path))

    def copy_file(self, source: LogTable, file: DataFile) -> None:
        if not isinstance(source, DeltaLogTable):
            raise KafkaStorageError(f"{self.name}: {file.path} can be copied from a Delta table only")
        if not self._copy_in_kernel(source, file):
            data = source.read_object(file.path)
            check_footer(data, source.name, file)
            self._put_new(file.path, data)

    def _copy_in_kernel(self, source: DeltaLogTable, file: DataFile) -> bool:
        """Copy a large file between two local disks, of which this process reads the footer only, to check it."""
        full, source_path = f"{self._directory}/{file.path}", f"{source._directory}/{file.path}"

        def check(tail: bytes) -> bool:
            return has_sound_footer(tail, source.name, file)

        if file.size_bytes < KERNEL_COPY_BYTES or not self._store.copy_new(
            full, source._store, source_path, TAIL_BYTES, check
        ):
            return False
        self._owe_sync(full)
        return True

    def copy_files(self, source: LogTable, files: Sequence[DataFile]) -> None:
        self._store.each(partial(self.copy_file, source), files)

    def ahead(self, files: Sequence[DataFile]) -> FilesAhead | None:
        if self._cache is None or not self._store.distance.is_far:
            return self._ahead_of(files)
        cached = self._cache.find(self.name, [file.path for file in files])
        return self._ahead_of([file for file, found in zip(files, cached, strict=True) if found is None])

    def _ahead_of(self, files: Sequence[DataFile]) -> FilesAhead | None:
        if not self._store.distance.is_far:
            return None
        small = [file for file in files if file.size_bytes < batch_file.RANGED_BYTES]
        return FilesAhead(self._store, [(f"{self._directory}/{file.path}", file.size_bytes) for file in small])

    def read_file(
        self,
        file: DataFile,
        columns: Sequence[str] | None = None,
        wanted: RowsWanted | None = None,
        ahead: Ahead | None = None,
    ) -> pa.Table:
        cached = self._cache.get(self.name, file.path) if self._cache is not None else None
        if cached is not None:
            return cached if columns is None else cached.select(list(columns))
        if wanted is not None and batch_file.is_read_in_parts(file, wanted):
            read_range = partial(self._store.get_range, f"{self._directory}/{file.path}")
            return read_part(read_range, self.name, file, wanted, columns, self._footers)
        return self._read_whole(file, ahead, columns)

    def _read_whole(self, file: DataFile, ahead: Ahead | None, columns: Sequence[str] | None = None) -> pa.Table:
        data = ahead.take(f"{self._directory}/{file.path}") if ahead is not None else None
        return read_whole(self.read_object(file.path) if data is None else data, self.name, file, columns)

    def read_files(self, files: Sequence[DataFile]) -> pa.Table:
        names = [file.path for file in files]
        cached = self._cache.find(self.name, names) if self._cache is not None else [None] * len(files)
        ahead = self._ahead_of([file for file, found in zip(files, cached, strict=True) if found is None])
        parts = [
            found or CachedRows(self._read_whole(file, ahead), 0, file.record_count, 0)
            for file, found in zip(files, cached, strict=True)
        ]
        return joined(parts)

    @property
    def free_share(self) -> float:
        return self._store.free_share()

    def has_file(self, file: DataFile) -> bool:
        return self._store.size(f"{self._directory}/{file.path}") == file.size_bytes

    @property
    def decays(self) -> bool:
        return not self._store.durable_on_answer

    def check_files(self, files: Sequence[DataFile], *, bits: bool) -> None:
        sizes = self._store.each(self._store.size, [f"{self._directory}/{file.path}" for file in files])
        for file, size_bytes in zip(files, sizes, strict=True):
            check_whole(size_bytes, self.name, file)
            if bits and self.decays:
                self.check_bits(file)

    def check_bits(self, file: DataFile) -> None:
        if self.decays and file.size_bytes >= batch_file.RANGED_BYTES:  # elsewhere a range is a request
            read_range = partial(self._store.get_range, f"{self._directory}/{file.path}")
            if check_bits(read_range, self.name, file):
                return
        read_whole(self.read_object(file.path), self.name, file)

    def damage(self) -> Damage | None:
        data = self._store.get_optional(f"{self._directory}/{DAMAGE_PATH}")
        return None if data is None else Damage.from_json(data)

    def note_damage(self, damage: Damage | None) -> None:
        path = f"{self._directory}/{DAMAGE_PATH}"
        if damage is None:
            self._store.delete(path)
        else:
            self._store.put(path, damage.to_json())

    def read_object(self, path: str) -> bytes:
        return self._store.get(f"{self._directory}/{path}")

    def write_object(self, path: str, data: bytes) -> None:
        full = f"{self._directory}/{path}"
        self._store.put(full, data)  # not put_new: after a power loss its content would not show that it is another's
        self._owe_sync(full)

    def delete_objects(self, paths: Sequence[str]) -> None:
        full = [f"{self._directory}/{path}" for path in paths]
        self._store.delete_all(full)
        for path in full:
            self._unsynced.pop(path, None)
        if self._cache is not None:
            self._cache.discard(self.name, paths)

    def list_objects(self, prefix: str) -> list[tuple[str, int]]:
        root = f"{self._directory}/"
        found = self._store.list(root + prefix)
        return [
            (meta.path.removeprefix(root), meta.last_modified_ms)
            for meta in found
            if not meta.path.startswith(root + "_delta_log/")
        ]

    def checkpointer(self, snapshot: TableSnapshot, objects: Mapping[str, bytes] = NO_OBJECTS) -> Callable[[], int]:
        """As the port says. Once it is written, this handle owes no sync for what was written before."""
        self._forget_synced()
        owed, is_done = tuple(self._unsynced), threading.Event()
        self._syncing = (owed, is_done)
        other = self.reopened()
        commit_id = self._race.id_of(snapshot.version)

        def write_checkpoint() -> int:
            for path, data in objects.items():
                other.write_object(path, data)
            written = [f"{self._directory}/{path}" for path in objects]
            version = other._write_checkpoint(snapshot, commit_id, [*owed, *written])
            is_done.set()
            return version

        return write_checkpoint

    def _write_checkpoint(self, snapshot: TableSnapshot, commit_id: str | None, owed: Sequence[str]) -> int:
        """Write it, on a local disk after everything that it stands for was made durable: clean-up, the deletion of
        replaced files and `recover_tail` rely on that."""
        version, log = snapshot.version, self._log
        if pointed(log) >= version:
            return version
        if not log.has_version(version, commit_id):
            raise StoreUnavailableError(f"{self.name}: version {version} is gone or replaced")
        metadata, known = log.metadata()
        if not self._store.durable_on_answer:
            fresh = [f"{self._directory}/{entry.path}" for entry in snapshot.files if entry.path not in known]
            objects = (path for path in owed if path.endswith(".json"))
            paths = [*fresh, *objects, *self._producer_paths(snapshot), log.path_of(version), self._directory]
            self._store.sync(list(dict.fromkeys(paths)))
        log.write_checkpoint(snapshot, metadata)
        point_to(log, version)
        return version

    def adopt_checkpoint(self) -> int:
        version = pointed(self._log)
        self._forget_synced()
        owed = list(self._unsynced)
        for path in owed[: covered_count(owed, version)]:
            del self._unsynced[path]
        return version

    def _producer_paths(self, snapshot: TableSnapshot) -> list[str]:
        """The paths of producer state, whoever wrote them: an object, and the commits after it."""
        number = snapshot.txns.get(PRODUCERS, NO_PRODUCERS)
        since = snapshot.txns.get(PRODUCERS_VERSION, snapshot.version)
        paths = [self._log.path_of(version) for version in range(since + 1, snapshot.version)]
        return paths if number == NO_PRODUCERS else [*paths, f"{self._directory}/{producers_path(number)}"]

    def flusher(self, version: int, since: int | None) -> Callable[[], None]:
        self._owe_commits(since, version + 1)
        self._forget_synced()
        owed, is_done = tuple(self._unsynced), threading.Event()
        self._syncing = (owed, is_done)

        def flush() -> None:
            if owed:
                self._store.sync(owed)
            is_done.set()

        return flush

    def _owe_commits(self, since: int | None, end: int) -> None:
        """Owe a sync for the commits of versions `[since, end)`, with what they name: a new leader's, whose table has
        just been loaded, are not read a second time."""
        if since is None or self._store.durable_on_answer:
            return
        for version in range(since, end):
            objects = self._loaded.get(version)
            if objects is None:
                stored = self._log.read_version(version)
                if stored is None:
                    continue  # cleaned up: a checkpoint stands for it
                objects = named_objects(stored.commit)
            for path in [*(f"{self._directory}/{each}" for each in objects), self._log.path_of(version)]:
                self._owe_sync(path)
        if self._loaded and end > next(reversed(self._loaded)):
            self._loaded = {}

    def _forget_synced(self) -> None:
        """Owe no sync any more for the paths that the other handle has synced."""
        paths, is_done = self._syncing
        if is_done.is_set():
            self._syncing = ((), threading.Event())
            for path in paths:
                self._unsynced.pop(path, None)

    def reopened(self) -> DeltaLogTable:
        return DeltaLogTable(self._store, self._directory, self._ids, self._cache, self.kept_ms)

    def clean_log(self, keep_from_version: int, keep_from_ms: int, crowded_below: int = 0) -> Iterator[int]:
        """As the port says; checkpoints below the limits go too."""
        with self._log.deletions() as delete:
            checkpoint = pointed(self._log)
            highest = min(keep_from_version, checkpoint)
            first, limit = self._log.expired_versions(highest, keep_from_ms, min(highest, crowded_below))
            if self.kept_ms:
                limit = self._log.settled_end(first, limit, checkpoint, self.kept_ms)
            for version in range(first, limit):
                delete(version)
                yield version

    def delete_strays(self, before_ms: int) -> int:
        with self._log.deletions() as delete:
            strays = self._log.strays(before_ms)
            for version in strays:
                delete(version)
        return len(strays)

    def has_rested(self) -> bool:
        if not self.kept_ms:
            return True
        newest_ms = max((meta.last_modified_ms for meta in self._log.list_log()), default=0)
        path = f"{self._directory}/{NOW_PATH}"
        self._store.put(path, b"{}")
        now_ms = self._store.written_ms(path)
        return now_ms is not None and now_ms - newest_ms >= self.kept_ms

    def drop(self, is_still: Callable[[], bool] = always) -> bool:
        if not self._store.delete_tree(self._directory, self._ids.new_id(), is_still):
            return False
        self._race.forget()
        self._unsynced.clear()
        self._loaded = {}
        return True

    def recover_tail(self) -> int:
        """As the port says, newest commit first. Call it before anything of the table is published.

        Only commits above the newest usable checkpoint are examined: `checkpoint` made the rest durable.
        """
        base: TableSnapshot | None = None

        def examine(listed: list[ObjectMeta]) -> TailCut:
            nonlocal base
            versions = [commit_version(meta.path) for meta in listed]
            base = newest_readable(self._log)
            first = base.version + 1 if base else 0
            readable = self._readable_commits(first)
            own = self._log.own_version(base.version) if base else None
            last_id = NO_COMMIT if base is None else own.commit.commit_id if own is not None else None
            kept = first + sound_commits(readable, last_id, self._is_whole, self._has_producers) - 1
            return cut_above(kept, [version for version in versions if version is not None])

        with self._log.deletions() as delete:
            cut = settled_cut(self.name, self._log.list_log, examine)
            for version in cut.dropped:
                delete(version)
        self._log.drop_checkpoints_except(base.version if base else -1)
        self._store.sync([self._log.path_of(max(cut.kept, 0))])
        self._race.forget()
        return cut.kept

    def withdraw_tail(self) -> int:
        if self._store.durable_on_answer:
            return -1

        def listed() -> tuple[Sequence[int], list[ObjectMeta]]:
            metas = self._log.list_log()
            versions = (commit_version(meta.path) for meta in metas)
            return [version for version in versions if version is not None], metas

        cut = withdraw_tail(self._log, listed, self._is_sound, self._has_producers)
        if cut.dropped:
            self._store.sync([self._log.path_of(version) for version in cut.dropped])
            self._race.forget()
        return cut.kept

    def _readable_commits(self, first: int) -> list[StoredCommit]:
        readable: list[StoredCommit] = []
        try:
            while (stored := self._log.read_version(first + len(readable))) is not None:
                readable.append(stored)
        except CorruptMessageError:
            pass  # a torn commit ends the log
        return readable

    def _is_whole(self, entry: FileEntry) -> bool:
        return self._is_sound(entry, True)

    def _is_sound(self, entry: FileEntry, bits: bool) -> bool:
        """`bits`: also whether its content is, of which a file system may have kept the size alone."""
        try:
            self.check_files([entry.file], bits=bits)
        except (CorruptMessageError, ObjectNotFoundError):
            return False
        return True

    def _has_producers(self, number: int) -> bool:
        try:
            ProducerStates.from_json(self.read_object(producers_path(number)))
        except (ObjectNotFoundError, ValueError):
            return False
        return True

    def _put_new(self, path: str, data: bytes | memoryview) -> None:
        """Write an object whose name is used once, and which nobody reads before a commit names it."""
        full = f"{self._directory}/{path}"
        self._store.put_new(full, data)
        self._owe_sync(full)

    def _owe_sync(self, path: str) -> None:
        if self._syncing[0]:
            self._forget_synced()
        if not self._store.durable_on_answer:
            self._unsynced[path] = None

    def _sync_all(self) -> None:
        if self._unsynced:
            self._store.sync(list(self._unsynced))
            self._unsynced.clear()
