"""Deleted files of a local disk that become new ones, where the disk is slow to make a file from nothing.

I/O: rename(2), renameat2(2), leases (fcntl(2)), /sys of Linux.

An ext4 without a journal takes no inode that was freed within the last minute (six, while its block waits to be
written) and, to find another, passes over each of these in the block group of the new file's directory, 70 ns each
(`recently_deleted` in Linux, fs/ext4/ialloc.c). A log that takes 1,000 commits a second frees 2,000 inodes a second, so
after some seconds a new file costs 0.3 to 0.9 ms instead of 0.07. There, a small file that is deleted is renamed into
a folder instead and emptied, and the next small file is written into it and renamed to its place, much as PostgreSQL
does with its segments and RocksDB with `recycle_log_file_num`: no inode is freed and none is looked for.

Nor is its first block freed: emptied, a file is one byte long (`EMPTY`). Mounted with `discard`, such a file system
tells the disk of each block that it frees, one at a time and without a journal at once: cutting a file to nothing took
150 us instead of 15. And disks that are files of a host's served nobody for 50 to 450 ms when they got some hundred of
these a second, while appends waited to read a block of inodes.

Nobody can tell the difference from a deletion: a file is used again only if no process has it open or mapped (the
kernel grants a write lease then, and only then) and if it has no second name. Only a power loss tells: the disk may
have kept the new name and the old content. Then the content belongs elsewhere, and says so: a data file is not what
its name states (`batch_file.check`), a commit does not follow the one before it (`recover_tail`). And a process that is
killed between two steps leaves one that is not empty in the folder: whoever finds it there empties it, at a start or
within the next `SHARE` deletions, so that what was deleted, or never came to be, is gone.

Files of a local disk that are made before somebody waits for one, where the disk is slow to make them.

I/O: files without a name (O_TMPFILE), link(2), a thread.

To make a file, a file system reads the block that its inode lies in, unless it has it in memory. That takes 0.2 ms
from a disk at rest, and as long as the disk likes from one that is busy: on an ext4 without a journal (see
`storage.objects.disk.spare_files`) the appends of three brokers at once waited five times for 50 to 300 ms each within
a second, while every file went into a group of blocks that was new to them. Here a thread makes them, all in one
folder, so that their inodes lie together; who needs one writes it and links it to its place. They have no name before
that: nothing is left of them when the process ends, and nobody else sees them.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from stratalog.storage.objects.disk.new_file import link_unnamed, write_whole

FOLDER = ".spare"
"""Below the root, for all processes that work there."""
SPARE_BYTES_MAX = 65_536
"""A larger file is deleted: making one costs little beside writing so much."""
SPARES_MIN, SPARES_MAX = 256, 8_192
"""So many are kept back, oldest out first: whoever was about to open one when it was deleted finds it empty, not with
what another file holds. And so many at most. Upkeep deletes in turns, of some thousand files where a log takes 1,000
commits a second."""
SHARE = 256
"""So often, counted in files, the folder is read."""
BLOCK_BYTES = 4_096
"""What an ext4 allocates at a time, but for tiny ones. A file's first block is always written as a whole: what the
kernel does not have in memory of it any more need not be read then."""
EMPTY = b"\n"
"""What a spare file holds: as good as nothing to whoever reads a commit."""
_EMPTY_BLOCK = EMPTY.ljust(BLOCK_BYTES, b"\0")
TAKEN_OVER_MAX = 2
"""So many of another process's are taken over for a file that somebody waits for; 500 at once took 15 to 90 ms."""
_NAME = re.compile(r"[0-9a-f]+-\d+")
_SYSTEM = Path("/sys")
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_HERE, _NO_REPLACE, _EXCHANGE = -100, 1, 2
"""Linux: AT_FDCWD, RENAME_NOREPLACE and RENAME_EXCHANGE."""
_SET_SIGNAL = 10
"""Linux: F_SETSIG. The signal for whoever's lease is asked back, SIGIO by default, would end the process."""


class SpareFile:
    """One spare file, empty and open to be written."""

    __slots__ = ("descriptor", "name")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self.descriptor = name, descriptor

    def write(self, data: bytes | memoryview) -> None:
        """Raises OSError."""
        if len(data) >= BLOCK_BYTES:
            write_whole(self.descriptor, data)
            return
        write_whole(self.descriptor, bytes(data).ljust(BLOCK_BYTES, b"\0"))
        os.ftruncate(self.descriptor, len(data))


class SpareFiles:
    """The spare files of one root: `<process>-<number>`, oldest first. The folder is made at the first deletion, so
    that reading a root makes nothing.

    own        how the names of this object's files begin
    are_used   None asks the disk when it comes to that
    kept_back  how many are not used again, oldest out first
    """

    def __init__(self, root: str, *, are_used: bool | None = None, kept_back: int = SPARES_MIN) -> None:
        self._root = root
        self._folder = f"{root}/{FOLDER}"
        self._are_used = are_used
        self._kept_back = kept_back
        self._process_id = os.getpid()
        self.own = os.urandom(8).hex()
        self._names: collections.deque[str] = collections.deque()
        self._others: collections.deque[str] = collections.deque()
        self._serial = itertools.count()
        self._refused, self._missed, self._kept = itertools.count(1), itertools.count(), itertools.count()
        self._reading = threading.Lock()

    def keep(self, path: str) -> bool:
        """Take a file away from its path. False when it is to be deleted instead. Raises FileNotFoundError."""
        if not self._is_used():
            return False
        if len(self._names) >= SPARES_MAX:
            if next(self._refused) % SHARE == 0:
                self._read(self._count_anew)
            return False
        if next(self._kept) % SHARE == 0:
            self._read(self._sweep)
        descriptor = _opened(path)
        if descriptor is None:
            return False
        try:
            status = os.fstat(descriptor)
            return _is_fit(status) and 0 < status.st_size <= SPARE_BYTES_MAX and self._moved(path, descriptor)
        finally:
            os.close(descriptor)

    def _moved(self, path: str, descriptor: int) -> bool:
        name = self._next_name()
        try:
            os.utime(descriptor)  # has the kernel read the block of its inode, before it holds any lock
            rename(path, name)
        except OSError:
            if os.path.isdir(self._folder) or not self._make_folder():
                return False
            rename(path, name)
        self._keep_emptied(name, descriptor)
        return True

    def sweep(self) -> None:
        """Empty what processes that were killed left in the folder."""
        if self._is_used():
            self._read(self._sweep)

    def take(self) -> SpareFile | None:
        """A file to write over and to rename; None when a new one has to be made."""
        if len(self._names) <= self._kept_back and self._is_used():
            self._take_over()
        while len(self._names) > self._kept_back and os.getpid() == self._process_id:
            with contextlib.suppress(IndexError, OSError):  # another thread or process took it
                name = self._names.popleft()
                descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW)
                if _is_nobody_elses(descriptor):
                    if os.fstat(descriptor).st_size > len(EMPTY):  # its last owner was using it when it was taken over
                        _empty(descriptor)
                    return SpareFile(name, descriptor)
                os.close(descriptor)
                os.unlink(name)
        return None

    def give_back(self, spare: SpareFile) -> None:
        """Keep a spare that did not become a file; one that cannot be emptied, as on a full disk, goes."""
        try:
            _empty(spare.descriptor)
            self._names.append(spare.name)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(spare.name)
        finally:
            os.close(spare.descriptor)

    def replace(self, name: str, target: str) -> None:
        """rename(2) over what may be there, which becomes a spare instead of being freed. `name` is no spare itself:
        of what is replaced, nothing may tell after a power loss to what it belongs. Raises OSError."""
        if not (self._is_used() and _exchanged(name, target)):
            os.replace(name, target)
        elif not self.keep(name):
            os.unlink(name)

    def made_folder(self) -> str | None:
        """The folder, made if it is missing. None where none is used, or it cannot be made."""
        return self._folder if self._is_used() and (os.path.isdir(self._folder) or self._make_folder()) else None

    def _is_used(self) -> bool:
        """Not by a forked copy of the process, which would use the same ones."""
        if self._are_used is None:
            self._are_used = lacks_journal(self._root)
        return self._are_used and os.getpid() == self._process_id

    def _next_name(self) -> str:
        return f"{self._folder}/{self.own}-{next(self._serial)}"

    def _make_folder(self) -> bool:
        try:
            os.mkdir(self._folder)  # never the root, which may be a disk that is not mounted
        except FileExistsError:
            return True
        except OSError:
            return False
        return True

    def _read(self, use: Callable[[Sequence[str]], None]) -> None:
        """Show the names in the folder, oldest first for each process, to one thread at a time."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            found = [name for name in os.listdir(self._folder) if _NAME.fullmatch(name)]
            use(sorted(found, key=_order))
        except OSError:
            return
        finally:
            self._reading.release()

    def _count_anew(self, names: Sequence[str]) -> None:
        """Others took some over."""
        self._names = collections.deque(f"{self._folder}/{name}" for name in names if _order(name)[0] == self.own)

    def _take_over(self) -> None:
        """Take some of other processes, those that ended, too. One that has such a file open just now goes on: it finds
        the name gone, and makes a new file."""
        if not self._others and next(self._missed) % SHARE == 0:
            self._read(self._find_others)
        for _ in range(min(TAKEN_OVER_MAX, len(self._others))):
            with contextlib.suppress(IndexError):  # another thread took it
                self._take_from_other(self._others.popleft())

    def _find_others(self, names: Sequence[str]) -> None:
        """Those after this process first, so that not all begin with the same one."""
        others = [name for name in names if not name.startswith(self.own)]
        self._others.extend(sorted(others, key=lambda name: name < self.own))

    def _sweep(self, names: Sequence[str]) -> None:
        for name in names:
            if _order(name)[0] != self.own and _has_content(f"{self._folder}/{name}"):
                self._take_from_other(name)

    def _take_from_other(self, name: str) -> None:
        """Renamed before it is looked at: so it is no file that was given a name just now."""
        taken = self._next_name()
        with contextlib.suppress(OSError):
            os.rename(f"{self._folder}/{name}", taken)
            if not _has_content(taken):  # nearly always; who else has it open is found out when it is used
                self._names.append(taken)
            elif (descriptor := _opened(taken)) is None:
                os.unlink(taken)
            else:
                try:
                    self._keep_emptied(taken, descriptor)
                finally:
                    os.close(descriptor)

    def _keep_emptied(self, name: str, descriptor: int) -> None:
        """What is deleted is to be gone, as an erasure says: a file that cannot be emptied is no spare one."""
        if _is_emptied(descriptor):
            self._names.append(name)
        else:
            with contextlib.suppress(FileNotFoundError):  # another process took it over
                os.unlink(name)


def _order(name: str) -> tuple[str, int]:
    process, _, number = name.partition("-")
    return process, int(number)


def lacks_journal(directory: str) -> bool:
    """Whether the directory lies on an ext4 without a journal. False where Linux does not tell."""
    try:
        device = os.stat(directory).st_dev
        name = os.path.basename(os.readlink(_SYSTEM / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"))
        return (_SYSTEM / "fs" / "ext4" / name / "journal_task").read_text(encoding="utf-8").strip() == "<none>"
    except OSError:
        return False


def rename(name: str, target: str) -> None:
    """rename(2), after a look at the target: between two directories it holds a lock of the whole file system, for
    which all who rename wait, while the kernel reads what it does not have in memory of a directory. Raises OSError."""
    os.access(target, os.F_OK)
    os.rename(name, target)


def rename_if_absent(name: str, target: str) -> None:
    """`rename` that never replaces, in one step: no process that is killed leaves two names of a file.
    Raises FileExistsError, and OSError where the disk or the system cannot."""
    os.access(target, os.F_OK)
    _renameat2(name, target, _NO_REPLACE)


def _exchanged(name: str, target: str) -> bool:
    try:
        if not stat.S_ISREG(os.lstat(target).st_mode):
            return False
        _renameat2(name, target, _EXCHANGE)
    except OSError:
        return False
    return True


def _renameat2(name: str, target: str, flags: int) -> None:
    if not hasattr(_LIBRARY, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _LIBRARY.renameat2(_HERE, os.fsencode(name), _HERE, os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, target)


def _is_fit(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _has_content(name: str) -> bool:
    """False where it is gone."""
    try:
        return os.lstat(name).st_size > len(EMPTY)
    except OSError:
        return False


def _empty(descriptor: int) -> None:
    """Nothing is left of its content, nor of its blocks but the first. Raises OSError."""
    os.pwrite(descriptor, _EMPTY_BLOCK, 0)
    os.ftruncate(descriptor, len(EMPTY))


def _opened(name: str) -> int | None:
    """None when it cannot be opened, as a symbolic link. Raises FileNotFoundError."""
    try:
        return os.open(name, os.O_WRONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError:
        return None


def _is_emptied(descriptor: int) -> bool:
    try:
        if not _is_nobody_elses(descriptor):
            return False
        _empty(descriptor)
    except OSError:
        return False
    return True


def _is_nobody_elses(descriptor: int) -> bool:
    """Whether this is the only one by which any process has the file open or mapped, and it has one name."""
    try:
        fcntl.fcntl(descriptor, _SET_SIGNAL, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return _is_fit(os.fstat(descriptor))
    except OSError:
        return False


READY_MAX = 64
"""So many are open at a time."""


MISSED_MIN = 256
"""A process that makes fewer files makes each when it is needed."""


IDLE_S = 10.0
"""After so long without a need they go, and the thread with them."""


def are_needed(ready: int, missed: int) -> bool:
    """Pure. Whether more are to be made: so many are ready, so often there was none."""
    return missed >= MISSED_MIN and ready <= READY_MAX // 2


class FilesAhead:
    """Those of one root. `folder` tells where they are made, None where the disk does not need them."""

    def __init__(self, folder: Callable[[], str | None]) -> None:
        self._folder = folder
        self._process_id = os.getpid()
        self._ready: collections.deque[int] = collections.deque()
        self._missed = 0
        self._is_needed, self._starting = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def make(self, data: bytes | memoryview, target: str) -> bool:
        """Make a file of one. False when none is ready, or it has to be made as usual for another reason, which is
        found out then. Raises FileExistsError."""
        descriptor = self._take() if len(data) <= SPARE_BYTES_MAX else None
        if descriptor is None:
            return False
        try:
            write_whole(descriptor, data)
            link_unnamed(descriptor, target)
        except FileExistsError:
            raise
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _take(self) -> int | None:
        if os.getpid() != self._process_id:  # a forked copy has the same ones open
            return None
        try:
            found = self._ready.popleft()
        except IndexError:
            found = None
            self._missed += 1
        if are_needed(len(self._ready), self._missed):
            self._is_needed.set()
            if self._thread is None:
                self._start()
        return found

    def _start(self) -> None:
        """Where the disk needs none, or the folder cannot be made, it is asked again after as many files."""
        folder = self._folder()
        if folder is None:
            self._missed = 0
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(folder,), name="files-ahead", daemon=True)
                self._thread.start()

    def _run(self, folder: str) -> None:
        with contextlib.suppress(OSError):  # as a full disk, or one without such files; tried again when one is needed
            while self._is_needed.wait(IDLE_S):
                self._is_needed.clear()
                while len(self._ready) < READY_MAX:
                    self._ready.append(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644))
        self._missed, self._thread = 0, None
        with contextlib.suppress(IndexError):
            while True:
                os.close(self._ready.popleft())
