"""How long each step of something took, for a line of the server's log. Pure."""

from __future__ import annotations

from collections.abc import Callable


class StepTimes:
    """`done` after each step; as text, the steps in order.

    >>> now_ms = iter([1_000, 1_250, 1_250])
    >>> times = StepTimes(lambda: next(now_ms))
    >>> times.done("sync")
    >>> times.done("loop")
    >>> str(times)
    'sync 250 ms, loop 0 ms'
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: of a monotonic clock."""
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._steps: list[tuple[str, int]] = []

    def done(self, step: str) -> None:
        """This step ended now; it began when the one before ended."""
        now_ms = self._now_ms()
        self._steps.append((step, now_ms - self._since_ms))
        self._since_ms = now_ms

    def __str__(self) -> str:
        return ", ".join(f"{step} {took_ms} ms" for step, took_ms in self._steps)
