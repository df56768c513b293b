"""Keys and values of `__consumer_offsets` for KIP-848 groups, in Kafka's binary schemas. Pure.

    key 3    group           group epoch, hash of the subscribed topics       ConsumerGroupMetadata
    key 5    group, member   subscription of a member                         ConsumerGroupMemberMetadata
    key 6    group           epoch of the target assignment, its time         ConsumerGroupTargetAssignmentMetadata
    key 7    group, member   target of a member                               ConsumerGroupTargetAssignmentMember
    key 8    group, member   what a member has                                ConsumerGroupCurrentMemberAssignment
    key 16   group, regex    the topics that a regular expression matched     ConsumerGroupRegularExpression

A key begins with its version as int16, a value with schema version 0, which is flexible. Key 4, the subscribed topics
of Kafka before 4.1, is neither read nor written. Kafka marks members of the classic protocol in such a group by a
tagged field of key 5; we have none and pass over it. Source: the message JSON of Kafka 4.3.1's group-coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stratalog.replication.coordinator.groups.modern_assignors import TopicIdPartition
from stratalog.replication.coordinator.groups.modern_member import Epochs, ModernMember, ModernMemberState
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.java_strings import string_order
from stratalog.replication.requests.kafka_bytes import KafkaReader, KafkaWriter
from stratalog.storage.errors import CorruptMessageError


class KeyVersion(IntEnum):
    """What a record is about."""

    GROUP = 3
    LEGACY_TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


KEY_VERSIONS = frozenset(map(int, KeyVersion))
_GROUP_ONLY = frozenset((KeyVersion.GROUP, KeyVersion.LEGACY_TOPICS, KeyVersion.TARGET_EPOCH))
_HASH_TAG = _TIMESTAMP_TAG = _EPOCHS_TAG = _CLASSIC_TAG = 0
_NO_CLASSIC_METADATA = b"\x00"
"""Kafka writes the tagged field of a classic member even where it is null: as an absent structure of one byte."""


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
    writer = KafkaWriter(flexible=False)
    writer.int16(key.version)
    writer.string(key.group_id)
    if key.version not in _GROUP_ONLY:
        writer.string(key.name)
    return writer.bytes_written()


def decode_key(data: bytes) -> ModernGroupKey:
    """CorruptMessageError for keys of something else."""
    reader = KafkaReader(data, flexible=False)
    version = reader.int16()
    if version not in KEY_VERSIONS:
        raise CorruptMessageError(f"key version {version} is not of a consumer group: {sorted(KEY_VERSIONS)}")
    group_id = reader.string()
    return ModernGroupKey(version, group_id, "" if version in _GROUP_ONLY else reader.string())


def tombstone(version: int, group_id: str, name: str = "") -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(ModernGroupKey(version, group_id, name)), None)


def group_epoch_record(group_id: str, value: GroupEpoch) -> CoordinatorRecord:
    writer = _value_writer()
    writer.int32(value.epoch)
    _write_tagged_int64(writer, _HASH_TAG, value.metadata_hash)
    return _record(ModernGroupKey(KeyVersion.GROUP, group_id), writer)


def decode_group_epoch(data: bytes) -> GroupEpoch:
    reader = _value_reader(data)
    return GroupEpoch(reader.int32(), _tagged_int64(reader, _HASH_TAG))


def member_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    """The member's subscription; its assignment is `current_record`."""
    writer = _value_writer()
    for text in (member.instance_id, member.rack_id, member.client_id, member.client_host):
        writer.string(text)
    writer.array(sorted(member.subscribed_topic_names, key=string_order), writer.string)
    writer.string(member.subscribed_topic_regex)
    writer.int32(member.rebalance_timeout_ms)
    writer.string(member.server_assignor)
    writer.tagged_fields({_CLASSIC_TAG: _NO_CLASSIC_METADATA})
    return _record(ModernGroupKey(KeyVersion.MEMBER, group_id, member.member_id), writer)


def decode_member(member_id: str, data: bytes) -> ModernMember:
    """The member with its subscription only."""
    reader = _value_reader(data)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topic_names = frozenset(reader.array(reader.string))
    regex, rebalance_timeout_ms = reader.nullable_string() or "", reader.int32()
    return ModernMember(
        member_id,
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topic_names,
        regex,
        reader.nullable_string(),
    )


def target_epoch_record(group_id: str, value: TargetEpoch) -> CoordinatorRecord:
    writer = _value_writer()
    writer.int32(value.epoch)
    _write_tagged_int64(writer, _TIMESTAMP_TAG, value.timestamp_ms)
    return _record(ModernGroupKey(KeyVersion.TARGET_EPOCH, group_id), writer)


def decode_target_epoch(data: bytes) -> TargetEpoch:
    reader = _value_reader(data)
    return TargetEpoch(reader.int32(), _tagged_int64(reader, _TIMESTAMP_TAG))


def target_record(group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> CoordinatorRecord:
    writer = _value_writer()

    def write_topic(topic: tuple[str, list[int]]) -> None:
        writer.uuid(topic[0])
        writer.array(topic[1], writer.int32)
        writer.no_tagged_fields()

    writer.array(numbers_by_topic(partitions).items(), write_topic)
    writer.no_tagged_fields()
    return _record(ModernGroupKey(KeyVersion.TARGET, group_id, member_id), writer)


def decode_target(data: bytes) -> frozenset[TopicIdPartition]:
    reader = _value_reader(data)

    def read_topic() -> list[TopicIdPartition]:
        topic_id = reader.uuid()
        partitions = [TopicIdPartition(topic_id, number) for number in reader.array(reader.int32)]
        reader.tagged_fields()
        return partitions

    return frozenset(partition for topic in reader.array(read_topic) for partition in topic)


def current_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    writer = _value_writer()
    writer.int32(member.member_epoch)
    writer.int32(member.previous_member_epoch)
    writer.int8(member.state)
    for epochs in (member.assigned, member.pending_revocation):
        _write_epochs(writer, epochs)
    writer.no_tagged_fields()
    return _record(ModernGroupKey(KeyVersion.CURRENT, group_id, member.member_id), writer)


def decode_current(data: bytes) -> CurrentAssignment:
    """States that this version does not know are UNKNOWN. Partitions without epochs were got in the member's."""
    reader = _value_reader(data)
    member_epoch, previous_member_epoch, state = reader.int32(), reader.int32(), reader.int8()
    known = ModernMemberState(state) if state in list(map(int, ModernMemberState)) else ModernMemberState.UNKNOWN
    assigned, pending = (_read_epochs(reader, member_epoch) for _ in range(2))
    return CurrentAssignment(member_epoch, previous_member_epoch, known, assigned, pending)


def regex_record(group_id: str, regex: str, value: ResolvedRegex) -> CoordinatorRecord:
    writer = _value_writer()
    writer.array(sorted(value.topics, key=string_order), writer.string)
    writer.int64(value.version)
    writer.int64(value.timestamp_ms)
    writer.no_tagged_fields()
    return _record(ModernGroupKey(KeyVersion.REGEX, group_id, regex), writer)


def decode_regex(data: bytes) -> ResolvedRegex:
    reader = _value_reader(data)
    return ResolvedRegex(frozenset(reader.array(reader.string)), reader.int64(), reader.int64())


def numbers_by_topic(partitions: Iterable[TopicIdPartition]) -> dict[str, list[int]]:
    """Partition numbers of each topic id, sorted."""
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return numbers


def _record(key: ModernGroupKey, writer: KafkaWriter) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(key), writer.bytes_written())


def _value_writer() -> KafkaWriter:
    writer = KafkaWriter(flexible=True)
    writer.int16(0)
    return writer


def _value_reader(data: bytes) -> KafkaReader:
    reader = KafkaReader(data, flexible=True)
    version = reader.int16()
    if version != 0:
        raise CorruptMessageError(f"value version {version} of a consumer group's record is not 0")
    return reader


def _write_tagged_int64(writer: KafkaWriter, tag: int, number: int) -> None:
    """The only tagged field of a value, left out at its default 0."""
    fields = KafkaWriter(flexible=True)
    fields.int64(number)
    writer.tagged_fields({tag: fields.bytes_written()} if number else {})


def _tagged_int64(reader: KafkaReader, tag: int) -> int:
    data = reader.tagged_fields().get(tag)
    return 0 if data is None else KafkaReader(data, flexible=True).int64()


def _write_epochs(writer: KafkaWriter, epochs: Epochs) -> None:
    def write_topic(topic: tuple[str, list[int]]) -> None:
        topic_id, numbers = topic
        writer.uuid(topic_id)
        writer.array(numbers, writer.int32)
        tagged = KafkaWriter(flexible=True)
        tagged.array([epochs[TopicIdPartition(topic_id, number)] for number in numbers], tagged.int32)
        writer.tagged_fields({_EPOCHS_TAG: tagged.bytes_written()})

    writer.array(numbers_by_topic(epochs).items(), write_topic)


def _read_epochs(reader: KafkaReader, member_epoch: int) -> dict[TopicIdPartition, int]:
    def read_topic() -> Mapping[TopicIdPartition, int]:
        topic_id = reader.uuid()
        partitions = [TopicIdPartition(topic_id, number) for number in reader.array(reader.int32)]
        tagged = reader.tagged_fields().get(_EPOCHS_TAG)
        if tagged is None:
            return dict.fromkeys(partitions, member_epoch)
        epochs = KafkaReader(tagged, flexible=True)
        return dict(zip(partitions, epochs.array(epochs.int32), strict=True))

    return {partition: epoch for topic in reader.array(read_topic) for partition, epoch in topic.items()}
