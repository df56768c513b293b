"""Calls that wait for an object store, made side by side: a request takes long there, and many as long as one.

I/O: starts threads. Who makes the calls waits for all of them, and changes nothing meanwhile that they use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.together import run_together

T = TypeVar("T")


def _at_once(call: Callable[[], T]) -> T:
    return call()


class SideBySide:
    """`replication.stores.Together` by threads, which begin with the first calls."""

    distance = FAR

    def __init__(self, name: str, away: Callable[[Callable[[], Any]], Any] = _at_once) -> None:
        """`name`: of the threads. `away` makes a call that waits, as `TurnLock.away` does without the turn."""
        self._away = away
        self._pool = ThreadPoolExecutor(self.distance.calls_max, thread_name_prefix=name)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What the calls return, in their order, once all have returned. Raises what the first that failed raises."""
        if not calls:
            return []
        made: list[T] = self._away(partial(self._run, calls))
        return made

    def _run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        if len(calls) == 1:
            return [calls[0]()]
        return run_together(self._pool, calls)
