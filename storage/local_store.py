"""An object store on a local disk or mounted volume.

I/O: plain system calls. Measured against obstore's LocalStore, same effect: create 40 instead of 100 µs, get 5
instead of 59, a probe for an absent object 2 instead of 18. Temporary names end in `#<digits>`, as obstore's
do; Delta readers and `list` pass over them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import stat
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.errors import KafkaStorageError, LogDirNotFoundError, ObjectNotFoundError, StoreUnavailableError
from storage.object_meta import ObjectMeta

_TEMPORARY = re.compile(r"#\d+$")
_PROBE = ".create-probe"
_serial = itertools.count(1)


class LocalStore:
    """Objects as files below a directory. Written objects are seen whole or not at all, but only `sync`
    makes them survive a power loss.

    `create` makes the root. Raises LogDirNotFoundError when the root is no directory, KafkaStorageError
    when the disk cannot link files (then create-if-absent does not work and nothing may be committed there).
    """

    durable_on_answer = False

    def __init__(self, root: str, *, create: bool = False) -> None:
        self.root = os.path.abspath(_plain_path(root))
        self.url = Path(self.root).as_uri()
        self._made_directories: set[str] = set()
        if create:
            self._make_root()
        if not os.path.isdir(self.root):
            raise LogDirNotFoundError(f"{self.root} is not a directory")
        if create:
            self.probe_create_if_absent()

    def probe_create_if_absent(self) -> None:
        """Try a create twice. KafkaStorageError when the second one wins too, or link(2) is refused."""
        name = f"{_PROBE}-{os.getpid()}-{next(_serial)}"
        try:
            won = (self.create(name, b""), self.create(name, b""))
        except StoreUnavailableError as reason:
            raise KafkaStorageError(
                f"{self.root} cannot hold logs: create-if-absent needs hard links there ({reason})"
            ) from reason
        self.delete(name)
        if won != (True, False):
            raise KafkaStorageError(f"{self.root} cannot hold logs: creating an object twice answered {won}")

    def put(self, path: str, data: bytes) -> None:
        target = f"{self.root}/{path}"
        try:
            os.replace(self._write_temporary(target, data), target)
        except OSError as reason:
            raise self._failed("put", path, reason) from reason

    def create(self, path: str, data: bytes) -> bool:
        target = f"{self.root}/{path}"
        try:
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

    def get(self, path: str) -> bytes:
        data = self.get_optional(path)
        if data is None:
            raise ObjectNotFoundError(f"{self.root}/{path} does not exist")
        return data

    def get_optional(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(f"{self.root}/{path}", os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as reason:
            raise self._failed("get", path, reason) from reason
        try:
            return _read_all(descriptor)
        except OSError as reason:
            raise self._failed("get", path, reason) from reason
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(f"{self.root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as reason:
            raise self._failed("head", path, reason) from reason
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, prefix: str) -> list[ObjectMeta]:
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
        try:
            os.unlink(f"{self.root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as reason:
            raise self._failed("delete", path, reason) from reason

    def delete_tree(self, path: str, tombstone_id: str, /) -> None:
        tombstone = f"{self.root}/{path}.{tombstone_id}-delete"
        try:
            os.rename(f"{self.root}/{path}", tombstone)
        except FileNotFoundError:
            return
        except OSError as reason:
            raise self._failed("delete", path, reason) from reason
        shutil.rmtree(tombstone, ignore_errors=True)

    def sync(self, paths: Sequence[str]) -> None:
        """fsync files, their directories, and the parents of directories that this store made."""
        targets = [f"{self.root}/{path}" if path else self.root for path in paths]
        directories = {os.path.dirname(target) for target in targets}
        made, self._made_directories = self._made_directories, set()
        directories |= made | {os.path.dirname(directory) for directory in made}
        try:
            for target in [*targets, *sorted(directories, reverse=True)]:
                _fsync(target)
        except OSError as reason:
            self._made_directories |= made
            raise self._failed("sync", ", ".join(paths[:3]), reason) from reason

    def _write_temporary(self, target: str, data: bytes) -> str:
        """Write `data` beside `target`; the directory is made when missing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        for _ in range(100):
            temporary = f"{target}#{os.getpid()}{next(_serial):09}"
            try:
                descriptor = os.open(temporary, flags, 0o644)
            except FileExistsError:  # of another host with our process id
                continue
            except FileNotFoundError:
                if not os.path.isdir(self.root):  # an unmounted disk must not be filled in
                    raise
                self._make_directories(os.path.dirname(target))
                continue
            return _write_all(descriptor, data, temporary)
        raise OSError(f"found no free temporary name beside {target}")

    def _make_root(self) -> None:
        try:
            self._make_directories(self.root)
        except OSError as reason:
            raise LogDirNotFoundError(f"{self.root} cannot be made: {reason}") from reason

    def _make_directories(self, directory: str) -> None:
        missing = []
        while directory and not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name)
                self._made_directories.add(name)

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

    def _failed(self, operation: str, path: str, reason: OSError) -> StoreUnavailableError:
        return StoreUnavailableError(f"{operation} {self.root}/{path}: {reason}")


def _plain_path(place: str) -> str:
    """A directory from a plain path or a `file://` URL."""
    if not place.startswith("file://"):
        return place
    return urllib.request.url2pathname(urllib.parse.urlsplit(place).path)


def _read_all(descriptor: int) -> bytes:
    remaining = os.fstat(descriptor).st_size
    data = os.read(descriptor, remaining + 1)
    if len(data) >= remaining:
        return data
    chunks = [data]
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def _write_all(descriptor: int, data: bytes, temporary: str) -> str:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _fsync(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
