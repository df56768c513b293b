"""What is done once an object has been dropped: closing what it opened, in a thread for that.

I/O: one thread of the process. A garbage collection runs in any thread, between any two of its steps: also within a
block whose lock the work needs, or in the thread that the work waits for. So nothing that a collection calls takes a
lock or waits: it puts the work into a queue. Source: Python's `queue.SimpleQueue`, whose `put` may be called there.
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
    """`when` for an object that somebody may drop; `now` from its `__del__`, after `begin`. Any thread calls them."""

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
