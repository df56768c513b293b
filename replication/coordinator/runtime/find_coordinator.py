"""FindCoordinator, and the creation of the coordinators' topics: decisions on the metadata image. Pure.

Kafka: `KafkaApis.getCoordinator`, `AutoTopicCreationManager`.
"""

from __future__ import annotations

from stratalog.replication.controller.topics import create_topic
from stratalog.replication.internal_topics import InternalTopic, partition_of_key
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.coordinators import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.storage.errors import CoordinatorNotAvailableError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig


def coordinator_partition(image: ClusterImage, kind: CoordinatorType, key: str) -> TopicPartition | None:
    """The partition that holds this key's state; None while its topic does not exist.

    The number of partitions is the topic's; its setting only counts when the topic is created.
    """
    partitions = len(image.partitions_by_topic.get(kind.topic, ()))
    return TopicPartition(kind.topic, partition_of_key(key, partitions)) if partitions else None


def find_coordinators(
    image: ClusterImage, request: FindCoordinatorRequest, refusal: StratalogError | None = None
) -> FindCoordinatorResponse:
    """The live broker that leads each key's partition.

    refusal  why the topic could not be created, if it was tried: its text is in the error of each key
    COORDINATOR_NOT_AVAILABLE, which is retriable, while there is none.
    """
    kind = CoordinatorType(request.key_type)
    return FindCoordinatorResponse(tuple(_find(image, kind, key, refusal) for key in request.coordinator_keys))


def no_coordinators(request: FindCoordinatorRequest, error: StratalogError) -> FindCoordinatorResponse:
    """The answer of a broker that does not know."""
    return FindCoordinatorResponse(tuple(Coordinator(key, error=error) for key in request.coordinator_keys))


def _find(image: ClusterImage, kind: CoordinatorType, key: str, refusal: StratalogError | None) -> Coordinator:
    topic_partition = coordinator_partition(image, kind, key)
    if topic_partition is None:
        why = f": {refusal}" if refusal is not None else ""
        reason = f"there is no coordinator for '{key}' yet, topic {kind.topic} is being created{why}"
        return Coordinator(key, error=CoordinatorNotAvailableError(reason))
    leader = image.partitions[topic_partition].leader
    broker = image.brokers.get(leader)
    if leader == NO_LEADER or broker is None or broker.fenced:
        reason = f"{topic_partition}, which has the state of '{key}', has no live leader (leader {leader})"
        return Coordinator(key, error=CoordinatorNotAvailableError(reason))
    return Coordinator(key, leader)


def create_internal_topic(
    image: ClusterImage, topic: InternalTopic, topic_id: str, *, start_index: int = 0, shift: int = 0
) -> Result[str]:
    """Create an internal topic by the settings, unless it exists; its topic id.

    CoordinatorNotAvailableError with fewer live brokers than its replication factor (Kafka: each creation fails with
    INVALID_REPLICATION_FACTOR, and clients receive COORDINATOR_NOT_AVAILABLE).
    """
    if topic.name in image.topic_ids:
        return Result((), image.topic_ids[topic.name])
    live = len(image.live_brokers())
    if live < topic.replication_factor:
        raise CoordinatorNotAvailableError(
            f"Number of alive brokers '{live}' does not meet the required replication factor "
            f"'{topic.replication_factor}' for {topic.name} (configured via '{topic.factor_setting}')"
        )
    return create_topic(
        image,
        topic.name,
        topic_id,
        topic.partitions,
        topic.replication_factor,
        configs=topic.configs,
        start_index=start_index,
        shift=shift,
        check_configs=LogConfig.validated,
    )
