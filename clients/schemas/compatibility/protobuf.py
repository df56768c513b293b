"""Whether a new Protobuf file may follow an earlier one: Confluent's rules on descriptors. Pure.

A difference is incompatible that makes old bytes unreadable or reads them as something else: another package, a message
or required field that is gone or new, another kind of a field, several fields that become one `oneof`. Types that both
files import are compared by name only. Enums are numbers and may change.

Source: `io.confluent.kafka.schemaregistry.protobuf.diff.{SchemaDiff,MessageSchemaDiff,FieldSchemaDiff}`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.storage.errors import InvalidConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_GROUPS = {
    "number": (3, 4, 5, 8, 13, 14),
    "zigzag number": (17, 18),
    "string or bytes": (9, 12),
    "32 bits": (7, 15),
    "64 bits": (6, 16),
    "float": (2,),
    "double": (1,),
    "message": (10, 11),
}
_GROUP_OF = {kind: name for name, kinds in _GROUPS.items() for kind in kinds}
"""`FieldDescriptorProto.Type` -> what its bytes are; types of one group read each other's."""
_MESSAGE, _TEXT = "message", "string or bytes"
_LABEL_OPTIONAL, _LABEL_REQUIRED = 1, 2


def parsed_file(text: str) -> FileDescriptorProto:
    """The descriptor of a schema's text in base64. InvalidSchemaError, also for a .proto file."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError
    except ImportError as lacking:
        raise InvalidConfigError("Protobuf schemas need protobuf: pip install 'stratalog[schemas]'") from lacking
    file = FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text.encode(), validate=True))
    except (binascii.Error, ValueError, DecodeError) as reason:
        raise InvalidSchemaError(
            "a Protobuf schema is a FileDescriptorProto in base64 here; ProtobufSerializer makes one of a class"
        ) from reason
    return file


def incompatibilities(original: FileDescriptorProto, update: FileDescriptorProto) -> list[str]:
    """Why `update` does not read what `original` wrote, as `#/Order/2: FIELD_KIND_CHANGED: …`; empty if it does."""
    found = []
    if original.package != update.package:
        found.append(f"#/: PACKAGE_CHANGED: {original.package} and {update.package}")
    return [*found, *_messages(original.message_type, update.message_type, "#", (_Side(original), _Side(update)))]


class _Side:
    """What the fields of a file depend on: its package and its syntax."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._package = f".{file.package}." if file.package else "."
        self._has_implicit_labels = file.syntax == "proto3"

    def type_name(self, field: FieldDescriptorProto) -> str:
        return str(field.type_name).removeprefix(self._package)

    def label(self, field: FieldDescriptorProto) -> int | None:
        """None for a field of proto3 without a word before its type: Confluent compares none with it."""
        is_implicit = self._has_implicit_labels and field.label == _LABEL_OPTIONAL and not field.proto3_optional
        return None if is_implicit else int(field.label)


_Sides = tuple[_Side, _Side]


def _messages(
    original: Iterable[DescriptorProto], update: Iterable[DescriptorProto], path: str, sides: _Sides
) -> Iterator[str]:
    """Entries of maps are messages here; they belong to their fields."""
    new = {each.name: each for each in update}
    for each in original:
        if each.name in new:
            yield from _message(each, new[each.name], f"{path}/{each.name}", sides)
        elif not each.options.map_entry:
            yield f"{path}/{each.name}: MESSAGE_REMOVED"


def _message(original: DescriptorProto, update: DescriptorProto, path: str, sides: _Sides) -> Iterator[str]:
    old_fields = {each.number: each for each in original.field}
    new_fields = {each.number: each for each in update.field}
    old_oneofs, new_oneofs = _oneofs(original), _oneofs(update)
    yield from _new_exclusions(old_fields.keys(), old_oneofs, new_oneofs, path)
    for number in sorted(old_fields.keys() | new_fields.keys()):
        before, after = old_fields.get(number), new_fields.get(number)
        if before is not None and after is not None:
            yield from _field(before, after, f"{path}/{number}", sides)
        elif before is not None and number in old_oneofs:
            members = {each for each, name in old_oneofs.items() if name == old_oneofs[number]}
            if old_oneofs[number] in new_oneofs.values() or members & new_fields.keys():
                yield f"{path}/{old_oneofs[number]}/{number}: ONEOF_FIELD_REMOVED"
        elif before is not None and before.label == _LABEL_REQUIRED:
            yield f"{path}/{number}: REQUIRED_FIELD_REMOVED"
        elif after is not None and after.label == _LABEL_REQUIRED and number not in new_oneofs:
            yield f"{path}/{number}: REQUIRED_FIELD_ADDED"
    yield from _messages(original.nested_type, update.nested_type, path, sides)


def _oneofs(message: DescriptorProto) -> dict[int, str]:
    """Number of a field -> its oneof; those that `optional` of proto3 makes do not count."""
    return {
        each.number: message.oneof_decl[each.oneof_index].name
        for each in message.field
        if each.HasField("oneof_index") and not each.proto3_optional
    }


def _new_exclusions(known: Collection[int], old: dict[int, str], new: dict[int, str], path: str) -> Iterator[str]:
    """Fields that could be set together before and cannot now."""
    for name in dict.fromkeys(new.values()):
        members = [number for number, oneof in new.items() if oneof == name and number in known]
        alone = [number for number in members if number not in old]
        origins = {old.get(number, f"field {number}") for number in members}
        if len(origins) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield f"{path}/{name}: {kind}: {', '.join(map(str, members))}"


def _field(original: FieldDescriptorProto, update: FieldDescriptorProto, path: str, sides: _Sides) -> Iterator[str]:
    before, after = _GROUP_OF[original.type], _GROUP_OF[update.type]
    if (before == _MESSAGE) != (after == _MESSAGE):
        yield f"{path}: FIELD_KIND_CHANGED: {before} and {after}"
    elif before != after:
        yield f"{path}: FIELD_SCALAR_KIND_CHANGED: {before} and {after}"
    elif before == _MESSAGE:
        names = (sides[0].type_name(original), sides[1].type_name(update))
        if names[0] != names[1]:
            yield f"{path}: FIELD_NAMED_TYPE_CHANGED: {names[0]} and {names[1]}"
    elif before != _TEXT:
        labels = {sides[0].label(original), sides[1].label(update)}
        if len(labels) > 1 and None not in labels:
            yield f"{path}: FIELD_NUMERIC_LABEL_CHANGED"
