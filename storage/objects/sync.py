"""Making files of a local disk durable: a few one by one, many by one call for their file system.

I/O: fsync(2), and on Linux syncfs(2), which writes what every process wrote to the file system.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Sequence

ONE_BY_ONE_MAX = 100
"""Files that are synced one by one; more are synced by one call for the whole file system."""
_LOSSES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Errors of a sync when pages could not be written. The kernel reports them once, then counts the pages as written."""


class WritesLostError(OSError):
    """The disk refused what was written before: it may be gone, though a second sync would succeed."""


def sync_files(paths: Sequence[str]) -> None:
    """Make these files and directories durable; an absent one needs no sync. Raises OSError, WritesLostError."""
    if len(paths) <= ONE_BY_ONE_MAX or SYNCFS is None:
        for path in paths:
            sync_file(path)
    else:
        for directory in _one_for_each_file_system(paths):
            _sync_file_system(directory)


def sync_tree(root: str) -> None:
    """Make everything below a directory durable, and the directory's own entry. Raises OSError, WritesLostError."""
    if SYNCFS is not None:
        _sync_file_system(root)
        return
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            sync_file(os.path.join(directory, name))
        sync_file(directory)
    sync_file(os.path.dirname(root))


def sync_file(path: str) -> None:
    """Make one file or directory durable; an absent one needs no sync. Raises OSError, WritesLostError."""
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
        if SYNCFS is not None and SYNCFS(descriptor) != 0:
            number = ctypes.get_errno()
            raise _lost_or(OSError(number, os.strerror(number)), directory)
    finally:
        os.close(descriptor)


def _lost_or(reason: OSError, path: str) -> OSError:
    kind = WritesLostError if reason.errno in _LOSSES else OSError
    return kind(reason.errno, reason.strerror, path)


def _find_syncfs() -> ctypes._NamedFuncPointer | None:
    """From Linux 5.8 on, whose syncfs reports write errors as fsync does; None elsewhere."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    if release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None


SYNCFS = _find_syncfs()
"""syncfs(2), or None where each file has to be synced by itself."""
