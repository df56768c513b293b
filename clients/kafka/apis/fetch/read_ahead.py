"""Batches that were read from storage and not sent yet, for the fetch that goes on behind the one before. Pure.

A read from storage brings whole files or row groups, of which one fetch of a partition takes 1 MiB by default: without
this, the rest would be read, decompressed and encoded again, for compressed records several times. Kafka's brokers
have this from the page cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from stratalog.clients.kafka.batches.headers import Buffer, EncodedBatch
from stratalog.clients.kafka.batches.tail import LogVersion
from stratalog.storage.records import TopicPartition

CAPACITY_BYTES: Final = 32 << 20
LEFT_MS: Final = 10_000
"""A reader that has not come back by then has left: what was kept for it goes when others need the room."""


class _Rest(NamedTuple):
    version: LogVersion
    batches: tuple[EncodedBatch, ...]
    size_bytes: int
    put_ms: int


class ReadAhead:
    """Batches by partition and the offset at which a reader goes on: at most `capacity_bytes`, oldest first out.

    What one reader left is taken by the first that comes to its offset. Slices of an answer's bytes are kept as they
    are where they are at least half of these, which stay in memory with them and are counted whole; fewer are copied.
    Any thread may use it.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._rests: OrderedDict[tuple[TopicPartition, int], _Rest] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """The memory that the batches take."""
        return self._size_bytes

    def room_bytes(self, now_ms: int) -> int:
        """What may be read ahead: with more readers than there is room for, what one left would push out what
        another will want."""
        with self._lock:
            while self._rests and next(iter(self._rests.values())).put_ms <= now_ms - LEFT_MS:
                self._drop(*next(iter(self._rests)))
            return self._capacity_bytes - self._size_bytes

    def put(
        self,
        named: TopicPartition,
        offset: int,
        version: LogVersion | None,
        batches: Sequence[EncodedBatch],
        now_ms: int,
    ) -> None:
        """Keep what is left for a reader that goes on at `offset`, read from the log of `version`."""
        kept, size_bytes = _kept(batches)
        if version is None or not batches or size_bytes > self._capacity_bytes:
            return
        with self._lock:
            self._drop(named, offset)
            self._rests[named, offset] = _Rest(version, kept, size_bytes, now_ms)
            self._size_bytes += size_bytes
            while self._size_bytes > self._capacity_bytes:
                self._drop(*next(iter(self._rests)))

    def take(
        self, named: TopicPartition, offset: int, end_offset: int, version: LogVersion | None
    ) -> list[EncodedBatch]:
        """What was left for `offset` of the log of `version`, wholly below `end_offset`; it is here no longer.

        [] for nothing, or where the log is another one by now: storage has to be read.
        """
        with self._lock:
            found = self._rests.get((named, offset))
            self._drop(named, offset)
        if found is None or found.version != version:
            return []
        return [batch for batch in found.batches if batch.last_offset < end_offset]

    def _drop(self, named: TopicPartition, offset: int) -> None:
        dropped = self._rests.pop((named, offset), None)
        self._size_bytes -= dropped.size_bytes if dropped else 0


def _kept(batches: Sequence[EncodedBatch]) -> tuple[tuple[EncodedBatch, ...], int]:
    """The batches as they are kept, and the memory that they take."""
    owners = dict(_owner(batch.data) for batch in batches)
    owned_bytes, size_bytes = sum(owners.values()), sum(len(batch.data) for batch in batches)
    if 2 * size_bytes >= owned_bytes:
        return tuple(batches), owned_bytes
    return tuple([batch._replace(data=bytes(batch.data)) for batch in batches]), size_bytes


def _owner(data: Buffer) -> tuple[int, int]:
    """The object that stays in memory with a batch, by its `id`, and its size."""
    if isinstance(data, memoryview):
        return id(data.obj), memoryview(data.obj).nbytes
    return id(data), len(data)
