"""A cluster's image from brokers' answers: Metadata, DescribeCluster, DescribeTopicPartitions. Pure.

Brokers' roots and epochs, and what only controllers decide by, are not in the answers: they are empty or 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, RegisterBrokerRecord
from stratalog.storage.records import TopicPartition
from stratalog.wire.messages.schema import Entity
from stratalog.wire.messages.values import id_text


def image_of(metadata: Entity, cluster: Entity, listener: str) -> ClusterImage:
    """The image of a cluster.

    metadata  a response to Metadata of version 12, for all topics
    cluster   a response to DescribeCluster of version 2, with fenced brokers
    listener  the name under which the brokers' addresses are known; where clients call them
    """
    partitions = {each.topic_partition: each for each in _partitions(metadata.topics)}
    by_topic: dict[str, dict[TopicPartition, bool]] = {}
    for named in partitions:
        by_topic.setdefault(named.topic, {})[named] = True
    return ClusterImage(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers={each.broker_id: _broker(each, listener) for each in cluster.brokers},
        topic_ids={each.name: _id(each.topic_id) for each in metadata.topics if not each.error_code},
        partitions=partitions,
        partitions_by_topic=by_topic,
    )


def _id(topic_id: str | None) -> str:
    return id_text(topic_id) or ""


def _broker(broker: Entity, listener: str) -> BrokerState:
    endpoint = f"{listener}://{broker.host}:{broker.port}"
    registration = RegisterBrokerRecord(broker.broker_id, 0, "", "", broker.rack, endpoint)
    return BrokerState(registration, fenced=broker.is_fenced)


def _partitions(topics: Iterable[Entity]) -> Iterator[PartitionRecord]:
    for topic in topics:
        for each in topic.partitions:
            yield PartitionRecord(
                topic.name,
                each.partition_index,
                tuple(each.replica_nodes),
                each.leader_id,
                each.leader_epoch,
                tuple(each.isr_nodes),
                0,
                0,
                elr=tuple(getattr(each, "eligible_leader_replicas", None) or ()),
                last_known_elr=tuple(getattr(each, "last_known_elr", None) or ()),
            )


def described_partitions(
    topics: Iterable[Entity], moving: Iterable[tuple[TopicPartition, tuple[int, ...], tuple[int, ...]]]
) -> dict[TopicPartition, PartitionRecord]:
    """Partitions of DescribeTopicPartitions, with the replicas that reassignments add and remove (`moving`)."""
    found = {each.topic_partition: each for each in _partitions(topics)}
    for named, adding, removing in moving:
        if named in found:
            found[named] = replace(found[named], adding=adding, removing=removing)
    return found
