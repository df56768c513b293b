"""What a request would add to a coordinator's log, for a refusal before anything is made of it. Pure.

The records of a decision are one batch, of at most the topic's `max.message.bytes`. A request that cannot fit is
refused before its shard decides: making the records would hold the broker's loop, and a decision that is not appended
costs the shard, for all groups in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.coordinator.shard.shard import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest
from stratalog.replication.requests.groups import (
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

OFFSET_RECORD_BYTES = 64
"""Of a committed offset beside its group, its topic and its note."""


def least_record_bytes(request: object) -> int:
    """A lower bound of the bytes of a request's records; 0 for requests with few. Of offsets it is what their batch
    is counted with, or some bytes more.

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
            names = sum(map(text_bytes, request.subscribed_topic_names or ()))
            return names + sum(4 * len(each.partitions) for each in request.topic_partitions or ())
    return 0


def _offsets_bytes(group_id: str, topics: Iterable[OffsetCommitRequestTopic]) -> int:
    fixed_bytes = OFFSET_RECORD_BYTES + RECORD_OVERHEAD_BYTES + text_bytes(group_id)
    return BATCH_OVERHEAD_BYTES + sum(
        len(topic.partitions) * (fixed_bytes + text_bytes(topic.name))
        + sum(text_bytes(each.committed_metadata or "") for each in topic.partitions)
        for topic in topics
    )


def text_bytes(text: str) -> int:
    """The size of a text in a record, without its length: up to four bytes a character."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
