"""What a scrape computes from the scrapes before it: rates over fifteen minutes, quantiles of recent times. Pure.

Kafka's brokers let a meter tick every five seconds and keep samples of times. Here a counter is all that a request
changes; the reader keeps what it has seen before.
Source: Yammer's `EWMA`; Prometheus' `histogram_quantile`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from stratalog.replication.metrics import BOUNDS_MS, Histogram

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Those of Kafka's histograms under Strimzi's rules."""
WINDOW_MS = 300_000
"""Length of the window that quantiles are of, if it was read as often."""
SNAPSHOT_MS = 30_000
SHARE_NS = 100_000_000
FIFTEEN_MINUTES_MS, A_MINUTE_MS = 900_000, 60_000


@dataclass(slots=True)
class _Meter:
    count: int
    read_ms: int
    rate: float


class DecayingRates:
    """Exponentially weighted rates of counters, in events a second, by key."""

    def __init__(self, begun_ms: int, window_ms: int = FIFTEEN_MINUTES_MS) -> None:
        """`begun_ms`: when the counters were 0."""
        self._begun_ms = begun_ms
        self._window_ms = window_ms
        self._meters: dict[Hashable, _Meter] = {}

    def rate(self, key: Hashable, count: int, now_ms: int) -> float:
        """The rate of a counter that is `count` now. The first reading gives the mean since the start; a counter that
        is smaller than before began again.

        >>> rates = DecayingRates(begun_ms=0)
        >>> rates.rate("in", 1_000, now_ms=10_000)
        100.0
        >>> round(rates.rate("in", 1_000, now_ms=910_000), 1)  # nothing for fifteen minutes
        36.8
        """
        meter = self._meters.get(key)
        if meter is None:
            elapsed_ms = max(1, now_ms - self._begun_ms)
            meter = self._meters[key] = _Meter(count, now_ms, 1_000 * count / elapsed_ms)
        elif now_ms > meter.read_ms:
            elapsed_ms = now_ms - meter.read_ms
            seen = count - meter.count if count >= meter.count else count
            share = 1 - math.exp(-elapsed_ms / self._window_ms)
            meter.rate += share * (1_000 * seen / elapsed_ms - meter.rate)
            meter.count, meter.read_ms = count, now_ms
        return meter.rate


class IdleShare:
    """The share of time, 0 to 1, in which threads had nothing to do between two readings."""

    def __init__(self, begun_ns: int) -> None:
        self._known = (0, begun_ns, 1.0)

    def share(self, busy_ns: int, threads: int, now_ns: int) -> float:
        """From the time that so many threads have worked in all. Readings within a tenth of a second give the same.

        >>> IdleShare(0).share(busy_ns=500_000_000, threads=2, now_ns=1_000_000_000)
        0.75
        """
        before_ns, read_ns, share = self._known
        if now_ns - read_ns >= SHARE_NS:
            busy = (busy_ns - before_ns) / ((now_ns - read_ns) * max(1, threads))
            share = min(1.0, max(0.0, 1.0 - busy))
            self._known = (busy_ns, now_ns, share)
        return share


@dataclass(slots=True)
class _Snapshots:
    """Counts of a histogram at some times, oldest first."""

    taken: deque[tuple[int, list[int]]] = field(default_factory=deque)


class RecentQuantiles:
    """Quantiles of the times of about the last five minutes, by key."""

    def __init__(self) -> None:
        self._snapshots: dict[Hashable, _Snapshots] = {}

    def of(self, key: Hashable, times: Histogram, now_ms: int) -> tuple[float, ...]:
        """In ms, one for each of `QUANTILES`; 0 when there was nothing in the window, as in Kafka."""
        taken = self._snapshots.setdefault(key, _Snapshots()).taken
        counts = list(times.counts)
        while len(taken) > 1 and taken[1][0] <= now_ms - WINDOW_MS:
            taken.popleft()
        before = taken[0][1] if taken and taken[0][0] <= now_ms - WINDOW_MS else [0] * len(counts)
        if not taken or now_ms - taken[-1][0] >= SNAPSHOT_MS:
            taken.append((now_ms, counts))
        recent = [now - then for now, then in zip(counts, before, strict=True)]
        return tuple(quantile_ms(recent, float(quantile)) for quantile in QUANTILES)


def quantile_ms(counts: Sequence[int], quantile: float) -> float:
    """The quantile of durations of which `counts` lie within each of `BOUNDS_MS`, and a last one above; 0 without
    any. Within a bucket durations are taken to be spread evenly; above the last bound it is that bound.

    >>> times = Histogram()
    >>> times.observe(4, count=3); times.observe(15, count=1)
    >>> quantile_ms(times.counts, 0.5), quantile_ms(times.counts, 0.95)
    (4.0, 18.0)
    """
    total = sum(counts)
    if total <= 0:
        return 0.0
    wanted, below, least = quantile * total, 0, 0
    for bound, count in zip(BOUNDS_MS, counts, strict=False):
        if count and below + count >= wanted:
            return least + (bound - least) * (wanted - below) / count
        below, least = below + count, bound
    return float(BOUNDS_MS[-1])
