"""Files that get their name when they are complete.

I/O: Linux's files without a name (O_TMPFILE), where a disk has them.

A directory is changed once for such a file instead of three times, nobody sees a part of it, and nothing is left of one
whose writer failed. And its name may tell what it holds, as that of a data file does, whose footer is written last.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from stratalog.storage.objects.disk.open_file import link_unnamed

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
