"""Keys and values of `__consumer_offsets` for modern groups (KIP-848), in Kafka's binary schemas. Pure.

    key 3    group           group epoch, hash of the subscribed topics       ConsumerGroupMetadata
    key 5    group, member   subscription of a member                         ConsumerGroupMemberMetadata
    key 6    group           epoch of the target assignment, its time         ConsumerGroupTargetAssignmentMetadata
    key 7    group, member   target of a member                               ConsumerGroupTargetAssignmentMember
    key 8    group, member   what a member has                                ConsumerGroupCurrentMemberAssignment
    key 16   group, regex    the topics that a regular expression matched     ConsumerGroupRegularExpression

A key begins with its version as int16, a value with schema version 0, which is flexible. Values of key 4, the
subscribed topics of Kafka before 4.1, are neither read nor written.
Source: the message JSON of Kafka 4.3.1's group-coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from stratalog.replication.coordinator.groups.modern.member import (
    ClassicMemberMetadata,
    Epochs,
    ModernMember,
    ModernMemberState,
)
from stratalog.replication.coordinator.groups.records import RecordTables
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.requests.groups import JoinGroupRequestProtocol
from stratalog.storage.errors import CorruptMessageError
from stratalog.wire.consumer_protocol import partitions_by_topic
from stratalog.wire.java_strings import string_order
from stratalog.wire.kafka_types import Field, Struct, Versioned, version_of


class KeyVersion(IntEnum):
    """What a record is about."""

    GROUP = 3
    LEGACY_TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


VALUE_VERSION = 0
_GROUP_ID, _MEMBER_ID = Field("group_id", "string"), Field("member_id", "string")
_TOPIC_NAMES = Field("topics", "string", is_array=True)
_PARTITIONS = (Field("topic_id", "uuid"), Field("partitions", "int32", is_array=True))
_EPOCHS = Field("assignment_epochs", "int32", is_array=True, is_nullable=True, tag=0)
_TOPIC = Struct("TopicPartitions", _PARTITIONS)
_TOPIC_WITH_EPOCHS = Struct("TopicPartitions", (*_PARTITIONS, _EPOCHS))
_CLASSIC_PROTOCOL = Struct("ClassicProtocol", (Field("name", "string"), Field("metadata", "bytes")))
_CLASSIC_MEMBER = Struct(
    "ClassicMemberMetadata",
    (Field("session_timeout_ms", "int32"), Field("supported_protocols", _CLASSIC_PROTOCOL, is_array=True)),
)
_NOT_NULL = ()
"""A default that is not null: Kafka writes the tagged field of a classic member even where it is null."""


def _tables(version: KeyVersion, name: str, key: tuple[Field, ...], value: tuple[Field, ...]) -> RecordTables:
    return RecordTables(
        Versioned(Struct(f"{name}Key", key), range(version, version + 1)),
        Versioned(Struct(f"{name}Value", value), range(1 if value else 0), flexible_from=0),
    )


_TABLES = (
    _tables(
        KeyVersion.GROUP,
        "ConsumerGroupMetadata",
        (_GROUP_ID,),
        (Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0, default=0)),
    ),
    _tables(KeyVersion.LEGACY_TOPICS, "ConsumerGroupPartitionMetadata", (_GROUP_ID,), ()),
    _tables(
        KeyVersion.MEMBER,
        "ConsumerGroupMemberMetadata",
        (_GROUP_ID, _MEMBER_ID),
        (
            Field("instance_id", "string", is_nullable=True),
            Field("rack_id", "string", is_nullable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "string", is_array=True),
            Field("subscribed_topic_regex", "string", is_nullable=True),
            Field("rebalance_timeout_ms", "int32"),
            Field("server_assignor", "string", is_nullable=True),
            Field("classic_member_metadata", _CLASSIC_MEMBER, is_nullable=True, tag=0, default=_NOT_NULL),
        ),
    ),
    _tables(
        KeyVersion.TARGET_EPOCH,
        "ConsumerGroupTargetAssignmentMetadata",
        (_GROUP_ID,),
        (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", tag=0, default=0)),
    ),
    _tables(
        KeyVersion.TARGET,
        "ConsumerGroupTargetAssignmentMember",
        (_GROUP_ID, _MEMBER_ID),
        (Field("topic_partitions", _TOPIC, is_array=True),),
    ),
    _tables(
        KeyVersion.CURRENT,
        "ConsumerGroupCurrentMemberAssignment",
        (_GROUP_ID, _MEMBER_ID),
        (
            Field("member_epoch", "int32"),
            Field("previous_member_epoch", "int32"),
            Field("state", "int8"),
            Field("assigned_partitions", _TOPIC_WITH_EPOCHS, is_array=True),
            Field("partitions_pending_revocation", _TOPIC_WITH_EPOCHS, is_array=True),
        ),
    ),
    _tables(
        KeyVersion.REGEX,
        "ConsumerGroupRegularExpression",
        (_GROUP_ID, Field("regular_expression", "string")),
        (_TOPIC_NAMES, Field("version", "int64"), Field("timestamp", "int64")),
    ),
)
MODERN_RECORDS = {tables.key.versions[0]: tables for tables in _TABLES}
"""Tables by the version of the key."""

KEY_VERSIONS = frozenset(map(int, MODERN_RECORDS))


class ModernGroupKey(NamedTuple):
    """`name` is a member id, with key 16 a regular expression, else empty."""

    version: int
    group_id: str
    name: str = ""


class GroupEpoch(NamedTuple):
    """Value of key 3."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """Value of key 6; `timestamp_ms` 0 if it is not known."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """Value of key 8."""

    member_epoch: int
    previous_member_epoch: int
    state: ModernMemberState
    assigned: Epochs
    pending_revocation: Epochs


class ResolvedRegex(NamedTuple):
    """Value of key 16: `topics` that the expression matched at `timestamp_ms`. `version`: of Kafka's metadata image."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def encode_key(key: ModernGroupKey) -> bytes:
    table = MODERN_RECORDS[key.version].key
    names = (field.name for field in table.struct.fields)
    return table.encode(dict(zip(names, key[1:], strict=False)), key.version)


def decode_key(data: bytes) -> ModernGroupKey:
    """CorruptMessageError for keys of something else."""
    version = version_of(data)
    if version not in MODERN_RECORDS:
        raise CorruptMessageError(f"key version {version} is not of a modern group: {sorted(MODERN_RECORDS)}")
    return ModernGroupKey(version, *MODERN_RECORDS[version].key.decode(data).values())


def tombstone(version: int, group_id: str, name: str = "") -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(ModernGroupKey(version, group_id, name)), None)


def group_epoch_record(group_id: str, value: GroupEpoch) -> CoordinatorRecord:
    return _record(ModernGroupKey(KeyVersion.GROUP, group_id), value._asdict())


def decode_group_epoch(data: bytes) -> GroupEpoch:
    return GroupEpoch(**_decoded(KeyVersion.GROUP, data))


def member_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    """The member's subscription; its assignment is `current_record`."""
    fields = {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.subscribed_topic_names, key=string_order),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_member_metadata": _classic_fields(member.classic_member_metadata),
    }
    return _record(ModernGroupKey(KeyVersion.MEMBER, group_id, member.member_id), fields)


def decode_member(member_id: str, data: bytes) -> ModernMember:
    """The member with its subscription only."""
    fields = _decoded(KeyVersion.MEMBER, data)
    fields["classic_member_metadata"] = _classic_metadata(fields.get("classic_member_metadata"))
    fields["subscribed_topic_names"] = frozenset(fields["subscribed_topic_names"])
    fields["subscribed_topic_regex"] = fields["subscribed_topic_regex"] or ""
    return ModernMember(member_id, **fields)


def _classic_fields(metadata: ClassicMemberMetadata | None) -> dict[str, Any] | None:
    if metadata is None:
        return None
    protocols = [{"name": each.name, "metadata": each.metadata} for each in metadata.supported_protocols]
    return {"session_timeout_ms": metadata.session_timeout_ms, "supported_protocols": protocols}


def _classic_metadata(fields: Mapping[str, Any] | None) -> ClassicMemberMetadata | None:
    if not fields:
        return None
    protocols = tuple(JoinGroupRequestProtocol(**each) for each in fields["supported_protocols"])
    return ClassicMemberMetadata(fields["session_timeout_ms"], protocols)


def target_epoch_record(group_id: str, value: TargetEpoch) -> CoordinatorRecord:
    fields = {"assignment_epoch": value.epoch, "assignment_timestamp": value.timestamp_ms}
    return _record(ModernGroupKey(KeyVersion.TARGET_EPOCH, group_id), fields)


def decode_target_epoch(data: bytes) -> TargetEpoch:
    return TargetEpoch(*_decoded(KeyVersion.TARGET_EPOCH, data).values())


def target_record(group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> CoordinatorRecord:
    by_topic = partitions_by_topic(sorted(partitions))
    topics = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in by_topic.items()]
    return _record(ModernGroupKey(KeyVersion.TARGET, group_id, member_id), {"topic_partitions": topics})


def decode_target(data: bytes) -> frozenset[TopicIdPartition]:
    topics = _decoded(KeyVersion.TARGET, data)["topic_partitions"]
    return frozenset(TopicIdPartition(topic["topic_id"], number) for topic in topics for number in topic["partitions"])


def current_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    fields = {
        "member_epoch": member.member_epoch,
        "previous_member_epoch": member.previous_member_epoch,
        "state": member.state,
        "assigned_partitions": _with_epochs(member.assigned),
        "partitions_pending_revocation": _with_epochs(member.pending_revocation),
    }
    return _record(ModernGroupKey(KeyVersion.CURRENT, group_id, member.member_id), fields)


def decode_current(data: bytes) -> CurrentAssignment:
    """States that this version does not know are UNKNOWN. Partitions without epochs have the member's."""
    fields = _decoded(KeyVersion.CURRENT, data)
    member_epoch, state = fields["member_epoch"], fields["state"]
    return CurrentAssignment(
        member_epoch,
        fields["previous_member_epoch"],
        ModernMemberState(state) if state in list(map(int, ModernMemberState)) else ModernMemberState.UNKNOWN,
        _epochs(fields["assigned_partitions"], member_epoch),
        _epochs(fields["partitions_pending_revocation"], member_epoch),
    )


def regex_record(group_id: str, regex: str, value: ResolvedRegex) -> CoordinatorRecord:
    topics = sorted(value.topics, key=string_order)
    fields = {"topics": topics, "version": value.version, "timestamp": value.timestamp_ms}
    return _record(ModernGroupKey(KeyVersion.REGEX, group_id, regex), fields)


def decode_regex(data: bytes) -> ResolvedRegex:
    fields = _decoded(KeyVersion.REGEX, data)
    return ResolvedRegex(frozenset(fields["topics"]), fields["version"], fields["timestamp"])


def _record(key: ModernGroupKey, fields: Mapping[str, Any]) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(key), MODERN_RECORDS[key.version].value.encode(fields, VALUE_VERSION))


def _decoded(version: KeyVersion, data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = MODERN_RECORDS[version].value.decode(data)
    return fields


def _with_epochs(epochs: Epochs) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": topic_id,
            "partitions": numbers,
            "assignment_epochs": [epochs[TopicIdPartition(topic_id, number)] for number in numbers],
        }
        for topic_id, numbers in partitions_by_topic(sorted(epochs)).items()
    ]


def _epochs(topics: Iterable[Mapping[str, Any]], member_epoch: int) -> dict[TopicIdPartition, int]:
    epochs: dict[TopicIdPartition, int] = {}
    for topic in topics:
        numbers = topic["partitions"]
        of_topic = topic.get("assignment_epochs")
        if of_topic is None:
            of_topic = [member_epoch] * len(numbers)
        partitions = (TopicIdPartition(topic["topic_id"], number) for number in numbers)
        epochs.update(zip(partitions, of_topic, strict=True))
    return epochs
