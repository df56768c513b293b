"""Typed columns as binary columns in Confluent's wire format. Pure.

A value is a struct, or whatever else the schema is, in the types that the reader makes of the same schema. Null becomes
null. Fields of a JSON object that are null are left out, since most schemas demand another type where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from stratalog.clients.schemas.avro_values import encode_avro, parsed_avro
from stratalog.clients.schemas.compatibility import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.protobuf_messages import messages_of
from stratalog.clients.schemas.schema import SchemaType
from stratalog.clients.schemas.wire_format import FIRST_MESSAGE, SchemaId
from stratalog.storage.errors import SerializationError

Encode = Callable[[Any], bytes]


class ColumnWriter:
    """Writes values with one registered schema.

    message  the full name of a Protobuf message, the file's first if None. InvalidSchemaError if the file lacks it.
    """

    def __init__(self, schema_id: int, schema: ResolvedSchema, message: str | None = None) -> None:
        indexes = None
        if schema.schema.type == SchemaType.AVRO:
            parsed = parsed_avro(schema.schema, schema.references)
            self._encode: Encode = lambda value: encode_avro(parsed, value)
        elif schema.schema.type == SchemaType.JSON:
            self._encode = _encode_json
        else:
            indexes, self._encode = _protobuf(schema, message)
        self._prefix = SchemaId(id=schema_id, message_indexes=indexes).id_prefix()

    def write(self, values: pa.Array) -> pa.Array:
        """The bytes of each value. SerializationError for one that the schema does not hold."""
        prefix, encode = self._prefix, self._encode
        found = [
            None if value is None else prefix + encode(value) for value in values.to_pylist(maps_as_pydicts="strict")
        ]
        return pa.array(found, pa.binary())


def _encode_json(value: Any) -> bytes:
    try:
        return json.dumps(_without_nulls(value), separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as reason:
        raise SerializationError(f"the value has no JSON form: {reason}; make a string of it before") from reason


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _protobuf(schema: ResolvedSchema, message: str | None) -> tuple[tuple[int, ...], Encode]:
    types = messages_of(schema.schema, schema.references)
    names = {each.DESCRIPTOR.full_name: indexes for indexes, each in types.items()}
    if message is not None and message not in names:
        raise InvalidSchemaError(f"the file has no message {message}; it has {', '.join(names)}")
    indexes = FIRST_MESSAGE if message is None else names[message]
    made = types[indexes]

    def encode(value: Any) -> bytes:
        try:
            return bytes(made(**_for_protobuf(value)).SerializeToString())
        except (TypeError, ValueError, AttributeError) as reason:
            raise SerializationError(f"the value does not fit {made.DESCRIPTOR.full_name}: {reason}") from reason

    return indexes, encode


def _for_protobuf(value: Any) -> Any:
    """Absent fields instead of null ones; whole numbers for unsigned ones of 64 bits."""
    if isinstance(value, dict):
        return {name: _for_protobuf(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_for_protobuf(each) for each in value]
    return int(value) if isinstance(value, Decimal) else value
