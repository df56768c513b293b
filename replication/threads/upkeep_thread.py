"""The one thread that does the upkeep of all logs of a process. I/O: a thread, and the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pyarrow as pa

from stratalog.storage.clock import Clock

LONG_MS = 20
"""A merge of so little that it takes less needs no memory to speak of …"""
GIVE_BACK_MS = 2_000
"""… and so often at most: what was given back costs the next large merge up to 50 ms, as the kernel zeroes it anew."""

P = ParamSpec("P")
T = TypeVar("T")


def give_back_what_is_free() -> None:
    """Arrow's allocator keeps 20 to 40 MiB that a merge used and freed until its thread calls it again, which may be
    minutes later. Giving them back takes 0.3 ms."""
    pa.default_memory_pool().release_unused()


class UpkeepThread(ThreadPoolExecutor):
    """Does one piece of work after the other. `give_back` runs behind a long one, at most every `GIVE_BACK_MS`."""

    def __init__(self, clock: Clock, give_back: Callable[[], object] = give_back_what_is_free) -> None:
        super().__init__(1, thread_name_prefix="upkeep")
        self._clock = clock
        self._give_back = give_back
        self._given_back_ms = clock.monotonic_ms() - GIVE_BACK_MS

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As an executor does."""

        def timed() -> T:
            began_ms = self._clock.monotonic_ms()
            result = work(*args, **kwargs)
            self._done(began_ms, self._clock.monotonic_ms())
            return result

        return super().submit(timed)

    def _done(self, began_ms: int, now_ms: int) -> None:
        if now_ms - began_ms >= LONG_MS and now_ms - self._given_back_ms >= GIVE_BACK_MS:
            self._given_back_ms = now_ms
            with suppress(RuntimeError):  # shut down meanwhile
                super().submit(self._give_back)
