"""The parts of a window of time that ends now. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000
WINDOWS = {"1h": (MINUTE_MS, 60), "24h": (15 * MINUTE_MS, 96), "7d": (120 * MINUTE_MS, 84)}
"""Window -> the length of one interval in ms, and their number."""
COARSE_WINDOWS = {"1h": (5 * MINUTE_MS, 12), "24h": (60 * MINUTE_MS, 24), "7d": (360 * MINUTE_MS, 28)}
"""The same for brokers, which are asked for every interval."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """`count` intervals of `step_ms`, the first from `from_ms` on; the last one holds `now_ms`, so it is not over."""

    from_ms: int
    step_ms: int
    count: int
    now_ms: int

    @classmethod
    def of(cls, window: str, now_ms: int, *, is_coarse: bool = False) -> Intervals:
        """Those of one of `WINDOWS`; intervals begin at multiples of their length.

        >>> Intervals.of("1h", 7_230_000)
        Intervals(from_ms=3660000, step_ms=60000, count=60, now_ms=7230000)
        """
        step_ms, count = (COARSE_WINDOWS if is_coarse else WINDOWS)[window]
        return cls(now_ms // step_ms * step_ms - (count - 1) * step_ms, step_ms, count, now_ms)

    def index(self, time_ms: int) -> int | None:
        """The interval of a time; None before the first and after now."""
        if not self.from_ms <= time_ms <= self.now_ms:
            return None
        return (time_ms - self.from_ms) // self.step_ms

    def start_ms(self, index: int) -> int:
        """When an interval begins."""
        return self.from_ms + index * self.step_ms

    def end_ms(self, index: int) -> int:
        """When it ends; now for the last one, a second after its start at the least."""
        start_ms = self.start_ms(index)
        return max(start_ms + 1_000, min(start_ms + self.step_ms, self.now_ms))

    def seconds(self, index: int) -> float:
        """Its length."""
        return (self.end_ms(index) - self.start_ms(index)) / 1_000

    def spread(self, amount: float, first_ms: int, last_ms: int) -> list[tuple[int, float]]:
        """An amount that came evenly from `first_ms` to `last_ms`, as parts by interval; what is outside is left out.

        >>> Intervals(0, 1_000, 3, 3_000).spread(8, 500, 2_499)
        [(0, 2.0), (1, 4.0), (2, 2.0)]
        """
        length_ms = last_ms - first_ms + 1
        if length_ms <= 0:
            return []
        parts = []
        first = max(0, (first_ms - self.from_ms) // self.step_ms)
        last = min(self.count - 1, (last_ms - self.from_ms) // self.step_ms)
        for index in range(first, last + 1):
            start_ms = self.start_ms(index)
            inside_ms = min(last_ms + 1, start_ms + self.step_ms) - max(first_ms, start_ms)
            if inside_ms > 0:
                parts.append((index, amount * inside_ms / length_ms))
        return parts
