"""Where the new files of a local disk lie: apart from those that were deleted lately, where the disk needs that.

I/O: O_TMPFILE, mkdir(2), ioctl(2), /sys of Linux.

An ext4 without a journal takes no inode that was freed within the last minute (six, while its block waits to be
written) and, to find another, passes over each of these in the block group of the new file's directory, 70 ns each
(`recently_deleted` in Linux, fs/ext4/ialloc.c). A log that takes 1,000 commits a second frees 2,000 inodes a second in
its own group: after some seconds a new file costs 0.5 ms instead of 10 µs. So there, files are made without a name in
directories that lie in groups of their own, and are then linked to their place. A group is left again before what
was made in it is deleted, and its turn comes again long after.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import os
from pathlib import Path

FOLDER = ".new"
"""Below the root. Empty directories: what is made in them has no name there."""
PLACES, FILES_IN_TURN = 1_024, 1_024
"""A busy log's files live for a second or more, in which it makes about as many as one turn has. At 2,000 files a
second a place comes up again after nine minutes; an ext4 of 250 GB has 2,000 groups."""
_SYSTEM = Path("/sys")
_GET_FLAGS, _SET_FLAGS, _TOP_DIRECTORY = 0x80086601, 0x40086602, 0x00020000
"""Linux: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL, which is `chattr +T`."""
_numbers = itertools.count()
"""Of the files that this process made in places, in whatever root: a store that is opened anew goes on in turn."""


class FilePlaces:
    """The places of one root. They are made when their turn comes, so that opening or reading a root makes nothing.

    are_used: None asks the disk at the first new file.
    """

    def __init__(self, root: str, *, are_used: bool | None = None) -> None:
        self._root = root
        self._are_used = are_used

    def open_new(self) -> int | None:
        """A new file without a name, to be written and linked to its place. None where files are to be made where
        they belong, or when this one has to be."""
        if self._are_used is None:
            self._are_used = lacks_journal(self._root)
        if not self._are_used:
            return None
        place = f"{self._root}/{FOLDER}/{place_in_turn(os.getpid(), next(_numbers))}"
        with contextlib.suppress(OSError):  # whatever it is, it is told when the file is made where it belongs
            try:
                return os.open(place, os.O_WRONLY | os.O_TMPFILE, 0o644)
            except FileNotFoundError:
                _make(place)
                return os.open(place, os.O_WRONLY | os.O_TMPFILE, 0o644)
        return None

    def give_up(self) -> None:
        """Files that were made in places cannot be linked to where they belong."""
        self._are_used = False


def place_in_turn(process_id: int, number: int) -> str:
    """The name of the place for a process's file of this number. Processes begin far from each other, since many of
    them, as Spark's, make few files."""
    return f"{(process_id * 389 + number // FILES_IN_TURN) % PLACES:04}"


def lacks_journal(directory: str) -> bool:
    """Whether the directory lies on an ext4 without a journal. False where Linux does not tell."""
    try:
        device = os.stat(directory).st_dev
        name = os.path.basename(os.readlink(_SYSTEM / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"))
        return (_SYSTEM / "fs" / "ext4" / name / "journal_task").read_text(encoding="utf-8").strip() == "<none>"
    except OSError:
        return False


def spread_directories(directory: str) -> None:
    """Ask ext4 to place each directory below this one in a block group of its own, as it does at the top of a disk:
    files lie in the group of their directory."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        flags[0] |= _TOP_DIRECTORY
        fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    except OSError:
        return  # only a hint, and no other file system knows it
    finally:
        os.close(descriptor)


def _make(place: str) -> None:
    """Make a place, and first the folder; never the root, which may be a disk that is not mounted."""
    folder = os.path.dirname(place)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
        spread_directories(folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(place)
