"""Rates over a sliding window, and the throttle time of a client whose rate is above its quota. Pure.

A rate is the sum over a sliding window, divided by the window. The window consists of samples, of which the newest is
still being filled: with 11 samples of 1 s, the rate is that of the last 10 to 11 seconds. A window that is shorter, as
at the beginning, counts as one of 10 seconds.
Source: Kafka's `SampledStat`, `WindowedSum`, `Rate`, `TokenBucket`, `QuotaUtils`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1_000

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms


@dataclass(slots=True)
class RateSample:
    """The sum of what happened within one part of the window."""

    started_ms: int
    newest_ms: int
    total: float = 0.0


@dataclass(slots=True)
class WindowedRate:
    """A rate per second.

    >>> rate = WindowedRate(QuotaWindow())
    >>> rate.record(5_000, now_ms=0)
    >>> rate.measure(now_ms=0), rate.throttle_ms(100, now_ms=0)
    (500.0, 40000)
    """

    window: QuotaWindow
    samples: list[RateSample] = field(default_factory=list)

    def record(self, amount: float, now_ms: int) -> None:
        """Add `amount`, in the rate's unit (bytes, percent, partitions), to the newest sample."""
        if not self.samples or now_ms - self.samples[-1].started_ms >= self.window.sample_ms:
            self.samples.append(RateSample(now_ms, now_ms))
            del self.samples[: -self.window.samples - 1]  # one more, which may overlap the beginning of the window
        newest = self.samples[-1]
        newest.total += amount
        newest.newest_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate as of now."""
        length_ms = self.window_ms(now_ms)
        return sum(sample.total for sample in self.samples) * 1_000 / length_ms

    def window_ms(self, now_ms: int) -> int:
        """The length of the window that `measure` divides by: from the oldest sample that counts, but at least all
        whole samples but one."""
        self.samples = [each for each in self.samples if now_ms - each.newest_ms < self.window.length_ms]
        elapsed_ms = now_ms - self.samples[0].started_ms if self.samples else 0
        missing = self.window.samples - 1 - elapsed_ms // self.window.sample_ms
        return max(elapsed_ms + max(0, missing) * self.window.sample_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """For how long nothing may happen so that the rate is at its bound again: (O - T) / T * W; 0 within it."""
        excess = self.measure(now_ms) - bound
        return 0 if excess <= 0 else round(excess / bound * self.window_ms(now_ms))


@dataclass(slots=True)
class QuotaTokens:
    """A bucket that holds what the whole window allows and is filled at the rate of the quota (KIP-599).

    >>> tokens = QuotaTokens(QuotaWindow())
    >>> tokens.take(32, bound=2.0, now_ms=100_000)
    >>> tokens.owed_ms(bound=2.0, now_ms=100_000), tokens.owed_ms(bound=2.0, now_ms=104_000)
    (5000, 1000)
    """

    window: QuotaWindow
    tokens: float = 0.0
    updated_ms: int = 0

    def owed_ms(self, bound: float, now_ms: int) -> int:
        """For how long to wait until what was borrowed is there; 0: nothing is owed."""
        self._fill(bound, now_ms)
        return 0 if self.tokens >= 0 else round(-self.tokens / bound * 1_000)

    def take(self, amount: float, bound: float, now_ms: int) -> None:
        """Take so many tokens, also more than there are."""
        self._fill(bound, now_ms)
        self.tokens -= amount

    def _fill(self, bound: float, now_ms: int) -> None:
        burst, gained = self.window.length_ms / 1_000 * bound, bound * (now_ms - self.updated_ms) / 1_000
        self.tokens, self.updated_ms = min(burst, self.tokens + gained), now_ms
