"""Bounds of requests: far above what clients send, and met before anything is made of what lies beyond them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.server.request.limits import SMALL_ELEMENTS, limits_by_api
from stratalog.storage.errors import InvalidRequestError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_request, encode_request, served_versions
from stratalog.wire.messages.schema import request_type
from tests.kio_messages import build

KEYS = [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DELETE_GROUPS]  # fmt: skip
LIMITS = limits_by_api(BrokerConfig(), dict.fromkeys(KEYS))
SERVED = {key: served_versions(key) for key in KEYS}
TOPICS = [f"orders-of-the-european-region-{number:05}" for number in range(10_000)]


def decode(frame: bytes, key: int) -> Any:
    return decode_request(frame, SERVED, LIMITS[key].bounds()).entity


def largest(key: int) -> dict[str, Any]:
    """The largest requests that clients of a cluster with 10,000 topics or groups send."""
    partition = {"partition": 0, "current_leader_epoch": 1, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
    config = {"name": "cleanup.policy", "value": "compact"}
    return {
        ApiKey.FETCH: {"topics": [{"topic": name, "partitions": [partition]} for name in TOPICS]},
        ApiKey.METADATA: {"topics": [{"name": name} for name in TOPICS]},
        ApiKey.OFFSET_COMMIT: {"group_id": "g", "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in TOPICS]},
        ApiKey.FIND_COORDINATOR: {"coordinator_keys": TOPICS},
        ApiKey.JOIN_GROUP: {"group_id": "g", "protocols": [{"name": "range", "metadata": bytes(1 << 20)}]},
        ApiKey.SYNC_GROUP: {"group_id": "g", "assignments": [
            {"member_id": name, "assignment": bytes(500)} for name in TOPICS]},
        ApiKey.CREATE_TOPICS: {"topics": [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": [config] * 4, "assignments": []}
            for name in TOPICS]},
        ApiKey.DESCRIBE_CONFIGS: {"resources": [
            {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in TOPICS]},
        ApiKey.DELETE_GROUPS: {"groups_names": TOPICS},
    }[key]  # fmt: skip


@pytest.mark.parametrize("key", [key for key in KEYS if key not in (ApiKey.PRODUCE, ApiKey.API_VERSIONS)])
def test_requests_about_ten_thousand_topics_or_groups_are_far_within_the_bounds(key: int) -> None:
    version = min(
        SERVED[key][-1], 12 if key in (ApiKey.FETCH, ApiKey.METADATA) else 99, 9 if key == ApiKey.OFFSET_COMMIT else 99
    )
    frame = encode_request(1, "client", build(request_type(key, version), largest(key)))
    bounds = LIMITS[key].bounds()
    assert decode_request(frame, SERVED, bounds).entity is not None
    assert len(frame) <= LIMITS[key].bytes_max * 3 // 4
    assert bounds.elements_left >= LIMITS[key].elements_max // 3


def frame_of(key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhi", key, version, 7) + struct.pack(">h", -1) + b"\0" + body


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


@pytest.mark.parametrize(
    ("key", "version", "head", "element", "tail"),
    [
        (ApiKey.FIND_COORDINATOR, 4, b"\0", b"\x01", b"\0"),
        (ApiKey.DESCRIBE_CONFIGS, 4, b"", b"\x02\x01\x00\x00", b"\0\0\0"),
        (ApiKey.METADATA, 12, b"", bytes(16) + b"\0\0", b"\0\0\0"),
        (ApiKey.DELETE_GROUPS, 2, b"", b"\x01", b"\0"),
    ],
)
def test_more_elements_than_allowed_are_refused_before_they_are_made(
    key: int, version: int, head: bytes, element: bytes, tail: bytes
) -> None:
    most = LIMITS[key].elements_max
    allowed = frame_of(key, version, head + varint(most + 1) + element * most + tail)
    assert decode(allowed, key) is not None
    beyond = frame_of(key, version, head + varint(most + 2) + element * (most + 1) + tail)
    with pytest.raises(InvalidRequestError, match=f"1 elements too many, with {most + 1} before byte"):
        decode(beyond, key)


def test_arrays_within_arrays_count_together() -> None:
    most = BrokerConfig(stratalog_request_max_elements=10)
    bounds = limits_by_api(most, {ApiKey.OFFSET_COMMIT: None})[ApiKey.OFFSET_COMMIT].bounds()
    partitions = [{"partition_index": 0, "committed_offset": 1}] * 4
    values = {"group_id": "g", "topics": [{"name": "a", "partitions": partitions}] * 3}
    frame = encode_request(1, None, values, request_type(ApiKey.OFFSET_COMMIT, 8))
    with pytest.raises(InvalidRequestError, match="elements too many"):
        decode_request(frame, SERVED, bounds)


def test_tagged_fields_count_as_elements() -> None:
    many = SMALL_ELEMENTS + 1
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1) + varint(many) + b"\x63\0" * many + b"\x01\x01\0"
    with pytest.raises(InvalidRequestError, match="elements too many"):
        decode(frame, ApiKey.API_VERSIONS)


@pytest.mark.parametrize(("size", "is_allowed"), [(4_096, True), (4_097, False)])
def test_a_name_is_bounded_and_a_text_is_not(size: int, is_allowed: bool) -> None:
    def commit(group_id: str, note: str) -> bytes:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": note}
        values = {"group_id": group_id, "topics": [{"name": "t", "partitions": [partition]}]}
        return encode_request(1, None, values, request_type(ApiKey.OFFSET_COMMIT, 8))

    assert decode(commit("g", "n" * 30_000), ApiKey.OFFSET_COMMIT).group_id == "g"
    if is_allowed:
        assert decode(commit("g" * size, ""), ApiKey.OFFSET_COMMIT)
    else:
        with pytest.raises(InvalidRequestError, match=rf"a string of {size} bytes at byte .* > 4096"):
            decode(commit("g" * size, ""), ApiKey.OFFSET_COMMIT)


def test_no_string_is_longer_than_in_kafka() -> None:
    long = {"group_id": "g", "topics": [{"name": "t", "partitions": [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "n" * 0x8000}]}]}  # fmt: skip
    frame = encode_request(1, None, long, request_type(ApiKey.OFFSET_COMMIT, 8))
    with pytest.raises(InvalidRequestError, match=r"a string of 32768 bytes at byte .* > 32767"):
        decode_request(frame, SERVED)
