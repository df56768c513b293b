"""Waiting for a condition of another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], object], what: str = "", timeout_s: float = 60, pause_s: float = 0.01) -> None:
    """Wait for a condition; AssertionError naming `what` when it does not come true.

    pause_s  between two looks, for one that costs those who are asked
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(pause_s)
