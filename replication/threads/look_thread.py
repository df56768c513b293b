"""Looks for news at a place of an object store, in a thread of its own: a loop waits for no look that finds nothing.

I/O: starts a thread, which looks.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup


class LookThread:
    """`start` starts a thread of a name. It calls `look`, which says whether there is news, and `pause_ms`, the time to
    the next look.

    The loop asks `has_news`, reads them, and says `read`: then it is looked again. `on_news` wakes the loop.
    """

    def __init__(
        self,
        start: Callable[[str, Callable[[], None]], None],
        clock: Clock,
        look: Callable[[], bool],
        pause_ms: Callable[[], int],
        on_news: Callable[[], None],
    ) -> None:
        self.has_news = False
        self._start = start
        self._wakeup = Wakeup(clock)
        self._look, self._pause_ms, self._on_news = look, pause_ms, on_news
        self._is_started = self._is_over = False

    def start(self, name: str) -> None:
        """Begin to look, in a thread of this name; once."""
        if not self._is_started:
            self._is_started = True
            self._start(name, self._run)

    def read(self) -> None:
        """The loop has read what there was."""
        self.has_news = False
        self._wakeup.wake()

    def expect_news(self) -> None:
        """Look now, whatever the pause."""
        self._wakeup.wake()

    def close(self) -> None:
        """End the thread; a look that is under way is not waited for."""
        self._is_over = True
        self._wakeup.wake()
        if not self._is_started:
            self._wakeup.close()

    def _run(self) -> None:
        try:
            while not self._is_over:
                if not self.has_news and self._finds_news():
                    self.has_news = True
                    self._on_news()
                self._wakeup.wait_ms(cadence.LOOK_REST.ms if self.has_news else self._pause_ms())
        finally:
            self._wakeup.close()

    def _finds_news(self) -> bool:
        try:
            return self._look()
        except StratalogError:
            return False  # the loop meets it, too, when it reads
