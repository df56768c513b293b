"""The deletion of a removed topic's replicas, broker by broker; brokers that are down do theirs later. Pure.

Each of the topic's brokers deletes its replicas, at once or when it is up again, and then reports it; the rest is in
the image (`ClusterImage.deletions`).
Source: Kafka's `TopicDeletionManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from stratalog.replication.metadata.image import ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.records import MetadataRecord, RemoveTopicRecord, TopicDeletionRecord
from stratalog.replication.metadata.states import ReplicaState, state_of_deletion
from stratalog.storage.records import IdentifiedPartition, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A removed topic whose replicas are not all deleted: the states of the others, by broker."""

    topic: str
    topic_id: str
    partitions: int
    replica_states: dict[int, ReplicaState]


def topic_deletions(image: ClusterImage) -> list[TopicDeletion]:
    """The deletions under way, by topic."""
    return [
        TopicDeletion(d.topic, d.topic_id, d.partitions, {b: state_of_deletion(image, d, b) for b in d.brokers})
        for d in sorted(image.deletions.values(), key=lambda deletion: (deletion.topic, deletion.topic_id))
    ]


def deleted_partitions(changed: Iterable[MetadataRecord]) -> list[IdentifiedPartition]:
    """The partitions of the topics that these records of the metadata log remove, in order."""
    records = list(changed)
    removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
    deletions = [each for each in records if isinstance(each, TopicDeletionRecord) and each.topic_id in removed]
    named = ((each.topic_id, TopicPartition(each.topic, at)) for each in deletions for at in range(each.partitions))
    found = {IdentifiedPartition(*each) for each in named}
    return sorted(found, key=lambda each: (each.topic_partition, each.topic_id))


def deletions_on(image: ClusterImage, broker_id: int) -> list[TopicDeletionRecord]:
    """The deletions that wait for this broker."""
    return [deletion for deletion in image.deletions.values() if broker_id in deletion.brokers]


def replicas_to_delete(
    image: ClusterImage, broker_id: int, topics: Collection[str], held: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Those of the replicas `held` on the broker that belong to the removed `topics`.

    Without those that a new topic of the same name has on this broker: its leader or its fetch session sees by the
    topic id whether the table is a stray, and replaces it.
    """

    def is_assigned(named: TopicPartition) -> bool:
        state = image.partitions.get(named)
        return state is not None and broker_id in state.replicas

    return sorted(named for named in held if named.topic in topics and not is_assigned(named))


def replicas_deleted(
    image: ClusterImage, broker_id: int, broker_epoch: int, topic_ids: Iterable[str]
) -> Result[tuple[str, ...]]:
    """The broker has deleted its replicas of these topics; the answer: the ids of those whose deletion waited for it.

    StaleBrokerEpochError when `broker_epoch` is not its live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    wanted = set(topic_ids)
    done = [deletion for deletion in deletions_on(image, broker_id) if deletion.topic_id in wanted]
    records = (replace(d, brokers=tuple(b for b in d.brokers if b != broker_id)) for d in done)
    return Result(tuple(records), tuple(d.topic_id for d in done))
