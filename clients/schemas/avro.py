"""Avro values: a serializer and a deserializer over fastavro. I/O: through a registry.

Source: `io.confluent.kafka.serializers.{KafkaAvroSerializer,KafkaAvroDeserializer}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from stratalog.clients.schemas.avro_values import AvroSchema, AvroValues, encode_avro, record_name
from stratalog.clients.schemas.schema import Schema, SchemaRegistry, compact, referenced
from stratalog.clients.schemas.serde import SerializerConfig, SubjectSchemas, WriterSchemas, given, with_id
from stratalog.clients.serialization import SerializationContext


class AvroSerializer:
    """`serializer(value, context)`: bytes in Confluent's wire format. None stays None.

    registry  a `SchemaFolder` or `SchemaRegistryClient`.
    schema    as text or `Schema`; may be left out with `use.latest.version`.
    config    configs of `SerializerConfig`, by their dotted names.

    Values are fastavro's: a dict for a record, a (name, value) tuple to choose a branch of a union.
    """

    def __init__(
        self, registry: SchemaRegistry, schema: Schema | str | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        self._registry = registry
        self._config = SerializerConfig.from_settings(config)
        self._schema = compact(Schema(schema) if isinstance(schema, str) else schema) if schema is not None else None
        name = record_name(self._parse(self._schema).parsed) if self._schema is not None else ""
        self._subjects = SubjectSchemas(registry, self._config, name)
        self._parsed: dict[Schema, AvroSchema] = {}

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        """SerializationError for a value that does not fit the schema."""
        if value is None:
            return None
        registered = self._subjects.of(context, partial(given, self._schema))
        if registered.schema not in self._parsed:
            self._parsed[registered.schema] = self._parse(registered.schema)
        return with_id(encode_avro(self._parsed[registered.schema], value), registered, context, self._config)

    def _parse(self, schema: Schema) -> AvroSchema:
        return AvroSchema.of(schema, referenced(self._registry, schema))


class AvroDeserializer:
    """`deserializer(bytes, context)`: the value, read with the writer's schema. None stays None.

    registry  as of `AvroSerializer`.
    schema    the reader's schema, into which Avro resolves what was written; that of the writer if None.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema | str | None = None) -> None:
        self._registry = registry
        reader = Schema(schema) if isinstance(schema, str) else schema
        self._reader = None if reader is None else self._parse(reader)
        self._writers = WriterSchemas(registry, lambda schema: AvroValues(self._parse(schema), self._reader))

    def __call__(self, data: bytes | None, context: SerializationContext) -> Any:
        """SerializationError for bytes of another form, SchemaNotFoundError for an unknown schema."""
        if data is None:
            return None
        writer, payload = self._writers.of(data, context)
        return writer.value(payload)

    def _parse(self, schema: Schema) -> AvroSchema:
        return AvroSchema.of(schema, referenced(self._registry, schema))
