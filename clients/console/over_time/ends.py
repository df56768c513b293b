"""Readings of partitions' ends, and the rates between them. I/O: leaders' bounds, once in a while.

The ends of all partitions are one object of each broker, or one request to each, so that this is cheap for any number
of partitions; a rate needs two readings of one console.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from stratalog.clients.client_view import ClientView
from stratalog.clients.console.asker import Asker
from stratalog.storage.records import TopicPartition

PAUSE_MS = 5_000
"""Least time between two readings."""
SMOOTHED_MS = 60_000
"""Time over which a rate is taken, if there were readings that often."""
READINGS_MAX = 6
Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class EndRate:
    """Offsets a second by topic, over the last `seconds`."""

    by_topic: Mapping[str, float]
    seconds: float

    def total(self, topics: Collection[str]) -> float:
        """Of these topics."""
        return sum(rate for topic, rate in self.by_topic.items() if topic in topics)


@dataclass(slots=True)
class EndReadings:
    """The last readings, oldest first. Thread-safe."""

    _kept: deque[tuple[int, Ends]] = field(default_factory=lambda: deque(maxlen=READINGS_MAX))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for another reading."""
        with self._lock:
            return not self._kept or now_ms - self._kept[-1][0] >= PAUSE_MS

    def observe(self, ends: Ends, now_ms: int) -> None:
        """The ends as they are now."""
        with self._lock:
            self._kept.append((now_ms, ends))

    def rate(self) -> EndRate | None:
        """The rate between the last reading and the oldest one of the minute before, else the one before; None without.

        A partition that one of them lacks, as one without a leader, does not count.
        """
        with self._lock:
            kept = list(self._kept)
        if len(kept) < 2:
            return None
        last_ms, after = kept[-1]
        recent = [each for each in kept[:-1] if last_ms - each[0] <= SMOOTHED_MS]
        first_ms, before = recent[0] if recent else kept[-2]
        grown: dict[str, int] = {}
        for named, end in after.items():
            grown[named.topic] = grown.get(named.topic, 0) + max(0, end - before.get(named, end))
        seconds = max(0.001, (last_ms - first_ms) / 1_000)
        return EndRate({topic: offsets / seconds for topic, offsets in grown.items()}, seconds)


_READINGS: WeakKeyDictionary[ClientView, EndReadings] = WeakKeyDictionary()
_LOCK = threading.Lock()


def newest_rate(asker: Asker) -> EndRate | None:
    """The rates of all topics since earlier readings of this console, after another reading if it is due."""
    view = asker.cluster.view
    with _LOCK:
        readings = _READINGS.setdefault(view, EndReadings())
    if readings.is_due(asker.now_ms):
        marks = view.watermarks.published_now(list(view.image.partitions))
        ends = {named: found.high_watermark for named, found in marks.items() if found is not None}
        readings.observe(ends, asker.now_ms)
    return readings.rate()
