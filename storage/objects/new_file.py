"""Files that get their name when they are complete.

I/O: Linux's files without a name (O_TMPFILE), where a file system has them; write(2), sendfile(2), linkat(2).

No reader sees a part of such a file, and nothing is left of one whose writer failed. Its name may depend on what it
holds, as that of a data file does, whose footer is written last.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""Errors of a file system or kernel that has no files without a name."""
_CANNOT_NAME = (*_CANNOT, errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EACCES)
"""Errors where such files exist and linkat(2) cannot name them, as without /proc."""

_CANNOT_COPY = (errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK)
"""Errors of sendfile(2) between files that the kernel does not copy."""

NAME_TRIES = 10
"""Tries to name a file whose directory others remove meanwhile."""

OpenNew = Callable[[str, int, str], int]
"""(path to open, flags, path of the file to be) -> descriptor; the directory is made when it is missing."""


class UnnamedFiles:
    """Those of one root. `are_there` is False from the first try on that showed that its file system has none."""

    def __init__(self, open_new: OpenNew, make_directories: Callable[[str], None]) -> None:
        self.are_there = hasattr(os, "O_TMPFILE")
        self._open_new = open_new
        self._make_directories = make_directories

    def make(self, directory: str, fill: Callable[[int], str]) -> str:
        """Make a file in `directory`.

        fill     writes the open file, may read it again, and returns the file's path
        returns  that path; empty where this file system cannot

        Raises FileExistsError, and what `fill` raises: then there is no file.
        """
        if not self.are_there:
            return ""
        try:
            descriptor = self._open_new(directory, os.O_RDWR | os.O_TMPFILE, f"{directory}/_")
        except OSError as reason:
            return self._cannot(reason, _CANNOT)
        try:
            path = fill(descriptor)
            return self._named(descriptor, path)
        finally:
            os.close(descriptor)

    def _named(self, descriptor: int, path: str) -> str:
        directory = os.path.dirname(path)
        for again in range(NAME_TRIES):
            try:
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
            except FileExistsError:
                raise
            except FileNotFoundError as reason:
                if again and os.path.isdir(directory):
                    return self._cannot(reason, _CANNOT_NAME)
                self._make_directories(directory)  # it may have been removed meanwhile, since it was empty
            except OSError as reason:
                return self._cannot(reason, _CANNOT_NAME)
            else:
                return path
        raise OSError(errno.ENOENT, "the directory is removed again and again", directory)

    def _cannot(self, reason: OSError, known: tuple[int, ...]) -> str:
        if reason.errno not in known:
            raise reason
        self.are_there = False
        return ""


def write_whole(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes from the descriptor's position on: one write(2) may write fewer. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class NotCopiedError(Exception):
    """The kernel does not copy between these files: read one and write the other."""


def send_whole(source: int, copy: int, size_bytes: int) -> None:
    """Fill a new file with the first bytes of another one, within the kernel. Raises OSError, NotCopiedError."""
    sent = 0
    while sent < size_bytes:
        try:
            count = os.sendfile(copy, source, sent, size_bytes - sent)
        except AttributeError as reason:
            raise NotCopiedError from reason
        except OSError as reason:
            if reason.errno in _CANNOT_COPY:
                raise NotCopiedError from reason
            raise
        if count == 0:
            raise OSError(errno.EIO, f"ends at {sent} of {size_bytes} bytes")
        sent += count


def fill_in_place(descriptor: int, name: str, fill: Callable[[int], None]) -> None:
    """Fill a new file that has its name already, and close it. When that fails the file is removed, but not one that
    another process put there meanwhile: that is another file, and may be committed. Raises what `fill` raises."""
    try:
        fill(descriptor)
    except BaseException:
        _remove_own(descriptor, name)
        raise
    finally:
        os.close(descriptor)


def _remove_own(descriptor: int, name: str) -> None:
    """Remove the open file's name, if it still has it; give back its space in any case."""
    own = os.fstat(descriptor)
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
    with contextlib.suppress(FileNotFoundError):
        there = os.stat(name)
        if (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
            os.unlink(name)
