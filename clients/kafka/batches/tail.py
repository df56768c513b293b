"""The encoded tail: the newest batches of partition logs as producers sent them, for fetches near the log's end. Pure.

A produced batch is kept as it came, compressed or not, with the offset and leader epoch of its append. Batches that
were appended in another way (a producer in the process, a Spark sink, a coordinator) are not here and leave a gap.
Kafka's brokers have this from the page cache, where segments lie in the wire format.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from stratalog.clients.kafka.batches.headers import Buffer, EncodedBatch, header_of, placed
from stratalog.replication.metadata.image import ClusterImage
from stratalog.storage.records import TopicPartition

CAPACITY_BYTES: Final = 32 << 20
ENTRY_BYTES: Final = 512
"""The memory that a batch takes besides its bytes."""


class EncodedTail:
    """Batches by partition and base offset: at most `capacity_bytes`, oldest first out. Any thread may use it.

    A batch is kept as it came; `read` puts its offset and leader epoch before it. A slice of a larger frame is kept
    if it is at least half of that frame, which stays in memory with it and is counted whole; a smaller one is copied.
    A partition's batches are those of its newest leader epoch: within it a leader's log is neither truncated nor
    written by others. After an erasure or a topic's deletion the caller has to `forget` the partition. Records that
    compaction removed may still be returned, as Kafka returns them until its cleaner has run.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._lock = threading.Lock()
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._batches: OrderedDict[tuple[TopicPartition, int], EncodedBatch] = OrderedDict()
        self._bases: dict[TopicPartition, list[int]] = {}
        self._epochs: dict[TopicPartition, int] = {}

    @property
    def size_bytes(self) -> int:
        """The memory that the batches take."""
        return self._size_bytes

    def resize(self, capacity_bytes: int) -> None:
        """Set the capacity; 0 keeps nothing."""
        with self._lock:
            self._capacity_bytes = capacity_bytes
            self._shrink()

    def append(self, topic_partition: TopicPartition, base_offset: int, leader_epoch: int, data: Buffer) -> None:
        """Keep a batch, `data` as its producer sent it, that was appended at `base_offset` under `leader_epoch`.

        To be called once for each append, in any order; not for duplicates. A batch of an older epoch than those here
        is ignored, one of a newer epoch replaces them.
        """
        if len(data) + ENTRY_BYTES > self._capacity_bytes:
            return
        data = _kept(data)
        batch = EncodedBatch(base_offset, base_offset + header_of(data).last_offset_delta, data)
        with self._lock:
            known_epoch = self._epochs.get(topic_partition, leader_epoch)
            if leader_epoch > known_epoch:
                self._drop(topic_partition)
            elif leader_epoch < known_epoch or (topic_partition, base_offset) in self._batches:
                return
            self._epochs[topic_partition] = leader_epoch
            bases = self._bases.setdefault(topic_partition, [])
            bases.insert(bisect_left(bases, base_offset), base_offset)
            self._batches[topic_partition, base_offset] = batch
            self._size_bytes += _memory_bytes(data)
            self._shrink()

    def read(
        self, topic_partition: TopicPartition, leader_epoch: int, start_offset: int, end_offset: int, max_bytes: int
    ) -> list[EncodedBatch]:
        """The batches from the one with `start_offset` on, without a gap, that lie wholly below `end_offset` (high
        watermark or last stable offset): up to `max_bytes`, the first one even if it is larger, as in Kafka.

        [] when the first one is not here, or of another epoch: the log has to be read.
        """
        found: list[EncodedBatch] = []
        with self._lock:
            if self._epochs.get(topic_partition) != leader_epoch:
                return found
            bases = self._bases[topic_partition]
            next_offset, left = start_offset, max_bytes
            for base_offset in bases[max(0, bisect_right(bases, start_offset) - 1) :]:
                batch = self._batches[topic_partition, base_offset]
                is_next = base_offset == next_offset or (not found and base_offset < next_offset <= batch.last_offset)
                if not is_next or batch.last_offset >= end_offset or (found and len(batch.data) > left):
                    break
                found.append(placed(batch, leader_epoch))
                next_offset = batch.last_offset + 1
                left -= len(batch.data)
        return found

    def readable_bytes(
        self, topic_partition: TopicPartition, leader_epoch: int, start_offset: int, end_offset: int
    ) -> int | None:
        """The size of the batches in `[start_offset, end_offset)`; None when not all of them are here."""
        size_bytes, next_offset = 0, start_offset
        with self._lock:
            if self._epochs.get(topic_partition) != leader_epoch:
                return None
            bases = self._bases[topic_partition]
            for base_offset in bases[max(0, bisect_right(bases, start_offset) - 1) :]:
                batch = self._batches[topic_partition, base_offset]
                is_next = base_offset == next_offset or (not size_bytes and base_offset < next_offset)
                if not is_next or not next_offset <= batch.last_offset < end_offset:
                    break
                size_bytes += len(batch.data)
                next_offset = batch.last_offset + 1
        return size_bytes if next_offset >= end_offset else None

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the partition's batches: its topic is deleted, or records were erased."""
        with self._lock:
            self._drop(topic_partition)

    def _drop(self, topic_partition: TopicPartition) -> None:
        for base_offset in self._bases.pop(topic_partition, ()):
            self._size_bytes -= _memory_bytes(self._batches.pop((topic_partition, base_offset)).data)
        self._epochs.pop(topic_partition, None)

    def _shrink(self) -> None:
        while self._size_bytes > self._capacity_bytes:
            (topic_partition, base_offset), batch = self._batches.popitem(last=False)
            self._size_bytes -= _memory_bytes(batch.data)
            bases = self._bases[topic_partition]
            del bases[bisect_left(bases, base_offset)]
            if not bases:
                self._drop(topic_partition)


def _kept(data: Buffer) -> Buffer:
    """The batch as it is kept: a slice of its frame, or a copy where it is less than half of that."""
    return data if 2 * len(data) >= _owner_bytes(data) else bytes(data)


def _owner_bytes(data: Buffer) -> int:
    """The size of the object that stays in memory with these bytes."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)


def _memory_bytes(data: Buffer) -> int:
    return _owner_bytes(data) + ENTRY_BYTES


def uses_zstd(batch: Buffer) -> bool:
    """Whether the batch is compressed with zstd, which clients know since Produce 7 and Fetch 10."""
    return header_of(batch).compression_type == "zstd"


LogVersion: TypeAlias = tuple[str, int, int]
"""A topic's id, the partition's leader epoch, its newest erasure: while all stay, a batch stays as it was appended."""


class KafkaTail:
    """The encoded tail of one broker, by its metadata. Any thread may use it.

    Batches of another leader epoch, of an earlier topic of the name, or from before an erasure are not returned.
    """

    def __init__(self, capacity_bytes: int, image: Callable[[], ClusterImage]) -> None:
        """`image`: the metadata as it is here, without a refresh."""
        self._tail = EncodedTail(capacity_bytes)
        self._image = image
        self._versions: dict[TopicPartition, LogVersion] = {}

    def put(self, named: TopicPartition, base_offset: int, leader_epoch: int, records: Buffer) -> None:
        """A produced batch was appended at `base_offset`."""
        version = self.version(named)
        if version is None or version[1] != leader_epoch:
            return  # the metadata here differs from that of the appending leader
        if self._versions.get(named) != version:
            self._tail.forget(named)
            self._versions[named] = version
        self._tail.append(named, base_offset, leader_epoch, records)

    def read(
        self, named: TopicPartition, start_offset: int, end_offset: int, max_bytes: int, *, takes_zstd: bool
    ) -> list[EncodedBatch]:
        """As `EncodedTail.read`; also [] when one is compressed with zstd and the client does not know that."""
        version = self.version(named)
        if version is None or self._versions.get(named) != version:
            return []
        found = self._tail.read(named, version[1], start_offset, end_offset, max_bytes)
        if not takes_zstd and any(uses_zstd(each.data) for each in found):
            return []
        return found

    def readable_bytes(self, named: TopicPartition, start_offset: int, end_offset: int) -> int | None:
        """As `EncodedTail.readable_bytes`."""
        version = self.version(named)
        if version is None or self._versions.get(named) != version:
            return None
        return self._tail.readable_bytes(named, version[1], start_offset, end_offset)

    def version(self, named: TopicPartition) -> LogVersion | None:
        """By the metadata as it is here; None for a partition that it does not have."""
        image = self._image()
        state, topic_id = image.partitions.get(named), image.topic_ids.get(named.topic)
        if state is None or topic_id is None:
            return None
        return topic_id, state.leader_epoch, max(image.erases.get(named.topic, ()), default=0)
