"""JSON in the columns of a typed table is what the text says and what Spark's `from_json` gives, or a dead letter.

A judge of random columns and texts. Avro has one of its own, Java's reader: `tests/clients/schemas/test_avro_java.py`.
New columns and texts each time:
`.venv/bin/python -m pytest -m long tests/spark/test_typed_values.py --hypothesis-profile=random`
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from stratalog.clients.schemas.columns.json_text import JsonNumber
from stratalog.clients.typed_tables.batches import NO_DELETION_VECTORS
from stratalog.clients.typed_tables.config import TypedTableConfig, WriteMode
from stratalog.clients.typed_tables.delta_table import TypedDelta
from stratalog.clients.typed_tables.evolution import sql_type
from stratalog.clients.typed_tables.values import ValueReader

pytestmark = pytest.mark.long
TEXTS_OF_COLUMNS = 400
RECORDS = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
SCALARS = [
    *INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal128(20, 18),
]  # fmt: skip
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
UNKNOWN = object()


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
    """JSON that often fits the type, and often nearly does."""
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
    return a_scalar(draw, kind)


def a_scalar(draw: Random, kind: pa.DataType) -> str:
    if kind in INTEGERS:
        return str(draw.randint(-(2 ** draw.randrange(66)), 2 ** draw.randrange(66)))
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


def damaged(draw: Random, text: str) -> str:
    if draw.randrange(15):
        return text
    place = draw.randint(0, len(text))
    return text[:place] + draw.choice(DAMAGE) + text[place + draw.randrange(2) :]


def read_exactly(value: Any, kind: pa.DataType) -> Any:
    """A value of a text as its column has it, by what the text says; UNKNOWN where that depends on Spark's rules."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: read_exactly(value.get(each.name), each.type) for each in kind}
    if pa.types.is_list(kind):
        return [read_exactly(each, kind.value_type) for each in value] if isinstance(value, list) else UNKNOWN
    if pa.types.is_map(kind):
        return {name: read_exactly(each, kind.item_type) for name, each in value.items()}
    if isinstance(value, bool):
        return value if pa.types.is_boolean(kind) else UNKNOWN
    if isinstance(value, JsonNumber):
        exact: Callable[[str], Any] | None = None
        if kind in INTEGERS or pa.types.is_decimal(kind):
            exact = Decimal
        return float(value) if kind == pa.float64() else exact(value) if exact else UNKNOWN
    if isinstance(value, str) and kind == pa.string():
        return value
    is_day = isinstance(value, str) and kind == pa.date32() and re.fullmatch(r"\d{4}-\d\d-\d\d", value)
    return dt.date.fromisoformat(value) if is_day else UNKNOWN


def agrees(found: Any, exact: Any) -> bool:
    if exact is UNKNOWN:
        return True
    if isinstance(exact, dict):
        return isinstance(found, dict) and all(agrees(found.get(name), each) for name, each in exact.items())
    if isinstance(exact, list):
        return len(found) == len(exact) and all(map(agrees, found, exact))
    return bool(found == exact)


def plain(value: Any) -> Any:
    """Spark's rows as dicts."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_json_value_is_what_its_text_says_and_what_spark_reads_or_a_dead_letter(
    ours: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw = Random(seed)
    kind = pa.struct([(f"c{number}", a_type(draw)) for number in range(draw.randint(1, 5))])
    columns = ", ".join(f"{each.name} {sql_type(each.type)}" for each in kind)
    texts = [damaged(draw, a_text(draw, kind)) for _ in range(TEXTS_OF_COLUMNS)]
    fitting = 0
    for text, row in zip(texts, read_by_both(ours, tmp_path_factory.mktemp("judge"), columns, texts), strict=True):
        if row.error is not None:
            assert row.error.strip(), "it says why"
            continue
        fitting += 1
        shown = f"seed {seed}, {columns}: {text}"
        assert plain(row.read) == plain(row.spark), shown
        value = json.loads(text, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=pytest.fail)
        assert agrees(plain(row.read), read_exactly(value, kind)), shown
    assert fitting > TEXTS_OF_COLUMNS // 100, "most texts are nearly right"


def read_by_both(spark: SparkSession, folder: Path, columns: str, texts: list[str]) -> list[Row]:
    """A row for each text: `read` and `error` of a typed table's reader, and `spark` of `from_json` alone."""
    config = TypedTableConfig.from_settings({"value.format": "json", "value.schema": columns})
    reader, table = ValueReader(spark, config, WriteMode.APPEND, None), TypedDelta(spark, str(folder / "table"))
    table.create(", ".join(["_partition INT", *reader.first_columns()]), dict(NO_DELETION_VECTORS))
    reader.grow(table)
    rows = [(0, place, None, None, bytearray(text.encode()), None) for place, text in enumerate(texts)]
    records = spark.createDataFrame(rows, RECORDS)
    found = reader.read(records, table)
    by_spark = records.select("offset", sf.from_json(sf.col("value").cast("string"), columns).alias("spark"))
    names = [sf.col("read")[name].alias(name) for name in found.columns]
    ours = found.frame.select("offset", sf.struct(*names).alias("read"), "error")
    read_by_spark = sf.when(sf.col("error").isNull(), sf.col("spark")).alias("spark")  # Python has no year 294,246
    both = ours.join(by_spark, "offset").orderBy("offset").select("read", "error", read_by_spark).collect()
    found.release()
    return both
