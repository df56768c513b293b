"""JSON values with a JSON Schema: a serializer and a deserializer. I/O: through a registry.

Values are validated by the package jsonschema (`stratalog[schemas]`) unless `validate=false`.
Source: `io.confluent.kafka.serializers.json.{KafkaJsonSchemaSerializer,KafkaJsonSchemaDeserializer}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stratalog.clients.schemas.json_patterns import bounded
from stratalog.clients.schemas.schema import Schema, SchemaRegistry, SchemaType, compact, loads, referenced
from stratalog.clients.schemas.serde import SerializerConfig, SubjectSchemas, WriterSchemas, given, with_id
from stratalog.clients.serialization import SerializationContext
from stratalog.storage.errors import InvalidConfigError, InvalidRegularExpressionError, SerializationError

Validate = Callable[[Any], None]


def validator_of(schema: Schema, references: Mapping[str, Schema]) -> Validate:
    """A function that raises SerializationError for a value that breaks the schema.

    InvalidConfigError when the package jsonschema is not installed.
    """
    try:
        from jsonschema import ValidationError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7
    except ImportError as lacking:
        raise InvalidConfigError(
            "JSON values are validated by jsonschema: pip install 'stratalog[schemas]', or set validate=false"
        ) from lacking
    resources = [
        (name, Resource.from_contents(loads(each), default_specification=DRAFT7)) for name, each in references.items()
    ]
    contents = loads(schema)
    validator = bounded(validator_for(contents))(contents, registry=Registry().with_resources(resources))

    def validate(value: Any) -> None:
        try:
            validator.validate(value)
        except ValidationError as reason:
            raise SerializationError(f"the value breaks the JSON schema: {reason.message}") from reason
        except InvalidRegularExpressionError as reason:
            raise SerializationError(f"{reason} Without validation (validate=false) it is not needed.") from reason

    return validate


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond a double")
    return number


def _nothing(value: Any) -> None:
    """Every value is accepted."""


class JsonSerializer:
    """`serializer(value, context)`: JSON in UTF-8 in Confluent's wire format. Arguments as of `AvroSerializer`."""

    def __init__(
        self, registry: SchemaRegistry, schema: Schema | str | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        self._registry = registry
        self._config = SerializerConfig.from_settings(config)
        own = Schema(schema, SchemaType.JSON) if isinstance(schema, str) else schema
        self._schema = None if own is None else compact(own)
        contents = None if self._schema is None else loads(self._schema)
        name = str(contents.get("title", "")) if isinstance(contents, dict) else ""
        self._subjects = SubjectSchemas(registry, self._config, name)
        self._validators: dict[Schema, Validate] = {}
        if self._schema is not None:
            self._validators[self._schema] = self._validator(self._schema)

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        """SerializationError for a value that is no JSON or breaks the schema."""
        if value is None:
            return None
        registered = self._subjects.of(context, partial(given, self._schema))
        if registered.schema not in self._validators:
            self._validators[registered.schema] = self._validator(registered.schema)
        self._validators[registered.schema](value)
        try:
            payload = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as reason:
            raise SerializationError(f"the value has no JSON form: {reason}") from reason
        return with_id(payload, registered, context, self._config)

    def _validator(self, schema: Schema) -> Validate:
        return validator_of(schema, referenced(self._registry, schema)) if self._config.validate else _nothing


class JsonDeserializer:
    """`deserializer(bytes, context)`: the value, validated against the writer's schema unless `validate=false`."""

    def __init__(self, registry: SchemaRegistry, config: Mapping[str, object] | None = None) -> None:
        self._registry = registry
        self._config = SerializerConfig.from_settings(config)
        self._writers: WriterSchemas[Validate] = WriterSchemas(registry, self._parse)

    def __call__(self, data: bytes | None, context: SerializationContext) -> Any:
        """SerializationError for bytes of another form, SchemaNotFoundError for an unknown schema."""
        if data is None:
            return None
        validate, payload = self._writers.of(data, context)
        try:
            value = json.loads(payload.decode(), parse_constant=_refused, parse_float=_finite)
        except (ValueError, RecursionError) as reason:
            raise SerializationError(f"the bytes are no JSON: {reason}") from reason
        validate(value)
        return value

    def _parse(self, schema: Schema) -> Validate:
        return validator_of(schema, referenced(self._registry, schema)) if self._config.validate else _nothing
