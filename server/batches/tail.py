"""The encoded tail: the newest batches of partition logs as producers sent them, for fetches near the log's end. Pure.

A produced batch is kept as it came, compressed or not, with the offset and leader epoch of its append. Batches that
were appended in another way (a producer in the process, a Spark sink, a coordinator) are not here and leave a gap.
Kafka's brokers have this from the page cache, where segments lie in the wire format.
"""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from stratalog.storage.records import IdentifiedPartition
from stratalog.wire.batches.headers import Buffer, EncodedBatch, header_of, start_in_log

CAPACITY_BYTES: Final = 128 << 20
AGE_MS: Final = 120_000
CHUNK_BYTES_MIN: Final = 4 << 10
CHUNK_BYTES_MAX: Final = 256 << 10
CHUNK_MS_MAX: Final = 30_000
"""A chunk takes batches for so long, so that those of a slow partition become old, too."""
GATHERED_BYTES_MAX: Final = CHUNK_BYTES_MAX // 8
"""A larger batch is a chunk of its own."""
CHUNK_OVERHEAD_BYTES: Final = 1 << 10
BATCH_OVERHEAD_BYTES: Final = 20


@dataclass(slots=True, eq=False)
class _Chunk:
    """Batches that follow each other without a gap in offsets, one behind the other in memory.

    data         a buffer of this chunk's own, or, with a `head` for its first bytes, one batch as it came
    owned_bytes  the size of what stays in memory with `data`
    ends         the offset behind each batch
    byte_ends    where each batch ends in `data`
    """

    base_offset: int
    since_ms: int
    data: Buffer
    owned_bytes: int
    head: bytes = b""
    ends: array[int] = field(default_factory=lambda: array("q"))
    byte_ends: array[int] = field(default_factory=lambda: array("q"))
    has_zstd: bool = False

    @property
    def next_offset(self) -> int:
        return self.ends[-1] if self.ends else self.base_offset

    @property
    def memory_bytes(self) -> int:
        return self.owned_bytes + CHUNK_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES * len(self.ends)

    @property
    def used_bytes(self) -> int:
        return self.byte_ends[-1] if self.byte_ends else 0

    def takes(self, base_offset: int, size_bytes: int, now_ms: int) -> bool:
        """Whether a batch may be gathered here: it is small and the next one, and there is room for it."""
        if self.head or size_bytes > GATHERED_BYTES_MAX or now_ms - self.since_ms >= CHUNK_MS_MAX:
            return False
        return base_offset == self.next_offset and self.used_bytes + size_bytes <= self.owned_bytes

    def gather(self, base_offset: int, leader_epoch: int, data: Buffer) -> None:
        """Put a batch behind the others, with the offset and leader epoch of its append."""
        start, head = self.used_bytes, start_in_log(data, base_offset, leader_epoch)
        mine = memoryview(self.data)[start : start + len(data)]
        mine[:] = data
        mine[: len(head)] = head
        self.count(base_offset, data, start + len(data))

    def count(self, base_offset: int, data: Buffer, byte_end: int) -> None:
        """A batch with these first bytes lies in `data` up to `byte_end`."""
        header = header_of(data)
        self.ends.append(base_offset + header.last_offset_delta + 1)
        self.byte_ends.append(byte_end)
        self.has_zstd |= header.compression_type == "zstd"

    def read(self, offset: int, end_offset: int, max_bytes: int, *, is_first: bool) -> EncodedBatch | None:
        """The batches from the one that holds `offset` on, below `end_offset` and of at most `max_bytes`.

        is_first  `offset` may lie within a batch, and that is given whatever its size; otherwise one begins there
        """
        first = bisect_right(self.ends, offset)
        base_offset = self.ends[first - 1] if first else self.base_offset
        if first == len(self.ends) or not (base_offset == offset or (is_first and base_offset < offset)):
            return None
        byte_start = self.byte_ends[first - 1] if first else 0
        stop = bisect_right(self.byte_ends, byte_start + max_bytes)
        stop = min(bisect_right(self.ends, end_offset), max(stop, first + 1) if is_first else stop)
        if stop <= first:
            return None
        data = memoryview(self.data)[byte_start : self.byte_ends[stop - 1]]
        return EncodedBatch(base_offset, self.ends[stop - 1] - 1, data, self.head)

    def without(self, end_offset: int) -> _Chunk | None:
        """A chunk of the batches that begin at or above `end_offset`, full if this one is; None when there are none."""
        first = bisect_left(self.ends, end_offset) + 1
        if first >= len(self.ends):
            return None
        byte_start = self.byte_ends[first - 1]
        kept = _Chunk(self.ends[first - 1], self.since_ms, bytearray(self.owned_bytes), self.owned_bytes)
        memoryview(kept.data)[: self.used_bytes - byte_start] = memoryview(self.data)[byte_start : self.used_bytes]
        kept.ends = self.ends[first:]
        kept.byte_ends = array("q", [end - byte_start for end in self.byte_ends[first:]])
        kept.has_zstd = self.has_zstd
        return kept


@dataclass(slots=True)
class _PartitionTail:
    """The chunks of one partition under one leader epoch, by offset. `bases`: their base offsets."""

    leader_epoch: int
    chunks: list[_Chunk] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)


class EncodedTail:
    """Batches by partition and offset, for `age_ms` and up to `CHUNK_MS_MAX` longer if `capacity_bytes` of memory are
    enough for them.

    Small batches are gathered in chunks, so that thousands of them are neither objects of their own nor pieces of an
    answer of their own. Chunks go oldest first. A large batch is kept as it came: a slice of a larger frame if it is at
    least half of that frame, which stays in memory with it and is counted whole, else a copy. A log's batches are those
    of its newest leader epoch: within it a leader's log is neither truncated nor written by others. What compaction or
    an erasure removed from it lies below a reader's `removed_end`, from where nothing is returned: what was kept of it
    is dropped. Any thread may use it.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES, age_ms: int = AGE_MS) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._age_ms = age_ms
        self._size_bytes = 0
        self._logs: dict[IdentifiedPartition, _PartitionTail] = {}
        self._oldest_first: OrderedDict[tuple[IdentifiedPartition, int], _Chunk] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """The memory that the batches take."""
        return self._size_bytes

    def resize(self, capacity_bytes: int, now_ms: int) -> None:
        """Take so much memory from now on, and drop what is too old."""
        with self._lock:
            self._capacity_bytes = capacity_bytes
            self._shrink(now_ms)

    def append(self, log: IdentifiedPartition, base_offset: int, leader_epoch: int, data: Buffer, now_ms: int) -> None:
        """Keep a batch, `data` as its producer sent it, that was appended at `base_offset` under `leader_epoch`.

        To be called once for each append, in any order; not for duplicates. A batch of an older epoch than those here
        is ignored, one of a newer epoch replaces them.
        """
        if len(data) + CHUNK_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES > self._capacity_bytes:
            return
        with self._lock:
            found = self._logs.get(log)
            if found is not None and leader_epoch > found.leader_epoch:
                self._drop(log)
                found = None
            if found is None:
                found = self._logs[log] = _PartitionTail(leader_epoch)
            if leader_epoch == found.leader_epoch:
                self._append(found, log, base_offset, data, now_ms)
                self._shrink(now_ms)

    def _append(
        self, tail: _PartitionTail, log: IdentifiedPartition, base_offset: int, data: Buffer, now_ms: int
    ) -> None:
        index = bisect_right(tail.bases, base_offset)
        before = tail.chunks[index - 1] if index else None
        if before is not None and base_offset < before.next_offset:
            return  # it is here
        if before is not None and before.takes(base_offset, len(data), now_ms):
            self._size_bytes -= before.memory_bytes
            before.gather(base_offset, tail.leader_epoch, data)
            self._size_bytes += before.memory_bytes
            return
        if len(data) > GATHERED_BYTES_MAX:
            data = _kept(data)
            head = start_in_log(data, base_offset, tail.leader_epoch)
            chunk = _Chunk(base_offset, now_ms, data, _owner_bytes(data), head)
            chunk.count(base_offset, data, len(data))
        else:
            expected_bytes = 2 * before.used_bytes if before else CHUNK_BYTES_MIN
            expected_bytes = min(expected_bytes, CHUNK_BYTES_MAX, self._capacity_bytes // 16)
            size_bytes = max(len(data), CHUNK_BYTES_MIN, expected_bytes)
            chunk = _Chunk(base_offset, now_ms, bytearray(size_bytes), size_bytes)
            chunk.gather(base_offset, tail.leader_epoch, data)
        tail.chunks.insert(index, chunk)
        tail.bases.insert(index, base_offset)
        self._oldest_first[log, base_offset] = chunk
        self._size_bytes += chunk.memory_bytes

    def read(
        self,
        log: IdentifiedPartition,
        leader_epoch: int,
        start_offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        removed_end: int = 0,
        takes_zstd: bool = True,
    ) -> list[EncodedBatch]:
        """The batches from the one with `start_offset` on, without a gap, that lie wholly below `end_offset` (high
        watermark or last stable offset): up to `max_bytes`, the first one even if it is larger, as in Kafka. Those
        that lie one behind the other in memory are one item.

        [] when the first one is not here, or of another epoch: the log has to be read. So it is for a client that does
        not know zstd, from the first chunk on that has batches compressed with it.
        """
        found: list[EncodedBatch] = []
        with self._lock:
            tail = self._logs.get(log)
            if tail is None or tail.leader_epoch != leader_epoch:
                return found
            if tail.bases and tail.bases[0] < removed_end:
                self._remove(tail, log, removed_end)
            offset, left = start_offset, max_bytes
            for index in range(max(0, bisect_right(tail.bases, start_offset) - 1), len(tail.chunks)):
                chunk = tail.chunks[index]
                if chunk.has_zstd and not takes_zstd:
                    break
                batches = chunk.read(offset, end_offset, left, is_first=not found)
                if batches is None:
                    break
                found.append(batches)
                offset = batches.last_offset + 1
                left -= len(batches.data)
        return found

    def readable_bytes(
        self, log: IdentifiedPartition, leader_epoch: int, start_offset: int, end_offset: int, removed_end: int = 0
    ) -> int | None:
        """The size of the batches in `[start_offset, end_offset)`; None when not all of them are here."""
        tail = self._logs.get(log)
        if tail is None or tail.leader_epoch != leader_epoch:
            return None
        found = self.read(log, leader_epoch, start_offset, end_offset, sys.maxsize, removed_end=removed_end)
        next_offset = found[-1].last_offset + 1 if found else start_offset
        return sum(len(each.data) for each in found) if next_offset >= end_offset else None

    def _drop(self, log: IdentifiedPartition) -> None:
        dropped = self._logs.pop(log, None)
        for chunk in dropped.chunks if dropped else ():
            self._size_bytes -= chunk.memory_bytes
            del self._oldest_first[log, chunk.base_offset]

    def _remove(self, tail: _PartitionTail, log: IdentifiedPartition, end_offset: int) -> None:
        """Drop the batches that begin below `end_offset`; what their last chunk has above it stays, as old as it is."""
        count = bisect_left(tail.bases, end_offset)
        for chunk in tail.chunks[:count]:
            del self._oldest_first[log, chunk.base_offset]
            self._size_bytes -= chunk.memory_bytes
        kept = tail.chunks[count - 1].without(end_offset)
        tail.chunks[:count], tail.bases[:count] = ([kept], [kept.base_offset]) if kept else ([], [])
        if kept is not None:
            self._oldest_first[log, kept.base_offset] = kept
            self._oldest_first.move_to_end((log, kept.base_offset), last=False)
            self._size_bytes += kept.memory_bytes
        if not tail.chunks:
            del self._logs[log]

    def _shrink(self, now_ms: int) -> None:
        since_ms = now_ms - self._age_ms - CHUNK_MS_MAX
        while self._oldest_first:
            (log, base_offset), chunk = next(iter(self._oldest_first.items()))
            if self._size_bytes <= self._capacity_bytes and chunk.since_ms >= since_ms:
                break
            del self._oldest_first[log, base_offset]
            self._size_bytes -= chunk.memory_bytes
            tail = self._logs[log]
            index = bisect_left(tail.bases, base_offset)
            del tail.chunks[index], tail.bases[index]
            if not tail.chunks:
                del self._logs[log]


def _kept(data: Buffer) -> Buffer:
    """The batch as it is kept: a slice of its frame, or a copy where it is less than half of that."""
    return data if 2 * len(data) >= _owner_bytes(data) else bytes(data)


def _owner_bytes(data: Buffer) -> int:
    """The size of the object that stays in memory with these bytes."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)


def uses_zstd(batch: Buffer) -> bool:
    """Whether the batch is compressed with zstd, which clients know since Produce 7 and Fetch 10."""
    return header_of(batch).compression_type == "zstd"
