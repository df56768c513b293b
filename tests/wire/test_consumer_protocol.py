"""Subscriptions and assignments are the bytes that Kafka's own classes wrote, and hashes are Java's."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.clients.producer.partitioner import murmur2
from stratalog.replication.internal_topics import partition_of_key
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from stratalog.wire.java_strings import hash_order, string_order
from tests.replication.oracle.answers import recorded_hashes, recorded_lines
from tests.replication.oracle.questions import KEYS, group_ids, murmur2_keys, protocol_messages

MESSAGES = list(zip(protocol_messages(), recorded_lines("protocol"), strict=True))


def asked_partitions(message: dict[str, Any]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*claim) for claim in message["claims"])


def asked_user_data(message: dict[str, Any]) -> bytes | None:
    return None if message["user_data"] is None else bytes.fromhex(message["user_data"])


def asked_subscription(message: dict[str, Any]) -> Subscription:
    partitions = asked_partitions(message)
    return Subscription(
        tuple(message["topics"]), asked_user_data(message), partitions, message["generation"], message["rack"]
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_are_kafkas_bytes_and_are_read_back(version: int) -> None:
    for message, kafka in MESSAGES:
        subscription = asked_subscription(message)
        encoded = encode_subscription(subscription, version)
        assert encoded.hex() == kafka["subscriptions"][version]
        decoded = decode_subscription(encoded)
        assert sorted(decoded.topics) == sorted(subscription.topics)
        assert decoded.user_data == subscription.user_data
        assert set(decoded.owned_partitions) == (set(subscription.owned_partitions) if version >= 1 else set())
        assert decoded.generation_id == (subscription.generation_id if version >= 2 else -1)
        assert decoded.rack_id == (subscription.rack_id if version >= 3 else None)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignments_are_kafkas_bytes_and_are_read_back(version: int) -> None:
    for message, kafka in MESSAGES:
        assignment = Assignment(asked_partitions(message), asked_user_data(message))
        encoded = encode_assignment(assignment, version)
        assert encoded.hex() == kafka["assignments"][version]
        decoded = decode_assignment(encoded)
        assert sorted(decoded.partitions) == sorted(assignment.partitions)
        assert decoded.user_data == assignment.user_data


def test_a_sticky_members_user_data_has_kafkas_fields() -> None:
    """Kafka writes topics in the order of a HashMap; here they come as they are owned: the same length and topics."""
    for message, kafka in MESSAGES:
        ours = ASSIGNORS["sticky"].user_data(asked_partitions(message), 7)
        assert ours is not None
        assert len(ours) == len(bytes.fromhex(kafka["sticky"]))
        assert sorted(ours) == sorted(bytes.fromhex(kafka["sticky"]))


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    encoded = encode_subscription(Subscription(("t",), rack_id="r"))
    assert decode_subscription(b"\x00\x09" + encoded[2:] + b"later fields") == Subscription(("t",), rack_id="r")
    assert encode_subscription(Subscription(("t",)), 9) == encode_subscription(Subscription(("t",)), 3)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff\x00\x00\x00\x00", b"\x00\x03\x00\x00\x00\x01\x00\x05t", b"\x00\x00\x00\x00\x00\x09"]
)
def test_bytes_that_are_cut_off_or_of_a_negative_version_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decode_subscription(data)


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        ("0000 00000001 000174 ffffffff", ("t",)),
        ("0001 00000000 ffffffff", ()),
        ("0001 00000001 000174 ffffffff", ("t",)),
        ("0003 00000001 000174 00000001 ff", ("t",)),
        ("7fff 00000001 000174 ffffffff 00", ("t",)),
        ("0001 00000001 000174", None),
        ("ffff 00000000 ffffffff", None),
    ],
)
def test_a_coordinator_reads_topics_by_version_0_whatever_version_a_subscription_names(
    data: str, topics: tuple[str, ...] | None
) -> None:
    if topics is not None:
        assert decode_subscribed_topics(bytes.fromhex(data)) == topics
        return
    with pytest.raises(CorruptMessageError):
        decode_subscribed_topics(bytes.fromhex(data))


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    assert decode_assignment(b"") == Assignment()


def test_murmur2_and_the_coordinators_hash_agree_with_java_on_ten_thousand_keys_each() -> None:
    hashes, partitions = recorded_hashes(KEYS)
    assert [murmur2(key) for key in murmur2_keys()] == hashes
    assert [partition_of_key(group_id, 50) for group_id in group_ids()] == partitions


def test_strings_sort_as_in_java_by_units_of_utf_16() -> None:
    below, above = "\N{FULLWIDTH LATIN SMALL LETTER A}", "\N{GRINNING FACE}"
    assert below < above
    assert string_order(below) > string_order(above)


def test_names_come_in_the_order_of_a_hash_map() -> None:
    assert hash_order(["b", "BB", "a", "Aa"]) == ["BB", "Aa", "a", "b"]
    assert hash_order([*"ponmlkjihgfedcba", "a"]) == [*"ponmlkjihgfedcba"[::-1]]
