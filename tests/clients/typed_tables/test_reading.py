"""Values read by plans: several schemas in one table, what does not fit, what the plan does not have."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.clients.schemas.wire_format import VALUE_SCHEMA_ID_HEADER, SchemaId
from stratalog.clients.typed_tables.config import ValueFormat
from stratalog.clients.typed_tables.rows.reading import (
    Planned,
    ReadPlan,
    WriterKey,
    parse_keys,
    read_batch,
    read_rows,
    read_type,
    replanned,
)

EMPTY = pa.struct([])
GUID = UUID(int=7)


def avro(**kinds: Any) -> ResolvedSchema:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return ResolvedSchema(Schema(json.dumps({"type": "record", "name": "Order", "fields": fields})))


V1 = avro(id="int", item="string")
V2 = avro(id="long", item="string", tags={"type": "array", "items": "string"})
V3 = avro(id="int", item="bytes")


def encoded(schema_id: int, schema: ResolvedSchema, value: dict[str, Any]) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + encode_avro(AvroSchema.of(schema.schema), value)


def planned(found: dict[WriterKey, ResolvedSchema | str], columns: pa.DataType = EMPTY) -> Planned:
    return replanned(ReadPlan(ValueFormat.AVRO, EMPTY), columns, found)


def test_a_table_has_the_columns_of_all_its_schemas() -> None:
    plan, change = planned({1: V1, 2: V2})
    assert [each.path for each in change.new] == [("id",), ("item",), ("tags",)]
    assert change.wider == (), "a column that is new is added with its widest type"
    assert plan.type == pa.struct([("id", pa.int64()), ("item", pa.string()), ("tags", pa.list_(pa.string()))])
    grown = replanned(plan, pa.struct([("id", pa.int32()), ("item", pa.string())]), {})
    assert [each.path for each in grown.change.wider] == [("id",)], "the table of somebody who altered it back"


def test_the_first_of_two_schemas_that_contradict_each_other_counts() -> None:
    plan, _ = planned({3: V3, 1: V1})
    assert plan.writers.keys() == {1}
    assert plan.refused == {3: "item is STRING in the table and BINARY in the record"}
    later, _ = replanned(plan, plan.type, {2: V2})
    assert later.writers.keys() == {1, 2}
    assert later.refused == {}, "what was refused is asked for again when the table is another one"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ResolvedSchema(Schema("{}", SchemaType.JSON)), "the schema is JSON, value.format is avro"),
        (avro(tree={"type": "array", "items": "Order"}), "contains itself"),
        ("Schema 9 not found", "Schema 9 not found"),
    ],
)
def test_a_schema_without_columns_is_refused_with_the_reason(found: ResolvedSchema | str, reason: str) -> None:
    plan, change = planned({9: found})
    assert change.is_empty
    assert reason in plan.refused[9]


def test_rows_of_several_schemas_are_rows_of_one_table() -> None:
    plan, _ = planned({1: V1, 2: V2, 3: "Schema 3 not found", GUID: V1})
    header = [{"key": VALUE_SCHEMA_ID_HEADER, "value": SchemaId(guid=GUID).guid_prefix()}]
    values: list[bytes | None] = [
        encoded(1, V1, {"id": 1, "item": "a"}),
        None,
        encoded(2, V2, {"id": 2**40, "item": "b", "tags": ["x"]}),
        encoded(3, V1, {"id": 1, "item": "a"}),
        b"text",
        encoded(1, V1, {"id": 1, "item": "a"})[:-1],
        encode_avro(AvroSchema.of(V1.schema), {"id": 3, "item": "c"}),
    ]
    headers: list[Any] = [*[None] * 6, header]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    read = read_batch(plan, pa.array(values, pa.binary()), pa.array(headers, kind))
    assert read.values.type == plan.type
    assert read.values.to_pylist() == [
        {"id": 1, "item": "a", "tags": None}, None, {"id": 2**40, "item": "b", "tags": ["x"]},
        None, None, None, {"id": 3, "item": "c", "tags": None},
    ]  # fmt: skip
    errors = read.errors.to_pylist()
    assert [errors[place] for place in (0, 1, 2, 6)] == [None] * 4
    assert errors[3] == "schema id 3: Schema 3 not found"
    assert "not in Confluent's wire format" in errors[4]
    assert errors[5].startswith("schema id 1: the bytes do not fit the Avro schema")
    assert read.unplanned is None


def test_rows_of_schemas_that_are_not_planned_are_reported() -> None:
    plan, _ = planned({1: V1})
    values = [encoded(2, V2, {"id": 1, "item": "a", "tags": []}), encoded(1, V1, {"id": 1, "item": "a"})]
    read = read_batch(plan, pa.array(values), None)
    assert read.unplanned is not None
    assert parse_keys(read.unplanned) == {2}
    assert read.values.to_pylist()[1] == {"id": 1, "item": "a"}


def test_rows_are_columns_errors_and_what_is_not_planned() -> None:
    plan, _ = planned({1: V1})
    good = encoded(1, V1, {"id": 1, "item": "a"})
    values = pa.array([good, b"", encoded(2, V1, {"id": 1, "item": "a"}), good[5:]])
    ids = pa.array([None, None, None, good[:5]], pa.binary())
    read = read_rows(plan, values, ids)
    assert [each.name for each in read.type] == ["read", "error", "unplanned"]
    assert read.field("read").to_pylist()[::3] == [{"id": 1, "item": "a"}] * 2
    assert read.field("unplanned").to_pylist() == ['["2"]', None, None, None]
    assert [row is None for row in read.field("error").to_pylist()] == [True, False, False, True]
    assert len(read_rows(plan, values.slice(0, 0), ids.slice(0, 0))) == 0
    nothing = read_rows(ReadPlan(ValueFormat.AVRO, pa.struct([])), values, ids)
    assert nothing.type.field("read").type == read_type(pa.struct([])), "Spark has no struct without fields"


def test_values_that_are_no_records_are_one_column() -> None:
    text = ResolvedSchema(Schema('"string"'))
    plan, change = planned({1: text})
    assert [each.path for each in change.new] == [("value",)]
    value = b"\0\0\0\0\1" + encode_avro(AvroSchema.of(text.schema), "hello")
    assert read_batch(plan, pa.array([value]), None).values.to_pylist() == [{"value": "hello"}]


NULLABLE = ResolvedSchema(Schema(json.dumps(["null", json.loads(V1.schema.text)])))


@pytest.mark.parametrize(
    ("schema", "null"),
    [(NULLABLE, b"\0"), (ResolvedSchema(Schema('["null", "string"]')), b"\0"), (avro(), None)],
)
def test_a_null_of_the_format_is_neither_a_value_nor_an_error(schema: ResolvedSchema, null: bytes | None) -> None:
    """In upsert mode it deletes the row of its key."""
    plan, _ = planned({1: schema})
    prefix, good = b"\0\0\0\0\1", encode_avro(AvroSchema.of(schema.schema), _one_of(schema))
    values = [prefix + good, None if null is None else prefix + null, b"bad"]
    read = read_rows(plan, pa.array(values, pa.binary()), pa.nulls(3, pa.binary()))
    found = zip(read.field("read").is_null().to_pylist(), read.field("error").is_null().to_pylist(), strict=True)
    assert list(found) == [(False, True), (True, True), (True, False)]


def _one_of(schema: ResolvedSchema) -> Any:
    text = schema.schema.text
    return "x" if text == '["null", "string"]' else {"id": 1, "item": "a"}


def test_fastavro_reads_what_the_test_wrote() -> None:
    """The helper of this file is not its own judge."""
    written = encode_avro(AvroSchema.of(V1.schema), {"id": 1, "item": "a"})
    parsed = fastavro.parse_schema(json.loads(V1.schema.text))
    import io

    assert fastavro.schemaless_reader(io.BytesIO(written), parsed, None) == {"id": 1, "item": "a"}


def record(name: str, **kinds: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in kinds.items()]}


A, B = record("A", x="int"), record("B", x="int", y="int")


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ([A, B], [B, A], "u.member0 is B here and A in schema 1"),
        (["null", "string", "int"], [record("A", x="int"), "int", "null"], "u.member0 is STRING in the table"),
        ({"type": "map", "values": ["string", E := {"type": "enum", "name": "E", "symbols": ["p"]}]},
         {"type": "map", "values": [E, "string"]}, "u.value.member0 is E here and string in schema 1"),
        ({"type": "int", "logicalType": "time-millis"}, ["null", {"type": "long", "logicalType": "time-micros"}],
         "u is time-micros here and time-millis in schema 1"),
        ([A, B], [{**B, "name": "C", "aliases": ["A"]}, B], ""),
        (["null", "int", "string"], ["long", "string", "boolean", "null"], ""),
        (["int", "long"], "long", ""),
    ],
)  # fmt: skip
def test_values_of_two_schemas_mean_the_same_in_one_column(before: Any, after: Any, where: str) -> None:
    """By their types alone, the records of one schema would stand in the members of another one's."""
    plan, _ = planned({1: avro(u=before)})
    later, _ = replanned(plan, plan.type, {2: avro(u=after)})
    assert later.refused.get(2, "").partition(":")[0].startswith(where)
    assert (2 in later.writers) == (not where)
    again, _ = planned({1: avro(u=before), 2: avro(u=after)}, later.type)
    assert again.refused == later.refused, "a run that begins again comes to the same"


def test_text_and_json_do_not_share_a_column() -> None:
    """As text, x is x; as a value that may be anything, it is "x"."""

    def of(kind: Any) -> ResolvedSchema:
        items = {"type": "array", "items": {"type": kind}}
        return ResolvedSchema(Schema(json.dumps({"type": "object", "properties": {"Tags": items}}), SchemaType.JSON))

    found = {1: of("string"), 2: of(["string", "integer"]), 3: of(["null", "string"])}
    plan, _ = replanned(ReadPlan(ValueFormat.JSON, EMPTY), EMPTY, found)
    assert plan.refused == {2: "tags.element is any JSON here and text in schema 1: name the field again"}


_LEAVES: list[Any] = [
    "null",
    "boolean",
    "int",
    "long",
    "double",
    "string",
    {"type": "long", "logicalType": "time-micros"},
]


@st.composite
def _types(draw: Callable[[Any], Any], depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["leaf", "array", "map", "record", "union"][: 5 if depth else 1]))
    if kind == "leaf":
        return draw(st.sampled_from(_LEAVES))
    inner = draw(_types(depth - 1))
    if kind == "record":
        fields = [
            {"name": each, "type": draw(_types(depth - 1))} for each in draw(st.sampled_from(["", "a", "ab", "aA"]))
        ]
        return {"type": "record", "name": "R", "fields": fields}
    if kind == "union":
        return inner if isinstance(inner, list) or inner == "null" else ["null", inner]
    return {"type": kind, "items" if kind == "array" else "values": inner}


def _named(kind: Any, numbers: Iterator[int]) -> Any:
    """The type with a name of its own for each record."""
    if isinstance(kind, list):
        return [_named(each, numbers) for each in kind]
    if not isinstance(kind, dict):
        return kind
    found = {name: _named(each, numbers) if name in ("items", "values") else each for name, each in kind.items()}
    if kind["type"] == "record":
        fields = [{**each, "type": _named(each["type"], numbers)} for each in kind["fields"]]
        found |= {"name": f"R{next(numbers)}", "fields": fields}
    return found


def _value(kind: Any, number: int) -> Any:
    """A value of a type; of unions null for every third number."""
    if isinstance(kind, list):
        return _value(kind[number % 3 % len(kind) and 1], number)
    if isinstance(kind, str):
        plain: dict[str, Any] = {"null": None, "boolean": True, "string": "x", "double": 0.5}
        return plain.get(kind, number)
    if kind["type"] == "record":
        return {each["name"]: _value(each["type"], number) for each in kind["fields"]}
    if kind["type"] == "array":
        return [_value(kind["items"], place) for place in range(number % 3)]
    return {"k": _value(kind["values"], number)} if kind["type"] == "map" else number


@given(st.lists(_types(), min_size=2, max_size=3))
def test_rows_of_any_schemas_are_read_or_have_an_error(kinds: list[Any]) -> None:
    """Whatever one schema has made of a table, no row of another one ends the batch."""
    plan, columns = ReadPlan(ValueFormat.AVRO, EMPTY), EMPTY
    found = {number: avro(u=_named(kind, count())) for number, kind in enumerate(kinds, 1)}
    for number, schema in found.items():
        known: dict[WriterKey, ResolvedSchema | str] = {**plan.refused, number: schema}
        plan, _ = replanned(plan, columns, known)
        columns = plan.type
    rows = [
        encoded(number, found[number], {"u": _value(kind, n)}) for number, kind in enumerate(kinds, 1) for n in range(4)
    ]
    read = read_batch(plan, pa.array(rows, pa.binary()), None)
    assert read.unplanned is None
    assert read.values.type == plan.type
    assert read.errors.is_valid().to_pylist() == [number in plan.refused for number in found for _ in range(4)]
