"""Messages of Protobuf schemas: the classes and indexes of a descriptor. Pure.

A schema's text is the FileDescriptorProto in base64. Needs the package protobuf (`stratalog[schemas]`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from stratalog.clients.schemas.schema import Schema
from stratalog.storage.errors import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every side has; they are no references."""


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
