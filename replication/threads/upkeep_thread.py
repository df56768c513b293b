"""The one thread that does the upkeep of all logs of a process. I/O: a thread, and the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pyarrow as pa

from stratalog.storage.clock import Clock

LONG_MS = 20
"""Duration of work that uses enough memory to release it."""
RELEASE_MS = 2_000
"""Shortest interval of releases: the kernel zeroes released memory anew, which delays the next large merge."""

P = ParamSpec("P")
T = TypeVar("T")


def release_free_memory() -> None:
    """Return to the system what Arrow's allocator holds of a merge's freed memory until its thread calls it again."""
    pa.default_memory_pool().release_unused()


class UpkeepThread(ThreadPoolExecutor):
    """Does one piece of work after the other. `release` runs behind a long one, at most every `RELEASE_MS`."""

    def __init__(self, clock: Clock, release: Callable[[], object] = release_free_memory) -> None:
        super().__init__(1, thread_name_prefix="upkeep")
        self._clock = clock
        self._release = release
        self._released_ms = clock.monotonic_ms() - RELEASE_MS

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`."""

        def timed() -> T:
            began_ms = self._clock.monotonic_ms()
            result = work(*args, **kwargs)
            self._done(began_ms, self._clock.monotonic_ms())
            return result

        return super().submit(timed)

    def _done(self, began_ms: int, now_ms: int) -> None:
        if now_ms - began_ms >= LONG_MS and now_ms - self._released_ms >= RELEASE_MS:
            self._released_ms = now_ms
            with suppress(RuntimeError):  # shut down meanwhile
                super().submit(self._release)
