"""The bytes that consumers of one classic group exchange through JoinGroup and SyncGroup. Pure.

The coordinator does not read them: a member's subscription is the metadata of its JoinGroup, and the leader's plan for
one member is the assignment of its SyncGroup. Source: `ConsumerProtocol`, with the schemas
ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. Both begin with an int16 version; a
newer one than 3 is read as 3, since later versions only append.

    version 0   topics, user data                      version 2   + generation id
    version 1   + owned partitions                     version 3   + rack id
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition
from stratalog.wire.java_strings import string_order
from stratalog.wire.kafka_types import Bounds, Field, Struct, Versioned, version_of

VERSION_MAX = 3
UNKNOWN_GENERATION = -1
PARTITIONS = Struct("TopicPartition", (Field("topic", "string"), Field("partitions", "int32", is_array=True)))
"""Partitions of one topic; `topics_of` and `partitions_of` convert them."""
_VERSIONS = range(VERSION_MAX + 1)
SUBSCRIPTION_ELEMENTS_MAX = 100_000
"""Topics and partitions of one member: its coordinator reads them in the broker's loop."""
_SUBSCRIPTION = Versioned(
    Struct(
        "ConsumerProtocolSubscription",
        (
            Field("topics", "string", is_array=True),
            Field("user_data", "bytes", is_nullable=True),
            Field("owned_partitions", PARTITIONS, first_version=1, is_array=True),
            Field("generation_id", "int32", first_version=2),
            Field("rack_id", "string", first_version=3, is_nullable=True),
        ),
    ),
    _VERSIONS,
)
_ASSIGNMENT = Versioned(
    Struct(
        "ConsumerProtocolAssignment",
        (Field("assigned_partitions", PARTITIONS, is_array=True), Field("user_data", "bytes", is_nullable=True)),
    ),
    _VERSIONS,
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics and its present assignment: the metadata of its JoinGroup.

    user_data         the bytes that its assignor keeps for its next round, None if it has none
    owned_partitions  the partitions that a cooperative member has not revoked
    generation_id     the generation that assigned them, -1 if unknown
    rack_id           the rack of the consumer, None if unknown
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = UNKNOWN_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that the group's leader assigns to a member: the bytes of SyncGroup."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """The metadata of JoinGroup, with topics and owned partitions sorted as Kafka's client sorts them. What `version`
    does not have is left out.

    >>> encode_subscription(Subscription(("t",)), version=0).hex()
    '000000000001000174ffffffff'
    """
    owned = sorted(subscription.owned_partitions, key=lambda each: (string_order(each.topic), each.partition))
    fields = {
        "topics": sorted(subscription.topics, key=string_order),
        "user_data": subscription.user_data,
        "owned_partitions": topics_of(owned),
        "generation_id": subscription.generation_id,
        "rack_id": subscription.rack_id,
    }
    return _SUBSCRIPTION.encode(fields, min(version, VERSION_MAX))


def decode_subscription(data: bytes) -> Subscription:
    """The subscription in a JoinGroup's metadata; CorruptMessageError if it is cut off, or has more topics and
    partitions than `SUBSCRIPTION_ELEMENTS_MAX`."""
    fields = _decoded(_SUBSCRIPTION, data, bounds=Bounds(SUBSCRIPTION_ELEMENTS_MAX))
    fields["owned_partitions"] = partitions_of(fields.get("owned_partitions", ()))
    fields["rack_id"] = fields.get("rack_id") or None
    return Subscription(**fields)


def decode_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """The topics in a JoinGroup's metadata, as a coordinator reads them: by version 0, with which every version begins,
    whatever version the bytes name. CorruptMessageError if they are cut off before its end, or too many. Source:
    `ClassicGroup.computeSubscribedTopics`.

    >>> decode_subscribed_topics(bytes.fromhex("0001 00000001 000174 ffffffff"))
    ('t',)
    """
    topics: tuple[str, ...] = tuple(_decoded(_SUBSCRIPTION, data, 0, Bounds(SUBSCRIPTION_ELEMENTS_MAX))["topics"])
    return topics


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """The assignment of SyncGroup; topics in the order in which they first come.

    >>> encode_assignment(Assignment((TopicPartition("t", 1),)), version=0).hex()
    '0000000000010001740000000100000001ffffffff'
    """
    fields = {"assigned_partitions": topics_of(assignment.partitions), "user_data": assignment.user_data}
    return _ASSIGNMENT.encode(fields, min(version, VERSION_MAX))


def decode_assignment(data: bytes) -> Assignment:
    """The assignment in SyncGroup's bytes. No bytes, which a member without partitions may get, are no partitions;
    CorruptMessageError if they are cut off."""
    if not data:
        return Assignment()
    fields = _decoded(_ASSIGNMENT, data)
    return Assignment(partitions_of(fields["assigned_partitions"]), fields["user_data"])


def partitions_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partition numbers of each topic, or topic id, both in the order in which they come.

    >>> partitions_by_topic([TopicPartition("t", 2), TopicPartition("s", 0), TopicPartition("t", 1)])
    {'t': [2, 1], 's': [0]}
    """
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return numbers


def topics_of(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Partitions as `PARTITIONS` of each topic, both in the order in which they come."""
    return [{"topic": topic, "partitions": numbers} for topic, numbers in partitions_by_topic(partitions).items()]


def partitions_of(topics: Iterable[Mapping[str, Any]]) -> tuple[TopicPartition, ...]:
    """The reverse of `topics_of`."""
    return tuple(TopicPartition(each["topic"], number) for each in topics for number in each["partitions"])


def _decoded(
    table: Versioned, data: bytes, version_max: int = VERSION_MAX, bounds: Bounds | None = None
) -> dict[str, Any]:
    """A newer version is read as the newest known one: later versions only append fields."""
    version = version_of(data)
    if version < 0:
        raise CorruptMessageError(f"{table.struct.name}: version {version} < 0")
    fields: dict[str, Any] = table.decode(data, min(version, version_max), bounds)
    return fields
