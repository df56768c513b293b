"""Polls a place of an object store in a thread of its own: a loop waits for no poll that finds nothing.

I/O: starts a thread, which polls.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup


class PollingThread:
    """`start` starts a thread of a name. It calls `poll`, which returns whether something has changed, and `pause_ms`,
    the time to the next poll.

    The loop asks `has_changed`, reads what has, and calls `read`: then the thread polls on. `on_change` wakes the loop.
    """

    def __init__(
        self,
        start: Callable[[str, Callable[[], None]], None],
        clock: Clock,
        poll: Callable[[], bool],
        pause_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self.has_changed = False
        self.answered_ms: int | None = None
        """When a poll was answered last, whatever it found."""
        self._clock = clock
        self._start = start
        self._wakeup = Wakeup(clock)
        self._poll, self._pause_ms, self._on_change = poll, pause_ms, on_change
        self._is_started = self._is_over = False

    def start(self, name: str) -> None:
        """Begin to poll, in a thread of this name; once."""
        if not self._is_started:
            self._is_started = True
            self._start(name, self._run)

    def read(self) -> None:
        """The loop has read what there was."""
        self.has_changed = False
        self._wakeup.wake()

    def poll_now(self) -> None:
        """Poll now, whatever the pause."""
        self._wakeup.wake()

    def close(self) -> None:
        """End the thread; a poll that is under way is not waited for."""
        self._is_over = True
        self._wakeup.wake()
        if not self._is_started:
            self._wakeup.close()

    def _run(self) -> None:
        try:
            while not self._is_over:
                if not self.has_changed and self._finds_change():
                    self.has_changed = True
                    self._on_change()
                self._wakeup.wait_ms(cadence.LOOK_REST.ms if self.has_changed else self._pause_ms())
        finally:
            self._wakeup.close()

    def _finds_change(self) -> bool:
        try:
            has_changed = self._poll()
            self.answered_ms = self._clock.monotonic_ms()
            return has_changed
        except StratalogError:
            return False  # the loop meets it, too, when it reads
