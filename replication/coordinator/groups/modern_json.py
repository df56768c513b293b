"""Records of KIP-848 groups with the names that Kafka's JSON has, for viewers of `__consumer_offsets`. Pure.

Source: `CoordinatorRecordJsonConverters` of Kafka 4.3.1's group coordinator. Topic ids are given as 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stratalog.replication.coordinator.groups.modern_assignors import TopicIdPartition
from stratalog.replication.coordinator.groups.modern_member import Epochs
from stratalog.replication.coordinator.groups.modern_records import (
    KeyVersion,
    ModernGroupKey,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    numbers_by_topic,
)
from stratalog.replication.java_strings import string_order
from stratalog.storage.errors import CorruptMessageError


def key_fields(key: ModernGroupKey) -> dict[str, Any]:
    """The group's id, and the member's or the regular expression where the key has one."""
    match key.version:
        case KeyVersion.MEMBER | KeyVersion.TARGET | KeyVersion.CURRENT:
            return {"groupId": key.group_id, "memberId": key.name}
        case KeyVersion.REGEX:
            return {"groupId": key.group_id, "regularExpression": key.name}
        case _:
            return {"groupId": key.group_id}


def value_fields(key: ModernGroupKey, data: bytes) -> dict[str, Any]:
    """The value of a record with that key. CorruptMessageError if it is cut off, or a legacy one that is not read."""
    match key.version:
        case KeyVersion.GROUP:
            epoch, metadata_hash = decode_group_epoch(data)
            return {"epoch": epoch} | ({"metadataHash": metadata_hash} if metadata_hash else {})
        case KeyVersion.TARGET_EPOCH:
            epoch, timestamp_ms = decode_target_epoch(data)
            return {"assignmentEpoch": epoch} | ({"assignmentTimestamp": timestamp_ms} if timestamp_ms else {})
        case KeyVersion.MEMBER:
            return _member_fields(key.name, data)
        case KeyVersion.TARGET:
            return {"topicPartitions": _topics(decode_target(data))}
        case KeyVersion.CURRENT:
            return _current_fields(data)
        case KeyVersion.REGEX:
            resolved = decode_regex(data)
            topics = sorted(resolved.topics, key=string_order)
            return {"topics": topics, "version": resolved.version, "timestamp": resolved.timestamp_ms}
        case _:
            raise CorruptMessageError(f"records with key version {key.version}, of Kafka before 4.1, are not read")


def _member_fields(member_id: str, data: bytes) -> dict[str, Any]:
    member = decode_member(member_id, data)
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": sorted(member.subscribed_topic_names, key=string_order),
        "subscribedTopicRegex": member.subscribed_topic_regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.server_assignor,
        "classicMemberMetadata": None,
    }


def _current_fields(data: bytes) -> dict[str, Any]:
    current = decode_current(data)
    return {
        "memberEpoch": current.member_epoch,
        "previousMemberEpoch": current.previous_member_epoch,
        "state": int(current.state),
        "assignedPartitions": _topics_with_epochs(current.assigned),
        "partitionsPendingRevocation": _topics_with_epochs(current.pending_revocation),
    }


def _topics(partitions: Iterable[TopicIdPartition]) -> list[dict[str, Any]]:
    return [
        {"topicId": bytes.fromhex(topic_id), "partitions": numbers}
        for topic_id, numbers in numbers_by_topic(partitions).items()
    ]


def _topics_with_epochs(epochs: Epochs) -> list[dict[str, Any]]:
    return [
        topic
        | {"assignmentEpochs": [epochs[TopicIdPartition(topic["topicId"].hex(), at)] for at in topic["partitions"]]}
        for topic in _topics(epochs)
    ]
