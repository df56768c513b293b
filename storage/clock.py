"""Time, pauses and fresh identifiers as arguments, so that a simulation can own all three.

I/O: the system clock. Every other module takes a `Clock` or a plain `now_ms`.
"""

from __future__ import annotations

import os
import time
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """What a running part may ask of time; a simulation gives a virtual one."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC: for record timestamps, never for deciding who is alive."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of this process's monotonic clock: for timeouts and sessions."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Pause the calling part."""
        ...


class Event(Protocol):
    """What a sleeper waits for: `threading.Event` or a simulation's own."""

    def set(self) -> None:
        """End the wait that is under way, or the next one at once."""
        ...

    def clear(self) -> None:
        """Forget that it was set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is set, at most `timeout` seconds; True when it is."""
        ...


@runtime_checkable
class WakingClock(Protocol):
    """A virtual clock whose sleepers can be woken."""

    def event(self) -> Event:
        """An event whose `wait` takes this clock's time."""
        ...


class Ids(Protocol):
    """Where fresh identifiers come from."""

    def new_id(self) -> str:
        """A new 32-digit hexadecimal identifier."""
        ...


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
