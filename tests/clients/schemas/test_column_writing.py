"""Columns that are written with a schema: what is read back is what was written, or the write is refused."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.storage.errors import SerializationError

_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_MICROS_MAX = 2**63 - 1
AT = dt.datetime(2026, 11, 29, 13, tzinfo=dt.UTC)
_OPTIONAL, _REQUIRED, _REPEATED, _INT64, _UINT64, _FLOAT, _DOUBLE, _BOOL, _ENUM, _MESSAGE = (
    1,
    2,
    3,
    3,
    4,
    2,
    1,
    8,
    14,
    11,
)


def avro(node: Any) -> ResolvedSchema:
    return ResolvedSchema(Schema(json.dumps(node)))


def logical(name: str, kind: str = "long") -> Any:
    return {"type": kind, "logicalType": name}


def of_micros(values: list[int | None], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind)


@given(st.lists(st.none() | st.integers(-_MICROS_MAX - 1, _MICROS_MAX), min_size=1))
def test_a_time_of_any_year_is_written_and_read_back(micros: list[int | None]) -> None:
    for name, kind in (("timestamp-micros", _INSTANT), ("local-timestamp-micros", _LOCAL)):
        schema, column = avro(["null", logical(name)]), of_micros(micros, kind)
        written = ColumnWriter(None, schema).write(column)
        assert AvroColumns(schema).read(written, schema).values.equals(column)


def test_nulls_within_other_types_are_written_beside_times() -> None:
    """Arrow's cast of nulls to nulls within structs and maps has another length: an error, or the process's end."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "null"}, {"name": "x", "type": "int"}]}
    fields = [{"name": "at", "type": logical("timestamp-micros")}, {"name": "i", "type": inner}]
    schema = avro({"type": "record", "name": "R", "fields": fields})
    column = pa.array([{"at": n, "i": {"n": None, "x": n}} for n in range(5)], AvroColumns(schema).arrow_type)
    writer = ColumnWriter(None, schema)
    whole = writer.write(column)
    assert [writer.write(column.slice(place, 1))[0] for place in range(5)] == list(whole)
    nulls = avro({"type": "map", "values": [logical("timestamp-micros"), {"type": "map", "values": "null"}]})
    rows = [
        {"a": {"member0": None, "member1": {"x": None, "y": None}}},
        {"b": {"member0": AT, "member1": None}, "c": {"member0": None, "member1": {"z": None}}},
    ]
    maps = pa.array(rows, AvroColumns(nulls).arrow_type)
    written = ColumnWriter(None, nulls).write(maps)
    assert AvroColumns(nulls).read(written, nulls).values.to_pylist(maps_as_pydicts="strict") == rows


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_date_of_any_year_is_written_and_read_back(days: int) -> None:
    schema = avro({"type": "array", "items": logical("date", "int")})
    column = pa.array([[days]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    written = ColumnWriter(None, schema).write(column)
    assert AvroColumns(schema).read(written, schema).values.equals(column)


def test_a_time_is_cut_to_the_unit_of_its_type() -> None:
    column = of_micros([-1_500, 1_500], _INSTANT)
    written = {
        unit: AvroColumns(avro("long")).read(ColumnWriter(None, avro(logical(f"timestamp-{unit}"))).write(column), None)
        for unit in ("millis", "nanos")
    }
    assert written["millis"].values.to_pylist() == [-2, 1]
    assert written["nanos"].values.to_pylist() == [-1_500_000, 1_500_000]
    with pytest.raises(SerializationError, match="is no long"):
        ColumnWriter(None, avro(logical("timestamp-nanos"))).write(of_micros([_MICROS_MAX], _INSTANT))


@pytest.mark.parametrize(("name", "kind"), [("timestamp-millis", _LOCAL), ("local-timestamp-micros", _INSTANT)])
def test_a_zone_is_neither_made_up_nor_left_out(name: str, kind: pa.DataType) -> None:
    fields = [{"name": "at", "type": ["null", logical(name)]}]
    writer = ColumnWriter(None, avro({"type": "record", "name": "R", "fields": fields}))
    with pytest.raises(SerializationError, match=f"#/at: a column of times .* is no {name}: cast it to TIMESTAMP"):
        writer.write(pa.array([{"at": None}], pa.struct([("at", kind)])))


def test_a_field_that_a_schema_lacks_is_not_left_out() -> None:
    """Names count with their case: a field that differs by it would be written as null."""
    fields = [{"name": "userId", "type": ["null", "int"], "default": None}]
    inner = {"type": "record", "name": "R", "fields": fields}
    with pytest.raises(SerializationError, match="schema R has no field userid; it has userId"):
        ColumnWriter(None, avro(inner)).write(pa.array([{"userid": 1}]))
    within = pa.array([{"k": {"n": 2}}], pa.map_(pa.string(), pa.struct([("n", pa.int32())])))
    with pytest.raises(SerializationError, match="#/values: the Avro schema R has no field n; it has userId"):
        ColumnWriter(None, avro({"type": "map", "values": inner})).write(within)


def test_one_member_of_a_union_is_written() -> None:
    schema = avro(["null", "string", "boolean"])
    kind = AvroColumns(schema).arrow_type
    with pytest.raises(SerializationError, match="2 members of a union have a value"):
        ColumnWriter(None, schema).write(pa.array([{"member0": "x", "member1": True}], kind))
    with pytest.raises(SerializationError, match="the union has no field member2"):
        ColumnWriter(None, schema).write(pa.array([{"member2": 1}]))
    with pytest.raises(SerializationError, match="a union of 2 types is a struct of member0, member1, not string"):
        ColumnWriter(None, schema).write(pa.array(["x"]))


def test_times_in_a_union_are_written() -> None:
    schema = avro({"type": "map", "values": [logical("timestamp-millis"), "string", logical("date", "int")]})
    columns = AvroColumns(schema)
    rows = [
        {
            "a": {"member0": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
            "b": {"member1": "x"},
            "c": {"member2": dt.date(1, 1, 1)},
        }
    ]
    column = pa.array(rows, columns.arrow_type)
    assert columns.read(ColumnWriter(None, schema).write(column), None).values.equals(column)


def test_a_key_that_a_map_has_twice_is_refused() -> None:
    with pytest.raises(SerializationError, match="duplicate key"):
        ColumnWriter(None, avro({"type": "map", "values": "int"})).write(
            pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
        )


def message(**fields: tuple[int, int, str | None]) -> ResolvedSchema:
    """The schema of a message with fields of a type, a label and the name of a type."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    enum = file.enum_type.add(name="Colour")
    enum.options.allow_alias = True
    for name, number in (("NONE", 0), ("GREY", 1), ("GRAY", 1)):
        enum.value.add(name=name, number=number)
    made = file.message_type.add(name="M")
    entry = made.nested_type.add(name="ByNumberEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_UINT64, label=_OPTIONAL)
    entry.field.add(name="value", number=2, type=_MESSAGE, label=_OPTIONAL, type_name=".google.protobuf.Timestamp")
    for number, (name, (kind, label, type_name)) in enumerate(fields.items(), 1):
        made.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    return ResolvedSchema(Schema(base64.b64encode(file.SerializeToString()).decode(), SchemaType.PROTOBUF))


def test_numbers_of_enums_keys_and_times_of_messages_are_read_back() -> None:
    schema = message(
        colours=(_ENUM, _REPEATED, ".p.Colour"),
        by_number=(_MESSAGE, _REPEATED, ".p.M.ByNumberEntry"),
        at=(_MESSAGE, _OPTIONAL, ".google.protobuf.Timestamp"),
    )
    columns = ProtobufColumns(schema)
    at = dt.datetime(1, 1, 1, 0, 0, 0, 1, dt.UTC)
    column = pa.array(
        [{"colours": ["GREY", "7", "-1"], "by_number": {Decimal(2**64 - 1): at}, "at": at}], columns.arrow_type
    )
    assert columns.read(ColumnWriter(None, schema).write(column), schema).values.equals(column)


def test_a_message_without_a_required_field_is_none() -> None:
    """As for `DynamicMessage.parseFrom` in Java: its column would be null."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto2")
    for name, inner in (("M", ".p.N"), ("N", None)):
        kind = _INT64 if inner is None else _MESSAGE
        label = _REQUIRED if inner is None else _OPTIONAL
        file.message_type.add(name=name).field.add(name="f", number=1, type=kind, label=label, type_name=inner)
    schema = ResolvedSchema(Schema(base64.b64encode(file.SerializeToString()).decode(), SchemaType.PROTOBUF))
    read = ProtobufColumns(schema).read(pa.array([b"", b"\x0a\0", b"\x0a\x02\x08\x05"]), schema)
    assert read.values.to_pylist() == [{"f": None}, None, {"f": {"f": 5}}]
    assert read.errors == {1: "the bytes do not fit p.M: it lacks required fields: f.f"}
    with pytest.raises(SerializationError, match=r"lacks required fields: f\.f"):
        ColumnWriter(None, schema).write(pa.array([{"f": {"f": None}}], read.values.type))


def test_of_two_names_of_a_number_the_first_counts() -> None:
    """As `EnumDescriptor.findValueByNumber` in Java, and protobuf's JSON."""
    schema = message(colour=(_ENUM, _OPTIONAL, ".p.Colour"))
    written = ColumnWriter(None, schema).write(pa.array([{"colour": "GRAY"}]))
    assert ProtobufColumns(schema).read(written, schema).values.to_pylist() == [{"colour": "GREY"}]


@pytest.mark.parametrize(
    ("field", "column", "reason"),
    [
        ((_FLOAT, _OPTIONAL, None), pa.array([{"v": 1e300}]), "1e\\+300 is no float"),
        ((_DOUBLE, _OPTIONAL, None), pa.array([{"v": 2**53 + 1}]), "9007199254740993 is no double"),
        ((_DOUBLE, _OPTIONAL, None), pa.array([{"v": Decimal("1.5")}]), "is no double"),
        ((_UINT64, _OPTIONAL, None), pa.array([{"v": Decimal("1.5")}]), "1.5 is no whole number"),
        ((_BOOL, _OPTIONAL, None), pa.array([{"v": 5}]), "5 is no boolean"),
        ((_INT64, _REPEATED, None), pa.array([{"v": [1, None]}]), "null is no value of a list or map"),
        ((_ENUM, _OPTIONAL, ".p.Colour"), pa.array([{"v": "RED"}]), "'RED' is no value of p.Colour"),
        (
            (_MESSAGE, _REPEATED, ".p.M.ByNumberEntry"),
            pa.array([{"v": {Decimal(1): None}}], pa.struct([("v", pa.map_(pa.decimal128(20), _INSTANT))])),
            "null is no value of a list or map",
        ),
        (
            (_MESSAGE, _OPTIONAL, ".google.protobuf.Timestamp"),
            pa.array([{"v": None}], pa.struct([("v", _LOCAL)])),
            "times without a zone",
        ),
        (
            (_MESSAGE, _OPTIONAL, ".google.protobuf.Timestamp"),
            pa.array([{"v": 2**58}], pa.struct([("v", pa.int64())])).cast(pa.struct([("v", _INSTANT)])),
            "are no Timestamp, whose years are 1 to 9999",
        ),
    ],
)
def test_what_a_message_would_alter_is_refused(
    field: tuple[int, int, str | None], column: pa.Array, reason: str
) -> None:
    with pytest.raises(SerializationError, match=f"#/v: .*{reason}"):
        ColumnWriter(None, message(v=field)).write(column)
