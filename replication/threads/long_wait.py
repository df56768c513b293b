"""Words about a wait that takes long, for a person at a notebook or a terminal. I/O: a thread; prints to stderr.

By default nothing is printed in scripts and services: only an interactive interpreter has `sys.ps1`, which IPython and
the kernels of notebooks set, too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from stratalog.replication import cadence
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import StratalogError

Report = Callable[[str], None]
"""Is called with a line of text, from a thread of its own."""


@contextmanager
def long_wait(
    what: Callable[[], str],
    report: Report | None = None,
    first_ms: int = cadence.LONG_WAIT_FIRST.ms,
    interval_ms: int = cadence.LONG_WAIT_LINES.ms,
) -> Iterator[None]:
    """Around a wait: while it lasts, `report` gets `what()` and the seconds waited. None: `interactive_report()`.

    what  is called from another thread
    """
    used = interactive_report() if report is None else report
    if used is None:
        yield
        return
    is_over = threading.Event()
    reporting = threading.Thread(
        target=_report_until, args=(is_over, what, used, (first_ms, interval_ms)), name="long-wait", daemon=True
    )
    reporting.start()
    try:
        yield
    finally:
        is_over.set()
        reporting.join()


def interactive_report() -> Report | None:
    """Prints to stderr where a person waits; None elsewhere."""
    return _to_stderr if hasattr(sys, "ps1") else None


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the notebook's or the terminal's user reads it


def _report_until(
    is_over: threading.Event, what: Callable[[], str], report: Report, pauses_ms: tuple[int, int]
) -> None:
    clock: Clock = SystemClock()
    began_ms = clock.monotonic_ms()
    pause_ms, interval_ms = pauses_ms
    while not is_over.wait(pause_ms / 1_000):
        with suppress(StratalogError):  # a store that cannot be read now is the wait's own matter
            report(f"{what()} ({(clock.monotonic_ms() - began_ms) // 1_000} s)")
        pause_ms = interval_ms
