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

from stratalog.storage.log.state import RemovedRecords
from stratalog.storage.records import IdentifiedPartition
from stratalog.wire.batches.headers import Buffer, EncodedBatch

LEFT_MS: Final = 10_000
"""A reader that has not come back by then has left, and what was kept for it goes."""


class ReadFrom(NamedTuple):
    """The log of a partition's leader, from whose table batches were read: at this version, under this epoch. The
    newest commit that removed records from the table until then had the version `removed_version`, at most."""

    log: IdentifiedPartition
    leader_epoch: int
    version: int
    removed_version: int = 0


class _Rest(NamedTuple):
    source: ReadFrom
    batches: tuple[EncodedBatch, ...]
    size_bytes: int
    put_ms: int


class ReadAhead:
    """Batches by log and the offset at which a reader goes on: at most `capacity_bytes`, oldest first out, and none
    for longer than `LEFT_MS`.

    What one reader left is taken by the first that comes to its offset. Slices of an answer's bytes are kept as they
    are where they are at least half of these, which stay in memory with them and are counted whole; fewer are copied.
    Any thread may use it.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._rests: OrderedDict[tuple[IdentifiedPartition, int], _Rest] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """The memory that the batches take."""
        return self._size_bytes

    def room_bytes(self, now_ms: int) -> int:
        """What may be read ahead: with more readers than there is room for, what one left would push out what
        another will want."""
        with self._lock:
            self._expire(now_ms)
            return self._capacity_bytes - self._size_bytes

    def put(self, source: ReadFrom | None, offset: int, batches: Sequence[EncodedBatch], now_ms: int) -> None:
        """Keep what is left for a reader that goes on at `offset`; nothing without a source."""
        kept, size_bytes = _kept(batches)
        if source is None or not batches or size_bytes > self._capacity_bytes:
            return
        with self._lock:
            self._expire(now_ms)
            self._drop(source.log, offset)
            self._rests[source.log, offset] = _Rest(source, kept, size_bytes, now_ms)
            self._size_bytes += size_bytes
            while self._size_bytes > self._capacity_bytes:
                self._drop(*next(iter(self._rests)))

    def take(
        self,
        log: IdentifiedPartition,
        leader_epoch: int,
        offset: int,
        end_offset: int,
        removed: RemovedRecords,
        now_ms: int,
    ) -> list[EncodedBatch]:
        """What was left for `offset` of a log, wholly below `end_offset`; it is here no longer.

        removed  what the log may have lost since. [] where that concerns the batches, where another epoch is asked for,
                 or for nothing: storage has to be read
        """
        with self._lock:
            self._expire(now_ms)
            found = self._rests.get((log, offset))
            self._drop(log, offset)
        if found is None or found.source.leader_epoch != leader_epoch:
            return []
        if removed.concerns(offset, found.source.version):
            return []
        return [batch for batch in found.batches if batch.last_offset < end_offset]

    def _expire(self, now_ms: int) -> None:
        while self._rests and next(iter(self._rests.values())).put_ms <= now_ms - LEFT_MS:
            self._drop(*next(iter(self._rests)))

    def _drop(self, log: IdentifiedPartition, offset: int) -> None:
        dropped = self._rests.pop((log, offset), None)
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
