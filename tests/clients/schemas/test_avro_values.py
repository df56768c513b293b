"""Avro values in columns, and in Python: what the bytes say, or an error; what is written is the value, or an error."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.avro_values import AvroSchema, AvroValues, encode_avro
from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.avro_fast import ROWS_MIN
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.serialization import VALUE, SerializationContext
from stratalog.storage.errors import SerializationError
from tests.clients.schemas.memory_registry import MemoryRegistry

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "FD", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
MILLIS, MICROS, NANOS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros", "nanos"))
LOCAL_MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "q", "type": "string", "default": "z"}]}
NULLS_IN_NULLS = b"\x80\x10" + b"\xa0\x9c\x01\x00" * 1_024 + b"\x00"
"""1,024 arrays of 10,000 nulls in 4 KiB."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def schema(text: Any) -> ResolvedSchema:
    return ResolvedSchema(Schema(json.dumps(text)))


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind, **more}]}


def zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])


def read(kind: Any, payload: bytes, count: int) -> tuple[Any, str | None]:
    """The value and the error of a row among `count` rows of the same bytes."""
    found = AvroColumns(schema(kind)).read(pa.array([payload] * count, pa.binary()), None)
    assert set(found.errors) in (set(), set(range(count)))
    return found.values[count - 1].as_py(), found.errors.get(count - 1)


PLACES = pytest.mark.parametrize("count", [1, 2 * ROWS_MIN], ids=["one by one", "at once"])


@PLACES
@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (["null", "string", DECIMAL], b"\x04\x04\x04\xe2", {"member0": None, "member1": Decimal("12.50")}),
        (["null", "string", FIXED_DECIMAL], b"\x04\0\0\x04\xe2", {"member0": None, "member1": Decimal("12.50")}),
        (["null", DECIMAL], b"\x02\x02\xff", Decimal("-0.01")),
        (["null", "int", "long", "string"], b"\x04\x0a", {"member0": None, "member1": 5, "member2": None}),
        (["null", "int", "long", "string"], b"\x02\x0a", {"member0": 5, "member1": None, "member2": None}),
        (["float", "double", "bytes"], b"\x02" + struct.pack("<d", 0.1),
         {"member0": None, "member1": 0.1, "member2": None}),
        (["null", "string", "bytes"], b"\x04\x02a", {"member0": None, "member1": b"a"}),
        (["null", MILLIS, "string"], b"\x02\x02", {"member0": EPOCH + dt.timedelta(milliseconds=1), "member1": None}),
        (["null", "string", {"type": "map", "values": "int"}, INNER], b"\x06\x02a",
         {"member0": None, "member1": None, "member2": {"q": "a"}}),
        (["int", "long"], b"\x02\x80\x80\x80\x80\x80\x40", 2**40),
        (["null", "float", "double"], b"\x02" + struct.pack("<f", 0.5), 0.5),
        (NANOS, b"\x01", EPOCH - dt.timedelta(microseconds=1)),
        (DATE, zigzag(-1), dt.date(1969, 12, 31)),
    ],
)  # fmt: skip
def test_the_value_is_of_the_branch_that_the_bytes_name(kind: Any, payload: bytes, value: Any, count: int) -> None:
    found, error = read(kind, payload, count)
    assert (found, error) == (value, None)
    assert type(found) is type(value)


@PLACES
@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (MILLIS, zigzag(1_700_000_000_000_000_000), "beyond the microseconds of 64 bits"),
        (LOCAL_MILLIS, zigzag(-(2**63)), "beyond the microseconds of 64 bits"),
        ({"type": "array", "items": MILLIS}, b"\x02" + zigzag(2**60) + b"\0", "beyond the microseconds"),
        (DATE, zigzag(2**31), "2147483648 is no int"),
        ("int", zigzag(-(2**31) - 1), "is no int"),
        (["int", "long"], b"\0" + zigzag(2**31), "is no int"),
        (DECIMAL, b"\x0a\x7f\xff\xff\xff\xff", "a decimal of more than 10 digits"),
        (DECIMAL, b"\0", "a decimal of no bytes"),
        (["null", "int", "string"], b"\x01\x02a", "branch -1 of a union of 3 types"),
        (["null", "int"], b"\x04", "branch 2 of a union of 2 types"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "symbol -1 of an enum of 2"),
        ("long", b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        ("boolean", b"\x02", "2 is no boolean"),
        ("string", b"\x04\xff\xff", "a string is no UTF-8"),
        ("double", b"\0\0", "cut off"),
        ({"type": "array", "items": "null"}, zigzag(2**62), "a block of"),
        (
            {"type": "array", "items": {"type": "array", "items": "null"}},
            NULLS_IN_NULLS,
            "items of arrays without a byte",
        ),
    ],
)
def test_what_no_value_of_the_type_is_has_an_error(kind: Any, payload: bytes, reason: str, count: int) -> None:
    found, error = read(kind, payload, count)
    assert found is None
    assert error is not None
    assert reason in error
    own = AvroSchema.of(schema(kind).schema)
    for readers_schema in (own, None):
        text = refused(own, readers_schema, payload)
        assert reason in text or "microseconds" in reason, "Python's times end before a column's"


def refused(writer: AvroSchema, reader: AvroSchema | None, payload: bytes) -> str:
    with pytest.raises(SerializationError) as found:
        AvroValues(writer, reader).value(payload)
    return str(found.value)


def resolved(writer: Any, reader: Any, payload: bytes) -> tuple[Any, str | None]:
    found = AvroColumns(schema(reader)).read(pa.array([payload], pa.binary()), schema(writer))
    return found.values[0].as_py(), found.errors.get(0)


def test_a_string_that_is_read_as_bytes_need_not_be_text() -> None:
    assert resolved("string", "bytes", b"\x04\xff\xfe") == (b"\xff\xfe", None)


@pytest.mark.parametrize("kind", ["array", "map"])
def test_a_block_that_is_skipped_ends_where_its_size_says(kind: str) -> None:
    """As Java skips it; a block has its size for this alone."""
    inside = {"type": "array", "items": "int"} if kind == "array" else {"type": "map", "values": "int"}
    fields = [{"name": "f", "type": inside}, {"name": "g", "type": "int"}]
    writer = {"type": "record", "name": "R", "fields": fields}
    reader = {"type": "record", "name": "R", "fields": fields[1:]}
    assert resolved(writer, reader, b"\x01\x06\xff\xff\xff\x00\x0a") == ({"g": 5}, None)
    for size in (zigzag(100), zigzag(-1)):
        value, error = resolved(writer, reader, b"\x01" + size + b"\xff\xff\xff\x00\x0a")
        assert value is None
        assert error is not None
        assert "bytes are left" in error


def test_a_time_before_midnight_is_none() -> None:
    """fastavro makes the last microsecond of an hour of -1."""
    for kind, unit in (("int", "millis"), ("long", "micros")):
        time = AvroSchema.of(schema({"type": kind, "logicalType": f"time-{unit}"}).schema)
        assert "before midnight" in refused(time, None, zigzag(-1))
        assert "hour must be in" in refused(time, None, zigzag(24 * 3_600 * (1_000 if kind == "int" else 1_000_000)))


DEFAULTS: dict[str, tuple[Any, Any, Any]] = {
    "bytes": ("bytes", "\u00ff\u0001", b"\xff\x01"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
    "decimal": (DECIMAL, "\u0064", Decimal("1.00")),
    "record": (INNER, {}, {"q": "z"}),
    "record in a list": ({"type": "array", "items": INNER}, [{}, {"q": "y"}], [{"q": "z"}, {"q": "y"}]),
    "map of bytes": ({"type": "map", "values": "bytes"}, {"a": "\u00e4"}, {"a": b"\xe4"}),
    "null": (["null", "string"], None, None),
    "second of a union": (["null", "string"], "x", "x"),
    "float": ("float", 1, 1.0),
    "double": ("double", 0.1, 0.1),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "A"),
    "time": (MILLIS, 1, EPOCH + dt.timedelta(milliseconds=1)),
    "date": (DATE, 1, dt.date(1970, 1, 2)),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_a_value_of_its_fields_type(name: str) -> None:
    """In a column and in Python, and a new one for each record."""
    kind, default, right = DEFAULTS[name]
    old, new = record("int"), record("int")
    new["fields"].append({"name": "added", "type": kind, "default": default})
    [row] = AvroColumns(schema(new)).read(pa.array([b"\x02"]), schema(old)).values.to_pylist(maps_as_pydicts="strict")
    assert row == {"v": 1, "added": right}
    registry, place = MemoryRegistry(), SerializationContext("t", VALUE)
    written = AvroSerializer(registry, json.dumps(old))({"v": 1}, place)
    deserialize = AvroDeserializer(registry, json.dumps(new))
    one, other = deserialize(written, place), deserialize(written, place)
    assert one == other == {"v": 1, "added": right}
    assert type(one["added"]) is type(right)
    assert one["added"] is not other["added"] or not isinstance(right, dict | list)


@pytest.mark.parametrize(
    ("kind", "default", "reason"),
    [("bytes", "\u0100", "code points beyond 255"), ("int", 2**31, "is no int"), ("int", 1.5, "1.5 is no int"),
     ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "no symbol of E"), (DECIMAL, "", "a decimal of no bytes"),
     (INNER | {"fields": [{"name": "q", "type": "int"}]}, {}, "lacks the field q")],
)  # fmt: skip
def test_a_default_that_is_none_is_an_error_of_the_records_that_need_it(kind: Any, default: Any, reason: str) -> None:
    old, new = record("int"), record("int")
    new["fields"].append({"name": "added", "type": kind, "default": default})
    found = AvroColumns(schema(new)).read(pa.array([b"\x02"]), schema(old))
    assert reason in found.errors[0]


@pytest.mark.parametrize(
    ("written", "read_as"),
    [(MILLIS, MICROS), (DATE, MILLIS), (DECIMAL, {**DECIMAL, "scale": 3}), ("int", "string"), ("long", "int")],
)
def test_a_number_that_would_mean_another_value_is_not_read(written: Any, read_as: Any) -> None:
    found = AvroColumns(schema(record(read_as))).read(pa.array([b"\x02\x02"]), schema(record(written)))
    assert "is read" in found.errors[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5), ("int", True), ("int", 2**31), ("long", 2**63), ("long", "1"), ("boolean", "no"),
        ("boolean", None), ("boolean", 1), ("float", 1e39), ("float", 2**24 + 1), ("double", 2**53 + 1),
        ("double", True), ("double", "1"), ("double", Decimal("0.1")), ("null", 5),
        (DATE, 1.5), (DATE, 2**31), (MILLIS, 1.5), ("string", b"x"),
        (DATE, dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)), (LOCAL_MILLIS, EPOCH),
        (DECIMAL, Decimal("1.234")), (DECIMAL, Decimal("NaN")), ("bytes", "text"),
        (DECIMAL, Decimal(10**9)), ({"type": "array", "items": "string"}, "abc"), (["null", "int"], 2**40),
        (["double", "string"], 2**53 + 1), (["null", INNER], {"q": 5}),
        ({"type": "map", "values": "int"}, {"a": None}), (["float", "string"], 2**24 + 1),
        ([DATE, "string"], EPOCH.replace(hour=5)),
        ({"type": "int", "logicalType": "time-millis"}, dt.time(1, tzinfo=dt.UTC)),
    ],
)  # fmt: skip
def test_a_value_that_would_be_written_as_another_one_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="does not fit the Avro schema"):
        encode_avro(AvroSchema.of(schema(record(kind)).schema), {"v": value})
    with pytest.raises(SerializationError, match="does not fit the Avro schema"):
        encode_avro(AvroSchema.of(schema(record(kind)).schema), {} if value is None else {"v": value})


@pytest.mark.parametrize(
    ("kind", "value", "payload"),
    [
        ("double", 3, struct.pack("<d", 3.0)), ("float", 0.1, struct.pack("<f", 0.1)), ("float", 2**24, None),
        (["float", "double"], 0.1, b"\x02" + struct.pack("<d", 0.1)), (["int", "long"], 2**40, None),
        (["null", INNER], ("Inner", {"q": "a"}), b"\x02\x02a"), (DATE, dt.date(1970, 1, 2), b"\x02"),
        (MILLIS, EPOCH + dt.timedelta(microseconds=1999), b"\x02"), (DECIMAL, b"\x01", b"\x02\x01"),
        (DATE, dt.datetime(1970, 1, 2), b"\x02"),  # noqa: DTZ001 - midnight of a date
        ("double", float("inf"), None), ("float", float("nan"), None), (["null", "string"], None, b"\0"),
    ],
)  # fmt: skip
def test_any_other_value_is_written_as_before(kind: Any, value: Any, payload: bytes | None) -> None:
    written = encode_avro(AvroSchema.of(schema(record(kind)).schema), {"v": value})
    assert payload is None or written == payload


WIDE = record(["float", "string"]) | {"name": "Wide"}
EXACT = record(["int", "string"]) | {"name": "Exact"}


@pytest.mark.parametrize(
    ("kind", "value", "payload"),
    [
        (["float", "int"], 2**24 + 1, b"\x02\x82\x80\x80\x10"), (["double", "long"], 1, b"\x02\x02"),
        (["int", "double"], 2**40, b"\x02" + struct.pack("<d", 2.0**40)), (["boolean", "int"], 1, b"\x02\x02"),
        ([DATE, MILLIS], EPOCH, b"\x02\0"), ([DATE, MILLIS], EPOCH.date(), b"\0\0"), ([MILLIS, "int"], 5, b"\x02\x0a"),
        ([WIDE, EXACT], {"v": 2**24 + 1}, b"\x02\0\x82\x80\x80\x10"), ([WIDE, EXACT], {"v": 1}, None),
        ([WIDE, EXACT], ("Exact", {"v": 1}), b"\x02\0\x02"),
        ({"type": "array", "items": ["null", "double", "long"]}, [2**53 + 1, None], None),
        ({"type": "map", "values": ["double", "long"]}, {"k": 2**53 + 1}, None),
        ([{"type": "enum", "name": "E", "symbols": ["p"]}, "string"], "q", b"\x02\x02q"),
        ([{"type": "fixed", "name": "F", "size": 2}, "bytes"], b"abc", b"\x02\x06abc"),
    ],
)  # fmt: skip
def test_of_a_union_the_branch_is_written_that_holds_the_value(kind: Any, value: Any, payload: bytes | None) -> None:
    """fastavro takes the first that accepts it, and a float accepts any int."""
    made = AvroSchema.of(schema(record(kind)).schema)
    written = encode_avro(made, {"v": value})
    assert payload is None or written == payload
    given = value[1] if isinstance(value, tuple) else value
    assert AvroValues(made).value(written) == {"v": given}


def test_unions_of_a_type_within_itself_are_written() -> None:
    node = record([{"type": "array", "items": "R"}, "double", "long"]) | {"name": "R"}
    made = AvroSchema.of(schema(node).schema)
    value = {"v": [{"v": 2**53 + 1}, {"v": [{"v": 0.5}]}]}
    assert AvroValues(made).value(encode_avro(made, value)) == value


def test_a_column_that_the_schema_does_not_hold_is_refused() -> None:
    longs = pa.array([{"v": 2**40}], pa.struct([("v", pa.int64())]))
    with pytest.raises(SerializationError, match="1099511627776 is no int"):
        ColumnWriter(1, schema(record("int"))).write(longs)
    union = ["null", "string", DECIMAL]
    kind = AvroColumns(schema(record(union))).arrow_type
    column = pa.array([{"v": {"member0": None, "member1": Decimal("12.50")}}], kind)
    written = ColumnWriter(None, schema(record(union))).write(column)
    assert written.to_pylist() == [b"\x04\x04\x04\xe2"]


def test_a_schema_that_contains_itself_is_read_and_written_in_python() -> None:
    old = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    new = {**old, "fields": [*old["fields"], {"name": "note", "type": "bytes", "default": "\u00ff"}]}
    one, other = (AvroSchema.of(schema(each).schema) for each in (old, new))
    payload = encode_avro(one, {"next": {"next": None}})
    assert AvroValues(one, other).value(payload) == {"next": {"next": None, "note": b"\xff"}, "note": b"\xff"}
    last = {"name": "i", "type": "int"}
    whole = {"type": "record", "name": "W", "fields": [{"name": "n", "type": old}, last]}
    skipping, only = (AvroSchema.of(schema(each).schema) for each in (whole, {**whole, "fields": [last]}))
    assert AvroValues(skipping, only).value(payload + b"\x04") == {"i": 2}


def test_nulls_of_arrays_that_are_skipped_are_counted_too() -> None:
    """A field that the reader lacks is skipped, item by item where the block has no size."""
    nulls = {"type": "array", "items": {"type": "array", "items": "null"}}
    written = AvroSchema.of(schema(record(nulls)).schema)
    wanted = AvroSchema.of(Schema(json.dumps({"type": "record", "name": "R", "fields": []})))
    assert "items of arrays without a byte" in refused(written, wanted, NULLS_IN_NULLS)
    few = b"\x02" + b"\xa0\x9c\x01\x00" + b"\x00"
    assert AvroValues(written, wanted).value(few) == {}
    assert AvroValues(written, wanted).value(few) == {}  # each payload is counted by itself
