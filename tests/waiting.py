"""Waiting for a condition of another thread or process."""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable

STEP_S_MAX = 1.0
"""How much of the limit one pause uses up at most: a machine that stood still meanwhile gave nobody time to work."""


def wait_until(is_so: Callable[[], object], what: str = "", timeout_s: float = 60, pause_s: float = 0.01) -> None:
    """Wait for a condition; AssertionError naming `what` when it does not come true, with all threads on stderr.

    pause_s  between two looks, for one that costs those who are asked
    """
    waited_s, before_s = 0.0, time.monotonic()
    while not is_so():
        if waited_s >= timeout_s:
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            raise AssertionError(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(pause_s)
        now_s = time.monotonic()
        waited_s, before_s = waited_s + min(now_s - before_s, STEP_S_MAX), now_s
