"""Messages of Protobuf schemas: the classes and indexes of a descriptor. Pure.

A schema's text is the FileDescriptorProto in base64. Needs the package protobuf (`stratalog[schemas]`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

from stratalog.clients.schemas.schema import Schema
from stratalog.storage.errors import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every side has; they are no references."""

_SHOWN_MAX = 10
"""The most fields that an error names."""


def message_indexes(descriptor: Descriptor) -> tuple[int, ...]:
    """The way from the file to the message: (1, 0) is the first one nested in the second."""
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        outer = descriptor.containing_type
        indexes.append([each.name for each in outer.nested_types].index(descriptor.name))
        descriptor = outer
    indexes.append(list(descriptor.file.message_types_by_name).index(descriptor.name))
    return tuple(reversed(indexes))


def descriptor_text(file: FileDescriptor) -> str:
    """The text of a file's schema."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def messages_of(schema: Schema, references: Mapping[str, Schema]) -> dict[tuple[int, ...], type[Message]]:
    """A class for each message of a file, by its indexes. `references`: files by name, each after its own."""
    from google.protobuf import descriptor_pb2, message_factory
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()

    def add(name: str, text: str) -> str:
        proto = descriptor_pb2.FileDescriptorProto()
        try:
            proto.ParseFromString(base64.standard_b64decode(text.encode()))
        except (binascii.Error, ValueError) as reason:
            raise SerializationError(f"the schema of {name} is no descriptor in base64: {reason}") from reason
        proto.name = name
        for each in proto.dependency:
            if each.startswith(BUILT_IN):
                pool.Add(_built_in(each))
        pool.Add(proto)
        return name

    for name, each in references.items():
        add(name, each.text)
    file = pool.FindFileByName(add("value.proto", schema.text))
    found: dict[tuple[int, ...], type[Message]] = {}

    def collect(descriptor: Descriptor) -> None:
        found[message_indexes(descriptor)] = message_factory.GetMessageClass(descriptor)
        for nested in descriptor.nested_types:
            collect(nested)

    for each in file.message_types_by_name.values():
        collect(each)
    return found


def check_required(message: Message) -> None:
    """SerializationError for a message that lacks required fields, itself or within it."""
    kind = type(message)
    if not kind.IsInitialized(message):
        shown = islice(_lacking(message, kind.DESCRIPTOR), _SHOWN_MAX)
        raise SerializationError(f"it lacks required fields: {', '.join(shown)}")


def _lacking(message: Any, descriptor: Descriptor) -> Iterator[str]:
    """The paths of required fields that a message lacks. protobuf's own list of them, of which its errors are made,
    ends the process at some maps."""
    for field in descriptor.fields:
        if field.is_required and not type(message).HasField(message, field.name):
            yield field.name
        for place, part, kind in _parts(message, field):
            yield from (f"{field.name}{place}.{path}" for path in _lacking(part, kind))


def _parts(message: Any, field: FieldDescriptor) -> list[tuple[str, Any, Descriptor]]:
    """The messages in a field: where they are in it, each with its type."""
    kind = field.message_type
    if is_map(field):
        kind = kind.fields_by_name["value"].message_type
    if kind is None:
        return []
    if is_map(field):
        return [(f"[{key!r}]", each, kind) for key, each in getattr(message, field.name).items()]
    if field.is_repeated:
        return [(f"[{place}]", each, kind) for place, each in enumerate(getattr(message, field.name))]
    return [("", getattr(message, field.name), kind)] if type(message).HasField(message, field.name) else []


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map, which the wire has as repeated entries."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _built_in(name: str) -> FileDescriptorProto:
    """The descriptor of a file that comes with a Python package, whose module puts it into the default pool."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import Default

    module = f"{name.removesuffix('.proto').replace('/', '.')}_pb2"
    try:
        import_module(module)
    except ImportError as lacking:
        raise SerializationError(
            f"a Protobuf schema imports {name}, but there is no module {module}: install the package that has it"
        ) from lacking
    known = FileDescriptorProto()
    Default().FindFileByName(name).CopyToProto(known)
    return known
