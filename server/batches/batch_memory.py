"""The record batches that one broker remembers for fetches: the encoded tail and what was read ahead. Pure.

They have one owner and one budget, and one rule for what of a log may still be given: its topic id and leader epoch
have to be those that the leader publishes now, and no commit of its table since may have removed records there. A
leader publishes what compaction or an erasure removed with the version of that commit, so a client that fetches batches
sees a record no longer than one publication after a reader of the table has lost it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stratalog.server.batches.read_ahead import ReadAhead, ReadFrom
from stratalog.server.batches.tail import EncodedTail
from stratalog.storage.clock import Clock
from stratalog.storage.log.state import NOTHING_REMOVED, RemovedRecords
from stratalog.storage.records import IdentifiedPartition
from stratalog.wire.batches.headers import Buffer, EncodedBatch

AHEAD_SHARE: Final = 4
"""One part of so many of the memory may be taken by what was read ahead; the newest batches have the rest."""


class PublishedLog(NamedTuple):
    """The log of a partition's leader as it is published now, with the version of its table.

    removed  what of it may be gone that was read, or written, before
    """

    partition: IdentifiedPartition
    leader_epoch: int
    version: int
    removed: RemovedRecords = NOTHING_REMOVED


class BatchMemory:
    """At most `capacity_bytes` of batches, none much longer than `age_ms`. Any thread may use it."""

    def __init__(self, capacity_bytes: int, age_ms: int, clock: Clock) -> None:
        self._capacity_bytes = capacity_bytes
        self._tail = EncodedTail(capacity_bytes, age_ms)
        self._ahead = ReadAhead(capacity_bytes // AHEAD_SHARE)
        self._clock = clock

    @property
    def size_bytes(self) -> int:
        """The memory that the batches take."""
        return self._tail.size_bytes + self._ahead.size_bytes

    # -- the newest batches ----------------------------------------------------------------------------------

    def put(self, log: IdentifiedPartition, base_offset: int, leader_epoch: int, records: Buffer) -> None:
        """A produced batch was appended at `base_offset` to this topic's log under `leader_epoch`."""
        self._tail.append(log, base_offset, leader_epoch, records, self._clock.monotonic_ms())

    def read(
        self, of: PublishedLog, start_offset: int, end_offset: int, max_bytes: int, *, takes_zstd: bool = True
    ) -> list[EncodedBatch]:
        """As `EncodedTail.read`."""
        self._make_room()
        bounds = start_offset, end_offset, max_bytes
        removed_end = of.removed.end_offset
        return self._tail.read(of.partition, of.leader_epoch, *bounds, removed_end=removed_end, takes_zstd=takes_zstd)

    def readable_bytes(self, of: PublishedLog, start_offset: int, end_offset: int) -> int | None:
        """As `EncodedTail.readable_bytes`."""
        return self._tail.readable_bytes(of.partition, of.leader_epoch, start_offset, end_offset, of.removed.end_offset)

    # -- what was read ahead ---------------------------------------------------------------------------------

    def room_bytes(self) -> int:
        """As `ReadAhead.room_bytes`."""
        return self._ahead.room_bytes(self._clock.monotonic_ms())

    def put_ahead(self, source: ReadFrom | None, offset: int, batches: Sequence[EncodedBatch]) -> None:
        """As `ReadAhead.put`."""
        self._ahead.put(source, offset, batches, self._clock.monotonic_ms())
        self._make_room()

    def take_ahead(self, of: PublishedLog, offset: int, end_offset: int) -> list[EncodedBatch]:
        """As `ReadAhead.take`."""
        bounds = of.leader_epoch, offset, end_offset
        return self._ahead.take(of.partition, *bounds, of.removed, self._clock.monotonic_ms())

    def _make_room(self) -> None:
        self._tail.resize(self._capacity_bytes - self._ahead.size_bytes, self._clock.monotonic_ms())
