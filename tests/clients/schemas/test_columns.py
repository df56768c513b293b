"""Binary columns as typed columns: values are those of the deserializers, errors are of single rows."""

from __future__ import annotations

import base64
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.reader import ColumnFormat, ReadColumn, read_column
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError, RegistryUnavailableError, SchemaNotFoundError
from stratalog.clients.schemas.json_schema import JsonSerializer
from stratalog.clients.schemas.protobuf import ProtobufSerializer
from stratalog.clients.schemas.protobuf_messages import descriptor_text
from stratalog.clients.schemas.schema import Schema, SchemaType, referenced
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.serialization import VALUE, SerializationContext
from stratalog.storage.errors import SerializationError
from tests.clients.schemas.memory_registry import MemoryRegistry

UTC = dt.UTC


def order(*extra: dict[str, Any]) -> str:
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"], "default": None}, *extra]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


ORDER, COUNTED = order(), order({"name": "count", "type": "int", "default": 1})


def writers_of(registry: MemoryRegistry) -> Callable[[SchemaId], ResolvedSchema]:
    def writer_of(named: SchemaId) -> ResolvedSchema:
        found = registry.schema_by_id(named.id) if named.id is not None else registry.schema_by_guid(named.guid)  # type: ignore[arg-type]
        return ResolvedSchema(found.schema, referenced(registry, found.schema))

    return writer_of


def read(
    registry: MemoryRegistry, values: Sequence[bytes | None], column_format: ColumnFormat, headers: Any = None
) -> ReadColumn:
    return read_column(pa.array(values, pa.binary()), column_format, writers_of(registry), headers)


def avro(text: str) -> AvroColumns:
    return AvroColumns(ResolvedSchema(Schema(text)))


def context() -> SerializationContext:
    return SerializationContext("orders", VALUE)


def test_rows_of_several_schemas_come_back_in_order() -> None:
    registry = MemoryRegistry()
    old, new = AvroSerializer(registry, ORDER), AvroSerializer(registry, COUNTED)
    written = [
        (new if n % 3 else old)({"id": n, "item": f"i{n}" if n % 2 else None, "count": n}, context()) for n in range(9)
    ]
    got = read(registry, [*written, None], avro(COUNTED))
    assert got.values.to_pylist() == [
        *({"id": n, "item": f"i{n}" if n % 2 else None, "count": n if n % 3 else 1} for n in range(9)),
        None,
    ]
    assert got.schema_ids.to_pylist() == [*(2 if n % 3 else 1 for n in range(9)), None]
    assert got.errors.null_count == 10


def test_a_bad_row_is_the_only_error() -> None:
    registry = MemoryRegistry()
    good = AvroSerializer(registry, ORDER)({"id": 5, "item": "x"}, context())
    assert good is not None
    bad = [b"", b"\x07abc", good[:4], good[:-1], b"\x00\x00\x00\x00\x63" + good[5:], b"\x01" + bytes(3)]
    got = read(registry, [good, *bad, good], avro(ORDER))
    assert got.values.to_pylist() == [{"id": 5, "item": "x"}, *[None] * len(bad), {"id": 5, "item": "x"}]
    errors = got.errors.to_pylist()
    assert [errors[0], errors[-1]] == [None, None]
    assert "no byte" in errors[1]
    assert "first byte 7" in errors[2]
    assert "cut off" in errors[3]
    assert errors[4].startswith("schema id 1: the bytes do not fit the Avro schema")
    assert errors[5].startswith("schema id 99: Schema 99 not found")
    assert "cut off" in errors[6]
    assert got.schema_ids.to_pylist() == [1, None, None, None, 1, 99, None, 1]


def test_a_registry_that_does_not_answer_is_no_error_of_rows() -> None:
    def unavailable(named: SchemaId) -> ResolvedSchema:
        raise RegistryUnavailableError("no answer")

    with pytest.raises(RegistryUnavailableError):
        read_column(pa.array([bytes(6)], pa.binary()), avro(ORDER), unavailable)


def test_ids_in_headers_count_before_the_payload() -> None:
    registry = MemoryRegistry()
    in_header = AvroSerializer(registry, ORDER, {"schema.id.serializer": "header"})
    first, second = context(), context()
    values = [in_header({"id": 1, "item": None}, first), in_header({"id": 2, "item": "b"}, second)]
    plain = AvroSerializer(registry, ORDER)({"id": 3, "item": None}, context())
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(
        [
            [{"key": "other", "value": b"x"}, *({"key": k, "value": v} for k, v in first.headers)],
            None,
            [{"key": k, "value": v} for k, v in second.headers],
        ],
        kind,
    )
    got = read(registry, [values[0], plain, values[1]], avro(ORDER), headers)
    assert [each["id"] for each in got.values.to_pylist()] == [1, 3, 2]
    assert got.schema_ids.to_pylist() == [None, 1, None]


def test_a_slice_of_a_column_is_read_as_the_column() -> None:
    registry = MemoryRegistry()
    serialize = AvroSerializer(registry, ORDER)
    column = pa.array([serialize({"id": n, "item": None}, context()) for n in range(10)], pa.large_binary())
    got = read_column(column.slice(3, 4), avro(ORDER), writers_of(registry))
    assert [each["id"] for each in got.values.to_pylist()] == [3, 4, 5, 6]


LOGICAL: dict[str, tuple[Any, Any, Any]] = {
    "date": ({"type": "int", "logicalType": "date"}, dt.date(2026, 11, 25), pa.date32()),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        dt.datetime(2026, 11, 25, 21, 5, 3, 7000, UTC),
        pa.timestamp("us", "UTC"),
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        dt.datetime(2026, 11, 25, 21, 5, 3, 7001, UTC),
        pa.timestamp("us", "UTC"),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        dt.datetime(2026, 11, 25, 21, 5, 3),  # noqa: DTZ001 - a time without a zone
        pa.timestamp("us"),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("12.34"),
        pa.decimal128(9, 2),
    ),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string()),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary()),
    "map": ({"type": "map", "values": "double"}, {"a": 0.5}, pa.map_(pa.string(), pa.float64())),
    "array": ({"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32())),
    "nullable record": (
        ["null", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "float"}]}],
        {"a": 0.5},
        pa.struct([("a", pa.float32())]),
    ),
    "int or long": (["int", "long"], 2**40, pa.int64()),
}


@pytest.mark.parametrize("name", LOGICAL)
def test_avro_types_are_those_of_sparks_from_avro(name: str) -> None:
    kind, value, arrow = LOGICAL[name]
    text = json.dumps({"type": "record", "name": "W", "fields": [{"name": "v", "type": kind}]})
    registry = MemoryRegistry()
    got = read(registry, [AvroSerializer(registry, text)({"v": value}, context())], avro(text))
    assert got.values.type == pa.struct([("v", arrow)])
    [row] = got.values.to_pylist(maps_as_pydicts="strict")
    assert row == {"v": value}


def test_a_union_of_several_types_is_a_struct_of_members() -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    kind = ["null", "string", record, {"type": "enum", "name": "E", "symbols": ["x"]}, "boolean", "int"]
    fields = [{"name": "v", "type": kind}, {"name": "only", "type": ["null", "R"]}]
    text = json.dumps({"type": "record", "name": "W", "fields": fields})
    registry = MemoryRegistry()
    serialize = AvroSerializer(registry, text)
    values = ["x", ("R", {"a": 1}), ("E", "x"), True, 7, None]
    got = read(registry, [serialize({"v": each, "only": {"a": 2}}, context()) for each in values], avro(text))
    filled = [None if row["v"] is None else {k: v for k, v in row["v"].items() if v is not None}
              for row in got.values.to_pylist()]  # fmt: skip
    members = [{"member0": "x"}, {"member1": {"a": 1}}, {"member2": "x"}, {"member3": True}, {"member4": 7}, None]
    assert filled == members
    assert [row["only"] for row in got.values.to_pylist()] == [{"a": 2}] * 6


def test_a_schema_that_contains_itself_has_no_column() -> None:
    fields = [{"name": "next", "type": ["null", "Node"]}]
    with pytest.raises(InvalidSchemaError, match="Node contains itself"):
        avro(json.dumps({"type": "record", "name": "Node", "fields": fields}))


def test_bytes_stand_for_themselves() -> None:
    registry = MemoryRegistry()
    got = read(registry, [AvroSerializer(registry, '"bytes"')(b"\x00\xff", context())], avro('"bytes"'))
    assert got.values.to_pylist() == [b"\x00\xff"]


def test_rows_are_what_the_deserializer_reads() -> None:
    registry = MemoryRegistry()
    serialize, deserialize = AvroSerializer(registry, COUNTED), AvroDeserializer(registry, COUNTED)
    written = [serialize({"id": n, "item": "ü" * n, "count": -n}, context()) for n in range(5)]
    got = read(registry, written, avro(COUNTED))
    assert got.values.to_pylist() == [deserialize(each, context()) for each in written]


ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"$ref": "#/definitions/place"},
    },
    "definitions": {"place": {"type": "object", "properties": {"city": {"enum": ["Rome", None]}}}},
}


def json_columns(schema: Any) -> JsonColumns:
    return JsonColumns(ResolvedSchema(Schema(json.dumps(schema), SchemaType.JSON)))


JSON_ROWS = [b'{"id": 1, "price": 2, "tags": ["a"], "at": {"city": "Rome"}, "unknown": {}}', b'{"tags": []}']


def test_json_is_read_by_its_schema() -> None:
    columns = json_columns(ITEM)
    assert columns.arrow_type == pa.struct(
        [
            ("id", pa.int64()),
            ("price", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.struct([("city", pa.string())])),
        ]
    )
    assert columns.read(pa.array(JSON_ROWS)).values.to_pylist() == [
        {"id": 1, "price": 2.0, "tags": ["a"], "at": {"city": "Rome"}},
        {"id": None, "price": None, "tags": [], "at": None},
    ]


BAD_JSON = {
    "cut off": (b'{"id": 1', "no JSON"),
    "two in a row": (b'{"id": 1}{"id": 2}', "no JSON"),
    "not UTF-8": (b'{"at": {"city": "\xff"}}', "no UTF-8"),
    "another type": (b'{"tags": ["a", 7]}', "#/tags/1: 7 is no string"),
    "a fraction": (b'{"id": 1.5}', "#/id: 1.5 is no integer"),
    "no object": (b"[1]", "#: [1] is no struct"),
    "not a number": (b'{"price": NaN}', "NaN is no JSON"),
    "empty": (b"", "no JSON"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_bad_json_row_is_the_only_error(name: str) -> None:
    bad, reason = BAD_JSON[name]
    got = json_columns(ITEM).read(pa.array([*JSON_ROWS, bad, None, *JSON_ROWS]))
    assert list(got.errors) == [2]
    assert reason in got.errors[2]
    assert [each is None for each in got.values.to_pylist()] == [False, False, True, True, False, False]


@pytest.mark.parametrize(
    "row", [b'{"id": 1.0}', b'{"id":\n1}', b' {"id": 1} ', b'{"id": 2, "id": 1}', b'{"\\u0069d": 1}']
)
def test_any_form_of_a_json_value_is_read(row: bytes) -> None:
    got = json_columns(ITEM).read(pa.array([row, JSON_ROWS[1]]))
    assert (got.values.to_pylist()[0]["id"], dict(got.errors)) == (1, {})


def test_json_without_one_type_is_text() -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            "by_name": {"type": "object", "additionalProperties": {"type": "integer"}},
            "parent": {"$ref": "#"},
        },
    }
    columns = json_columns(schema)
    text = {"any": [1, {"a": None}], "either": 7, "maybe": True, "by_name": {"a": 1}, "parent": {"any": 1}}
    got = columns.read(pa.array([json.dumps(text).encode()])).values.to_pylist(maps_as_pydicts="strict")
    assert got == [{"any": '[1,{"a":null}]', "either": "7", "maybe": True, "by_name": {"a": 1}, "parent": '{"any":1}'}]


def test_json_in_the_wire_format_has_its_schema_id() -> None:
    registry = MemoryRegistry()
    serialize = JsonSerializer(registry, json.dumps(ITEM), {"validate": False})
    got = read(registry, [serialize({"id": 1}, context())], json_columns(ITEM))
    assert (got.values.to_pylist()[0]["id"], got.schema_ids.to_pylist()) == (1, [1])


def shop_file() -> Any:
    """`Order` with scalars, an enum, a map, a time and a nested message; `Other` behind it."""
    scalar, optional, repeated = descriptor_pb2.FieldDescriptorProto, 1, 3
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")

    def field(name: str, number: int, kind: int, label: int = optional, type_name: str = "") -> Any:
        return message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)  # type: ignore[arg-type]

    field("id", 1, scalar.TYPE_UINT64)
    field("item", 2, scalar.TYPE_STRING)
    field("colour", 3, scalar.TYPE_ENUM, optional, ".shop.Colour")
    field("lines", 4, scalar.TYPE_MESSAGE, repeated, ".shop.Order.Line")
    field("counts", 5, scalar.TYPE_MESSAGE, repeated, ".shop.Order.CountsEntry")
    field("at", 6, scalar.TYPE_MESSAGE, optional, ".google.protobuf.Timestamp")
    note = field("note", 7, scalar.TYPE_STRING)
    note.proto3_optional, note.oneof_index = True, 0
    message.oneof_decl.add(name="_note")
    line = message.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=scalar.TYPE_STRING, label=optional)
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=scalar.TYPE_STRING, label=optional)
    entry.field.add(name="value", number=2, type=scalar.TYPE_INT32, label=optional)
    other = file.message_type.add(name="Other")
    other.field.add(name="id", number=1, type=scalar.TYPE_INT32, label=optional)
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return pool.Add(file) or pool.FindFileByName("shop.proto")


def shop_schema() -> Schema:
    return Schema(descriptor_text(shop_file()), SchemaType.PROTOBUF)


def test_protobuf_messages_are_columns() -> None:
    registry = MemoryRegistry()
    file = shop_file()
    order_type, other_type = (GetMessageClass(file.message_types_by_name[name]) for name in ("Order", "Other"))
    full = order_type(id=2**64 - 1, item="a", colour=1, lines=[{"sku": "x"}, {"sku": "y"}], counts={"k": 3}, note="")
    full.at.FromDatetime(dt.datetime(2026, 11, 25, 21, 5, 3, 7, UTC))
    serialize = ProtobufSerializer(registry, order_type)
    written = [serialize(full, context()), serialize(order_type(), context())]
    written += [ProtobufSerializer(registry, other_type)(other_type(id=1), context()), None, written[0][:-1]]
    columns = ProtobufColumns(ResolvedSchema(shop_schema()))
    got = read(registry, written, columns)
    assert got.values.to_pylist(maps_as_pydicts="strict") == [
        {
            "id": Decimal(2**64 - 1),
            "item": "a",
            "colour": "BLUE",
            "lines": [{"sku": "x"}, {"sku": "y"}],
            "counts": {"k": 3},
            "at": dt.datetime(2026, 11, 25, 21, 5, 3, 7, UTC),
            "note": "",
        },
        {"id": Decimal(0), "item": "", "colour": "RED", "lines": [], "counts": {}, "at": None, "note": None},
        None,
        None,
        None,
    ]
    errors = got.errors.to_pylist()
    assert errors[:2] == [None, None]
    assert "shop.Other was written with indexes (1,), shop.Order is read" in errors[2]
    assert errors[3] is None
    assert "the bytes do not fit shop.Order" in errors[4]


def test_a_message_is_chosen_by_its_name() -> None:
    schema = ResolvedSchema(shop_schema())
    assert ProtobufColumns(schema, "shop.Other").arrow_type == pa.struct([("id", pa.int32())])
    with pytest.raises(InvalidSchemaError, match=r"no message shop[.]Nothing; it has shop[.]Order"):
        ProtobufColumns(schema, "shop.Nothing")


def test_an_unknown_guid_is_an_error_of_its_rows() -> None:
    registry = MemoryRegistry()
    with pytest.raises(SchemaNotFoundError):
        writers_of(registry)(SchemaId(id=1))
    got = read(registry, [b"\x01" + bytes(16) + b"x"], avro(ORDER))
    assert got.errors.to_pylist()[0].startswith("schema GUID 00000000-0000-0000-0000-000000000000: Schema")


def test_bad_rows_among_many_are_found_one_by_one() -> None:
    """Rows are read in pieces of a few thousand. A row that is cut off may borrow from the next one."""
    registry = MemoryRegistry()
    serialize = AvroSerializer(registry, '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}')
    rows = [serialize({"a": n}, context()) or b"" for n in range(5000)]
    bad = {0, 1, 7, 2047, 2048, 3000, 4999}
    written = [row[:5] if n in bad else row for n, row in enumerate(rows)]
    columns = avro('{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}')
    got = read(registry, written, columns)
    assert got.values.to_pylist() == [None if n in bad else {"a": n} for n in range(5000)]
    assert {n for n, each in enumerate(got.errors.to_pylist()) if each is not None} == bad
    json_rows = [b'{"id": "x"}' if n in bad else b'{"id": %d}' % n for n in range(5000)]
    read_json = json_columns(ITEM).read(pa.array(json_rows))
    assert set(read_json.errors) == bad
    assert [each and each["id"] for each in read_json.values.to_pylist()] == [
        None if n in bad else n for n in range(5000)
    ]


def test_a_payload_that_is_too_long_is_read_as_the_deserializer_reads_it() -> None:
    registry = MemoryRegistry()
    serialize = AvroSerializer(registry, ORDER)
    written = [serialize({"id": n, "item": None}, context()) for n in range(3)]
    longer = [written[0], (written[1] or b"") + b"\x02", written[2]]
    got = read(registry, longer, avro(ORDER))
    assert [each["id"] for each in got.values.to_pylist()] == [0, 1, 2]


@pytest.mark.parametrize("name", LOGICAL)
def test_written_columns_are_read_back(name: str) -> None:
    kind, value, arrow = LOGICAL[name]
    schema = ResolvedSchema(
        Schema(json.dumps({"type": "record", "name": "W", "fields": [{"name": "v", "type": kind}]}))
    )
    column = pa.array([{"v": value}, None], pa.struct([("v", arrow)]))
    written = ColumnWriter(7, schema).write(column)
    got = read_column(written, AvroColumns(schema), lambda _: schema)
    assert got.values.equals(column)
    assert got.schema_ids.to_pylist() == [7, None]


def test_written_unions_are_read_back() -> None:
    """Of several types, also within records, lists and maps, and by name where two are records."""
    one, two = ({"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]} for name in ("One", "Two"))
    wide = ["null", "string", one, two, {"type": "array", "items": ["int", "string"]}, "n.E"]
    fields = [
        {"name": "e", "type": {"type": "enum", "name": "n.E", "symbols": ["A", "B"]}},
        {"name": "u", "type": wide},
        {"name": "many", "type": {"type": "map", "values": ["long", "One"]}},
        {"name": "number", "type": ["int", "long"]},
        {"name": "maybe", "type": ["null", "Two"]},
    ]
    schema = ResolvedSchema(Schema(json.dumps({"type": "record", "name": "W", "fields": fields})))
    columns = AvroColumns(schema)
    unions: list[dict[str, Any] | None] = [
        {"member0": "x"}, {"member1": {"n": 1}}, {"member2": {"n": 2}}, {"member4": "B"}, None,
        {"member3": [{"member0": 1, "member1": None}, {"member0": None, "member1": "y"}]},
    ]  # fmt: skip
    many = {"a": {"member0": 2**40, "member1": None}, "b": {"member0": None, "member1": {"n": 3}}}
    rows = [{"e": "A", "u": union, "many": many, "number": 7, "maybe": {"n": 4}} for union in unions]
    column = pa.array(rows, columns.arrow_type)
    written = ColumnWriter(7, schema).write(column)
    assert read_column(written, columns, lambda _: schema).values.equals(column)
    payloads = ColumnWriter(None, schema).write(column)
    assert [value[5:] for value in written.to_pylist()] == payloads.to_pylist()


def test_written_messages_are_read_back() -> None:
    schema = ResolvedSchema(shop_schema())
    columns = ProtobufColumns(schema)
    at = dt.datetime(2026, 11, 25, 21, 5, 3, 7, UTC)
    full = {"id": Decimal(2**64 - 1), "item": "a", "colour": "BLUE", "lines": [{"sku": "x"}], "counts": {"k": 3},
            "at": at, "note": None}  # fmt: skip
    column = pa.array([full], columns.arrow_type)
    written = ColumnWriter(7, schema).write(column)
    assert read_column(written, columns, lambda _: schema).values.equals(column)
    with pytest.raises(SerializationError, match=r"message shop\.Order has no field nothing"):
        ColumnWriter(7, schema).write(pa.array([{"nothing": 1}]))


def test_null_fields_are_not_in_json() -> None:
    schema = ResolvedSchema(Schema(json.dumps(ITEM), SchemaType.JSON))
    written = ColumnWriter(7, schema).write(pa.array([{"id": 1, "at": {"city": None}, "tags": None}]))
    assert written.to_pylist() == [b'\x00\x00\x00\x00\x07{"id":1,"at":{}}']
    with pytest.raises(SerializationError, match=r"has no JSON form: .* make a string of it"):
        ColumnWriter(7, schema).write(pa.array([{"id": b"x"}]))


def test_a_new_process_finds_the_files_that_every_side_has() -> None:
    """No module of google.protobuf was loaded there before that declares Timestamp."""
    code = (
        "from stratalog.clients.schemas.protobuf_messages import messages_of\n"
        "from stratalog.clients.schemas.schema import Schema, SchemaType\n"
        f"print(len(messages_of(Schema({shop_schema().text!r}, SchemaType.PROTOBUF), {{}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("4", "")


def test_a_file_that_no_package_has_is_named() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["google/type/nothing.proto"])
    text = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(SerializationError, match=r"no module google\.type\.nothing_pb2: install the package"):
        ProtobufColumns(ResolvedSchema(Schema(text, SchemaType.PROTOBUF)))
