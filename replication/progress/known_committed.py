"""Offsets that a broker knows to be committed of partitions that it is about to lead again.

I/O: `published_before` reads the broker's own progress object. A leader whose ISR is under `min.insync.replicas` at the
start of its epoch publishes no high watermark (KIP-966), perhaps for long. Records committed before may be read all the
same: every clean leader has them. Kafka keeps a high watermark checkpoint for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class KnownCommitted:
    """A partition of topic `topic_id` was committed up to `offset` after `unclean` unclean elections."""

    topic_id: str
    unclean: int
    offset: int


def known_committed(known: KnownCommitted | None, topic_id: str, state: PartitionRecord) -> int:
    """The offset if it still holds for the partition in `state`, else UNKNOWN.

    An unclean leader may lack committed records, and a new topic of the name begins at 0.
    """
    if known is None or (known.topic_id, known.unclean) != (topic_id, state.unclean):
        return UNKNOWN
    return known.offset


def published_before(objects: ObjectStore, image: ClusterImage, broker_id: int) -> dict[TopicPartition, KnownCommitted]:
    """The committed offsets that the registration of `broker_id` in `image` last published in its root `objects`.

    Only of partitions without an unclean election: an entry may be from before one.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        return {}
    reader = ProgressReader(objects, leader_progress_path(broker.broker_epoch))
    reader.poll()
    found: dict[TopicPartition, KnownCommitted] = {}
    for topic_partition, entry in reader.entries.items():
        state = image.partitions.get(topic_partition)
        offset = max(entry.high_watermark, entry.known_committed)
        if state is not None and state.unclean == 0 and offset != UNKNOWN:
            found[topic_partition] = KnownCommitted(entry.topic_id, 0, offset)
    return found
