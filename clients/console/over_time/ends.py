"""Readings of partitions' ends, and the rates between them. I/O: leaders' bounds, once in a while.

The ends of all partitions are one object of each broker, or one request to each, so that this is cheap for any number
of partitions; a rate needs two readings of one console.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from stratalog.clients.client_view import ClientView
from stratalog.clients.console.asker import Asker
from stratalog.clients.wire.view import WireView
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
    _under_way: tuple[int, Callable[[], Ends]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for another reading."""
        with self._lock:
            return not self._kept or now_ms - self._kept[-1][0] >= PAUSE_MS

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read yet."""
        with self._lock:
            return not self._kept

    def observe(self, ends: Ends, now_ms: int) -> None:
        """The ends as they are now."""
        with self._lock:
            self._kept.append((now_ms, ends))

    def begin(self, ends: Callable[[], Ends], now_ms: int) -> None:
        """A reading is under way: `ends` waits for it, once. `finish` observes it."""
        with self._lock:
            self._under_way = now_ms, ends

    def finish(self) -> None:
        """Wait for the reading that is under way, if there is one that no other thread waits for."""
        with self._lock:
            found, self._under_way = self._under_way, None
        if found is not None:
            began_ms, ends = found
            self.observe(ends(), began_ms)

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


def begin_ends(view: ClientView, named: Iterable[TopicPartition]) -> Callable[[], Ends]:
    """The ends of partitions, as far as they are known without waiting for a leader. Brokers are asked side by side
    with what the caller does before it calls what is returned, once."""
    if isinstance(view, WireView):
        return view.watermarks.begin_ends(named)
    marks = view.watermarks.published_now(named)
    ends = {each: found.high_watermark for each, found in marks.items() if found is not None}
    return lambda: ends


def begin_rate(asker: Asker) -> Callable[[], EndRate | None]:
    """The rates of all topics since earlier readings of this console. Another reading is begun here if it is due; what
    is returned waits for it, unless it is the first, which shows nothing yet."""
    view = asker.cluster.view
    with _LOCK:
        readings = _READINGS.setdefault(view, EndReadings())
    readings.finish()
    is_first = readings.is_empty
    if readings.is_due(asker.now_ms):
        readings.begin(begin_ends(view, list(view.image.partitions)), asker.now_ms)

    def newest() -> EndRate | None:
        if is_first:
            return None
        readings.finish()
        return readings.rate()

    return newest
