"""Confluent's wire format, byte by byte."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.clients.schemas.wire_format import (
    SchemaId,
    decode_headers_or_prefix,
    decode_message_indexes,
    decode_prefix,
    encode_message_indexes,
    schema_id_header,
)
from stratalog.storage.errors import SerializationError

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")

PREFIXES = [
    ("an id", SchemaId(id=1), "0000000001"),
    ("a large id", SchemaId(id=2**31 - 1), "007fffffff"),
    ("a GUID", SchemaId(guid=GUID), "0189791762233641869674299b90a802e2"),
    ("the first message", SchemaId(id=1, message_indexes=(0,)), "000000000100"),
    ("the second message", SchemaId(id=1, message_indexes=(1,)), "00000000010202"),
    ("a nested message", SchemaId(id=1, message_indexes=(1, 0)), "0000000001040200"),
    ("the 65th message", SchemaId(id=1, message_indexes=(64,)), "0000000001028001"),
    ("a GUID with a nested message", SchemaId(guid=GUID, message_indexes=(2, 3)),
     "0189791762233641869674299b90a802e2040406"),
]  # fmt: skip


@pytest.mark.parametrize(("schema_id", "prefix"), [row[1:] for row in PREFIXES], ids=[row[0] for row in PREFIXES])
def test_a_prefix_has_the_bytes_of_confluents_serializers(schema_id: SchemaId, prefix: str) -> None:
    encoded = schema_id.id_prefix() if schema_id.guid is None else schema_id.guid_prefix()
    assert encoded.hex() == prefix
    has_indexes = schema_id.message_indexes is not None
    assert decode_prefix(encoded + b"rest", has_message_indexes=has_indexes) == (schema_id, b"rest")


BROKEN = [
    ("", False, "no byte"),
    ("02", False, "first byte 2"),
    ("7b7d", False, "first byte 123"),
    ("000000", False, "cut off: 3 bytes, needed at least 5"),
    ("01" + "00" * 15, False, "cut off: 16 bytes, needed at least 17"),
    ("0000000001", True, "cut off within the message indexes"),
    ("000000000104", True, "cut off within the message indexes"),
    ("000000000101", True, "-1 message indexes"),
    ("0000000001feffffff0f", True, "message indexes"),
    ("0000000001ffffffffff", True, "more than 5 bytes"),
]


@pytest.mark.parametrize(("data", "has_indexes", "reason"), BROKEN)
def test_bytes_of_another_form_are_refused(data: str, has_indexes: bool, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        decode_prefix(bytes.fromhex(data), has_message_indexes=has_indexes)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8))
def test_message_indexes_are_read_as_they_were_written(indexes: list[int]) -> None:
    encoded = encode_message_indexes(indexes)
    assert decode_message_indexes(b"\xff" + encoded + b"\xff", 1) == (tuple(indexes), 1 + len(encoded))


@pytest.mark.parametrize(("is_key", "name"), [(True, "__key_schema_id"), (False, "__value_schema_id")])
def test_a_header_comes_before_the_payload(is_key: bool, name: str) -> None:
    assert schema_id_header(is_key) == name
    prefix = SchemaId(guid=GUID).guid_prefix()
    others = [("trace", b"1"), (schema_id_header(not is_key), SchemaId(id=9).id_prefix())]
    named = SchemaId(guid=GUID)
    data = SchemaId(id=7).id_prefix() + b"rest"
    assert decode_headers_or_prefix(data, [*others, (name, prefix)], is_key=is_key) == (named, data)
    assert decode_headers_or_prefix(data, others, is_key=is_key) == (SchemaId(id=7), b"rest")
    assert decode_headers_or_prefix(data, [(name, None)], is_key=is_key) == (SchemaId(id=7), b"rest")


def test_what_is_not_known_cannot_be_written() -> None:
    with pytest.raises(SerializationError, match="has no id"):
        SchemaId(guid=GUID).id_prefix()
    with pytest.raises(SerializationError, match="no GUID for schema id 3"):
        SchemaId(id=3).guid_prefix()
    with pytest.raises(SerializationError, match="not within 0"):
        SchemaId(id=-1).id_prefix()
