"""An object store on a local disk or mounted volume.

I/O: plain system calls. Temporary names end in `#<digits>`, as those of obstore's LocalStore; Delta readers and `list`
pass over them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import stat
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from stratalog.storage import errors
from stratalog.storage.clock import RandomIds
from stratalog.storage.metering.calls import calls_of
from stratalog.storage.objects import registers as register_file
from stratalog.storage.objects.new_file import NotCopiedError, UnnamedFiles, fill_in_place, send_whole, write_whole
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, always
from stratalog.storage.objects.probe import probe_create_if_absent
from stratalog.storage.objects.sync import WritesLostError, sync_files, sync_tree

_TEMPORARY = re.compile(r"#\d+$")
_LEFTOVER = re.compile(r"\.[0-9a-f]{32}-delete$")
_FULL = (errno.ENOSPC, errno.EDQUOT)
OWN_DIRECTORY = "base_offset="
"""Beginning of the name of a directory that holds a data file, or a few that replace each other: it is removed with the
last, and made with the next. So no store remembers whether its entry was synced."""
MAKE_TRIES = 10
"""Tries to make a file whose directory others remove meanwhile, since it is empty."""
SMALL_BYTES = 8_192
"""Bytes of the first read of a whole object: only for larger ones its size is asked for."""
ROOT_MODE = 0o700
"""Mode of a root that is made: records, and in a metadata root the keys of passwords, are for this user alone. One that
is there already keeps its own."""
LOST_WRITES = "lost-writes"
"""Name of the note in a root that writes below it may be gone, for other processes and the next start."""
_LOST_WRITES: dict[str, str] = {}
"""The same for the stores of this process, by root: the disk may not take the note."""
_serial = itertools.count(1)


class LocalStore(ObjectStore):
    """Objects as files below a directory. Written objects are seen whole or not at all, but only `sync`
    makes them survive a power loss.

    `create` makes the root. Raises LogDirNotFoundError when the root is no directory, KafkaStorageError when the disk
    cannot link files (then create-if-absent does not work and nothing may be committed there).
    """

    durable_on_answer = False

    def __init__(self, root: str, *, create: bool = False) -> None:
        self.root = os.path.abspath(_plain_path(root))
        self.url = Path(self.root).as_uri()
        self._calls = calls_of(self.url)
        self._durable_directories = {_existing(self.root)}
        """Those whose entry in the directory above was synced, or was there before this store."""
        self._lost = ""
        self._register_lock = threading.Lock()
        self._unnamed = UnnamedFiles(self._open_new, self._make_directories)
        if create:
            self._make_root()
        if not os.path.isdir(self.root):
            raise errors.LogDirNotFoundError(f"{self.root} is not a directory")
        if create:
            self.probe_create_if_absent()

    def probe_create_if_absent(self) -> None:
        """Raises KafkaStorageError where a create does not fail for an object that exists, or link(2) is refused;
        StoreUnavailableError."""
        probe_create_if_absent(self, RandomIds().new_id(), "hard links (link(2) that fails for a name that exists)")

    def put(self, path: str, data: bytes | memoryview) -> None:
        self._calls.count("put", path, len(data))
        target = f"{self.root}/{path}"
        try:
            os.replace(self._write_temporary(target, data), target)
        except OSError as reason:
            raise self._failed("put", path, reason) from reason

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        """As the port says. A file that is there already is of an earlier try, or of another writer of the same bytes:
        it is replaced as a whole, since its writer may never end; by durable bytes, since it may be committed and
        synced."""
        self._calls.count("put", path, len(data))
        target = f"{self.root}/{path}"
        try:
            descriptor = self._open_new(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            fill_in_place(descriptor, target, lambda file: write_whole(file, data))
        except FileExistsError:
            self._put_durable(path, data)
        except OSError as reason:
            raise self._failed("put", path, reason) from reason

    def _put_durable(self, path: str, data: bytes | memoryview) -> None:
        """`put` of bytes that survive a power loss if the new name does."""
        target = f"{self.root}/{path}"
        try:
            os.replace(self._write_temporary(target, data, is_synced=True), target)
        except OSError as reason:
            raise self._failed("put", path, reason) from reason

    def put_filled(self, directory: str, fill: Callable[[int], str]) -> bool:
        self._calls.count("put", directory)
        try:
            return bool(self._unnamed.make(f"{self.root}/{directory}", lambda file: f"{self.root}/{fill(file)}"))
        except OSError as reason:
            raise self._failed("put", directory, reason) from reason

    def file_path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def copy_new(
        self, path: str, source: ObjectStore, source_path: str, tail_bytes: int, check: Callable[[bytes], bool]
    ) -> bool:
        """As the port says, by sendfile(2)."""
        source_file = source.file_path(source_path)
        if source_file is None:
            return False
        return source.waiting_for(lambda: self._copy_file(path, source_file, tail_bytes, check))

    def _copy_file(self, path: str, source_file: str, tail_bytes: int, check: Callable[[bytes], bool]) -> bool:
        target = f"{self.root}/{path}"
        try:
            descriptor = os.open(source_file, os.O_RDONLY)
        except FileNotFoundError as reason:
            raise errors.ObjectNotFoundError(f"{source_file} does not exist") from reason
        except OSError as reason:
            raise _failure("get", source_file, reason) from reason
        try:
            size_bytes = os.fstat(descriptor).st_size
            if not check(os.pread(descriptor, tail_bytes, max(0, size_bytes - tail_bytes))):
                return False
            self._fill_new(target, lambda copy: send_whole(descriptor, copy, size_bytes))
            return True
        except (FileExistsError, NotCopiedError):
            return False
        except OSError as reason:
            raise _failure("put", target, reason) from reason
        finally:
            os.close(descriptor)

    def _fill_new(self, target: str, fill: Callable[[int], None]) -> None:
        """Make a file that has no name before it is whole, where this disk can. Raises FileExistsError."""

        def fill_and_name(descriptor: int) -> str:
            fill(descriptor)
            return target

        if not self._unnamed.make(target.rpartition("/")[0], fill_and_name):
            fill_in_place(self._open_new(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL), target, fill)

    def create(self, path: str, data: bytes) -> bool:
        self._calls.count("create", path, len(data))
        target = f"{self.root}/{path}"
        try:

            def fill(descriptor: int) -> str:
                write_whole(descriptor, data)
                return target

            if self._unnamed.make(target.rpartition("/")[0], fill):
                return True
            temporary = self._write_temporary(target, data)
            try:
                os.link(temporary, target)
            finally:
                os.unlink(temporary)
        except FileExistsError:
            return False
        except OSError as reason:
            raise self._failed("create", path, reason) from reason
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """As the port says; `new` survives a power loss if what comes after it does: nobody else syncs it."""
        self._calls.count("replace", path, len(new))
        if self.get_optional(path) != old:
            return False
        self._put_durable(path, new)
        return True

    def get(self, path: str) -> bytes:
        return self._found(path, self.get_optional(path))

    def get_optional(self, path: str) -> bytes | None:
        return self._read(path, _read_all)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._found(path, self._read(path, lambda descriptor: _read_range(descriptor, start, length)))

    def _read(self, path: str, read: Callable[[int], bytes]) -> bytes | None:
        """What `read` returns of the open file; None when there is none."""
        try:
            descriptor = os.open(f"{self.root}/{path}", os.O_RDONLY)
            try:
                data = read(descriptor)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            self._calls.count_read("get", path, None)
            return None
        except OSError as reason:
            raise self._failed("get", path, reason) from reason
        self._calls.count_read("get", path, len(data))
        return data

    def _found(self, path: str, data: bytes | None) -> bytes:
        if data is None:
            raise errors.ObjectNotFoundError(f"{self.root}/{path} does not exist")
        return data

    def put_register(self, path: str, data: bytes) -> None:
        self._calls.count("put", path, len(data))
        target = f"{self.root}/{path}"
        try:
            with self._register_lock:
                if not register_file.replace_in_place(target, data):
                    os.replace(self._write_temporary(target, register_file.new_file(data)), target)
        except OSError as reason:
            raise self._failed("put", path, reason) from reason

    def get_register(self, path: str) -> bytes | None:
        try:
            data = register_file.read(f"{self.root}/{path}")
        except OSError as reason:
            raise self._failed("get", path, reason) from reason
        self._calls.count_read("get", path, None if data is None else len(data))
        return data

    def size(self, path: str) -> int | None:
        self._calls.count("head", path)
        try:
            status = os.stat(f"{self.root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as reason:
            raise self._failed("head", path, reason) from reason
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, prefix: str) -> list[ObjectMeta]:
        self._calls.count("list", prefix)
        directory = prefix.rpartition("/")[0]
        try:
            found = [m for m in self._walk(directory) if m.path.startswith(prefix) and not _TEMPORARY.search(m.path)]
        except OSError as reason:
            raise self._failed("list", prefix, reason) from reason
        return sorted(found)

    def directories(self) -> Sequence[str]:
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as reason:
            raise self._failed("list", "", reason) from reason

    def delete(self, path: str) -> None:
        self._calls.count("delete", path)
        target = f"{self.root}/{path}"
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as reason:
            raise self._failed("delete", path, reason) from reason
        directory = os.path.dirname(target)
        if _is_own(directory):
            with contextlib.suppress(OSError):  # another file is there, or another process was faster
                os.rmdir(directory)

    @contextlib.contextmanager
    def deletions(self, directory: str) -> Iterator[Callable[[str], None]]:
        """As the port says, by the open directory: `delete_tree` renames it, and what is open stays the same."""
        try:
            descriptor = os.open(f"{self.root}/{directory}", os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            yield lambda _name: None
            return
        except OSError as reason:
            raise self._failed("open", directory, reason) from reason

        def delete(name: str) -> None:
            try:
                os.unlink(name, dir_fd=descriptor)
            except FileNotFoundError:
                return
            except OSError as reason:
                raise self._failed("delete", f"{directory}/{name}", reason) from reason

        try:
            yield delete
        finally:
            os.close(descriptor)

    def free_share(self) -> float:
        try:
            found = os.statvfs(self.root)
        except OSError as reason:
            raise self._failed("statvfs", "", reason) from reason
        shares = [found.f_bavail / found.f_blocks] if found.f_blocks else []
        shares += [found.f_favail / found.f_files] if found.f_files else []  # 0 where files have no bound of their own
        return min(shares, default=1.0)

    def copy_within(self, path: str, new_path: str) -> None:
        """As the port says: a second name by link(2)."""
        source, target = f"{self.root}/{path}", f"{self.root}/{new_path}"
        try:
            for _ in range(MAKE_TRIES):
                try:
                    os.link(source, target)
                    return
                except FileExistsError:
                    return
                except FileNotFoundError:
                    if not os.path.exists(source):
                        raise
                    self._make_directories(os.path.dirname(target))
        except FileNotFoundError as reason:
            raise errors.ObjectNotFoundError(f"{source} does not exist") from reason
        except OSError as reason:
            raise self._failed("link", new_path, reason) from reason
        raise errors.StoreUnavailableError(f"link {target}: its directory is removed again and again")

    def delete_tree(self, path: str, tombstone_id: str, is_still: Callable[[], bool] = always, /) -> bool:
        tree = f"{self.root}/{path}"
        tombstone = f"{tree}.{tombstone_id}-delete"
        try:
            descriptor = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)  # while it is open, no other has its inode number
            try:
                if not is_still():
                    return False
                os.rename(tree, tombstone)
                if not os.path.samestat(os.fstat(descriptor), os.stat(tombstone)):
                    os.rename(tombstone, tree)  # it was made in the place of the other while this thread slept
                    return False
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return True
        except OSError as reason:
            raise self._failed("delete", path, reason) from reason
        known = tuple(self._durable_directories)
        self._durable_directories.difference_update(x for x in known if x == tree or x.startswith(f"{tree}/"))
        shutil.rmtree(tombstone, ignore_errors=True)
        return True

    def leftovers(self) -> Sequence[str]:
        return [name for name in self.directories() if _LEFTOVER.search(name)]

    def delete_leftover(self, directory: str) -> None:
        if not _LEFTOVER.search(directory):
            raise errors.KafkaStorageError(f"{self.root}/{directory} is not what a deletion left")
        shutil.rmtree(f"{self.root}/{directory}", ignore_errors=True)  # another process may be at it, too
        if os.path.isdir(f"{self.root}/{directory}"):
            raise errors.StoreUnavailableError(f"delete {self.root}/{directory}: some of it is still there")

    def sync(self, paths: Sequence[str]) -> None:
        """Make files, their directories and those above them durable, whoever made them."""
        self._calls.count("sync", paths[0] if paths else "")
        targets = [f"{self.root}/{path}" if path else self.root for path in paths]
        directories = {target.rpartition("/")[0] for target in targets}
        entries = self._entries_to_sync(directories)
        above = {os.path.dirname(directory) for directory in entries}
        self._sync(", ".join(paths[:3]), lambda: sync_files([*targets, *sorted(directories | above, reverse=True)]))
        self._durable_directories |= {entry for entry in entries if not _is_own(entry) and os.path.isdir(entry)}

    def sync_all(self) -> None:
        self._sync("", lambda: sync_tree(self.root))

    def lost_writes(self) -> str | None:
        noted = self._lost or _LOST_WRITES.get(self._place)
        if noted:
            return noted
        with contextlib.suppress(OSError):
            return Path(self.root, LOST_WRITES).read_text(encoding="utf-8")
        return None

    def forget_lost_writes(self) -> None:
        _LOST_WRITES.pop(self._place, None)
        with contextlib.suppress(OSError):
            Path(self.root, LOST_WRITES).unlink()

    def _note_lost_writes(self, reason: str) -> None:
        """For all stores of this root: those of this process, and others as far as the disk keeps the note."""
        self._lost = _LOST_WRITES[self._place] = reason
        with contextlib.suppress(OSError):
            Path(self.root, LOST_WRITES).write_text(reason, encoding="utf-8")

    @property
    def _place(self) -> str:
        return os.path.realpath(self.root)

    def _sync(self, what: str, sync: Callable[[], None]) -> None:
        """KafkaStorageError once writes were lost, and from then on: only a new store for this root syncs again."""
        if not self._lost:
            try:
                sync()
            except WritesLostError as reason:
                self._note_lost_writes(str(reason))
            except OSError as reason:
                raise self._failed("sync", what, reason) from reason
        if self._lost:
            raise errors.KafkaStorageError(f"{self.root}: the disk did not keep what was written: {self._lost}")

    def _entries_to_sync(self, directories: Iterable[str]) -> set[str]:
        """These directories and those above them, up to the first whose entry is durable."""
        found: set[str] = set()
        for each in directories:
            directory = each
            while directory not in self._durable_directories and directory not in found:
                found.add(directory)
                directory = os.path.dirname(directory)
        return found

    def _write_temporary(self, target: str, data: bytes | memoryview, *, is_synced: bool = False) -> str:
        """Write `data` beside `target`; the directory is made when missing."""

        def fill(descriptor: int) -> None:
            write_whole(descriptor, data)
            if is_synced:
                os.fsync(descriptor)

        for _ in range(100):
            temporary = f"{target}#{os.getpid()}{next(_serial):09}"
            try:
                descriptor = self._open_new(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:  # of another host with our process id
                continue
            fill_in_place(descriptor, temporary, fill)
            return temporary
        raise OSError(f"found no free temporary name beside {target}")

    def _open_new(self, name: str, flags: int, target: str = "") -> int:
        """Open a file to be made; its directory (that of `target`, if given) is made when missing."""
        directory = os.path.dirname(target or name)
        if _is_own(directory):  # as a rule it is not there, and the one above is
            with contextlib.suppress(OSError):
                os.mkdir(directory)
        for _ in range(MAKE_TRIES):
            try:
                return os.open(name, flags, 0o644)
            except FileNotFoundError:
                if not os.path.isdir(self.root):  # the mount point of a disk that is away must stay empty
                    raise
            self._make_directories(directory)
        return os.open(name, flags, 0o644)

    def _make_root(self) -> None:
        if os.path.isdir(self.root):
            return
        try:
            self._make_directories(os.path.dirname(self.root))
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.root, ROOT_MODE)
                self._durable_directories.discard(self.root)
        except OSError as reason:
            raise errors.LogDirNotFoundError(f"{self.root} cannot be made: {reason}") from reason

    def _make_directories(self, directory: str) -> None:
        missing = []
        while directory and not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name)
                self._durable_directories.discard(name)

    def _walk(self, directory: str) -> Iterator[ObjectMeta]:
        try:
            with os.scandir(f"{self.root}/{directory}") as entries:
                listed = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in listed:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir():
                yield from self._walk(path)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # deleted since it was listed
                continue
            yield ObjectMeta(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def _failed(self, operation: str, path: str, reason: OSError) -> errors.StoreUnavailableError:
        self._calls.failed += 1
        return _failure(operation, f"{self.root}/{path}", reason)


def _is_own(directory: str) -> bool:
    return directory.rpartition("/")[2].startswith(OWN_DIRECTORY)


def _failure(operation: str, name: str, reason: OSError) -> errors.StoreUnavailableError:
    kind = errors.StoreFullError if reason.errno in _FULL else errors.StoreUnavailableError
    return kind(f"{operation} {name}: {reason}")


def _existing(path: str) -> str:
    """The path, or the nearest directory above it that exists."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _plain_path(place: str) -> str:
    """A directory from a plain path or a `file://` URL."""
    if not place.startswith("file://"):
        return place
    return urllib.parse.unquote(urllib.parse.urlsplit(place).path)


def _read_all(descriptor: int) -> bytes:
    data = os.read(descriptor, SMALL_BYTES)
    if len(data) < SMALL_BYTES and not os.read(descriptor, 1):
        return data  # a commit or a file of few rows: no need for its size
    size_bytes = os.fstat(descriptor).st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    data = os.read(descriptor, size_bytes + 1)
    while len(data) < size_bytes and (more := os.read(descriptor, 1 << 24)):
        data += more
    return data


def _read_range(descriptor: int, start: int, length: int) -> bytes:
    """These bytes, fewer only at the end of the file: one read may return fewer."""
    data = os.pread(descriptor, length, start)
    while len(data) < length and (more := os.pread(descriptor, length - len(data), start + len(data))):
        data += more
    return data
