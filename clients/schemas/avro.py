"""Avro values: a serializer and a deserializer over fastavro. I/O: through a registry.

Source: `io.confluent.kafka.serializers.{KafkaAvroSerializer,KafkaAvroDeserializer}`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from stratalog.clients.schemas import avro_compatibility
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema, SchemaRegistry, compact, loads, referenced
from stratalog.clients.schemas.serde import SerializerConfig, SubjectSchemas, WriterSchemas, with_id
from stratalog.clients.serialization import SerializationContext
from stratalog.storage.errors import SerializationError

WRAPPER = "stratalog_value"


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
    kind = _value_type(parsed)
    return str(kind.get("name", "")) if isinstance(kind, dict) else ""


class AvroSerializer:
    """`serializer(value, context)`: bytes in Confluent's wire format. None stays None.

    registry  a `SchemaFolder` or `SchemaRegistryClient`.
    schema    as text or `Schema`; may be left out with `use.latest.version`.
    config    configs of `SerializerConfig`, by their dotted names.

    Values are fastavro's: a dict for a record, a (name, value) tuple to choose a branch of a union.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self._registry = registry
        self._config = SerializerConfig.from_settings(config)
        self._schema = compact(Schema(schema) if isinstance(schema, str) else schema) if schema is not None else None
        name = record_name(self._parse(self._schema)) if self._schema is not None else ""
        self._subjects = SubjectSchemas(registry, self._config, name)
        self._parsed: dict[Schema, Any] = {}

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        """SerializationError for a value that does not fit the schema."""
        if value is None:
            return None
        registered = self._subjects.of(context, self._own)
        if registered.schema not in self._parsed:
            self._parsed[registered.schema] = self._parse(registered.schema)
        return with_id(encode_avro(self._parsed[registered.schema], value), registered, context, self._config)

    def _own(self) -> Schema:
        if self._schema is None:
            raise SerializationError("the serializer has no schema: give one, or set use.latest.version=true")
        return self._schema

    def _parse(self, schema: Schema) -> Any:
        return parsed_avro(schema, referenced(self._registry, schema))


class AvroDeserializer:
    """`deserializer(bytes, context)`: the value, read with the writer's schema. None stays None.

    registry  as of `AvroSerializer`.
    schema    the reader's schema, into which Avro resolves what was written; that of the writer if None.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema | str | None = None) -> None:
        self._registry = registry
        reader = Schema(schema) if isinstance(schema, str) else schema
        self._reader = None if reader is None else self._parse(reader)
        self._writers: WriterSchemas[Any] = WriterSchemas(registry, self._parse)

    def __call__(self, data: bytes | None, context: SerializationContext) -> Any:
        """SerializationError for bytes of another form, SchemaNotFoundError for an unknown schema."""
        if data is None:
            return None
        writer, payload = self._writers.of(data, context)
        return decode_avro(writer, payload, self._reader)

    def _parse(self, schema: Schema) -> Any:
        return parsed_avro(schema, referenced(self._registry, schema))


def encode_avro(parsed: Any, value: Any) -> bytes:
    """A value in Avro's binary form; bytes stand for themselves, as in Confluent's serializers."""
    if _is_bytes(parsed):
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
    if _is_bytes(writer) and (reader is None or _is_bytes(reader)):
        return payload
    try:
        wrapped: Any = fastavro.schemaless_reader(io.BytesIO(payload), writer, reader)
    except Exception as reason:
        # fastavro raises whatever its decoding ran into: EOFError, struct.error, IndexError ...
        raise SerializationError(f"the bytes do not fit the Avro schema: {type(reason).__name__} {reason}") from reason
    return wrapped["value"]


def _value_type(parsed: Any) -> Any:
    return parsed["fields"][0]["type"]


def _is_bytes(parsed: Any) -> bool:
    kind = _value_type(parsed)
    return kind == "bytes" or (isinstance(kind, dict) and kind["type"] == "bytes" and "logicalType" not in kind)
