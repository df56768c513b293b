"""A progress bar on standard error, for what takes longer than two seconds. I/O: a terminal, a thread.

It is there where rich is installed (`stratalog[demo]`) and standard error is a terminal. Elsewhere nothing is shown,
and nothing ever on standard output.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich comes with an extra
    from rich.progress import Progress

SHOWN_AFTER_S = 2.0


class Bar:
    """What is done of a piece of work. Any thread may call."""

    def __init__(self, what: str, total: int | None) -> None:
        self.done = 0
        self.total = total
        self._what = what
        self._lock = threading.Lock()
        self._shown: Progress | None = None

    def advance(self, count: int = 1) -> None:
        """Add `count` pieces to those that are done."""
        self.set(self.done + count)

    def set(self, done: int, total: int | None = None) -> None:
        """State how many pieces are done, and how many there are in all; None: as many as before."""
        with self._lock:
            self.done = done
            self.total = self.total if total is None else total
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=done, total=self.total)

    def show(self) -> None:
        """Begin to draw."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        with self._lock:
            made = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            made.add_task(self._what, completed=self.done, total=self.total)
            made.start()
            self._shown = made

    def hide(self) -> None:
        """Remove what was drawn."""
        with self._lock:
            shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()


def is_shown() -> bool:
    """Whether there is a terminal, and something to draw with."""
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Bar]:
    """A bar that appears when the work has taken `SHOWN_AFTER_S`, and is gone at its end. `total` None: not known."""
    bar = Bar(what, total)
    if not is_shown():
        yield bar
        return
    timer = threading.Timer(SHOWN_AFTER_S, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.hide()
