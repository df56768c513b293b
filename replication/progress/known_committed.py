"""What a broker knows to be committed of a partition that it is about to lead again.

I/O: `published_before` reads the broker's own progress object. A leader whose ISR is under `min.insync.replicas` at the
start of its epoch publishes no high watermark (KIP-966), perhaps for long. What was committed before may be read all
the same: every clean leader has it. Kafka keeps a high watermark checkpoint for that.
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
    """The partition of topic `topic_id` was committed up to `offset` when it had had `unclean` unclean elections."""

    topic_id: str
    unclean: int
    offset: int


def known_committed(known: KnownCommitted | None, topic_id: str, state: PartitionRecord) -> int:
    """The offset, if it still says something about the partition in `state`; else UNKNOWN.

    An unclean leader may lack what was committed, and a topic created anew begins at 0.
    """
    if known is None or (known.topic_id, known.unclean) != (topic_id, state.unclean):
        return UNKNOWN
    return known.offset


def published_before(objects: ObjectStore, image: ClusterImage, broker_id: int) -> dict[TopicPartition, KnownCommitted]:
    """What the registration of `broker_id` that stands in `image` last published as a leader, in its root `objects`.

    Only of partitions that never had an unclean election: an entry does not say whether it is from before one.
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
