"""Random Protobuf files and messages, and bytes that an earlier or later version of a file wrote, some damaged. Pure.

One seed is one list.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from stratalog.clients.schemas.protobuf_messages import messages_of
from stratalog.clients.schemas.schema import Schema, SchemaType

ROWS = 12
PACKAGE = "drawn"
SCALARS = ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
           "sfixed32", "sfixed64", "sint32", "sint64")  # fmt: skip
KEYS = tuple(each for each in SCALARS if each not in ("double", "float", "bytes"))
WELL_KNOWN = ("Timestamp", "Duration", "Empty", "Int64Value", "UInt64Value", "StringValue", "BoolValue", "FloatValue",
              "BytesValue")  # fmt: skip
FILES = {"Timestamp": "timestamp", "Duration": "duration", "Empty": "empty"}
"""Where a well-known type is, if not in wrappers.proto."""
ODD_NAMES = ("value", "error", "schema_id", "read", "element", "key", "Clear", "IsInitialized", "HasField", "class",
             "None", "nanos", "seconds", "_offset", "__init__", "ByteSize", "type", "camelCase")  # fmt: skip
"""Names of ours, of Python's, and of its class of messages; the mapping itself fails at DESCRIPTOR and ListFields."""
WIDER = {"int32": ("int64", "uint32", "bool", "sint32"), "int64": ("int32", "uint64"), "string": ("bytes", "int32"),
         "bytes": ("string",), "fixed32": ("float", "sfixed32"), "uint64": ("int64",)}  # fmt: skip
"""Types of another version of a field; some have other bytes."""
INTEGER_BITS = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
UNSIGNED_BITS = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
SECONDS = (0, 1, -1, 1_700_000_000, -62_135_596_800, 253_402_300_799, 253_402_300_800, 2**62, -(2**63))
NANOS = (0, 0, 0, 1, 999, 1000, 999_999_999, -1, 1_000_000_000)
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_DEFAULTS = {FieldDescriptorProto.TYPE_INT32: "-7", FieldDescriptorProto.TYPE_STRING: "ä",
             FieldDescriptorProto.TYPE_ENUM: "RED", FieldDescriptorProto.TYPE_DOUBLE: "nan"}  # fmt: skip


class ProtobufCase(NamedTuple):
    """The reader's file, that of the writer, the place of the message in both, and payloads of the writer's."""

    number: int
    reader: FileDescriptorProto
    writer: FileDescriptorProto
    place: int
    payloads: tuple[bytes, ...]

    @property
    def message(self) -> str:
        return f"{PACKAGE}.{self.reader.message_type[self.place].name}"


def schema_of(file: FileDescriptorProto) -> Schema:
    return Schema(base64.b64encode(file.SerializeToString()).decode(), SchemaType.PROTOBUF)


def class_of(file: FileDescriptorProto, place: int) -> Any:
    return messages_of(schema_of(file), {})[(place,)]


def drawn(seed: int, count: int) -> list[ProtobufCase]:
    found = []
    for number in range(count):
        draw = Random(f"{seed} {number}")
        reader = a_file(draw)
        writer = reader if draw.random() < 0.5 else another_version(draw, reader)
        place = draw.randrange(len(reader.message_type))
        kind = class_of(writer, place)
        payloads = tuple(damaged(draw, _bytes_of(draw, kind)) for _ in range(ROWS))
        found.append(ProtobufCase(number, reader, writer, place, payloads))
    return found


def a_file(draw: Random) -> FileDescriptorProto:
    """Messages of which each may have fields of later ones, so that none contains itself."""
    syntax = draw.choice(["proto2", "proto3"])
    file = FileDescriptorProto(name="drawn.proto", package=PACKAGE, syntax=syntax)
    colours = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "BLUE", "GREEN")[: draw.randint(1, 3)]):
        colours.value.add(name=name, number=number * draw.choice([1, 7]) if number else 0)
    count = draw.randint(1, 3)
    for place in range(count):
        _Drawn(draw, file, file.message_type.add(name=f"M{place}"), range(place + 1, count)).fields()
    used = {each.type_name for message in _all(file) for each in message.field}
    for name in sorted(each.rpartition(".")[2] for each in used if each.startswith(".google.")):
        path = f"google/protobuf/{FILES.get(name, 'wrappers')}.proto"
        if path not in file.dependency:
            file.dependency.append(path)
    return file


def _all(file: FileDescriptorProto) -> list[DescriptorProto]:
    return [each for message in file.message_type for each in (message, *message.nested_type)]


class _Drawn:
    """A message under construction."""

    def __init__(self, draw: Random, file: FileDescriptorProto, message: DescriptorProto, others: range) -> None:
        self.draw, self.file, self.message, self.others = draw, file, message, others
        self._names = [*draw.sample(ODD_NAMES, len(ODD_NAMES))]

    def fields(self) -> None:
        draw = self.draw
        if draw.random() < 0.3:
            self.message.oneof_decl.add(name="choice")
        optional = []
        for number in range(1, draw.randint(0, 7) + 1):
            name = self._names.pop() if draw.random() < 0.2 else f"f{number}"
            field = self.message.field.add(name=name, number=number * draw.choice([1, 1, 1, 100]) + (number > 20000))
            kind = draw.randrange(6)
            if kind == 0:
                self._map(field)
                continue
            self._value(field, draw.choice([*SCALARS, *SCALARS, "enum", "message", "message", "known", "known"]))
            field.label = _REPEATED if kind == 1 else _OPTIONAL
            if kind == 1:
                self._pack(field)
            elif kind == 2 and self.message.oneof_decl:
                field.oneof_index = 0
            elif self.file.syntax == "proto2":
                self._of_proto2(field)
            elif kind == 3 and field.type != FieldDescriptorProto.TYPE_MESSAGE:
                optional.append(field)
        self._number_anew()
        if self.message.oneof_decl and not any(each.HasField("oneof_index") for each in self.message.field):
            del self.message.oneof_decl[:]
        for field in optional:  # a oneof of its own, behind the others
            field.proto3_optional, field.oneof_index = True, len(self.message.oneof_decl)
            self.message.oneof_decl.add(name=f"_{field.name}")

    def _number_anew(self) -> None:
        taken: set[int] = set()
        for field in self.message.field:
            while field.number in taken:
                field.number += 1
            taken.add(field.number)

    def _value(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind == "message" and not self.others:
            kind = "known"
        if kind == "known":
            field.type, field.type_name = (
                FieldDescriptorProto.TYPE_MESSAGE,
                f".google.protobuf.{self.draw.choice(WELL_KNOWN)}",
            )
        elif kind == "message":
            field.type, field.type_name = (
                FieldDescriptorProto.TYPE_MESSAGE,
                f".{PACKAGE}.M{self.draw.choice(self.others)}",
            )
        elif kind == "enum":
            field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, f".{PACKAGE}.Colour"
        else:
            field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")

    def _map(self, field: FieldDescriptorProto) -> None:
        name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        entry = self.message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, (part, kinds) in enumerate((("key", KEYS), ("value", (*SCALARS, "enum", "message", "known"))), 1):
            self._value(entry.field.add(name=part, number=number, label=_OPTIONAL), self.draw.choice(kinds))
        field.label, field.type = _REPEATED, FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{self.message.name}.{name}"

    def _pack(self, field: FieldDescriptorProto) -> None:
        unpackable = (
            FieldDescriptorProto.TYPE_STRING,
            FieldDescriptorProto.TYPE_BYTES,
            FieldDescriptorProto.TYPE_MESSAGE,
        )
        if field.type not in unpackable:
            field.options.packed = self.draw.random() < 0.5

    def _of_proto2(self, field: FieldDescriptorProto) -> None:
        if self.draw.random() < 0.1:
            field.label = _REQUIRED
        elif self.draw.random() < 0.2:
            default = _DEFAULTS.get(field.type)
            if default is not None:
                field.default_value = default


def another_version(draw: Random, file: FileDescriptorProto) -> FileDescriptorProto:
    """The file with fields that the reader lacks, without some that it has, and some of another type."""
    changed = copy.deepcopy(file)
    changed.enum_type[0].value.add(name="LATER", number=99)
    for message in changed.message_type:
        free = max([each.number for each in message.field], default=0) + 1
        for place in reversed(range(len(message.field))):
            field = message.field[place]
            name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
            is_free = not field.HasField("oneof_index")
            if is_free and draw.random() < 0.15:
                del message.field[place]
            elif name in WIDER and draw.random() < 0.25:
                field.ClearField("default_value")
                field.options.ClearField("packed")
                field.type = getattr(FieldDescriptorProto, f"TYPE_{draw.choice(WIDER[name]).upper()}")
        if draw.random() < 0.4:
            message.field.add(name="later", number=free, label=_OPTIONAL, type=FieldDescriptorProto.TYPE_STRING)
    return changed


def damaged(draw: Random, payload: bytes) -> bytes:
    if payload and draw.random() < 0.1:
        place = draw.randrange(len(payload))
        return payload[:place] + bytes([draw.randrange(256)]) + payload[place + 1 :]
    return payload[: draw.randrange(len(payload) + 1)] if draw.random() < 0.05 else payload


def _bytes_of(draw: Random, kind: Any) -> bytes:
    message = kind()
    fill(draw, message)
    written: bytes = message.SerializePartialToString()
    return written


def fill(draw: Random, message: Any) -> None:
    """Set some fields."""
    descriptor = type(message).DESCRIPTOR
    if descriptor.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds, message.nanos = draw.choice(SECONDS[: draw.choice([4, 9])]), draw.choice(NANOS)
        return
    for field in descriptor.fields:
        if draw.random() < 0.35:
            continue
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            _fill_map(draw, field, message)
        elif field.is_repeated:
            _fill_list(draw, field, message)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill(draw, inner)
        else:
            setattr(message, field.name, a_scalar(draw, field))


def _fill_map(draw: Random, field: Any, message: Any) -> None:
    entry, found = field.message_type.fields_by_name, getattr(message, field.name)
    for _ in range(draw.randrange(4)):
        key = a_scalar(draw, entry["key"])
        if entry["value"].message_type is not None:
            fill(draw, found[key])
        else:
            found[key] = a_scalar(draw, entry["value"])


def _fill_list(draw: Random, field: Any, message: Any) -> None:
    found = getattr(message, field.name)
    for _ in range(draw.randrange(4)):
        if field.message_type is not None:
            fill(draw, found.add())
        else:
            found.append(a_scalar(draw, field))


def a_scalar(draw: Random, field: Any) -> Any:
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return _SCALARS[name](draw, field)


def _a_number(bits: int, *, is_signed: bool) -> Callable[[Random, Any], int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)

    def drawn_number(draw: Random, _: Any) -> int:
        return draw.choice([0, 1, low, high, (1 << 53) + 1 if bits == 64 else 77, draw.randint(low, high)])

    return drawn_number


def _an_enum(draw: Random, field: Any) -> int:
    numbers = [each.number for each in field.enum_type.values]
    return int(draw.choice([*numbers, 12345] if not field.enum_type.is_closed else numbers))


_SCALARS: dict[str, Callable[[Random, Any], Any]] = {
    **{name: _a_number(bits, is_signed=True) for name, bits in INTEGER_BITS.items()},
    **{name: _a_number(bits, is_signed=False) for name, bits in UNSIGNED_BITS.items()},
    "double": lambda draw, _: draw.choice([0.0, -0.0, 0.1, 1e300, float("inf"), float("nan"), 2.0**-1074]),
    "float": lambda draw, _: draw.choice([0.0, -0.0, 0.1, 1e30, float("-inf"), float("nan"), 16777217.0]),
    "bool": lambda draw, _: draw.random() < 0.5,
    "string": lambda draw, _: draw.choice(["", "a", "ä", "\U0001f600", "\x00", "x" * 300]),
    "bytes": lambda draw, _: draw.choice([b"", b"\x00", b"\xff\xfe", b"ascii", b"\xed\xa0\x80"]),
    "enum": _an_enum,
}
