"""Keys and values of `__consumer_offsets` in Kafka's binary schemas: committed offsets and classic groups. Pure.

A key begins with its version, which says what a record is: 0 and 1 an offset, 2 a classic group, 3 and more a part of a
modern group (`replication.coordinator.groups.modern.records`). A value begins with the version of its schema.

    key 1    group, topic, partition   -> OffsetCommitValue     version 3 is written, 1 if the offset expires by itself
    key 2    group                     -> GroupMetadataValue    version 3 is written

All versions from 0 to 4 are read. Source: OffsetCommitKey / -Value and GroupMetadataKey / -Value of Kafka's
group-coordinator, and `GroupCoordinatorRecordHelpers`, which writes the newest version that is not flexible (KIP-915).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from stratalog.replication.requests.groups import NO_LEADER_EPOCH
from stratalog.wire.kafka_types import Field, Struct, Versioned, version_of

OFFSET_COMMIT_KEYS = (0, 1)
GROUP_METADATA_KEY = 2
VALUE_VERSIONS = range(5)
FLEXIBLE_FROM = 4
"""The first version of values with compact lengths and tagged fields (KIP-482)."""
WRITTEN_VERSION, EXPIRING_VERSION, IDENTIFIED_VERSION = 3, 1, 4
NO_TOPIC_ID = "0" * 32
NO_TIMESTAMP = -1


_MEMBER = Struct(
    "MemberMetadata",
    (
        Field("member_id", "string"),
        Field("group_instance_id", "string", first_version=3, is_nullable=True),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("rebalance_timeout", "int32", first_version=1),
        Field("session_timeout", "int32"),
        Field("subscription", "bytes"),
        Field("assignment", "bytes"),
    ),
)
_OFFSET_KEY = Versioned(
    Struct("OffsetCommitKey", (Field("group", "string"), Field("topic", "string"), Field("partition", "int32"))),
    range(2),
)
_OFFSET_VALUE = Versioned(
    Struct(
        "OffsetCommitValue",
        (
            Field("offset", "int64"),
            Field("leader_epoch", "int32", first_version=3),
            Field("metadata", "string"),
            Field("commit_timestamp", "int64"),
            Field("expire_timestamp", "int64", first_version=1, last_version=1),
            Field("topic_id", "uuid", first_version=4, tag=0),
        ),
    ),
    VALUE_VERSIONS,
    FLEXIBLE_FROM,
)
_GROUP_KEY = Versioned(Struct("GroupMetadataKey", (Field("group", "string"),)), range(2, 3))
_GROUP_VALUE = Versioned(
    Struct(
        "GroupMetadataValue",
        (
            Field("protocol_type", "string"),
            Field("generation", "int32"),
            Field("protocol", "string", is_nullable=True),
            Field("leader", "string", is_nullable=True),
            Field("current_state_timestamp", "int64", first_version=2),
            Field("members", _MEMBER, is_array=True),
        ),
    ),
    VALUE_VERSIONS,
    FLEXIBLE_FROM,
)


class RecordTables(NamedTuple):
    """What the records of one key version consist of."""

    key: Versioned
    value: Versioned


CLASSIC_RECORDS = {
    0: RecordTables(_OFFSET_KEY, _OFFSET_VALUE),
    1: RecordTables(_OFFSET_KEY, _OFFSET_VALUE),
    GROUP_METADATA_KEY: RecordTables(_GROUP_KEY, _GROUP_VALUE),
}
"""Tables by the version of the key."""


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
    """A committed offset. Timestamps in ms since 1970, -1 for none. `topic_id` "": not known, as of earlier records."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: str = ""


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


def offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    """
    >>> offset_commit_key("g", "t", 3).hex()
    '000100016700017400000003'
    """
    return _OFFSET_KEY.encode({"group": group, "topic": topic, "partition": partition}, OFFSET_COMMIT_KEYS[-1])


def group_metadata_key(group: str) -> bytes:
    """
    >>> group_metadata_key("g").hex()
    '0002000167'
    """
    return _GROUP_KEY.encode({"group": group}, GROUP_METADATA_KEY)


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key of an offset or of a classic group; None if it is neither's. CorruptMessageError if it is cut off."""
    version = version_of(key)
    if version in OFFSET_COMMIT_KEYS:
        return OffsetCommitKey(**_OFFSET_KEY.decode(key))
    return GroupMetadataKey(**_GROUP_KEY.decode(key)) if version == GROUP_METADATA_KEY else None


def encode_offset_commit(value: OffsetCommitValue) -> bytes:
    """Version 4 with the topic's id, 3 without one, or 1 if it expires by itself, for which later versions have no
    field."""
    version = WRITTEN_VERSION if not value.topic_id else IDENTIFIED_VERSION
    version = version if value.expire_timestamp == NO_TIMESTAMP else EXPIRING_VERSION
    return _OFFSET_VALUE.encode(_fields_of(value) | {"topic_id": value.topic_id or NO_TOPIC_ID}, version)


def decode_offset_commit(data: bytes) -> OffsetCommitValue:
    """CorruptMessageError for what is cut off or of a version above 4."""
    fields = _OFFSET_VALUE.decode(data)
    if fields.get("topic_id", NO_TOPIC_ID) == NO_TOPIC_ID:
        fields.pop("topic_id", None)
    return OffsetCommitValue(**fields)


def encode_group_metadata(value: GroupMetadataValue) -> bytes:
    """Version 3."""
    fields = _fields_of(value) | {"members": [_fields_of(member) for member in value.members]}
    return _GROUP_VALUE.encode(fields, WRITTEN_VERSION)


def decode_group_metadata(data: bytes) -> GroupMetadataValue:
    """CorruptMessageError for what is cut off or of a version above 4."""
    fields = _GROUP_VALUE.decode(data)
    members = tuple(MemberMetadata(**member) for member in fields.pop("members"))
    return GroupMetadataValue(**fields, members=members)


def _fields_of(value: OffsetCommitValue | GroupMetadataValue | MemberMetadata) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
