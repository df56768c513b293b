"""Calls after a delay. I/O: one thread, which starts with the first call and ends with the process.

Source: Kafka's `KafkaScheduler.scheduleOnce`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count

from stratalog.storage.clock import Clock
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.threads")


class CallScheduler:
    """Any thread may call it. Calls of the same time are made in the order in which they were scheduled."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._changed = threading.Condition()
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def now_ms(self) -> int:
        """The clock by which it counts."""
        return self._clock.monotonic_ms()

    @property
    def is_closed(self) -> bool:
        """Whether a call is made at once, whatever its delay."""
        return self._is_closed

    def schedule_once(self, call: Callable[[], None], delay_ms: int) -> None:
        """Call it after `delay_ms`, in the scheduler's thread, or at once when the scheduler is closed."""
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                heapq.heappush(self._calls, (self.now_ms() + delay_ms, next(self._numbers), call))
                self._changed.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
        if is_closed:
            call()

    def close(self) -> None:
        """Make the calls that wait at once, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 - one call must not end the others
                _LOG.exception("%s", self._name)
            del call  # else a thread that waits for the next one keeps what this one refers to

    def _next(self) -> Callable[[], None] | None:
        """The next call that is due; None at the end."""
        with self._changed:
            while True:
                if not self._calls and self._is_closed:
                    return None
                wait_ms = self._calls[0][0] - self.now_ms() if self._calls else None
                if self._calls and (self._is_closed or (wait_ms is not None and wait_ms <= 0)):
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(None if wait_ms is None else wait_ms / 1_000)
