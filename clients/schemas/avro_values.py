"""Avro schemas and values as fastavro has them. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from stratalog.clients.schemas import avro_compatibility
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema, loads
from stratalog.storage.errors import SerializationError

WRAPPER = "stratalog_value"
_STREAM = re.compile(r" from <_io\.BytesIO object at 0x[0-9a-f]+>")


def parsed_avro(schema: Schema, references: Mapping[str, Schema] | None = None) -> Any:
    """fastavro's form of a record with the schema as its only field, which has the same bytes as the value alone.

    fastavro keeps named types with a parsed record only: another type with references could not be written.
    references: what the schema refers to, in an order in which each follows its own. InvalidSchemaError.
    """
    used = {name: loads(each) for name, each in (references or {}).items()}
    own = loads(schema)
    avro_compatibility.parsed(own, used)
    wrapper = {"type": "record", "name": WRAPPER, "fields": [{"name": "value", "type": own}]}
    named: dict[str, Any] = {}
    try:
        for each in used.values():
            fastavro.parse_schema(each, named_schemas=named)
        return fastavro.parse_schema(wrapper, named_schemas=named)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as reason:
        raise InvalidSchemaError(f"not an Avro schema: {type(reason).__name__} {reason}") from reason


def record_name(parsed: Any) -> str:
    """The full name of a record, enum or fixed; empty for other types."""
    kind = value_type(parsed)
    return str(kind.get("name", "")) if isinstance(kind, dict) else ""


def encode_avro(parsed: Any, value: Any) -> bytes:
    """A value in Avro's binary form; bytes stand for themselves, as in Confluent's serializers."""
    if is_bytes(parsed):
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(f"the Avro schema is bytes, the value is {type(value).__name__}")
        return bytes(value)
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(written, parsed, {"value": value})
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as reason:
        raise SerializationError(f"the value does not fit the Avro schema: {reason}") from reason
    return written.getvalue()


def decode_avro(writer: Any, payload: bytes, reader: Any = None) -> Any:
    """The value of bytes that `encode_avro` made, resolved into the reader's schema if there is one."""
    if is_bytes(writer) and (reader is None or is_bytes(reader)):
        return payload
    try:
        wrapped: Any = fastavro.schemaless_reader(io.BytesIO(payload), writer, reader)
    except Exception as reason:
        # fastavro raises whatever its decoding ran into: EOFError, struct.error, IndexError ...
        raise SerializationError(misfit(reason)) from reason
    return wrapped["value"]


def misfit(reason: Exception) -> str:
    """The text for bytes that fastavro could not decode, the same for the same bytes: fastavro names its stream."""
    return f"the bytes do not fit the Avro schema: {type(reason).__name__} {_STREAM.sub('', str(reason))}"


def value_type(parsed: Any) -> Any:
    """The type of a value within its wrapper."""
    return parsed["fields"][0]["type"]


def is_bytes(parsed: Any) -> bool:
    """Whether values are bytes, which stand for themselves."""
    kind = value_type(parsed)
    return kind == "bytes" or (isinstance(kind, dict) and kind["type"] == "bytes" and "logicalType" not in kind)
