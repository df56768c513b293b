"""Frames of Kafka's requests are read and written for every version, and no bytes do harm."""

from __future__ import annotations

import io
import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from stratalog.storage.errors import NAME_OF_CODE as ERROR_NAMES
from stratalog.storage.errors import (
    InvalidRequestError,
    NotLeaderOrFollowerError,
    StratalogError,
    UnsupportedVersionError,
)
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import (
    decode_request,
    decode_response,
    encode_answer,
    encode_request,
    encode_response,
    served_versions,
    whole,
)
from stratalog.wire.messages.layouts import layout_of
from stratalog.wire.messages.schema import (
    Entity,
    known_versions,
    request_type,
    response_type,
)
from stratalog.wire.messages.values import id_text
from tests.examples import examples
from tests.kio_messages import build
from tests.wire.messages.filled import as_kio, filled, plain

SERVED = {key: served_versions(key) for key in ApiKey if known_versions(key)}
EVERY_VERSION = [(key, version) for key, versions in SERVED.items() for version in versions]


def test_every_api_that_kio_knows_has_its_name() -> None:
    assert {key.value: key.name.lower() for key in ApiKey} == api_key_map


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_message_of_each_version_comes_back_as_it_went(key: int, version: int) -> None:
    request, response = build(request_type(key, version), {}), build(response_type(key, version), {})
    decoded = decode_request(encode_request(7, "client", request), SERVED)
    assert (decoded.entity, decoded.client_id, decoded.correlation_id) == (request, "client", 7)
    assert (decoded.api_key, decoded.version) == (key, version)
    assert decode_response(encode_response(7, response), key, version) == (7, response)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_message_is_written_as_kio_writes_it(key: int, version: int) -> None:
    draw = random.Random(100 * key + version)
    for entity_type in (request_type(key, version), response_type(key, version)):
        for message in (build(entity_type, {}), *(filled(entity_type, draw) for _ in range(3))):
            assert layout_of(entity_type).write(message) == kios_bytes(message)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_plain_values_are_written_as_the_message_that_they_are(key: int, version: int) -> None:
    draw = random.Random(102 * key + version)
    for entity_type in (request_type(key, version), response_type(key, version)):
        for message in (build(entity_type, {}), *(filled(entity_type, draw) for _ in range(3))):
            assert layout_of(entity_type, dict).write(plain(message)) == layout_of(entity_type).write(message)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_message_is_read_as_kio_reads_it(key: int, version: int) -> None:
    draw = random.Random(101 * key + version)
    for entity_type in (request_type(key, version), response_type(key, version)):
        for message in (build(entity_type, {}), *(filled(entity_type, draw) for _ in range(3))):
            data = b"before" + kios_bytes(message) + b"behind"
            ours, end = layout_of(entity_type).read(data, 6)
            kios, size = entity_reader(entity_type)(data, 6)
            assert (as_kio(ours), end) == (kios, 6 + size)
            assert repr(as_kio(ours)) == repr(kios)


@pytest.mark.parametrize("version", SERVED[ApiKey.PRODUCE])
def test_the_batches_of_a_produce_request_are_slices_of_its_frame(version: int) -> None:
    draw = random.Random(version)
    for _ in range(20):
        request = filled(request_type(ApiKey.PRODUCE, version), draw)
        frame = encode_request(7, "client", request)
        for sent in (frame, memoryview(bytearray(frame)).toreadonly()):
            decoded = decode_request(sent, SERVED).entity
            assert decoded == request
            found = [part.records for topic in decoded.topic_data or () for part in topic.partition_data or ()]
            owner = sent.obj if isinstance(sent, memoryview) else sent
            assert all(each is None or each.obj is owner for each in found)


@pytest.mark.parametrize("version", SERVED[ApiKey.FETCH])
def test_the_batches_of_a_fetch_answer_are_its_pieces(version: int) -> None:
    """Batches in several buffers are written as kio writes them in one; large ones are not copied."""
    draw = random.Random(version)
    for _ in range(20):
        response = filled(response_type(ApiKey.FETCH, version), draw)
        large = [draw.randbytes(draw.choice((0, 100, 70_000))) for _ in range(4)]
        in_one, in_pieces = (with_records(response, records) for records in (b"".join(large), tuple(large)))
        answer = encode_answer(7, in_pieces)
        header = encode_response(7, in_one)[: -len(kios_bytes(in_one))]
        assert whole(answer) == header + kios_bytes(in_one) == encode_response(7, in_one)
        kept = [] if isinstance(answer, bytes) else answer
        has_parts = any(topic.partitions for topic in response.responses)
        assert not has_parts or all(any(piece is each for piece in kept) for each in large if len(each) == 70_000)


def with_records(response: Entity, records: Any) -> Entity:
    """A Fetch response whose partitions all have these records."""
    topics = tuple(
        replace(topic, partitions=tuple(replace(each, records=records) for each in topic.partitions))
        for topic in response.responses
    )
    return replace(response, responses=topics)


def kios_bytes(message: Entity) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(message))(buffer, as_kio(message))
        return buffer.getvalue()


def test_an_error_has_kafkas_code_and_what_a_version_lacks_is_left_out() -> None:
    error = NotLeaderOrFollowerError("broker 2 leads")
    partition = {"index": 1, "error_code": error, "error_message": str(error), "base_offset": -1}
    values = {"responses": [{"name": "t", "partition_responses": [partition]}], "node_endpoints": ()}
    for version in (3, 8, 12):
        built = build(response_type(ApiKey.PRODUCE, version), values).responses[0].partition_responses[0]
        assert int(built.error_code) == NotLeaderOrFollowerError.code
        assert getattr(built, "error_message", None) == ("broker 2 leads" if version >= 8 else None)


def test_a_field_that_no_version_has_is_a_defect() -> None:
    with pytest.raises(TypeError, match="no version of MetadataResponse has \\['contoller_id'\\]"):
        build(response_type(ApiKey.METADATA, 12), {"contoller_id": 1})


def test_every_error_of_ours_has_a_code_that_clients_know() -> None:
    for code, name in ERROR_NAMES.items():
        built = build(response_type(ApiKey.HEARTBEAT, 0), {"error_code": code})
        assert (int(built.error_code), built.error_code.name.upper()) == (code, name)


def test_a_tagged_field_of_a_newer_client_is_passed_over() -> None:
    request = build(request_type(ApiKey.METADATA, 12), {"topics": [{"name": "t"}]})
    frame = encode_request(1, "c", request)
    assert frame.endswith(b"\x00")  # no tagged fields
    newer = frame[:-1] + b"\x01" + bytes([98, 3]) + b"new"
    assert decode_request(newer, SERVED).entity == request


@pytest.mark.parametrize("length", [2**31 - 1, 2**30, 1_000])
def test_an_array_longer_than_its_frame_is_refused_before_room_is_made_for_it(length: int) -> None:
    header = struct.pack(">hhih1s", ApiKey.METADATA, 8, 1, 1, b"c")
    with pytest.raises(InvalidRequestError, match=f"an array of {length} "):
        decode_request(header + struct.pack(">i", length) + bytes(30), SERVED)


def test_a_compact_array_longer_than_its_frame_is_refused() -> None:
    header = struct.pack(">hhih1sb", ApiKey.METADATA, 12, 1, 1, b"c", 0)
    with pytest.raises(InvalidRequestError, match="an array of "):
        decode_request(header + b"\xff\xff\xff\xff\x0f" + bytes(30), SERVED)


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", InvalidRequestError),
        (struct.pack(">hh", ApiKey.METADATA, 1), InvalidRequestError),
        (struct.pack(">hhi", ApiKey.METADATA, 1, 1), InvalidRequestError),
        (struct.pack(">hhih", 4, 0, 1, -1), UnsupportedVersionError),
        (struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1), UnsupportedVersionError),
        (struct.pack(">hhih", ApiKey.PRODUCE, 99, 1, -1), UnsupportedVersionError),
    ],
)
def test_what_cannot_be_answered_is_refused(frame: bytes, error: type[StratalogError]) -> None:
    with pytest.raises(error):
        decode_request(frame, SERVED)


def test_api_versions_of_an_unknown_version_is_not_looked_into() -> None:
    decoded = decode_request(struct.pack(">hhi", ApiKey.API_VERSIONS, 77, 5) + b"whatever", SERVED)
    assert (decoded.correlation_id, decoded.entity) == (5, None)


@st.composite
def broken_frames(draw: st.DrawFn) -> bytes:
    """A request whose bytes were changed or cut off."""
    key, version = draw(st.sampled_from(EVERY_VERSION))
    frame = bytearray(encode_request(1, draw(st.none() | st.text(max_size=5)), build(request_type(key, version), {})))
    for _ in range(draw(st.integers(0, 4))):
        frame[draw(st.integers(4, len(frame) - 1))] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    return bytes(frame[: draw(st.integers(0, len(frame)))]) + draw(st.binary(max_size=20))


@settings(max_examples=examples(1_500), deadline=None)
@given(broken_frames() | st.binary(max_size=60))
def test_bytes_are_a_request_or_are_refused(frame: bytes) -> None:
    try:
        decoded = decode_request(frame, SERVED)
    except (InvalidRequestError, UnsupportedVersionError):
        return
    if decoded.entity is not None:
        assert isinstance(layout_of(type(decoded.entity)).write(decoded.entity), bytes)


@pytest.mark.parametrize("topic_id", [None, "ab" * 16])
def test_delete_records_may_name_a_topics_id_which_kafkas_brokers_skip(topic_id: str | None) -> None:
    named = {"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "offset": 5}]}
    ours = request_type(ApiKey.DELETE_RECORDS, 2)
    frame = encode_request(1, "c", {"topics": [named], "timeout": 7}, ours)
    (topic,) = decode_request(frame, SERVED).entity.topics
    assert id_text(topic.topic_id) == topic_id
    body = layout_of(ours, dict).write({"topics": [named], "timeout": 7})
    kafkas, end = layout_of(load_request_schema(ApiKey.DELETE_RECORDS, 2)).read(body, 0)
    assert (end, kafkas.topics[0].name, kafkas.topics[0].partitions[0].offset) == (len(body), "t", 5)
