"""Making files of a local disk durable: few new ones one by one, many by one call for their file system.

I/O: fsync(2), and on Linux syncfs(2). The one call takes 0.2 ms for 500 files on a disk at rest. But it writes what
everybody wrote since, and holds up who makes new files: with 500 partitions that take a record a second each it took
up to 2.5 s, and held up records for as long. One by one, files that the kernel has mostly written by itself, which it
does after half a minute, take 0.2 to 2.4 ms each.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from stratalog.storage.clock import Clock

ONE_BY_ONE_MIN = 32
"""So few files are never worth a sync of everything."""
NEW_MAX = 100
"""Of more files than this are at most so many new: those of a table with one or two commits a second."""
NEW_MS = 35_000
"""Older files were written back, unless the kernel was told otherwise (Linux: after 30 s, looking every 5)."""
ONE_BY_ONE_MS = 10_000
"""How long files are synced one by one before one call takes the rest: 120 to 350 mostly old ones took 30 to 350 ms."""
_LOSSES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""What a sync answers when pages could not be written. The kernel tells it once and then takes them for written."""


class WritesLostError(OSError):
    """The disk refused what was written before: it may be gone, though a second sync would succeed."""


def sync_files(paths: Sequence[str], clock: Clock) -> None:
    """Make these files and directories durable; what is absent needs none. Raises OSError, WritesLostError."""
    can_all = _SYNCFS is not None
    budget_ms = one_by_one_ms(len(paths), lambda: _new_count(paths, clock.wall_ms())) if can_all else math.inf
    end_ms = clock.monotonic_ms() + budget_ms
    for count, path in enumerate(paths):
        if clock.monotonic_ms() >= end_ms:
            for directory in _one_for_each_file_system(paths[count:]):
                _sync_file_system(directory)
            return
        _sync_file(path)


def one_by_one_ms(count: int, new_count: Callable[[], int]) -> float:
    """Pure. How long to sync so many files one by one before one call takes the rest. How many of them are new is only
    asked where it matters: it takes a look at each."""
    if count <= ONE_BY_ONE_MIN:
        return math.inf
    return ONE_BY_ONE_MS if new_count() <= NEW_MAX else 0


def _new_count(paths: Sequence[str], now_ms: int) -> int:
    """How many of them were written lately."""
    since_ns = (now_ms - NEW_MS) * 1_000_000
    count = 0
    for path in paths:
        with suppress(FileNotFoundError):
            count += os.stat(path).st_mtime_ns > since_ns
    return count


def sync_tree(root: str) -> None:
    """Make everything below a directory durable, and the directory's own entry. Raises OSError, WritesLostError."""
    if _SYNCFS is not None:
        _sync_file_system(root)
        return
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            _sync_file(os.path.join(directory, name))
        _sync_file(directory)
    _sync_file(os.path.dirname(root))


def _sync_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as reason:
        raise _lost_or(reason, path) from reason
    finally:
        os.close(descriptor)


def _one_for_each_file_system(paths: Sequence[str]) -> list[str]:
    """A directory of each file system that these paths lie on."""
    found: dict[int, str] = {}
    for directory in {path.rpartition("/")[0] for path in paths}:
        try:
            found.setdefault(os.stat(directory).st_dev, directory)
        except FileNotFoundError:
            continue
    return list(found.values())


def _sync_file_system(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if _SYNCFS is not None and _SYNCFS(descriptor) != 0:
            number = ctypes.get_errno()
            raise _lost_or(OSError(number, os.strerror(number)), directory)
    finally:
        os.close(descriptor)


def _lost_or(reason: OSError, path: str) -> OSError:
    kind = WritesLostError if reason.errno in _LOSSES else OSError
    return kind(reason.errno, reason.strerror, path)


def _find_syncfs() -> ctypes._NamedFuncPointer | None:
    """From Linux 5.8 on, whose syncfs tells of write errors as fsync does; None elsewhere."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    if release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


_SYNCFS = _find_syncfs()
