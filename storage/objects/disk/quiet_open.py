"""Opening a file so that reading it leaves no trace on the disk.

I/O: open(2).
"""

from __future__ import annotations

import os

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
