"""Random columns, JSON schemas, and JSON texts that often fit them, and often nearly do. Pure."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Json = Any
INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
PLAIN = [*INTEGERS, pa.float64(), pa.string(), pa.bool_()]
SCALARS = [
    *PLAIN, pa.float32(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(5, 2),
    pa.decimal128(38, 0), pa.decimal128(20, 18),
]  # fmt: skip
ODD_NAMES = ("value", "error", "read", "text", "is_null", "offset", "partition", "headers", "key", "found", "select",
             "a.b", "a`b", "µs", "Größe", "element", "corrupt_record", "_corrupt_record")  # fmt: skip
"""Names of ours, of Spark's, and some that need quotes."""
ODD = (
    "null", "true", "false", "0", "-0", "-0.0", "1.0", "1e2", "1.5", "127", "128", "-32769", "2147483648",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "1e-400", "1e39",
    "0.1", "123.450", "999.995", "0.000000000000000001", "1E38", "12345678901234567890123456789012345678", "NaN",
    "Infinity", '"NaN"', '"Infinity"', '"x"', '""', '"1"', '"1.5"', '"true"', '"2024-02-29"', '"2023-02-29"',
    '"+294246-01-01"', '"0001-01-01"', '"1582-10-10"', '"2024-03-10T02:30:00"', '"2024-03-10 02:30:00.123456"',
    '"2024-03-10T02:30:00.1234567Z"', '"2024-03-10T02:30:00+25:00"', '"\\u00e9\\ud83d\\ude00"', '"\\ud800"', '"ü\\n"',
    "[]", "{}", "[1]", '[null,"x"]', '{"a":1}', '{"A":{"b":[1.10]}}', "01", "+1", ".5", "1.", "'x'", "0x1F", "",
)  # fmt: skip
DAMAGE = ("", " ", "\n", "}", "{}", ",", "x", "\x00", "\ufeff")


def a_type(draw: Random, depth: int = 0) -> pa.DataType:
    made = draw.randrange(10) if depth < 3 else 9
    if made == 0:
        return pa.list_(a_type(draw, depth + 1))
    if made == 1:
        return pa.map_(pa.string(), a_type(draw, depth + 1))
    if made == 2:
        return pa.struct([(name, a_type(draw, depth + 1)) for name in ("a", "b")[: draw.randint(1, 2)]])
    return draw.choice(SCALARS)


def a_text(draw: Random, kind: pa.DataType) -> str:
    """JSON for a type of columns."""
    if draw.randrange(9) == 0:
        return draw.choice(ODD)
    if pa.types.is_struct(kind):
        members = [f'"{each.name}": {a_text(draw, each.type)}' for each in kind if draw.randrange(8)]
        draw.shuffle(members)
        return "{" + ", ".join([*members, *(['"unknown": 1e400'] if draw.randrange(12) == 0 else [])]) + "}"
    if pa.types.is_list(kind):
        return "[" + ",".join(a_text(draw, kind.value_type) for _ in range(draw.randrange(3))) + "]"
    if pa.types.is_map(kind):
        return "{" + ",".join(f'"k{n}":{a_text(draw, kind.item_type)}' for n in range(draw.randrange(3))) + "}"
    return _a_scalar(draw, kind)


def _a_scalar(draw: Random, kind: pa.DataType) -> str:
    if kind in INTEGERS:
        bits = draw.randrange(66) if draw.randrange(3) == 0 else draw.randrange(INTEGERS[kind] - 1)
        return str(draw.randint(-(2**bits), 2**bits))
    if pa.types.is_decimal(kind):
        digits = draw.randint(0, 10 ** draw.randint(1, kind.precision + 1))
        return f"{draw.choice(['', '-'])}{Decimal(digits).scaleb(-draw.randrange(kind.scale + 2)):f}"
    if pa.types.is_floating(kind):
        return repr(draw.uniform(-1, 1) * 10.0 ** draw.randrange(-40, 42))
    if pa.types.is_boolean(kind):
        return draw.choice(["true", "false"])
    day = dt.date(draw.randint(1, 9999), draw.randint(1, 12), draw.randint(1, 28))
    if pa.types.is_date(kind):
        return json.dumps(day.isoformat())
    if pa.types.is_timestamp(kind):
        return json.dumps(f"{day.isoformat()}T{draw.randrange(24):02}:30:00.{draw.randrange(10**6):06}")
    return json.dumps("".join(draw.choice('aé\\"\n\t 1.😀\x7f') for _ in range(draw.randrange(6))))


def damaged(draw: Random, text: str, one_in: int) -> str:
    if draw.randrange(one_in):
        return text
    place = draw.randint(0, len(text))
    return text[:place] + draw.choice(DAMAGE) + text[place + draw.randrange(2) :]


def a_json_schema(draw: Random, depth: int = 0) -> Json:
    """A schema; its values have the column type that `type_of` says."""
    made = draw.randrange(12) if depth < 3 else 9
    if depth == 0 or made == 0:
        names = [*(f"f{n}" for n in range(draw.randint(1, 4))), *draw.sample(ODD_NAMES, draw.choice([0, 0, 1]))]
        return {"type": "object", "properties": {name: a_json_schema(draw, depth + 1) for name in names}}
    if made == 1:
        return {"type": "array", "items": a_json_schema(draw, depth + 1)}
    if made == 2:
        return {"type": "object", "additionalProperties": a_json_schema(draw, depth + 1)}
    if made == 3:
        inner = a_json_schema(draw, depth + 1)
        return {"oneOf": [{"type": "null"}, inner]} if draw.random() < 0.5 else {"anyOf": [inner, {"type": "null"}]}
    if made == 4:
        return draw.choice([{}, {"type": ["string", "integer"]}])
    kind = draw.choice(["string", "integer", "number", "boolean"])
    return {"type": [kind, "null"] if draw.random() < 0.2 else kind}


JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def plain_schema(node: Json) -> Json:
    """A schema without null, as which its values are read."""
    for key in ("oneOf", "anyOf"):
        if key in node:
            return plain_schema(next(each for each in node[key] if each != {"type": "null"}))
    if isinstance(node.get("type"), list) and "null" in node["type"]:
        return {"type": node["type"][0]}
    return node


def type_of(node: Json) -> pa.DataType:
    """The column type of a schema's values."""
    node = plain_schema(node)
    if "properties" in node:
        return pa.struct([(name, type_of(each)) for name, each in node["properties"].items()])
    if "additionalProperties" in node:
        return pa.map_(pa.string(), type_of(node["additionalProperties"]))
    if "items" in node:
        return pa.list_(type_of(node["items"]))
    kind = node.get("type")
    return JSON_TYPES[kind] if isinstance(kind, str) else pa.string()
