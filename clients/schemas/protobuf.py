"""Protobuf messages: a serializer and a deserializer. I/O: through a registry.

They need the package protobuf (`stratalog[schemas]`). A schema's text is the FileDescriptorProto in base64, which
servers accept beside .proto files, and answer to `format=serialized`.
Source: `io.confluent.kafka.serializers.protobuf.{KafkaProtobufSerializer,KafkaProtobufDeserializer}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stratalog.clients.schemas.protobuf_messages import (
    BUILT_IN,
    check_required,
    descriptor_text,
    message_indexes,
    messages_of,
)
from stratalog.clients.schemas.schema import Schema, SchemaReference, SchemaRegistry, SchemaType, referenced
from stratalog.clients.schemas.serde import SerializerConfig, SubjectSchemas, WriterSchemas, with_id
from stratalog.clients.schemas.wire_format import decode_headers_or_prefix
from stratalog.clients.serialization import SerializationContext
from stratalog.storage.errors import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.message import Message


class ProtobufSerializer:
    """`serializer(message, context)`: bytes in Confluent's wire format. None stays None.

    registry      as of `AvroSerializer`.
    message_type  the generated class; files that its own imports are registered under their names, as references.
    config        configs of `SerializerConfig`.
    """

    def __init__(
        self, registry: SchemaRegistry, message_type: type[Message], config: Mapping[str, object] | None = None
    ) -> None:
        self._registry = registry
        self._config = SerializerConfig.from_settings(config)
        self._type = message_type
        descriptor = message_type.DESCRIPTOR
        self._indexes = message_indexes(descriptor)
        self._subjects = SubjectSchemas(registry, self._config, descriptor.full_name)

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        """SerializationError for anything but a message of the serializer's type."""
        if value is None:
            return None
        if not isinstance(value, self._type):
            raise SerializationError(
                f"the value is {type(value).__name__}, the serializer's message type is {self._type.__name__}"
            )
        try:
            check_required(value)
        except SerializationError as reason:
            raise SerializationError(f"the value is no {self._type.DESCRIPTOR.full_name}: {reason}") from reason
        registered = self._subjects.of(context, lambda: self._schema_of(self._type.DESCRIPTOR.file))
        return with_id(self._type.SerializeToString(value), registered, context, self._config, self._indexes)

    def _schema_of(self, file: FileDescriptor) -> Schema:
        references = []
        for used in file.dependencies:
            if used.name.startswith(BUILT_IN):
                continue
            schema = self._schema_of(used)
            if self._config.auto_register_schemas:
                found = self._registry.register(used.name, schema)
            else:
                found = self._registry.lookup(used.name, schema)
            assert found.version is not None
            references.append(SchemaReference(used.name, used.name, found.version))
        return Schema(descriptor_text(file), SchemaType.PROTOBUF, tuple(references))


class ProtobufDeserializer:
    """`deserializer(bytes, context)`: the message. None stays None.

    registry      needed without a message type: messages then have a class that is made of the writer's schema.
    message_type  the generated class to read into; the registry is not asked then.
    """

    def __init__(self, registry: SchemaRegistry | None = None, message_type: type[Message] | None = None) -> None:
        if registry is None and message_type is None:
            raise SerializationError("a Protobuf deserializer needs a registry or a message type")
        self._type = message_type
        self._writers = None
        if registry is not None:
            self._writers = WriterSchemas(registry, lambda schema: messages_of(schema, referenced(registry, schema)))

    def __call__(self, data: bytes | None, context: SerializationContext) -> Any:
        """SerializationError for bytes of another form, SchemaNotFoundError for an unknown schema."""
        if data is None:
            return None
        if self._type is not None:
            is_key = context.is_key
            payload = decode_headers_or_prefix(data, context.headers, is_key=is_key, has_message_indexes=True)[1]
            return _parsed(self._type, payload)
        assert self._writers is not None
        types, indexes, payload = self._writers.with_message(data, context)
        if indexes not in types:
            raise SerializationError(f"the Protobuf schema has no message {indexes}")
        return _parsed(types[indexes], payload)


def _parsed(message_type: type[Message], payload: bytes) -> Message:
    from google.protobuf.message import DecodeError

    try:
        return message_type.FromString(payload)
    except DecodeError as reason:
        raise SerializationError(f"the bytes do not fit {message_type.DESCRIPTOR.full_name}: {reason}") from reason
