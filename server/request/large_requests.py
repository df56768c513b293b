"""The large requests under way: no garbage collection of all objects beside them, and their memory back after them.

I/O: the memory of this process, in the scheduler's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.replication.threads.interpreter import LargeWork
from stratalog.replication.threads.scheduler import CallScheduler

RELEASE_MS = 30_000
"""Time between a large request and the return of memory, which is repeated until none is under way. The system zeroes
memory that is taken again, so who always needs it should keep it."""


class LargeRequests:
    """`begins` from any thread."""

    def __init__(self, scheduler: CallScheduler, release: Callable[[], None]) -> None:
        """`release` returns memory."""
        self._scheduler = scheduler
        self._release = release
        self._lock = threading.Lock()
        self._is_scheduled = False

    def begins(self) -> LargeWork:
        """One begins; it is under way as long as what is returned lives."""
        begun = LargeWork()
        self.release_later()
        return begun

    def release_later(self) -> None:
        """Return freed memory to the system once, some time from now: for a request of many bytes and few objects."""
        with self._lock:
            was_scheduled, self._is_scheduled = self._is_scheduled, True
        if not was_scheduled:
            self._scheduler.schedule_once(self._return_memory, RELEASE_MS)

    def _return_memory(self) -> None:
        with self._lock:
            goes_on = self._is_scheduled = LargeWork.is_under_way() and not self._scheduler.is_closed
        self._release()
        if goes_on:
            self._scheduler.schedule_once(self._return_memory, RELEASE_MS)
