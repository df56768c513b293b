"""The one thread that does the upkeep of all logs of a process. I/O: a thread, and the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import pyarrow as pa

from storage.clock import Clock

GIVE_BACK_MS = 10_000
"""So often at most: what was given back costs the next merge up to 50 ms of the CPU, as the kernel zeroes it anew."""

P = ParamSpec("P")
T = TypeVar("T")


def give_back_what_is_free() -> None:
    """Arrow's allocator keeps 20 to 40 MiB that a merge used and freed until its thread calls it again, which may be
    minutes later. Giving them back takes 0.3 ms."""
    pa.default_memory_pool().release_unused()


class UpkeepThread(ThreadPoolExecutor):
    """Does one piece of work after the other. `give_back` runs behind a piece, at most every `GIVE_BACK_MS`."""

    def __init__(self, clock: Clock, give_back: Callable[[], object] = give_back_what_is_free) -> None:
        super().__init__(1, thread_name_prefix="upkeep")
        self._clock = clock
        self._give_back = give_back
        self._given_back_ms = clock.monotonic_ms() - GIVE_BACK_MS

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As an executor does. Called by several threads: at worst they have it given back twice."""
        future = super().submit(work, *args, **kwargs)
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._given_back_ms >= GIVE_BACK_MS:
            self._given_back_ms = now_ms
            super().submit(self._give_back)
        return future
