"""The timers of a coordinator's shard by key. Pure.

Kafka: `CoordinatorTimer`, where scheduling a key again replaces its earlier time. Heartbeats postpone the end of their
session all the time, so this does not touch the heap: an entry that is popped too early is pushed again.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class ShardTimers(Generic[Key]):
    """Keys with the time when each is due, in ms of the caller's clock. Equal times: in order of scheduling."""

    def __init__(self) -> None:
        self._due_ms: dict[Key, int] = {}
        self._queued_ms: dict[Key, int] = {}
        self._queue: list[tuple[int, int, Key]] = []
        self._scheduled = 0

    def schedule(self, key: Key, due_ms: int) -> None:
        """Make the key due at `due_ms` instead of any earlier time."""
        self._due_ms[key] = due_ms
        if self._queued_ms.get(key, due_ms + 1) > due_ms:
            self._push(key, due_ms)

    def cancel(self, key: Key) -> None:
        """Remove the key, if it is scheduled."""
        self._due_ms.pop(key, None)

    def due_ms(self, key: Key) -> int | None:
        """When `key` is due; None if it is not scheduled."""
        return self._due_ms.get(key)

    def pop_due(self, now_ms: int) -> Iterator[Key]:
        """Keys due by `now_ms`, earliest first, each removed as it is yielded. Keys scheduled meanwhile count, too."""
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            key = heapq.heappop(self._queue)[2]
            del self._queued_ms[key], self._due_ms[key]
            yield key

    @property
    def next_due_ms(self) -> int | None:
        """When the first key is due; None if there is none."""
        while self._queue:
            queued_ms, _, key = self._queue[0]
            due_ms = self._due_ms.get(key)
            if due_ms == queued_ms and self._queued_ms[key] == queued_ms:
                return due_ms
            heapq.heappop(self._queue)
            if self._queued_ms.get(key) == queued_ms:
                del self._queued_ms[key]
                if due_ms is not None:
                    self._push(key, due_ms)
        return None

    def __len__(self) -> int:
        return len(self._due_ms)

    def _push(self, key: Key, due_ms: int) -> None:
        self._scheduled += 1
        self._queued_ms[key] = due_ms
        heapq.heappush(self._queue, (due_ms, self._scheduled, key))
