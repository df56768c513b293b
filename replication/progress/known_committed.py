"""Offsets that a broker knows to be committed of partitions that it is about to lead again.

I/O: `published_before` and `had_records` read the broker's own progress objects, `remove_old_progress` deletes some. A
leader whose ISR is under `min.insync.replicas` at the start of its epoch publishes no high watermark (KIP-966), perhaps
for long. Records committed before may be read all the same: every clean leader has them. For that Kafka keeps a high
watermark checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import PROGRESS_PREFIX, UNKNOWN, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition


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

    Not those of before an unclean election.
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
        if state is not None and state.unclean == entry.unclean and offset != UNKNOWN:
            found[topic_partition] = KnownCommitted(entry.topic_id, entry.unclean, offset)
    return found


def had_records(objects: ObjectStore, state: PartitionRecord, topic_id: str) -> bool:
    """Whether this broker ever published, as a leader or as a follower, that it has records of the partition: evidence
    that a table which is absent is lost. `remove_old_progress` keeps it.

    Not before an unclean election, whose leader may begin again.
    """
    paths = [meta.path for meta in objects.list(PROGRESS_PREFIX)]
    return (state.topic_partition, topic_id, state.unclean) in _with_records(objects, paths)


def remove_old_progress(objects: ObjectStore, image: ClusterImage, broker_epoch: int) -> None:
    """Delete the objects of earlier registrations, except the last one's, which may still be read, and those which
    alone say that the broker has records of a partition that `image` knows.

    A broker that is started several times before it leads again publishes nothing of its replicas meanwhile.
    """
    paths: dict[int, list[str]] = {}
    for meta in objects.list(PROGRESS_PREFIX):
        paths.setdefault(int(meta.path.split("/")[1]), []).append(meta.path)
    earlier = sorted(paths.keys() - {broker_epoch}, reverse=True)
    if len(earlier) < 2:
        return
    said = _with_records(objects, paths.get(broker_epoch, []) + paths[earlier[0]])
    for epoch in earlier[1:]:
        says = {each for each in _with_records(objects, paths[epoch]) if _is_known(image, *each)}
        if says <= said:
            for path in paths[epoch]:
                objects.delete(path)
        said |= says


def _with_records(objects: ObjectStore, paths: Sequence[str]) -> set[tuple[TopicPartition, str, int]]:
    """The partitions of which these progress objects say that there are records, with their topic ids and numbers of
    unclean elections."""
    found: set[tuple[TopicPartition, str, int]] = set()
    for path in paths:
        kind = path.split("/", 2)[2]
        if kind not in ("leader", "leader-ends") and not (kind.startswith("for-") and "/fetch-" in kind):
            continue  # a full state, which is read with its object, or a session's own object
        reader = ProgressReader(objects, path)
        reader.poll()
        entries = reader.entries.items()
        found |= {(tp, entry.topic_id, entry.unclean) for tp, entry in entries if entry.log_end_offset > 0}
    return found


def _is_known(image: ClusterImage, topic_partition: TopicPartition, topic_id: str, unclean: int) -> bool:
    state = image.state_of(IdentifiedPartition(topic_id, topic_partition))
    return state is not None and state.unclean == unclean
