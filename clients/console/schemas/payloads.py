"""Payloads of Avro, JSON and Protobuf as JSON text, with bounds on sizes. I/O: none of its own.

A JSON payload is shown as its writer wrote it. It is not validated: a schema can make that arbitrarily slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.storage.errors import SerializationError, StratalogError
from stratalog.storage.extras import explained

if TYPE_CHECKING:
    from google.protobuf.message import Message

PAYLOAD_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 64 << 10
"""Bytes of a Protobuf message: a submessage takes two of them."""
SCHEMA_BYTES_MAX = 1 << 20
"""Bytes of a schema's text with all that it refers to."""

ReadPayload = Callable[[bytes, tuple[int, ...]], tuple[str, str]]
"""(payload, message indexes) -> JSON text, and the message's name; SerializationError."""


def payload_reader(schema: Schema, references: Mapping[str, Schema]) -> ReadPayload:
    """What reads payloads of a schema. SerializationError with the reason why it cannot."""
    texts = [schema.text, *(each.text for each in references.values())]
    if sum(len(each) for each in texts) > SCHEMA_BYTES_MAX:
        raise SerializationError(f"its schema has more than {SCHEMA_BYTES_MAX >> 20} MiB")
    make = {SchemaType.AVRO: _avro, SchemaType.JSON: _json, SchemaType.PROTOBUF: _protobuf}[schema.type]
    try:
        return make(schema, references)
    except ImportError as lacking:
        raise SerializationError(f"{schema.type} is not read: {explained('it', lacking)}") from lacking
    except StratalogError as reason:
        raise SerializationError(f"its schema cannot be used: {reason}") from reason
    except (TypeError, ValueError, KeyError, RecursionError) as reason:
        raise SerializationError(f"its schema cannot be used: {type(reason).__name__}: {reason}") from reason


def _checked(payload: bytes, bytes_max: int) -> bytes:
    if len(payload) > bytes_max:
        raise SerializationError(f"it has more than {bytes_max >> 10} KiB, which are not decoded here")
    return payload


def _avro(schema: Schema, references: Mapping[str, Schema]) -> ReadPayload:
    from stratalog.clients.console.schemas.avro_json import AvroText
    from stratalog.clients.schemas.avro_values import avro_type

    node = avro_type(schema, references)
    text = AvroText(node)
    return lambda payload, _: (text(_checked(payload, PAYLOAD_BYTES_MAX)), node.name)


def _json(_schema: Schema, _references: Mapping[str, Schema]) -> ReadPayload:
    def read(payload: bytes, _indexes: tuple[int, ...]) -> tuple[str, str]:
        try:
            text = _checked(payload, PAYLOAD_BYTES_MAX).decode()
            json.loads(text)
        except (ValueError, RecursionError) as reason:
            raise SerializationError(f"the bytes are no JSON: {reason}") from reason
        return text, ""

    return read


def _protobuf(schema: Schema, references: Mapping[str, Schema]) -> ReadPayload:
    from google.protobuf.json_format import MessageToJson
    from google.protobuf.message import DecodeError

    from stratalog.clients.schemas.protobuf_messages import messages_of

    if "{" in schema.text or ";" in schema.text:
        raise SerializationError("it is a .proto file, of which a registry server makes a descriptor: name the server")
    kinds: dict[tuple[int, ...], type[Message]] = messages_of(schema, references)

    def read(payload: bytes, indexes: tuple[int, ...]) -> tuple[str, str]:
        kind = kinds.get(indexes)
        if kind is None:
            raise SerializationError(f"its schema has no message {indexes}")
        try:
            message = kind.FromString(_checked(payload, MESSAGE_BYTES_MAX))
            text = MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
        except (DecodeError, TypeError, ValueError, RecursionError) as reason:
            raise SerializationError(f"the bytes do not fit {kind.DESCRIPTOR.full_name}: {reason}") from reason
        return text, kind.DESCRIPTOR.full_name

    return read
