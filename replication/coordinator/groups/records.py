"""Keys and values of `__consumer_offsets` in Kafka's binary schemas: committed offsets and classic groups. Pure.

A key begins with its version, by which one tells what a record is: 0 and 1 an offset, 2 a classic group, 3 and more
what groups of KIP-848 consist of (`replication.coordinator.groups.modern_records`). A value begins with the version of
its schema.

    key 1    group, topic, partition   -> OffsetCommitValue     version 3 is written, 1 if the offset expires by itself
    key 2    group                     -> GroupMetadataValue    version 3 is written

All versions from 0 to 4 are read. Source: OffsetCommitKey / -Value and GroupMetadataKey / -Value of Kafka's
group-coordinator, and `GroupCoordinatorRecordHelpers`, which writes the newest version that is not flexible (KIP-915).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stratalog.replication.requests.kafka_bytes import KafkaReader, KafkaWriter
from stratalog.storage.errors import CorruptMessageError

OFFSET_COMMIT_KEYS = (0, 1)
GROUP_METADATA_KEY = 2
VALUE_VERSION_MAX = 4
FLEXIBLE_FROM = 4
"""From this version on values have compact lengths and tagged fields (KIP-482)."""
TOPIC_ID_TAG = 0
"""Of OffsetCommitValue, version 4."""
WRITTEN_VERSION, EXPIRING_VERSION = 3, 1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


class Field(NamedTuple):
    """A field of a schema: Kafka's name, its primitive type, and the versions that have it, `first` to `last`."""

    name: str
    kind: str
    first: int = 0
    last: int = VALUE_VERSION_MAX


OFFSET_COMMIT_FIELDS = (
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", first=3),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", first=1, last=1),
)
GROUP_METADATA_FIELDS = (
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "nullable_string"),
    Field("leader", "nullable_string"),
    Field("currentStateTimestamp", "int64", first=2),
)
MEMBER_FIELDS = (
    Field("memberId", "string"),
    Field("groupInstanceId", "nullable_string", first=3),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", first=1),
    Field("sessionTimeout", "int32"),
    Field("subscription", "byte_string"),
    Field("assignment", "byte_string"),
)


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    group: str


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset. Timestamps in ms since 1970, -1 for none."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member of a generation. Timeouts in ms; `rebalance_timeout` -1: as the session timeout (version 0)."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    session_timeout: int = 0
    subscription: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A generation that became stable (with members) or a group without members."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = ()


def key_version(key: bytes) -> int:
    """What kind of record a key is of; CorruptMessageError if it is shorter than that.

    >>> key_version(group_metadata_key("g"))
    2
    """
    return KafkaReader(key, flexible=False).int16()


def offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    """
    >>> offset_commit_key("g", "t", 3).hex()
    '000100016700017400000003'
    """
    writer = KafkaWriter(flexible=False)
    writer.int16(OFFSET_COMMIT_KEYS[-1])
    writer.string(group)
    writer.string(topic)
    writer.int32(partition)
    return writer.bytes_written()


def group_metadata_key(group: str) -> bytes:
    """
    >>> group_metadata_key("g").hex()
    '0002000167'
    """
    writer = KafkaWriter(flexible=False)
    writer.int16(GROUP_METADATA_KEY)
    writer.string(group)
    return writer.bytes_written()


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key of an offset or of a classic group; None if it is neither's. CorruptMessageError if it is cut off."""
    reader = KafkaReader(key, flexible=False)
    version = reader.int16()
    if version in OFFSET_COMMIT_KEYS:
        return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    return GroupMetadataKey(reader.string()) if version == GROUP_METADATA_KEY else None


def encode_offset_commit(value: OffsetCommitValue) -> bytes:
    """Version 3, or 1 if it expires by itself, which later versions cannot say."""
    version = WRITTEN_VERSION if value.expire_timestamp == NO_TIMESTAMP else EXPIRING_VERSION
    writer = KafkaWriter(flexible=False)
    writer.int16(version)
    fields = (value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp)
    _write(writer, OFFSET_COMMIT_FIELDS, fields, version)
    return writer.bytes_written()


def decode_offset_commit(data: bytes) -> OffsetCommitValue:
    """CorruptMessageError for what is cut off or of a version above 4; the topic id of version 4 is not kept."""
    _version, fields = offset_commit_fields(data)
    return OffsetCommitValue(
        fields["offset"],
        fields.get("leaderEpoch", NO_LEADER_EPOCH),
        fields["metadata"],
        fields["commitTimestamp"],
        fields.get("expireTimestamp", NO_TIMESTAMP),
    )


def encode_group_metadata(value: GroupMetadataValue) -> bytes:
    """Version 3."""
    writer = KafkaWriter(flexible=False)
    writer.int16(WRITTEN_VERSION)
    fields = (value.protocol_type, value.generation, value.protocol, value.leader, value.current_state_timestamp)
    _write(writer, GROUP_METADATA_FIELDS, fields, WRITTEN_VERSION)
    writer.array(value.members, lambda member: _write(writer, MEMBER_FIELDS, _member_values(member), WRITTEN_VERSION))
    return writer.bytes_written()


def decode_group_metadata(data: bytes) -> GroupMetadataValue:
    """CorruptMessageError for what is cut off or of a version above 4."""
    _version, fields = group_metadata_fields(data)
    return GroupMetadataValue(
        fields["protocolType"],
        fields["generation"],
        fields["protocol"],
        fields["leader"],
        fields.get("currentStateTimestamp", NO_TIMESTAMP),
        tuple(_member(each) for each in fields["members"]),
    )


def offset_commit_fields(data: bytes) -> tuple[int, dict[str, Any]]:
    """(version, fields by Kafka's names): those that the version has, `topicId` (16 bytes) if it is there."""
    reader, version = _versioned(data)
    fields = _read(reader, OFFSET_COMMIT_FIELDS, version)
    topic_id = reader.tagged_fields().get(TOPIC_ID_TAG)
    return version, fields if topic_id is None else fields | {"topicId": topic_id}


def group_metadata_fields(data: bytes) -> tuple[int, dict[str, Any]]:
    """(version, fields by Kafka's names), `members` a list of such fields."""
    reader, version = _versioned(data)

    def member() -> dict[str, Any]:
        fields = _read(reader, MEMBER_FIELDS, version)
        reader.tagged_fields()
        return fields

    fields = _read(reader, GROUP_METADATA_FIELDS, version)
    fields["members"] = reader.array(member)
    reader.tagged_fields()
    return version, fields


def _versioned(data: bytes) -> tuple[KafkaReader, int]:
    reader = KafkaReader(data, flexible=False)
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise CorruptMessageError(f"value version {version} is not within 0 to {VALUE_VERSION_MAX}")
    reader.flexible = version >= FLEXIBLE_FROM
    return reader, version


def _read(reader: KafkaReader, schema: tuple[Field, ...], version: int) -> dict[str, Any]:
    return {field.name: getattr(reader, field.kind)() for field in schema if field.first <= version <= field.last}


def _write(writer: KafkaWriter, schema: tuple[Field, ...], values: tuple[Any, ...], version: int) -> None:
    for field, value in zip(schema, values, strict=True):
        if field.first <= version <= field.last:
            getattr(writer, field.kind.removeprefix("nullable_"))(value)


def _member(fields: Mapping[str, Any]) -> MemberMetadata:
    return MemberMetadata(
        fields["memberId"],
        fields.get("groupInstanceId"),
        fields["clientId"],
        fields["clientHost"],
        fields.get("rebalanceTimeout", -1),
        fields["sessionTimeout"],
        fields["subscription"],
        fields["assignment"],
    )


def _member_values(member: MemberMetadata) -> tuple[Any, ...]:
    identity = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    timeouts = (member.rebalance_timeout, member.session_timeout)
    return (*identity, *timeouts, member.subscription, member.assignment)
