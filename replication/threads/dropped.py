"""Closes what a dropped object had opened, in a thread for that.

I/O: one thread of the process. Python's garbage collection may run in any thread, between any two of its steps. The
thread may then hold the lock that the close needs, or be the one that the close waits for. So a finalizer takes no lock
and does not wait: it puts the close into a queue. Source: Python's `queue.SimpleQueue`: `put` may be called there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.threads")

Work = Callable[[], object]


class DroppedObjects:
    """`when` registers the work for an object's end. An object with a `__del__` calls `begin` when it is made, and
    `now` in `__del__`. Any thread may call them."""

    def __init__(self) -> None:
        self._works: SimpleQueue[Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._process_id = 0
        """Of the process whose thread works; a fork has none."""

    def when(self, dropped: object, work: Work) -> None:
        """Do the work once nothing refers to `dropped`, and at the end of the process not any more. `work` must not
        refer to it."""
        self.begin()
        weakref.finalize(dropped, self._works.put, work).atexit = False

    def now(self, work: Work) -> None:
        """Do the work soon: it may take locks, and wait. Called by a collection, too."""
        self._works.put(work)

    def begin(self) -> None:
        """Start the thread, unless it runs. Not for a collection."""
        if self._process_id == os.getpid():
            return
        with self._lock:
            if self._process_id != os.getpid():
                self._process_id = os.getpid()
                threading.Thread(target=self._run, name="dropped-objects", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._works.get()
            try:
                work()
            except Exception:  # noqa: BLE001 - one object's end must not keep others from theirs
                _LOG.exception("what was dropped could not be closed")
            del work


DROPPED = DroppedObjects()
"""The dropped objects of this process."""
