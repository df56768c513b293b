"""How long each step of something took, for a line of the server's log. Pure but for the clock."""

from __future__ import annotations

from stratalog.storage.clock import Clock


class StepTimes:
    """`done` after each step; as text, the steps in order.

    >>> from stratalog.storage.clock import ManualClock
    >>> clock = ManualClock()
    >>> times = StepTimes(clock)
    >>> clock.advance(250)
    >>> times.done("sync")
    >>> times.done("loop")
    >>> str(times)
    'sync 250 ms, loop 0 ms'
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._steps: list[tuple[str, int]] = []

    def done(self, step: str) -> None:
        """This step ended now; it began when the one before ended."""
        now_ms = self._clock.monotonic_ms()
        self._steps.append((step, now_ms - self._since_ms))
        self._since_ms = now_ms

    def __str__(self) -> str:
        return ", ".join(f"{step} {took_ms} ms" for step, took_ms in self._steps)
