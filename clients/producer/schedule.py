"""Which partitions' queues the sender looks at, and when: by what changed, not by how many there are. Pure.

A queue is looked at after every change to it (`mark`) and at the one time that it names for itself (`look_at`).
With 500 partitions and one record a second in each, a turn costs as much as with one partition.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from stratalog.clients.producer.accumulator import PartitionQueue


@dataclass(slots=True)
class Schedule:
    """The queues to look at now, and the timers of the others. At most one timer of a queue counts: its earliest."""

    _marked: dict[PartitionQueue, None] = field(default_factory=dict)
    _timers: list[tuple[int, int, PartitionQueue]] = field(default_factory=list)
    _earliest: dict[PartitionQueue, int] = field(default_factory=dict)
    _count: int = 0

    def mark(self, queue: PartitionQueue) -> None:
        """Something about the queue changed: it is looked at in the next turn."""
        self._marked[queue] = None

    def look_at(self, queue: PartitionQueue, at_ms: int) -> None:
        """Look at the queue again at `at_ms`, unless that happens earlier anyway."""
        known_ms = self._earliest.get(queue)
        if known_ms is not None and known_ms <= at_ms:
            return
        self._earliest[queue] = at_ms
        self._count += 1
        heapq.heappush(self._timers, (at_ms, self._count, queue))

    def take(self, now_ms: int) -> list[PartitionQueue]:
        """The queues that are due, each once; they are no longer scheduled."""
        while self._timers and self._timers[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(self._timers)
            if self._earliest.get(queue) == at_ms:
                del self._earliest[queue]
                self._marked[queue] = None
        due, self._marked = list(self._marked), {}
        return due

    @property
    def has_marked(self) -> bool:
        """True when a queue waits to be looked at in the next turn."""
        return bool(self._marked)

    def next_ms(self) -> int | None:
        """When the next timer ends; None without one."""
        return self._timers[0][0] if self._timers else None
