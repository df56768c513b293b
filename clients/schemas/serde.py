"""What all serializers with a registry share: their configs, subjects, and the id on each record.

I/O: through a registry, once per subject or schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaRegistry
from stratalog.clients.schemas.wire_format import FIRST_MESSAGE, SchemaId, decode_headers_or_prefix, schema_id_header
from stratalog.clients.serialization import SerializationContext
from stratalog.storage.config_def import ConfigDef, config_field, one_of, spelled
from stratalog.storage.errors import InvalidConfigError, SerializationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SerializerConfig:
    """Confluent's configs of serializers.

    `use.latest.version` writes with the latest version that the subject had at the first record; without it the
    serializer's schema is registered, or with `auto.register.schemas=false` looked up. `schema.id.serializer=header`
    writes the GUID into a header, `prefix` the id before the payload. `validate` counts for JSON.
    """

    auto_register_schemas: bool = config_field("BOOLEAN", True)
    use_latest_version: bool = config_field("BOOLEAN", False)
    subject_name_strategy: str = config_field(
        "STRING",
        "TopicNameStrategy",
        validator=one_of("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"),
    )
    schema_id_serializer: str = config_field("STRING", "prefix", validator=one_of("prefix", "header"))
    validate: bool = config_field("BOOLEAN", True)

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None) -> Self:
        """InvalidConfigError for an unknown name, a bad value, or values at odds."""
        given = SERIALIZER_CONFIGS.parse({name: spelled(value) for name, value in (config or {}).items()})
        if given.get("use_latest_version") and given.get("auto_register_schemas"):
            raise InvalidConfigError(
                "use.latest.version=true writes with what is registered: leave auto.register.schemas out"
            )
        return cls(**given)


SERIALIZER_CONFIGS = ConfigDef.of("serializer", SerializerConfig)


def given(schema: Schema | None) -> Schema:
    """A serializer's own schema. SerializationError when it has none."""
    if schema is None:
        raise SerializationError("the serializer has no schema: give one, or set use.latest.version=true")
    return schema


def subject_name(strategy: str, context: SerializationContext, record_name: str) -> str:
    """The subject of a schema: `<topic>-value`, the record's full name, or `<topic>-<record>`.

    SerializationError when a strategy needs the name of a record and the schema has none.
    """
    if strategy == "TopicNameStrategy":
        return f"{context.topic}-{context.field}"
    if not record_name:
        raise SerializationError(f"{strategy} needs a schema with a name: use TopicNameStrategy for this one")
    return record_name if strategy == "RecordNameStrategy" else f"{context.topic}-{record_name}"


class SubjectSchemas:
    """The registered schema of each subject that a serializer writes to, asked for at its first record."""

    def __init__(self, registry: SchemaRegistry, config: SerializerConfig, record_name: str) -> None:
        self._registry, self._config, self._record_name = registry, config, record_name
        self._known: dict[str, RegisteredSchema] = {}

    def of(self, context: SerializationContext, schema: Callable[[], Schema]) -> RegisteredSchema:
        """The version that records of this context are written with; `schema()` is the serializer's own."""
        subject = subject_name(self._config.subject_name_strategy, context, self._record_name)
        found = self._known.get(subject)
        if found is None:
            if self._config.use_latest_version:
                found = self._registry.version(subject)
            elif self._config.auto_register_schemas:
                found = self._registry.register(subject, schema())
            else:
                found = self._registry.lookup(subject, schema())
            self._known[subject] = found
        return found


def with_id(
    payload: bytes,
    registered: RegisteredSchema,
    context: SerializationContext,
    config: SerializerConfig,
    message_indexes: tuple[int, ...] | None = None,
) -> bytes:
    """The payload with its schema's id before it, or alone with the GUID in a header."""
    named = SchemaId(registered.id, registered.guid, message_indexes)
    if config.schema_id_serializer == "prefix":
        return named.id_prefix() + payload
    context.headers.append((schema_id_header(context.is_key), named.guid_prefix()))
    return payload


class WriterSchemas(Generic[T]):
    """What a deserializer made of each writer's schema, by id or GUID."""

    def __init__(self, registry: SchemaRegistry, parse: Callable[[Schema], T]) -> None:
        self._registry, self._parse = registry, parse
        self._known: dict[object, T] = {}

    def of(self, data: bytes, context: SerializationContext) -> tuple[T, bytes]:
        """The writer's schema and the payload. SerializationError, SchemaNotFoundError."""
        named, payload = decode_headers_or_prefix(data, context.headers, is_key=context.is_key)
        return self.named(named), payload

    def with_message(self, data: bytes, context: SerializationContext) -> tuple[T, tuple[int, ...], bytes]:
        """As `of` for Protobuf: with the message's indexes."""
        named, payload = decode_headers_or_prefix(
            data, context.headers, is_key=context.is_key, has_message_indexes=True
        )
        return self.named(named), named.message_indexes or FIRST_MESSAGE, payload

    def named(self, named: SchemaId) -> T:
        """The schema of an id or GUID."""
        key = named.guid or named.id
        if key not in self._known:
            if named.guid is not None:
                found = self._registry.schema_by_guid(named.guid)
            else:
                assert named.id is not None
                found = self._registry.schema_by_id(named.id)
            self._known[key] = self._parse(found.schema)
        return self._known[key]
