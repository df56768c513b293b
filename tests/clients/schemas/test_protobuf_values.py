"""Protobuf values in columns are those of protobuf's own JSON mapping; a value that no column holds is one error."""

from __future__ import annotations

import base64
import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError

from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from stratalog.clients.schemas.protobuf_messages import messages_of
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.clients.serialization import VALUE, SerializationContext
from stratalog.storage.errors import SerializationError
from tests.clients.schemas.memory_registry import MemoryRegistry

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name: getattr(FIELD, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes",
                 "uint32", "sfixed32", "sfixed64", "sint32", "sint64")
}  # fmt: skip
WIDE = {"int64", "uint64", "fixed64", "sfixed64", "sint64"}
MICRO = dt.timedelta(microseconds=1)


def schema(syntax: str) -> ResolvedSchema:
    """`All`: each scalar as s_…, a list of each as l_…, a time, an enum, itself in `Inner`, a map."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="All")
    number = 0
    for prefix, label in (("s", 1), ("l", 3)):
        for name, kind in SCALARS.items():
            number += 1
            message.field.add(name=f"{prefix}_{name}", number=number, type=kind, label=label)
    time = ".google.protobuf.Timestamp"
    for name, type_name, kind, label in (
        ("at", time, FIELD.TYPE_MESSAGE, 1), ("ats", time, FIELD.TYPE_MESSAGE, 3),
        ("colour", ".all.Colour", FIELD.TYPE_ENUM, 1), ("inner", ".all.Inner", FIELD.TYPE_MESSAGE, 1),
        ("by_name", ".all.All.ByNameEntry", FIELD.TYPE_MESSAGE, 3),
    ):  # fmt: skip
        number += 1
        message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    entry = message.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=1)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=FIELD.TYPE_UINT64, label=1)
    inner.field.add(name="text", number=2, type=FIELD.TYPE_STRING, label=1)
    colour = file.enum_type.add(name="Colour")
    for value, name in enumerate(("RED", "BLUE")):
        colour.value.add(name=name, number=value)
    return ResolvedSchema(Schema(base64.b64encode(file.SerializeToString()).decode(), SchemaType.PROTOBUF))


SCHEMAS = {syntax: schema(syntax) for syntax in ("proto2", "proto3")}
TYPES = {syntax: messages_of(each.schema, {})[(0,)] for syntax, each in SCHEMAS.items()}
COLUMNS = {syntax: ProtobufColumns(each) for syntax, each in SCHEMAS.items()}


def mapped(field: str, value: Any) -> Any:
    """A column's value as protobuf's JSON mapping writes it."""
    if isinstance(value, list) and field == "by_name":
        return {key: str(each) for key, each in value}
    if isinstance(value, list):
        return [mapped(field, each) for each in value]
    if isinstance(value, dict):
        inside = {name: each for name, each in value.items() if each is not None}
        return {name: mapped("uint64" if name == "n" else name, each) for name, each in inside.items()}
    if field.rpartition("_")[2] in WIDE or isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def wanted(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def as_micros(text: str) -> dt.datetime:
    """A time of the mapping, cut to microseconds."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return dt.datetime.fromisoformat(f"{whole}+00:00") + int(f"{rest:0<9}"[:6]) * MICRO


def same(field: str, found: Any, mapping: Any) -> bool:
    if field in ("at", "ats") and mapping is not None:
        times = mapping if isinstance(mapping, list) else [mapping]
        return [as_micros(each) for each in times] == (found if isinstance(found, list) else [found])
    one = mapped(field, found)
    if isinstance(one, float):
        return math.isclose(one, mapping, rel_tol=1e-6)  # a float has eight digits in the mapping
    if isinstance(one, list) and one and isinstance(one[0], float | str) and "double" not in field:
        return all(same(field.replace("l_", "s_"), each, text) for each, text in zip(found, mapping, strict=True))
    return bool(one == mapping) or (isinstance(one, list) and repr(one) == repr(mapping))


NUMBERS = {
    "double": (0.0, -0.0, 0.1, 1e300, math.inf, math.nan), "float": (0.0, 0.5, 1e30, -math.inf, math.nan),
    "bool": (True, False), "string": ("", "a", "ä"), "bytes": (b"", b"\xff\x00"),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (0, 1, -(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (0, -1, -(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)), **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}  # fmt: skip
SECONDS = (0, 1, -1, -62_135_596_800, 253_402_300_799, 253_402_300_800, 2**62, -(2**63))
NANOS = (0, 0, 0, 1, 999, 1000, 999_999_999, -1, 1_000_000_000)


def drawn(rng: random.Random) -> dict[str, Any]:
    """Some fields of a message, with times of which some are none."""
    found: dict[str, Any] = {}
    for name, values in NUMBERS.items():
        if rng.random() < 0.5:
            found[f"s_{name}"] = rng.choice(values)
        if rng.random() < 0.3:
            found[f"l_{name}"] = rng.choices(values, k=rng.randint(0, 3))
    times = [{"seconds": rng.choice(SECONDS), "nanos": rng.choice(NANOS)} for _ in range(3)]
    if rng.random() < 0.5:
        found |= {"at": times[0], "ats": times[1 : rng.randint(1, 3)]}
    if rng.random() < 0.5:
        found["colour"] = rng.randint(0, 1)
        found["inner"] = {"n": rng.choice((0, 2**64 - 1)), "text": rng.choice(("", "b"))}
    if rng.random() < 0.5:
        found["by_name"] = {key: rng.choice(NUMBERS["int64"]) for key in rng.sample("abc", rng.randint(0, 3))}
    return found


def assert_as_mapped(syntax: str, rng: random.Random, count: int) -> int:
    """The columns of `count` messages have what the mapping says, some bytes cut off; how many had errors."""
    payloads = [TYPES[syntax](**drawn(rng)).SerializeToString() for _ in range(count)]
    payloads = [each[: rng.randrange(len(each) + 1)] if rng.random() < 0.1 else each for each in payloads]
    read = COLUMNS[syntax].read(pa.array(payloads, pa.binary()), None)
    for place, payload in enumerate(payloads):
        row = read.values[place].as_py()
        try:
            mapping = wanted(TYPES[syntax].FromString(payload))
        except (DecodeError, SerializeToJsonError, ValueError):
            assert place in read.errors
            assert row is None
            continue
        assert place not in read.errors
        present = {name: value for name, value in row.items() if value is not None}
        assert all(same(name, present[name], mapping[name]) for name in mapping), (row, mapping)
        assert all(not present[name] for name in present.keys() - mapping.keys())
    return len(read.errors)


@pytest.mark.parametrize("syntax", SCHEMAS)
def test_columns_have_what_the_json_mapping_says(syntax: str) -> None:
    """Each message has its own outcome: some have times that are none, or bytes that are cut off."""
    rng = random.Random(f"messages of {syntax}")
    errors = sum(assert_as_mapped(syntax, rng, 10) for _ in range(50))
    assert 100 < errors < 400


@pytest.mark.long
@pytest.mark.parametrize("syntax", SCHEMAS)
def test_10_000_messages_are_as_the_json_mapping_says(syntax: str) -> None:
    for _ in range(200):
        assert_as_mapped(syntax, random.Random(), 50)


def timestamp(seconds: int, nanos: int) -> bytes:
    return bytes(TYPES["proto3"](at={"seconds": seconds, "nanos": nanos}).SerializeToString())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(timestamp(2**62, 0), "no Timestamp"), (timestamp(0, -1), "no Timestamp"), (timestamp(0, 10**9), "no Timestamp"),
     (timestamp(-(2**63), 0), "no Timestamp")],
)  # fmt: skip
def test_one_bad_value_is_one_error(bad: bytes, reason: str) -> None:
    read = COLUMNS["proto3"].read(pa.array([timestamp(1, 0), bad, timestamp(2, 999)], pa.binary()), None)
    assert list(read.errors) == [1]
    assert reason in read.errors[1]
    times = [row and row["at"] for row in read.values.to_pylist()]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert times == [epoch + dt.timedelta(seconds=1), None, epoch + dt.timedelta(seconds=2)]


def test_a_string_of_proto2_that_is_no_utf8_is_one_error() -> None:
    number = list(SCALARS).index("string") + 1
    bad = bytes([number << 3 | 2, 0xE8, 0x07]) + b"\xff" * 1_000
    good = TYPES["proto2"](s_string="a").SerializeToString()
    read = COLUMNS["proto2"].read(pa.array([good, bad, good], pa.binary()), None)
    assert list(read.errors) == [1]
    assert len(read.errors[1]) < 300, "a record's value is not in its error as a whole"
    assert [row and row["s_string"] for row in read.values.to_pylist()] == ["a", None, "a"]


def test_a_map_of_messages_without_a_required_field_is_an_error() -> None:
    """protobuf's own list of what is lacking ends the process where such messages have maps, too (7.36, upb)."""
    file = descriptor_pb2.FileDescriptorProto(name="map.proto", package="map", syntax="proto2")
    outer, part = file.message_type.add(name="Outer"), file.message_type.add(name="Part")
    for message, name, value in ((outer, "parts", ".map.Part"), (part, "counts", None)):
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=FIELD.TYPE_INT32, label=1)
        kind = FIELD.TYPE_MESSAGE if value else FIELD.TYPE_INT32
        entry.field.add(name="value", number=2, type=kind, label=1, type_name=value)
        type_name = f".map.{message.name}.{entry.name}"
        message.field.add(name=name, number=1, type=FIELD.TYPE_MESSAGE, label=3, type_name=type_name)
    part.field.add(name="needed", number=2, type=FIELD.TYPE_INT32, label=2)
    for number, (name, label) in enumerate((("one", 1), ("list", 3)), start=2):
        outer.field.add(name=name, number=number, type=FIELD.TYPE_MESSAGE, label=label, type_name=".map.Part")
    own = ResolvedSchema(Schema(base64.b64encode(file.SerializeToString()).decode(), SchemaType.PROTOBUF))
    made = messages_of(own.schema, {})[(0,)]
    lacking, whole = {"counts": {1: 1}}, {"counts": {1: 1}, "needed": 1}
    message = made(parts={7: lacking, -8: whole}, one=lacking, list=[whole, {}])
    read = ProtobufColumns(own).read(pa.array([message.SerializePartialToString()]), None)
    assert "it lacks required fields: parts[7].needed, one.needed, list[1].needed" in read.errors[0]
    with pytest.raises(SerializationError, match=r"lacks required fields: parts\[7\]"):
        ProtobufSerializer(MemoryRegistry(), made)(message, SerializationContext("t", VALUE))
    with pytest.raises(SerializationError, match=r"lacks required fields: parts\[7\]"):
        ColumnWriter(None, own).write(pa.array([{"parts": {7: lacking | {"needed": None}, -8: whole}}], PARTS))


PARTS = pa.struct(
    [("parts", pa.map_(pa.int32(), pa.struct([("counts", pa.map_(pa.int32(), pa.int32())), ("needed", pa.int32())])))]
)


def test_fields_may_have_the_names_of_a_message_s_own_methods() -> None:
    """As attributes of a message they hide its methods."""
    methods = ("HasField", "IsInitialized", "FindInitializationErrors", "SerializeToString", "ParseFromString")
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", package="own", syntax="proto2")
    message = file.message_type.add(name="Own")
    for number, name in enumerate(methods, start=1):
        message.field.add(name=name, number=number, type=FIELD.TYPE_INT64, label=1)
    message.field.add(name="needed", number=9, type=FIELD.TYPE_INT64, label=2)
    text = base64.b64encode(file.SerializeToString()).decode()
    own = ResolvedSchema(Schema(text, SchemaType.PROTOBUF))
    row = {**dict.fromkeys(methods, 7), "needed": 1}
    written = ColumnWriter(None, own).write(pa.array([row]))
    read = ProtobufColumns(own).read(pa.concat_arrays([written, pa.array([b"\x08\x07"])]), None)
    assert read.values.to_pylist() == [row, None]
    assert "lacks required fields: needed" in read.errors[1]

    registry, place = MemoryRegistry(), SerializationContext("t", VALUE)
    kind = messages_of(own.schema, {})[(0,)]
    sent = ProtobufSerializer(registry, kind)(kind(**row), place)
    for deserializer in (ProtobufDeserializer(registry), ProtobufDeserializer(message_type=kind)):
        assert {name: getattr(deserializer(sent, place), name) for name in row} == row
