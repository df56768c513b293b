"""One thread of a process computes at a time: threads share one interpreter, so two at once are not faster.

I/O: waits. Each thread that is ready to run makes a broker's loop wait once more whenever it needs the interpreter. So
threads that compute for long have a turn. One that waits for something, as storage, loses it after a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from stratalog.replication import cadence


class ComputingTurn:
    """Threads get their turn in the order in which they ask for it."""

    def __init__(self, wait_s: float = cadence.COMPUTING_TURN.s) -> None:
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        """One object for each thread that asked: the first has the turn, the others wait in this order."""
        self._own = threading.local()

    def run(self, work: Callable[[], object]) -> None:
        """Wait for the turn, do the work, and give the turn back. A thread that has the turn already just works."""
        if getattr(self._own, "taker", None) is not None:
            work()
            return
        self._take()
        try:
            work()
        finally:
            self._give()
            self._own.taker = None

    def between(self) -> None:
        """Give the turn to those that wait, and wait for the next one; nothing in a thread that does not have it."""
        if getattr(self._own, "taker", None) is not None:
            self._give()
            self._take()

    @property
    def waiting(self) -> int:
        """The number of threads that wait for a turn."""
        return max(0, len(self._line) - 1)

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
"""The turn that all threads of this process share."""
