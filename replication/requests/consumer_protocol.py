"""The bytes that consumers of one classic group exchange through JoinGroup and SyncGroup. Pure.

The coordinator does not look into them: a member's subscription is the metadata of its JoinGroup, and the leader's
plan for one member is the assignment of its SyncGroup. Source: `ConsumerProtocol`, with the schemas
ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. Both begin with an int16 version; a
newer one than 3 is read as 3, since later versions only append.

    version 0   topics, user data                      version 2   + generation id
    version 1   + owned partitions                     version 3   + rack id
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.replication.java_strings import string_order
from stratalog.replication.requests.kafka_bytes import KafkaReader, KafkaWriter
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition

VERSION_MAX = 3
UNKNOWN_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and has: the metadata of its JoinGroup.

    user_data         what its assignor says to itself, None if nothing
    owned_partitions  what it holds and would like to keep; of a cooperative member, which has not revoked it
    generation_id     in which it got them, -1 if unknown
    rack_id           where it reads from, None if unknown
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = UNKNOWN_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the group's leader gives a member: the bytes of SyncGroup."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """The metadata of JoinGroup, with topics and owned partitions sorted as Kafka's client sorts them. What `version`
    does not have is left out.

    >>> encode_subscription(Subscription(("t",)), version=0).hex()
    '000000000001000174ffffffff'
    """
    version = _known_version(version)
    writer = KafkaWriter(flexible=False)
    writer.int16(version)
    writer.array(sorted(subscription.topics, key=string_order), writer.string)
    writer.byte_string(subscription.user_data)
    if version >= 1:
        ordered = sorted(subscription.owned_partitions, key=lambda owned: (string_order(owned.topic), owned.partition))
        _write_partitions(writer, ordered)
    if version >= 2:
        writer.int32(subscription.generation_id)
    if version >= 3:
        writer.string(subscription.rack_id)
    return writer.bytes_written()


def decode_subscription(data: bytes) -> Subscription:
    """The subscription in a JoinGroup's metadata; CorruptMessageError if it is cut off."""
    reader = KafkaReader(data, flexible=False)
    version = _known_version(reader.int16())
    return Subscription(
        topics=tuple(reader.array(reader.string)),
        user_data=reader.nullable_byte_string(),
        owned_partitions=_read_partitions(reader) if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else UNKNOWN_GENERATION,
        rack_id=(reader.nullable_string() or None) if version >= 3 else None,
    )


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """The assignment of SyncGroup; topics in the order in which they first come.

    >>> encode_assignment(Assignment((TopicPartition("t", 1),)), version=0).hex()
    '0000000000010001740000000100000001ffffffff'
    """
    writer = KafkaWriter(flexible=False)
    writer.int16(_known_version(version))
    _write_partitions(writer, assignment.partitions)
    writer.byte_string(assignment.user_data)
    return writer.bytes_written()


def decode_assignment(data: bytes) -> Assignment:
    """The assignment in SyncGroup's bytes. None at all, as a member without a share may get, mean no partitions;
    CorruptMessageError if they are cut off."""
    if not data:
        return Assignment()
    reader = KafkaReader(data, flexible=False)
    _known_version(reader.int16())
    return Assignment(_read_partitions(reader), reader.nullable_byte_string())


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers of each topic, both in the order in which they come."""
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return numbers


def _write_partitions(writer: KafkaWriter, partitions: Iterable[TopicPartition]) -> None:
    def write_topic(topic: tuple[str, list[int]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], writer.int32)

    writer.array(partitions_by_topic(partitions).items(), write_topic)


def _read_partitions(reader: KafkaReader) -> tuple[TopicPartition, ...]:
    def read_topic() -> list[TopicPartition]:
        topic = reader.string()
        return [TopicPartition(topic, number) for number in reader.array(reader.int32)]

    return tuple(partition for topic in reader.array(read_topic) for partition in topic)


def _known_version(version: int) -> int:
    if version < 0:
        raise CorruptMessageError(f"consumer protocol version {version} < 0")
    return min(version, VERSION_MAX)
