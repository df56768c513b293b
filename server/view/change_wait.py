"""The partitions whose progress moved since a reader last asked, and waiting for the next write.

I/O: waits through `storage.objects.wakeup`. A reader of 500 partitions visits only those that moved, and one that has
read everything sleeps until a leader or the metadata log is written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from stratalog.replication.threads.dropped import DROPPED
from stratalog.storage.clock import Clock
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
from stratalog.storage.records import TopicPartition

WAIT_MS_MAX = 500
"""Limit of one wait, in case the kernel reports a write late or not at all."""

Place = tuple[ObjectStore, str]
"""The arguments of `Wakeup.watch`: an object, or a directory whose name ends in `/`."""


class Moves:
    """The partitions that moved, in the order of their last move; each reader remembers a sequence. Pure.

    The sequence is the number of the last move that a reader has seen.
    """

    def __init__(self) -> None:
        self._last_move: dict[TopicPartition, int] = {}
        self._count = 0
        self._all_moved_at = 0

    def add(self, moved: Iterable[TopicPartition]) -> None:
        """Record that these partitions moved."""
        for topic_partition in moved:
            self._count += 1
            self._last_move.pop(topic_partition, None)
            self._last_move[topic_partition] = self._count

    def add_all(self) -> None:
        """Record that any partition may have moved, since the metadata changed."""
        self._count += 1
        self._all_moved_at = self._count
        self._last_move.clear()

    def since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]:
        """The newest sequence, and the partitions that moved after `sequence` (at first -1); None: any may have."""
        if sequence < self._all_moved_at or sequence < 0:
            return self._count, None
        moved = []
        for topic_partition in reversed(self._last_move):
            if self._last_move[topic_partition] <= sequence:
                break
            moved.append(topic_partition)
        return self._count, moved

    def among(self, partitions: Iterable[TopicPartition], sequence: int) -> list[TopicPartition]:
        """Those of the partitions that moved after `sequence`: it takes no longer when many others did."""
        if sequence < self._all_moved_at or sequence < 0:
            return list(partitions)
        last_move = self._last_move
        return [each for each in partitions if last_move.get(each, 0) > sequence]


class ChangeWait:
    """Waits for writes to some places. Any thread may wait; it sleeps plainly where watching is impossible."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wakeup: Wakeup | None = None
        self._watches: dict[tuple[str, str], WatchedPlace] = {}

    def wait(self, places: Mapping[str, Place], timeout_ms: float, poll_ms: float) -> set[str]:
        """Sleep until one of the places is written, at most `timeout_ms`; the names of those that were.

        Where one of them cannot be watched, it returns all names, after `poll_ms` at most. It returns at once for
        places that are new to this instance: only from then on no write is missed.
        """
        if not self._lock.acquire(blocking=False):  # another thread waits on this instance
            self._clock.sleep_ms(min(timeout_ms, poll_ms))
            return set(places)
        try:
            if self._watch(places):
                return set(places)
            assert self._wakeup is not None
            self._wakeup.wait_ms(min(timeout_ms, WAIT_MS_MAX if self._wakeup.is_active else poll_ms))
            return {name for name, (_, path) in places.items() if self._watches[name, path].was_written()}
        finally:
            self._lock.release()

    def wake(self) -> None:
        """End the wait that is under way, or the next one at once."""
        if self._wakeup is not None:
            self._wakeup.wake()

    def _watch(self, places: Mapping[str, Place]) -> bool:
        """Watch exactly these; True when one of them was not watched before."""
        if self._wakeup is None:
            self._wakeup = Wakeup(self._clock)
            DROPPED.when(self, self._wakeup.close)
        wanted = {(name, path): store for name, (store, path) in places.items()}
        for key in [key for key in self._watches if key not in wanted]:
            self._wakeup.unwatch(self._watches.pop(key))
        added = [key for key in wanted if key not in self._watches]
        for key in added:
            self._watches[key] = self._wakeup.watch(wanted[key], key[1], only_new=key[1].endswith("/"))
            self._watches[key].was_written()
        return bool(added)
