"""Offsets that a broker knows to be committed of partitions that it is about to lead again.

I/O: `published_before` and `had_records` read the broker's own progress objects. A leader whose ISR is under
`min.insync.replicas` at the start of its epoch publishes no high watermark (KIP-966), perhaps for long. Records
committed before may be read all the same: every clean leader has them. For that Kafka keeps a high watermark
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import PROGRESS_PREFIX, UNKNOWN, leader_progress_path
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


def had_records(objects: ObjectStore, state: PartitionRecord, topic_id: str) -> bool:
    """Whether this broker ever published, as a leader or as a follower, that it has records of the partition: evidence
    that a table which is absent is lost. The root keeps what the last two registrations published.

    Not after an unclean election, whose leader may begin anew.
    """
    if state.unclean:
        return False
    for meta in objects.list(PROGRESS_PREFIX):
        kind = meta.path.split("/", 2)[2]
        if kind not in ("leader", "leader-ends") and not (kind.startswith("for-") and "/fetch-" in kind):
            continue  # a full state, which is read with its object, or a session's own object
        reader = ProgressReader(objects, meta.path)
        reader.poll()
        entry = reader.entries.get(state.topic_partition)
        if entry is not None and entry.topic_id == topic_id and entry.log_end_offset > 0:
            return True
    return False
