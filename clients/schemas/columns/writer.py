"""Typed columns as binary columns in Confluent's wire format. Pure.

A value is a struct, or whatever else the schema is, in the types that the reader makes of the same schema. Null becomes
null. Of a union of several Avro types the member is written that is not null.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from stratalog.clients.schemas.columns.avro_writing import Fitted, avro_fitted
from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.json_writing import json_fitted
from stratalog.clients.schemas.columns.protobuf_writing import protobuf_fitted
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.protobuf_messages import check_required, messages_of
from stratalog.clients.schemas.schema import SchemaType
from stratalog.clients.schemas.wire_format import FIRST_MESSAGE, SchemaId
from stratalog.storage.errors import SerializationError

Encode = Callable[[Any], bytes]
Fits = Callable[[pa.DataType], Fitted]
"""How a column of a type is written. SerializationError."""


class ColumnWriter:
    """Writes values with one registered schema.

    schema_id  None: the id is in a header, and no prefix stands before the payload
    message    the full name of a Protobuf message, the file's first if None. InvalidSchemaError if the file lacks it.
    """

    def __init__(self, schema_id: int | None, schema: ResolvedSchema, message: str | None = None) -> None:
        indexes = None
        if schema.schema.type == SchemaType.AVRO:
            self._encode, self._fits = _avro(schema)
        elif schema.schema.type == SchemaType.JSON:
            self._encode, self._fits = str.encode, partial(json_fitted, JsonColumns(schema).meanings)
        else:
            indexes, self._encode, self._fits = _protobuf(schema, message)
        self._fitted: dict[pa.DataType, Fitted] = {}
        self.message_indexes = indexes
        """Of a Protobuf message within its file."""
        self._prefix = b"" if schema_id is None else SchemaId(id=schema_id, message_indexes=indexes).id_prefix()

    def write(self, values: pa.Array) -> pa.Array:
        """The bytes of each value. SerializationError for one that the schema does not hold, or a column of another."""
        if values.type not in self._fitted:
            self._fitted[values.type] = self._fits(values.type)
        kind, fit = self._fitted[values.type]
        prefix, encode = self._prefix, self._encode
        try:
            given = values if values.type == kind else values.cast(kind)
            rows = given.to_pylist(maps_as_pydicts="strict")
        except (
            ValueError,
            KeyError,
            OverflowError,
            pa.ArrowException,
        ) as reason:  # years of Python, keys that are twice
            raise SerializationError(f"a value of the column cannot be written: {reason}") from reason
        if fit is not None:
            rows = [None if value is None else fit(value) for value in rows]
        return pa.array([None if value is None else prefix + encode(value) for value in rows], pa.binary())


def _avro(schema: ResolvedSchema) -> tuple[Encode, Fits]:
    avro = AvroSchema.of(schema.schema, schema.references)
    return partial(encode_avro, avro), lambda kind: avro_fitted(kind, avro.type)


def _protobuf(schema: ResolvedSchema, message: str | None) -> tuple[tuple[int, ...], Encode, Fits]:
    types = messages_of(schema.schema, schema.references)
    names = {each.DESCRIPTOR.full_name: indexes for indexes, each in types.items()}
    if message is not None and message not in names:
        raise InvalidSchemaError(f"the file has no message {message}; it has {', '.join(names)}")
    indexes = FIRST_MESSAGE if message is None else names[message]
    made = types[indexes]

    from google.protobuf.message import EncodeError

    def encode(value: Any) -> bytes:
        try:
            message = made(**value)
            check_required(message)
            return bytes(made.SerializeToString(message))
        except (TypeError, ValueError, AttributeError, EncodeError, SerializationError) as reason:
            raise SerializationError(f"the value does not fit {made.DESCRIPTOR.full_name}: {reason}") from reason

    return indexes, encode, lambda kind: protobuf_fitted(kind, made.DESCRIPTOR)
