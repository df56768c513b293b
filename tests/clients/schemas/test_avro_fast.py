"""Avro read for all rows at once gives what is read row by row, of random schemas and of broken bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.clients.schemas.avro_values import AvroSchema, avro_type, encode_avro
from stratalog.clients.schemas.columns import avro
from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.avro_fast import ROWS_MIN, FastSchema, read_fast
from stratalog.clients.schemas.columns.reader import ReadValues
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema
from tests.clients.schemas.test_avro_round_trip import Draw, Drawn
from tests.examples import examples

ROWS = 2 * ROWS_MIN


def read(columns: AvroColumns, payloads: list[bytes], *, is_fast: bool) -> ReadValues:
    with pytest.MonkeyPatch.context() as patch:
        if not is_fast:
            patch.setattr(avro, "read_fast", lambda *_: None)
        return columns.read(pa.array(payloads, pa.binary()), None)


def assert_same(schema: Any, payloads: list[bytes]) -> None:
    columns = AvroColumns(ResolvedSchema(Schema(json.dumps(schema))))
    fast, slow = (read(columns, payloads, is_fast=is_fast) for is_fast in (True, False))
    assert fast.values.type == slow.values.type
    # NaN is not equal to itself, and its text is
    assert repr(fast.values.to_pylist()) == repr(slow.values.to_pylist())
    assert fast.errors == slow.errors


@st.composite
def schemas_with_payloads(draw: Draw) -> tuple[Any, list[bytes]]:
    """A schema and payloads of it, of which some are cut, longer, or changed in a byte."""
    schema, values = Drawn(draw).pair(3)
    parsed = AvroSchema.of(Schema(json.dumps(schema)))
    good = [encode_avro(parsed, value) for value in draw(st.lists(values, min_size=1, max_size=6))]
    payloads = [good[place % len(good)] for place in range(ROWS)]
    kinds = st.sampled_from(["cut", "longer", "changed"])
    damages = st.tuples(kinds, st.integers(0, 40), st.binary(min_size=1, max_size=1))
    for place, (damage, where, byte) in enumerate(draw(st.lists(damages, max_size=6))):
        payload = payloads[5 * place]
        if damage == "longer":
            payloads[5 * place] = payload + byte
        else:
            rest = byte + payload[where + 1 :] if damage == "changed" and where < len(payload) else b""
            payloads[5 * place] = payload[:where] + rest
    return schema, payloads


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas_with_payloads())
def test_all_rows_at_once_are_read_as_row_by_row(drawn: tuple[Any, list[bytes]]) -> None:
    assert_same(*drawn)


RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "s", "type": "string"}]}
LONG = "long"
INTS = {"type": "array", "items": "int"}
ZERO = b"\x00"


@pytest.mark.parametrize(
    ("schema", "special"),
    [
        (LONG, b"\xff" * 9 + b"\x01"),  # the least number
        (LONG, b"\xff" * 9 + b"\x02"),  # a bit too many
        (LONG, b"\xff" * 12 + b"\x01"),
        (LONG, b"\x80\x80\x00"),  # longer than it need be
        ("int", b"\x80\x80\x80\x80\x10"),  # wider than 32 bits
        ("string", b"\x03"),  # a negative size
        ("string", b"\x04\xff\xff"),  # no UTF-8
        ("boolean", b"\x02"),
        (INTS, b"\x03\x04\x02\x04\x00"),  # a block with its size
        (INTS, b"\x02\x02\x02\x04\x00"),  # two blocks
        (INTS, b"\xc8\x01" + b"\x02" * 100 + b"\x00"),  # many more items than others
        (INTS, b"\xfe\xff\xff\xff\x0f\x02"),  # more items than bytes
        (INTS, b"\xff" * 9 + b"\x01\x00"),  # the least number as a count, whose negative is no number
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, b"\x06\x00"),  # items without bytes
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01"),
        (["null", RECORD], b"\x02\x02\x02x"),
        (["null", RECORD], b"\x04"),  # no such branch
        ({"type": "fixed", "name": "F", "size": 4}, b"\x00\x00"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\x02"),
        ({"type": "int", "logicalType": "date"}, b"\x02"),
        (RECORD, b"\x02\x80\x02" + b"x" * 128),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 9 + b"\x01"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, b"\x01"),
        (["null", "int", "string"], b"\x01\x02"),
        (["null", "int", "string"], b"\x02\x09"),
        (["int", "null", RECORD, "bytes"], b"\x04\x02\x02x"),
        (["int", "long"], b"\x02\x80\x80\x80\x80\x80\x10"),
    ],
)
def test_a_row_among_others_that_is_unlike_them(schema: Any, special: bytes) -> None:
    usual = b"\x00" * 5
    assert_same(schema, [special if place in (0, 7, ROWS - 1) else usual for place in range(ROWS)])
    assert_same(schema, [special] * ROWS)


def test_long_strings_and_lists_of_all_rows_are_read_at_once() -> None:
    texts = {"name": "texts", "type": {"type": "array", "items": "string"}}
    schema = {"type": "record", "name": "L", "fields": [texts, {"name": "blob", "type": "bytes"}]}
    parsed = AvroSchema.of(Schema(json.dumps(schema)))
    values = [{"texts": ["ä" * (n % 7)] * (n % 5), "blob": b"x" * (300 * (n % 3))} for n in range(5 * ROWS)]
    payloads = pa.array([encode_avro(parsed, value) for value in values], pa.binary())
    kind = AvroColumns(ResolvedSchema(Schema(json.dumps(schema)))).arrow_type
    fast = read_fast(FastSchema.of(parsed.type, kind), payloads)
    assert fast is not None
    assert fast.values.to_pylist() == values
    assert len(fast.left) == 0
    sliced = read_fast(FastSchema.of(parsed.type, kind), payloads.slice(5, 4 * ROWS))
    assert sliced is not None
    assert sliced.values.to_pylist() == values[5 : 5 + 4 * ROWS]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "map", "values": "int"},
        "null",
        ["int", "long"],
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
        {"type": "record", "name": "Empty", "fields": []},
    ],
)
def test_what_is_left_to_the_reader_of_rows(schema: Any) -> None:
    kind = AvroColumns(ResolvedSchema(Schema(json.dumps(schema)))).arrow_type
    assert FastSchema.of(avro_type(Schema(json.dumps(schema))), kind) is None


def test_the_error_of_bytes_is_always_the_same() -> None:
    columns = AvroColumns(ResolvedSchema(Schema('"boolean"')))
    (one,), (two,) = (read(columns, [b""], is_fast=False).errors.values() for _ in range(2))
    assert one == two == "the bytes do not fit the Avro schema: cut off: 0 bytes are too few"
