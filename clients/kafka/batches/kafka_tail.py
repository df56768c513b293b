"""The newest record batches as producers sent them, so that a fetch near the log's end encodes nothing.

I/O: none of its own; what it keeps is in memory. What was kept under another leader epoch, for an earlier topic of the
name, or before records were erased, is not given any more.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.clients.kafka.batches.encoded_tail import EncodedTail
from stratalog.clients.kafka.batches.headers import Buffer, EncodedBatch, header_of
from stratalog.replication.metadata.image import ClusterImage
from stratalog.storage.records import TopicPartition

Life = tuple[str, int, int]
"""A topic's id, the partition's leader epoch, the newest erasure: within one, a batch stays as it was appended."""


def uses_zstd(batch: Buffer) -> bool:
    """Whether a record batch is compressed with zstd, which clients know since Produce 7 and Fetch 10."""
    return header_of(batch).compression_type == "zstd"


class KafkaTail:
    """One broker's. Any thread may use it."""

    def __init__(self, capacity_bytes: int, image: Callable[[], ClusterImage]) -> None:
        """`image`: the metadata as of now, without looking for newer."""
        self._tail = EncodedTail(capacity_bytes)
        self._image = image
        self._lives: dict[TopicPartition, Life | None] = {}

    def put(self, named: TopicPartition, base_offset: int, leader_epoch: int, records: bytes) -> None:
        """A produced batch was appended at `base_offset`."""
        life = self._life(named)
        if life is None or life[1] != leader_epoch:
            return  # the metadata here is not that of the leader who appended it
        self._begin(named, life)
        self._tail.append(named, base_offset, leader_epoch, records)

    def read(
        self, named: TopicPartition, start_offset: int, end_offset: int, max_bytes: int, *, takes_zstd: bool
    ) -> list[EncodedBatch]:
        """Batches from the one that holds `start_offset` on, all below `end_offset`; none: they are not here."""
        life = self._life(named)
        if life is None or self._lives.get(named) != life:
            return []
        found = self._tail.read(named, life[1], start_offset, end_offset, max_bytes)
        if not takes_zstd and any(uses_zstd(each.data) for each in found):
            return []
        return found

    def _begin(self, named: TopicPartition, life: Life) -> None:
        if self._lives.get(named) != life:
            self._tail.forget(named)
            self._lives[named] = life

    def _life(self, named: TopicPartition) -> Life | None:
        image = self._image()
        state, topic_id = image.partitions.get(named), image.topic_ids.get(named.topic)
        if state is None or topic_id is None:
            return None
        return topic_id, state.leader_epoch, max(image.erases.get(named.topic, ()), default=0)
