"""The turn to compute, of one thread of a process at a time: they share one interpreter, and gain nothing side by side.

I/O: waits. Each thread that is ready to run makes a broker's loop wait once more whenever it needs the interpreter. So
threads that compute for long have a turn. One that waits for something, as storage, loses it after a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

WAIT_S: Final = 1.0
"""Time after which work that has not ended loses its turn: it may wait for something. It goes on beside the next."""


class ComputingTurn:
    """Threads get their turn in the order in which they ask for it. `between` is called within a turn, or without."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        """Who waits, behind who has the turn."""
        self._own = threading.local()

    def run(self, work: Callable[[], object]) -> None:
        """Wait for the turn, and work; a turn within a turn is the same."""
        if getattr(self._own, "taker", None) is not None:
            work()
            return
        with self._taken():
            work()

    def between(self) -> None:
        """Between two pieces of a thread's work: others have their turns first."""
        if getattr(self._own, "taker", None) is not None:
            self._give()
            self._take()

    @property
    def waiting(self) -> int:
        """The number of threads that wait for a turn."""
        return max(0, len(self._line) - 1)

    @contextmanager
    def _taken(self) -> Iterator[None]:
        self._take()
        try:
            yield
        finally:
            self._give()
            self._own.taker = None

    def _take(self) -> None:
        taker = self._own.taker = object()
        with self._changed:
            self._line.append(taker)
            while (first := self._line[0]) is not taker:
                if not self._changed.wait_for(lambda: self._line[0] is not first, self._wait_s):
                    self._line.popleft()
                    self._changed.notify_all()

    def _give(self) -> None:
        with self._changed:
            if self._line and self._line[0] is self._own.taker:  # else it was lost meanwhile
                self._line.popleft()
                self._changed.notify_all()


TURN: Final = ComputingTurn()
"""That of this process."""
