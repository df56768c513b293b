"""Time, pauses and fresh identifiers as arguments, so that a simulation controls all three.

I/O: the system clock. Every other module takes a `Clock` or a plain `now_ms`.
"""

from __future__ import annotations

import os
import time
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """The time of a running part; a simulation passes a virtual one."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC: for record timestamps, never for sessions."""

    def monotonic_ms(self) -> int:
        """Milliseconds of this process's monotonic clock, for timeouts and sessions."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Block the caller."""


class Event(Protocol):
    """`threading.Event`, or its twin under a virtual clock."""

    def set(self) -> None:
        """End the current wait; without one, the next wait returns at once."""

    def clear(self) -> None:
        """Undo `set`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, at most `timeout` seconds; whether it is set."""


@runtime_checkable
class WakingClock(Protocol):
    """A virtual clock with events."""

    def event(self) -> Event:
        """An event whose `wait` passes this clock's time."""


class Ids(Protocol):
    """A source of fresh identifiers."""

    def new_id(self) -> str:
        """A new 32-digit hexadecimal identifier."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)


class RandomIds:
    """128 random bits."""

    def new_id(self) -> str:
        return os.urandom(16).hex()


def measured_ns() -> int:
    """Nanoseconds of this process's monotonic clock, to measure how long a thread worked."""
    return time.monotonic_ns()
