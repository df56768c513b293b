"""Whether a broker or a fetcher takes and sends so many records that large merges should wait. Pure.

A merge decodes and encodes megabytes, so it competes with producers and with consumers that read from the broker. Both
come in bursts, and a consumer often follows a producer by seconds. So the rate is that of the last seconds.
"""

from __future__ import annotations

from collections import deque

from stratalog.replication import cadence

BUSY_BYTES_PER_S = 4 << 20
"""Rate of records in and out above which a loop is busy."""


class Load:
    """The load of one loop.

    >>> load = Load(0)
    >>> load.is_busy(1_000, appended_bytes=8 << 20, read_bytes=0), load.is_busy(2_000, 24 << 20, 0)
    (True, True)
    >>> load.is_busy(7_000, 24 << 20, 0)  # nothing within the last five seconds
    False
    """

    def __init__(self, now_ms: int) -> None:
        self._seen: deque[tuple[int, int, int]] = deque([(now_ms, 0, 0)])
        self._reads_since_ms: int | None = None

    def is_busy(self, now_ms: int, appended_bytes: int, read_bytes: int) -> bool:
        """Whether the loop is busy; `appended_bytes` and `read_bytes` are totals since it was made."""
        seen = self._seen
        while len(seen) > 1 and seen[1][0] <= now_ms - cadence.LOAD_WINDOW.ms:
            seen.popleft()
        then_ms, appended_before, read_before = seen[0]
        if now_ms - seen[-1][0] >= cadence.LOAD_STEP.ms:
            seen.append((now_ms, appended_bytes, read_bytes))
        allowed = BUSY_BYTES_PER_S * max(cadence.LOAD_SHORTEST.ms, now_ms - then_ms) // 1_000
        reads = read_bytes - read_before
        if reads <= allowed:
            self._reads_since_ms = None
        elif self._reads_since_ms is None:
            self._reads_since_ms = now_ms
        counts_reads = self._reads_since_ms is None or now_ms - self._reads_since_ms < cadence.READS_HOLD_MERGES.ms
        return appended_bytes - appended_before + (reads if counts_reads else 0) > allowed
