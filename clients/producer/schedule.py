"""Which partitions' queues the sender visits, and when: by what changed, not by how many there are. Pure.

A queue is visited after every change (`add`) and when its timer ends (`add_timer`). So with 500 partitions and one
record a second in each, a turn costs as much as with one partition.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from stratalog.clients.producer.accumulator import PartitionQueue


@dataclass(slots=True)
class Schedule:
    """The queues to visit now, and the timers of the others. At most one timer of a queue counts: its earliest."""

    _changed: dict[PartitionQueue, None] = field(default_factory=dict)
    _timers: list[tuple[int, int, PartitionQueue]] = field(default_factory=list)
    _earliest: dict[PartitionQueue, int] = field(default_factory=dict)
    _count: int = 0

    def add(self, queue: PartitionQueue) -> None:
        """The queue changed: it is visited in the next turn."""
        self._changed[queue] = None

    def add_timer(self, queue: PartitionQueue, at_ms: int) -> None:
        """Visit the queue at `at_ms` at the latest."""
        known_ms = self._earliest.get(queue)
        if known_ms is not None and known_ms <= at_ms:
            return
        self._earliest[queue] = at_ms
        self._count += 1
        heapq.heappush(self._timers, (at_ms, self._count, queue))

    def take_due(self, now_ms: int) -> list[PartitionQueue]:
        """Remove and return the queues that are due, each once."""
        while self._timers and self._timers[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(self._timers)
            if self._earliest.get(queue) == at_ms:
                del self._earliest[queue]
                self._changed[queue] = None
        due, self._changed = list(self._changed), {}
        return due

    @property
    def has_due(self) -> bool:
        """True when a queue is to be visited in the next turn."""
        return bool(self._changed)

    def next_ms(self) -> int | None:
        """When the next timer ends; None without one."""
        return self._timers[0][0] if self._timers else None
