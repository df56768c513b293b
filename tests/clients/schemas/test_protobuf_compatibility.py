"""Confluent's rules for Protobuf files, on descriptors."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from stratalog.clients.schemas.compatibility.protobuf import incompatibilities, parsed_file
from stratalog.clients.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import Schema, SchemaType

INT, LONG, TEXT, BYTES, MESSAGE = (
    Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE,
)  # fmt: skip


def file(*fields: dict[str, Any], package: str = "shop", message: str = "M", syntax: str = "proto3") -> Any:
    """A file with messages `message` and `Other`; a field is its number, type and what else it has."""
    made = FileDescriptorProto(name="f.proto", package=package, syntax=syntax)
    holder = made.message_type.add(name=message)
    made.message_type.add(name="Other")
    for each in fields:
        oneof = each.pop("oneof", None)
        field = holder.field.add(name=f"f{each['number']}", **({"label": 1} | each))
        if oneof is not None:
            names = [known.name for known in holder.oneof_decl]
            if oneof not in names:
                holder.oneof_decl.add(name=oneof)
                names.append(oneof)
            field.oneof_index = names.index(oneof)
    return made


def f(number: int, kind: int = INT, **more: Any) -> dict[str, Any]:
    return {"number": number, "type": kind, **more}


OTHER = {"type_name": ".shop.Other"}
ROWS: list[tuple[str, Any, Any, list[str]]] = [
    ("nothing changed", file(f(1)), file(f(1)), []),
    ("a field is added", file(f(1)), file(f(1), f(2)), []),
    ("a field is removed", file(f(1), f(2)), file(f(1)), []),
    ("a number grows", file(f(1)), file(f(1, LONG)), []),
    ("text becomes bytes", file(f(1, TEXT)), file(f(1, BYTES)), []),
    ("an enum becomes a number", file(f(1, Field.TYPE_ENUM, **OTHER)), file(f(1)), []),
    ("a number becomes text", file(f(1)), file(f(1, TEXT)), ["#/M/1: FIELD_SCALAR_KIND_CHANGED"]),
    ("a number becomes zigzag", file(f(1)), file(f(1, Field.TYPE_SINT32)), ["#/M/1: FIELD_SCALAR_KIND_CHANGED"]),
    ("a number becomes a message", file(f(1)), file(f(1, MESSAGE, **OTHER)), ["#/M/1: FIELD_KIND_CHANGED"]),
    ("another message", file(f(1, MESSAGE, **OTHER)), file(f(1, MESSAGE, type_name=".shop.M")),
     ["#/M/1: FIELD_NAMED_TYPE_CHANGED"]),
    ("a message is renamed", file(f(1)), file(f(1), message="N"), ["#/M: MESSAGE_REMOVED"]),
    ("another package", file(), file(package="shop2"), ["#/: PACKAGE_CHANGED"]),
    ("text is repeated", file(f(1, TEXT), syntax=""), file(f(1, TEXT, label=3), syntax=""), []),
    ("a number is repeated", file(f(1), syntax=""), file(f(1, label=3), syntax=""),
     ["#/M/1: FIELD_NUMERIC_LABEL_CHANGED"]),
    ("a required field is added", file(), file(f(1, label=2), syntax=""), ["#/M/1: REQUIRED_FIELD_ADDED"]),
    ("a required field is removed", file(f(1, label=2)), file(), ["#/M/1: REQUIRED_FIELD_REMOVED"]),
    ("one field into a new oneof", file(f(1)), file(f(1, oneof="o"), f(2, oneof="o")), []),
    ("two fields into a oneof", file(f(1), f(2)), file(f(1, oneof="o"), f(2, oneof="o")),
     ["#/M/o: MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
    ("a field into an old oneof", file(f(1, oneof="o"), f(2)), file(f(1, oneof="o"), f(2, oneof="o")),
     ["#/M/o: FIELD_MOVED_TO_EXISTING_ONEOF"]),
    ("a member of a oneof is removed", file(f(1, oneof="o"), f(2, oneof="o")), file(f(1, oneof="o")),
     ["#/M/o/2: ONEOF_FIELD_REMOVED"]),
    ("a whole oneof is removed", file(f(1, oneof="o"), f(2, oneof="o")), file(), []),
]  # fmt: skip


@pytest.mark.parametrize(("original", "update", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_change_of_a_file_is_judged_as_by_confluents_servers(original: Any, update: Any, expected: list[str]) -> None:
    found = [": ".join(each.split(": ")[:2]) for each in incompatibilities(original, update)]
    assert found == expected


def schema(made: Any) -> Schema:
    return Schema(base64.b64encode(made.SerializeToString()).decode(), SchemaType.PROTOBUF)


def test_a_subject_of_messages_keeps_its_level() -> None:
    state = RegistryState()
    for each in (file(f(1)), file(f(1), f(2))):
        state.apply(*state.register("s", schema(each)).records[0])
    with pytest.raises(IncompatibleSchemaError, match="FIELD_SCALAR_KIND_CHANGED"):
        state.register("s", schema(file(f(1, TEXT))))


@pytest.mark.parametrize("text", ['syntax = "proto3";', "!", "AAAA"])
def test_a_text_that_is_no_descriptor_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="in base64"):
        parsed_file(text)
