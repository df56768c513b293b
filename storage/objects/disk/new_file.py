"""Files that get their name when they are complete.

I/O: Linux's files without a name (O_TMPFILE), where a disk has them.

A directory is changed once for such a file instead of three times, nobody sees a part of it, and nothing is left of one
whose writer failed. And its name may tell what it holds, as that of a data file does, whose footer is written last.

What is done with a new file that is open: all of it is written, and it gets its name.

I/O: write(2), ftruncate(2), linkat(2).

Opening a file so that reading it leaves no trace on the disk.

I/O: open(2).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""How a disk or kernel says that it has none …"""
_CANNOT_NAME = (*_CANNOT, errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EACCES)
"""… and how it says, beside that, that one cannot be given a name."""

OpenNew = Callable[[str, int, str], int]
"""(path to open, flags, path of the file to be) -> descriptor; the directory is made when it is missing."""


class UnnamedFiles:
    """Those of one root; `are_there` is False from the first try on that showed that its disk cannot."""

    def __init__(self, open_new: OpenNew) -> None:
        self.are_there = hasattr(os, "O_TMPFILE")
        self._open_new = open_new

    def make(self, directory: str, fill: Callable[[int], str]) -> str:
        """A new file in `directory`, which `fill` writes, and may read again; it answers the file's path, and so does
        this. Empty when this disk cannot. Raises FileExistsError, and what `fill` raises: then there is no file."""
        if not self.are_there:
            return ""
        try:
            descriptor = self._open_new(directory, os.O_RDWR | os.O_TMPFILE, f"{directory}/_")
        except OSError as reason:
            return self._cannot(reason, _CANNOT)
        try:
            path = fill(descriptor)
            link_unnamed(descriptor, path)
        except FileExistsError:
            raise
        except OSError as reason:
            return self._cannot(reason, _CANNOT_NAME)
        finally:
            os.close(descriptor)
        return path

    def _cannot(self, reason: OSError, known: tuple[int, ...]) -> str:
        if reason.errno not in known:
            raise reason
        self.are_there = False
        return ""


WRITE_BYTES_MAX = 256 << 10
"""At once. Since Linux 6.16 ext4 takes as large a piece of memory for a write as it can, up to 2 MiB. In a virtual
machine that gave its unused memory back, each such piece is had from the host again, page by page: 3.5 ms a MiB instead
of 0.3 for the same bytes in parts, for which memory that was used lately is found."""


def write_whole(descriptor: int, data: bytes | memoryview) -> None:
    """From where the file stands. Raises OSError."""
    written = os.write(descriptor, data) if len(data) <= WRITE_BYTES_MAX else 0
    if written == len(data):
        return  # nearly always
    view = memoryview(data)[written:]
    while view:
        view = view[os.write(descriptor, view[:WRITE_BYTES_MAX]) :]


def link_unnamed(descriptor: int, target: str) -> None:
    """Give a file without a name (O_TMPFILE) one. Raises FileExistsError, and OSError where the disk cannot."""
    os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor, follow_symlinks=True)


_QUIETLY = getattr(os, "O_NOATIME", 0)
"""Linux: whoever reads a file for the first time since it was written changes it otherwise (`relatime`: its inode gets
the time of that access). So each file that followers copy, and each register at each look, would be written once more
by its readers, who besides wait, in the middle of an append, for a block of inodes that a sync has just under way: up
to a second where 1,500 logs share a disk."""


def open_quietly(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor. Raises OSError as open(2) does."""
    try:
        return os.open(path, flags | _QUIETLY)
    except PermissionError:  # O_NOATIME is for a file's owner
        return os.open(path, flags)
