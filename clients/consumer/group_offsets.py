"""A group's committed offsets as clients write and read them: requests built, answers judged. Pure.

Source: Kafka's ConsumerCoordinator (OffsetCommitResponseHandler, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stratalog.clients.consumer.group_steps import Generation
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.requests.groups import (
    NO_LEADER_EPOCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from stratalog.storage.errors import (
    InvalidRequestError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(
    group_id: str, offsets: Offsets, identity: Generation, group_instance_id: str | None = None
) -> OffsetCommitRequest:
    """A commit of `offsets`; InvalidRequestError for a negative one.

    Without a membership `identity` is `Generation()`: taken while the group has no members.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic_partition, committed in offsets.items():
        if committed.offset < 0:
            raise InvalidRequestError(f"{topic_partition}: Invalid offset: {committed.offset}")
        epoch = NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
        row = OffsetCommitRequestPartition(topic_partition.partition, committed.offset, epoch, committed.metadata)
        by_topic.setdefault(topic_partition.topic, []).append(row)
    topics = tuple(OffsetCommitRequestTopic(topic, tuple(rows)) for topic, rows in by_topic.items())
    return OffsetCommitRequest(group_id, topics, identity.generation_id, identity.member_id, group_instance_id)


def commit_error(response: OffsetCommitResponse) -> StratalogError | None:
    """What went wrong first; topics that are not the client's only if nothing else did. None: all is stored."""
    errors = [
        (TopicPartition(topic.name, row.partition_index), row.error)
        for topic in response.topics
        for row in topic.partitions
    ]
    failed = [(tp, error) for tp, error in errors if error is not None]
    others = [error for _, error in failed if not isinstance(error, TopicAuthorizationFailedError)]
    if others:
        return others[0]
    if failed:
        topics = ", ".join(sorted({tp.topic for tp, _ in failed}))
        return TopicAuthorizationFailedError(f"Not authorized to access topics: [{topics}]")
    return None


def fetch_request(
    group_id: str, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool = True
) -> OffsetFetchRequest:
    """Asks for the committed offsets of these partitions; None: of all that the group has."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    if topic_partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic_partition in topic_partitions:
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        topics = tuple(OffsetFetchRequestTopic(topic, tuple(numbers)) for topic, numbers in by_topic.items())
    return OffsetFetchRequest((OffsetFetchRequestGroup(group_id, topics),), require_stable)


def fetched_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Each partition's committed offset, None without one, of the one group that was asked for.

    Raises its error, or the first of a partition: UNSTABLE_OFFSET_COMMIT (retriable) while a transaction is open.
    """
    if len(response.groups) != 1:
        raise UnknownServerError(f"asked for the offsets of one group, answered were {len(response.groups)}")
    group = response.groups[0]
    if group.error is not None:
        raise group.error
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for row in topic.partitions:
            if row.error is not None:
                raise row.error
            epoch = None if row.committed_leader_epoch == NO_LEADER_EPOCH else row.committed_leader_epoch
            committed = OffsetAndMetadata(row.committed_offset, row.metadata or "", epoch)
            found[TopicPartition(topic.name, row.partition_index)] = committed if row.committed_offset >= 0 else None
    return found
