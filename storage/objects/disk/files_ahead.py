"""Files of a local disk that are made before somebody waits for one, where the disk is slow to make them.

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
import os
import threading
from collections.abc import Callable

from stratalog.storage.objects.disk.open_file import link_unnamed, write_whole
from stratalog.storage.objects.disk.spare_files import SPARE_BYTES_MAX

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
