"""The least that a request would add to a coordinator's log, for a refusal before anything is made of it. Pure.

The records of a decision are one batch, of at most the topic's `max.message.bytes`. A request that cannot fit is
refused before its shard decides: making the records would hold the broker's loop, and a decision that is not appended
costs the shard, for all groups in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.coordinator.runtime.writes import RECORD_OVERHEAD_BYTES
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest
from stratalog.replication.requests.groups import (
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

OFFSET_RECORD_BYTES = 32
"""Of a committed offset beside its group, its topic and its note."""


def least_record_bytes(request: object) -> int:
    """A lower bound of the bytes of a request's records; 0 for requests with few.

    A JoinGroup's subscription is stored once its group is stable, so it counts already.
    """
    match request:
        case OffsetCommitRequest() | TxnOffsetCommitRequest():
            return _offsets_bytes(request.group_id, request.topics)
        case SyncGroupRequest():
            return sum(len(each.assignment) for each in request.assignments)
        case JoinGroupRequest():
            return min((len(each.metadata) for each in request.protocols), default=0)
        case ConsumerGroupHeartbeatRequest():
            names = sum(map(len, request.subscribed_topic_names or ()))
            return names + sum(4 * len(each.partitions) for each in request.topic_partitions or ())
    return 0


def _offsets_bytes(group_id: str, topics: Iterable[OffsetCommitRequestTopic]) -> int:
    fixed_bytes = OFFSET_RECORD_BYTES + RECORD_OVERHEAD_BYTES + len(group_id)
    return sum(
        len(topic.partitions) * (fixed_bytes + len(topic.name))
        + sum(len(each.committed_metadata or "") for each in topic.partitions)
        for topic in topics
    )
