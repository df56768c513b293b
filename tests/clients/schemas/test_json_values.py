"""JSON values in columns have one outcome, whatever stands beside them; numbers are what they were, or an error."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.reader import read_column
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.json_schema import JsonDeserializer, JsonSerializer
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.clients.serialization import VALUE, SerializationContext
from stratalog.clients.typed_tables.rows.json_checks import checked_text, checked_texts
from stratalog.storage.errors import SerializationError
from tests.clients.schemas.memory_registry import MemoryRegistry
from tests.examples import examples

KINDS: dict[str, Any] = {"i": "integer", "n": "number", "s": "string", "b": "boolean"}
ALL = {
    "type": "object",
    "properties": {
        **{name: {"type": kind} for name, kind in KINDS.items()},
        "l": {"type": "array", "items": {"type": "number"}},
        "o": {"type": "object", "properties": {"n": {"type": "number"}, "i": {"type": "integer"}}},
    },
}
GOOD, BAD = b'{"i": 1}', b'{"i": "bad"}'


def columns(schema: Any) -> JsonColumns:
    return JsonColumns(ResolvedSchema(Schema(json.dumps(schema), SchemaType.JSON)))


def outcome(schema: Any, text: bytes, *beside: bytes) -> tuple[str, str | None]:
    """The value, as text since NaN is not equal to itself, and the error of a text among others."""
    found = columns(schema).read(pa.array([*beside, text, *beside], pa.binary()))
    place = len(beside)
    return repr(found.values[place].as_py()), found.errors.get(place)


@pytest.mark.parametrize("beside", [(), (GOOD,), (BAD,), (GOOD, BAD, b"x")], ids=["alone", "good", "bad", "mixed"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n": 9007199254740993}', 9007199254740992.0), ('{"n": 0.1}', 0.1), ('{"n": -0.0}', -0.0),
        ('{"n": 1E3}', 1e3),
        ('{"n": 5e-324}', 5e-324), ('{"n": null}', None), ('{"n": 1.7976931348623157e308}', 1.7976931348623157e308),
        ('{"n": NaN}', "NaN is no JSON"), ('{"n": Infinity}', "no JSON"), ('{"n": -Inf}', "no JSON"),
        ('{"n": true}', "#/n: true is no number"), ('{"n": 1e400}', "#/n: 1e400 is no double"),
        ('{"n": "1"}', '#/n: "1" is no number'), ('{"n": 1' + "0" * 400 + "}", "is no double"),
        ('{"n": 01}', "no JSON"),
        ('{"n": 1}{"n": 2}', "no JSON"), ('{"n": 1} x', "no JSON"), ('{"n": 1}\n{"n": 2}', "no JSON"),
        ('{"n": 1, "x": NaN}', "NaN is no JSON"), ('{"n": 1, "x": 1e400}', 1.0), ('{"N": 1}', None),
        ('{"n": 2, "n": 1}', 1.0), ('{"n": 1, "x": ' + "[" * 600 + "]" * 600 + "}", "nested deeper"),
        ("[1]", "is no struct"),
    ],
)  # fmt: skip
def test_a_number_has_one_outcome(text: str, value: Any, beside: tuple[bytes, ...]) -> None:
    found, error = outcome(ALL, text.encode(), *beside)
    if isinstance(value, str):
        assert found == "None"
        assert error is not None
        assert value in error
    else:
        assert error is None
        assert f"'n': {value!r}" in found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"i": 1.0}', 1), ('{"i": 1e3}', 1000), ('{"i": 9223372036854775807}', 2**63 - 1), ('{"i": -0}', 0),
        ('{"i": 9223372036854775808}', "integer of 64 bits"), ('{"i": 1.5}', "1.5 is no integer"),
        ('{"i": true}', "true is no integer"), ('{"i": 1e400}', "is no integer"),
        ('{"i": 9007199254740993.0}', 2**53 + 1),
        ('{"i": 1' + "0" * 5000 + "}", "is no integer"), ('{"i": 1e-1}', "is no integer"),
    ],
)  # fmt: skip
def test_an_integer_is_the_number_that_was_written(text: str, value: Any) -> None:
    found, error = outcome(ALL, text.encode())
    assert (f"'i': {value!r}" in found) if error is None else (value in error)


def test_an_error_that_quotes_half_of_a_surrogate_pair_is_text() -> None:
    """It ended the query: no column of strings holds it."""
    texts = [b'{"n": 1}', rb'{"n": "\ud800"}', rb'{"o": ["\udfff"]}']
    framed = pa.array([b"\0\0\0\0\1" + each for each in texts], pa.binary())
    schema = ResolvedSchema(Schema(json.dumps(ALL), SchemaType.JSON))
    found = read_column(framed, JsonColumns(schema), lambda _: schema)
    assert found.errors[0].as_py() is None
    assert r'#/n: "\ud800" is no number' in found.errors[1].as_py()
    assert r'#/o: ["\udfff"] is no struct' in found.errors[2].as_py()


def test_a_value_without_one_type_keeps_its_numbers() -> None:
    schema = {"type": "object", "properties": {"any": {}}}
    for text in ("1.10", "1e400", "[12345678901234567890123,0.10]", '{"a":null}', '"ä"'):
        found = columns(schema).read(pa.array([b'{"any": ' + text.encode() + b"}"]))
        assert found.values.to_pylist() == [{"any": text}]
    assert "surrogate" in columns(schema).read(pa.array([rb'{"any": "\ud800"}'])).errors[0]


SCALARS = st.sampled_from(
    ["1", "-0", "1.0", "0.1", "1e5", "1e400", "-1e400", "9007199254740993", "9223372036854775808", "true", "null",
     '"x"', '"\\ud800"', '"\\u0000"', "NaN", "-Infinity", "Inf", "[]", "[1, 1e999]", "[null, 2]", '{"n": 1}', "1.",
     '{"i": 1.0}', "01", '"ü"', '"\t"', "[1,]", "{}",
     '{"n": 1, "n": "x"}', "1e-999", "tru", '"unfinished', "/**/1", "0x1F", "+1"]
)  # fmt: skip
MEMBERS = st.tuples(st.sampled_from([*KINDS, "l", "o", "x", "N"]), SCALARS)
TEXTS = st.lists(MEMBERS, max_size=4).map(
    lambda members: "{" + ", ".join(f'"{name}": {each}' for name, each in members) + "}"
)
SIGNS = st.sampled_from(["", "}", " ", "\n", "{", ",", "\x00", "\x7f", "é", '"'])
DAMAGED = st.tuples(TEXTS, st.integers(0, 60), SIGNS)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(TEXTS, DAMAGED.map(lambda d: d[0][: d[1]] + d[2] + d[0][d[1] :])), min_size=1, max_size=5))
def test_what_is_read_at_once_is_read_one_by_one(texts: list[str]) -> None:
    """In columns of a JSON schema, and before Spark reads."""
    rows = [text.encode() for text in texts]
    together = columns(ALL).read(pa.array(rows, pa.binary()))
    alone = [columns(ALL).read(pa.array([row, BAD], pa.binary())) for row in rows]
    assert repr(together.values.to_pylist()) == repr([each.values[0].as_py() for each in alone])
    assert together.errors == {place: each.errors[0] for place, each in enumerate(alone) if 0 in each.errors}
    kind = pa.struct([("n", pa.float64()), ("i", pa.int64()), ("s", pa.string()), ("b", pa.bool_())])
    checked = checked_texts(pa.array(rows, pa.binary()), kind).to_pylist()
    assert [tuple(each.values())[:3] for each in checked] == [tuple(checked_text(row, kind)) for row in rows]


SPARK = pa.struct(
    [("Id", pa.int64()), ("byte", pa.int8()), ("x", pa.float64()), ("f", pa.float32()), ("s", pa.string()),
     ("d", pa.decimal128(5, 2)), ("n", pa.struct([("A", pa.list_(pa.decimal128(3, 1)))])),
     ("t", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("m", pa.map_(pa.string(), pa.float64()))]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"Id":1}', None), ('{"ID":1}', '{"Id":1}'), ('{"Id":1,"ID":2}', '{"Id":1}'),
        ('{"n":{"a":[1.20]}}', '{"n":{"A":[1.20]}}'),
        ('{"d":1.230}', None), ('{"d":"1.23"}', None), ('{"s":1.10}', None), ('{"t":1}', None),
        ('{"unknown":1e400}', None), ('{"m":{"k":1e400,"k":2}}', '{"m":{"k":2}}'), ('{"ıd":1}', '{"Id":1}'),
        ('{"Id":1.0}', None), ("null", None), ('{"day":"+294245-12-31"}', None), ('{"day":"2024-02-30"}', None),
        ('{"day":"0106751991"}', None), ('{"DAY":"-290307"}', '{"day":"-290307"}'),
    ],
)  # fmt: skip
def test_spark_reads_the_text_with_the_names_of_columns(text: str, seen: str | None) -> None:
    read = checked_text(text.encode(), SPARK)
    assert (read.text or text, read.error) == (seen or text, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id":1,"ID":2}', "two members are Id"), ('{"byte":200}', "#/byte: 200 is no integer of 8 bits"),
        ('{"x":1e400}', "#/x: 1e400 is no double"), ('{"x":"NaN"}', "is no DOUBLE"), ('{"f":1e39}', "is no FLOAT"),
        ('{"d":1.234}', "#/d: 1.234 is no DECIMAL(5, 2)"), ('{"d":1000}', "is no DECIMAL"),
        ('{"n":{"A":[1.25]}}', "#/n/A/0: 1.25"),
        ('{"t":99999999999999}', "is no TIMESTAMP"), ('{"t":1e999999999999}', "is no TIMESTAMP"),
        ('{"m":{"k":NaN}}', "NaN is no JSON"),
        ('{"m":{"k":1e999}}', "#/m/k: 1e999"), ('[{"Id":1}]', "is no STRUCT"), ("{'Id':1}", "no JSON"),
        ('{"Id":1}{"Id":2}', "Extra data"),
        ('{"Id":1} trailing', "Extra data"), (r'{"s":"\ud800"}', "surrogate"),
        ('{"d":0e99999999999999999999}', "is no"), ('{"day":"+294246-01-01"}', "is no DATE"),
        ('{"day":" -290308-12-31T00"}', "is no DATE"), ('{"day":"106751992"}', "is no DATE"),
        ('{"day":"9999999999999999999999"}', "is no DATE"),
    ],
)  # fmt: skip
def test_what_spark_would_alter_has_an_error(text: str, reason: str) -> None:
    read, error, _ = checked_text(text.encode(), SPARK)
    assert read is None
    assert error is not None
    assert reason in error


@pytest.mark.parametrize("kind", [None, pa.struct([("id", pa.int64()), ("payload", pa.struct([("id", pa.int64())]))])])
@pytest.mark.parametrize(
    ("text", "is_null"),
    [
        ("null", True), (" null\n", True), ('"null"', False), ("{}", False),
        ('{"schema":null,"payload":null}', True), ('{"payload":null,"schema":{"type":"struct","optional":true}}', True),
        ('{"schema":{"type":"struct","optional":true},"payload":{"id":1}}', False),
        ('{"schema":{"type":"struct","optional":false},"payload":null}', False),
        ('{"schema":{"type":"int32","optional":true,"default":7},"payload":null}', False),
        ('{"schema":{"optional":true},"payload":null}', False),
        ('{"schema":null,"payload":null,"id":1}', False), ('{"payload":null}', False),
    ],
)  # fmt: skip
def test_a_null_of_connect_is_one_whatever_stands_beside_it(text: str, is_null: bool, kind: pa.DataType | None) -> None:
    beside = b'{"id":1,"payload":{"id":2}}'
    for rows in ([text.encode()], [beside, text.encode(), beside], [text.encode(), None]):
        found = checked_texts(pa.array(rows, pa.binary()), kind).field("is_null").to_pylist()
        assert found == [is_null and row == text.encode() for row in rows]


def test_a_variant_is_one_document_of_finite_numbers() -> None:
    texts = [
        b'{"a": 1}',
        b'{"a": 1}{',
        b'{"a": 1e400}',
        b"NaN",
        None,
        b'{"a": "1e400"}',
        b"\xff",
        b"12345678901234567890",
    ]
    errors = checked_texts(pa.array(texts, pa.binary()), None).field("error").to_pylist()
    assert [each is None for each in errors] == [True, False, False, False, True, True, False, True]


def test_what_is_written_is_json() -> None:
    schema = ResolvedSchema(Schema(json.dumps(ALL), SchemaType.JSON))
    for number in (math.nan, math.inf):
        with pytest.raises(SerializationError, match="no JSON form"):
            ColumnWriter(7, schema).write(pa.array([{"n": number}]))
        with pytest.raises(SerializationError, match="no JSON form"):
            JsonSerializer(MemoryRegistry(), json.dumps(ALL))({"n": number}, SerializationContext("t", VALUE))
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int64())), ("l", pa.list_(pa.int64())), ("n", pa.float64())])
    row = {"m": {"a": None, "b": 1}, "l": [None, 1], "n": None}
    written = ColumnWriter(None, schema).write(pa.array([row], kind))
    assert written.to_pylist() == [b'{"m":{"a":null,"b":1},"l":[null,1]}']


ANY = {
    "type": "object",
    "properties": {
        "any": {},
        "l": {"type": "array", "items": {"type": ["string", "integer"]}},
        "m": {"type": "object", "additionalProperties": {}},
        "s": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    "text",
    ['{"any":"x"}', '{"any":{"a":[1.10,null]}}', '{"any":"\\"x\\"","s":"\\"x\\""}', '{"l":["1",1,null],"s":"{}"}',
     '{"m":{"a":"x","b":null,"c":[],"\\"":1e400}}', "{}"],
)  # fmt: skip
def test_a_value_without_one_type_is_written_as_it_was_read(text: str) -> None:
    """It became a string: of an object its JSON in quotes."""
    schema = ResolvedSchema(Schema(json.dumps(ANY), SchemaType.JSON))
    read = JsonColumns(schema).read(pa.array([text.encode()]))
    assert ColumnWriter(None, schema).write(read.values).to_pylist() == [text.encode()]


@pytest.mark.parametrize("text", ["x", "NaN", '"', "1 2", ""])
def test_a_string_that_is_no_json_is_no_value_without_one_type(text: str) -> None:
    schema = ResolvedSchema(Schema(json.dumps(ANY), SchemaType.JSON))
    with pytest.raises(SerializationError, match=r"without one type .* its JSON: the bytes are no JSON"):
        ColumnWriter(None, schema).write(pa.array([{"any": text}]))
    assert ColumnWriter(None, schema).write(pa.array([{"any": 5, "s": text}]))


@pytest.mark.parametrize("text", [b'{"n": NaN}', b'{"n": 1e400}', b'{"n": 1} x', '{"n": 1}'.encode("utf-16")])
def test_the_deserializer_takes_json_alone(text: bytes) -> None:
    registry, place = MemoryRegistry(), SerializationContext("t", VALUE)
    written = JsonSerializer(registry, json.dumps(ALL))({"n": 1}, place)
    assert written is not None
    with pytest.raises(SerializationError, match="no JSON"):
        JsonDeserializer(registry)(written[:5] + text, place)
