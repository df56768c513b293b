"""The turn of the threads of one fetch session: one of them works at a time, while others wait for foreign roots.

I/O: a lock. All that a session's threads share is changed by who has the turn. A call to another broker's root gives it
up until the root has answered, so that a root that answers nothing blocks only the thread that asked. So a thread may
find anything changed after such a call, and nothing after any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TurnLock:
    """`replication.stores.SessionTurn` of this process. `home`: the roots whose calls keep the turn."""

    def __init__(self, home: Collection[str]) -> None:
        self.home = frozenset(home)
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()

    def away(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make this call without the turn; a thread that does not have it just makes the call."""
        if self._owner != threading.get_ident():
            return call(*args, **kwargs)
        with self._given_up():
            return call(*args, **kwargs)

    @contextmanager
    def _given_up(self) -> Iterator[None]:
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
