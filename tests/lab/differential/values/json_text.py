"""JSON in columns beside Spark's `from_json` and what the text says. I/O: Spark, and folders of its own.

Of a typed table with `value.schema` the texts of one query have a column each, of a random type, or they have a few
columns that Arrow reads at once. Of a registry's JSON schemas each has a column of `from_registry`.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from stratalog import Schema, SchemaRegistryClient, SchemaType, from_registry
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.typed_tables.batches import NO_DELETION_VECTORS
from stratalog.clients.typed_tables.config import TypedTableConfig, WriteMode
from stratalog.clients.typed_tables.delta_table import TypedDelta
from stratalog.clients.typed_tables.rows.evolution import quoted, sql_type
from stratalog.clients.typed_tables.rows.values import ValueReader
from tests.clients.schemas.oracle.java_values import values_of
from tests.lab.differential.values.known import FROM_JSON, JSON_TEXT, Outcome, Tally
from tests.lab.differential.values.texts import (
    INTEGERS,
    ODD_NAMES,
    PLAIN,
    Json,
    a_json_schema,
    a_text,
    a_type,
    damaged,
    plain_schema,
    type_of,
)

COLUMNS_A_QUERY, TEXTS_A_COLUMN = 100, 3
PLAIN_TEXTS = 1_200
"""The texts of a few columns that Arrow reads in pieces."""
SCHEMAS_A_QUERY, ROWS = 60, 8
_CORRUPT = "corrupt record"
RECORDS = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
UNKNOWN = object()
"""A value that depends on Spark's rules."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


# -- typed tables with value.schema ------------------------------------------------------------------------


def judge_tables(spark: SparkSession, folder: Path, seed: int, count: int, tally: Tally) -> None:
    """Count what `count` columns have, and what the judges read."""
    for number in range(-(-count // COLUMNS_A_QUERY)):
        draw = Random(f"{seed} table {number}")
        if number % 5 == 4:
            kind, texts = _plain_columns(draw)
        else:
            kind, texts = _a_column_each(draw)
        ours, by_spark = _read_by_both(spark, folder / f"table-{number}", kind, texts)
        for place, (text, _) in enumerate(texts):
            named = [each for each in kind if f'"{each.name.casefold()}"' in text.casefold()]
            shown = ", ".join(f"{quoted(each.name)} {sql_type(each.type)}" for each in named)
            about = f"table {number}, row {place}{_marks(text, kind)}: {text} as {shown}"
            tally.judge(FROM_JSON, ours[place], by_spark[place], about)
            if ours[place].error is None:
                tally.judge(JSON_TEXT, ours[place], _exact(text, kind, ours[place]), about)


class _Text(NamedTuple):
    """A text, and the same with the very names of columns, as Spark is asked."""

    own: str
    asked: str


def _a_column_each(draw: Random) -> tuple[pa.StructType, list[_Text]]:
    names = [*draw.sample(ODD_NAMES, len(ODD_NAMES)), *(f"c{n}" for n in range(COLUMNS_A_QUERY - len(ODD_NAMES)))]
    kind = pa.struct([(name, a_type(draw)) for name in names])
    texts = []
    for column in list(kind) * TEXTS_A_COLUMN:
        name = column.name.upper() if draw.randrange(40) == 0 and column.name.isascii() else column.name
        spelled, named = (json.dumps(each, ensure_ascii=False) for each in (name, column.name))
        members = [f"{spelled}: {a_text(draw, column.type)}"]
        if draw.randrange(40) == 0:
            members.append(f"{json.dumps(column.name)}: {a_text(draw, column.type)}")
        text = damaged(draw, "{" + ", ".join(members) + "}", 15)
        texts.append(_Text(text, text.replace(spelled, named, 1)))
    draw.shuffle(texts)
    return kind, texts


def _plain_columns(draw: Random) -> tuple[pa.StructType, list[_Text]]:
    """Columns that Arrow reads at once, where all of a piece fit."""
    kind = pa.struct([(f"c{n}", draw.choice(PLAIN)) for n in range(draw.randint(1, 4))])
    texts = []
    while len(texts) < PLAIN_TEXTS:
        members = [f'"{each.name}": {a_text(draw, each.type)}' for each in kind]
        text = damaged(draw, "{" + ", ".join(members) + "}", 1_000)
        texts.append(_Text(text, text))
    return kind, texts


def _read_by_both(
    spark: SparkSession, folder: Path, kind: pa.StructType, texts: Sequence[_Text]
) -> tuple[list[Outcome], list[Outcome]]:
    """What a typed table's reader and `from_json` make of each text."""
    columns = ", ".join(f"{quoted(each.name)} {sql_type(each.type)}" for each in kind)
    config = TypedTableConfig.from_settings({"value.format": "json", "value.schema": columns})
    reader, table = ValueReader(spark, config, WriteMode.APPEND, None), TypedDelta(spark, str(folder))
    table.create(", ".join(["_partition INT", *reader.first_columns()]), dict(NO_DELETION_VECTORS))
    reader.grow(table)
    records, asked = (
        spark.createDataFrame(
            [(0, n, None, None, bytearray(each.encode()), None) for n, each in enumerate(some)], RECORDS
        )
        for some in zip(*texts, strict=True)
    )
    found = reader.read(records, table)
    names = [sf.col("read")[name].alias(name) for name in found.columns]
    ours = found.frame.select("offset", sf.struct(*names).alias("read"), "error").toArrow().sort_by("offset")
    found.release()
    assert [each.name for each in kind] == list(found.columns)
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    read = sf.from_json(sf.col("value").cast("string"), f"{columns}, `{_CORRUPT}` STRING", options)
    by_spark = asked.select("offset", read.alias("read")).toArrow().sort_by("offset")
    errors = ours.column("error").to_pylist()
    values = [None if error is not None else value for value, error in zip(_values(ours, "read"), errors, strict=True)]
    return list(map(Outcome, values, errors)), [_spark_outcome(each) for each in _values(by_spark, "read")]


def _values(table: pa.Table, name: str) -> list[Any]:
    return values_of(pa.concat_arrays(table.column(name).chunks))


def _spark_outcome(row: dict[str, Any] | None) -> Outcome:
    if row is None:
        return Outcome(None, "a null")
    corrupt = row.pop(_CORRUPT)
    return Outcome(row, None if corrupt is None else "a corrupt record")


def _marks(text: str, kind: pa.StructType) -> str:
    """What a text has that needs an allowance: names within a column that differ from its own by case alone."""
    return " [a name in another case]" if '"A":' in text and "`a`:" in sql_type(kind) else ""


# -- a registry's JSON schemas -----------------------------------------------------------------------------


class JsonCase(NamedTuple):
    """A JSON schema, and texts."""

    number: int
    schema: Json
    texts: tuple[str, ...]


def drawn(seed: int, count: int) -> list[JsonCase]:
    found = []
    for number in range(count):
        draw = Random(f"{seed} schema {number}")
        schema = a_json_schema(draw)
        kind, one_in = type_of(schema), draw.choice([12, 1_000])
        texts = tuple(damaged(draw, a_text(draw, kind), one_in) for _ in range(ROWS))
        found.append(JsonCase(number, schema, texts))
    return found


def registered(cases: Sequence[JsonCase]) -> dict[str, Any]:
    """The answers of a registry whose ids are the numbers of cases."""
    return {f"GET /schemas/ids/{each.number}": (200, schema_of_case(each).as_json()) for each in cases}


def schema_of_case(case: JsonCase) -> Schema:
    return Schema(json.dumps(case.schema), SchemaType.JSON)


def judge_schemas(spark: SparkSession, registry: SchemaRegistryClient, cases: Sequence[JsonCase], tally: Tally) -> None:
    """Count what the columns of JSON schemas have, and what the text says."""
    for start in range(0, len(cases), SCHEMAS_A_QUERY):
        some = cases[start : start + SCHEMAS_A_QUERY]
        columns: dict[str, pa.Array] = {"place": pa.array(range(ROWS), pa.int32())}
        for case in some:
            prefix = SchemaId(case.number).id_prefix()
            columns[f"framed{case.number}"] = pa.array([prefix + each.encode() for each in case.texts], pa.binary())
        read = [
            from_registry(f"framed{each.number}", registry, schema_of_case(each)).alias(f"ours{each.number}")
            for each in some
        ]
        found = spark.createDataFrame(pa.table(columns)).select("place", *read).toArrow().sort_by("place")
        for case in some:
            values, _, errors = pa.concat_arrays(found.column(f"ours{case.number}").chunks).flatten()
            for place, ours in enumerate(map(Outcome, values_of(values), errors.to_pylist())):
                about = f"schema {case.number}, row {place}: {case.texts[place]} as {json.dumps(case.schema)}"
                tally.judge(JSON_TEXT, ours, exact_of_schema(case.schema, case.texts[place]), about)


class _MisfitError(ValueError):
    """A value that a schema does not have."""


def exact_of_schema(schema: Json, text: str) -> Outcome:
    """What a text says of a schema's columns."""
    try:
        return Outcome(_of_schema(schema, parsed_exactly(text)), None)
    except (ValueError, RecursionError) as reason:
        return Outcome(None, f"{type(reason).__name__} {reason}")


def _of_schema(node: Json, value: Any) -> Any:
    node = plain_schema(node)
    if value is None:
        return None
    match node.get("type"):
        case "object" if "properties" in node:
            members = _as(dict, value)
            return {name: _of_schema(each, members.get(name)) for name, each in node["properties"].items()}
        case "object":
            entries = {_as_text(name): each for name, each in _as(dict, value).items()}
            return {name: _of_schema(node["additionalProperties"], entries[name]) for name in sorted(entries)}
        case "array":
            return [_of_schema(node["items"], each) for each in _as(list, value)]
        case "string":
            return _as_text(value)
        case "boolean":
            return _as(bool, value)
        case "number":
            return _as_double(value)
        case "integer":
            return _as_long(value)
    return _as_text(_shown(value))


def _as(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise _MisfitError(f"{value!r} is no {kind}")
    return value


def _as_text(value: Any) -> str:
    _as(str, value).encode()
    return str(value)


def _as_double(value: Any) -> float:
    number = float(_as(Number, value))
    if number in (float("inf"), float("-inf")):
        raise _MisfitError(f"{value} is no double")
    return number


def _as_long(value: Any) -> int:
    number = _decimal(_as(Number, value))
    if number.adjusted() > 30 or number != number.to_integral_value() or not -(2**63) <= number < 2**63:
        raise _MisfitError(f"{value} is no long")
    return int(number)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(str(text))
    except InvalidOperation:
        raise _MisfitError(f"{text} is no decimal") from None


def _shown(value: Any) -> str:
    """A value as JSON, its numbers as they are written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_shown(each)}" for name, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_shown, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# -- what a text says --------------------------------------------------------------------------------------


def _refused(constant: str) -> Any:
    raise _MisfitError(f"{constant} is no JSON")


def parsed_exactly(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refused)


def _exact(text: str, kind: pa.DataType, ours: Outcome) -> Outcome:
    """What a text says, and ours where that depends on Spark's rules."""
    try:
        exact = _read_exactly(parsed_exactly(text), kind)
    except ValueError as reason:
        return Outcome(None, str(reason))
    return ours if _agrees(ours.value, exact) else Outcome(exact, None)


def _read_exactly(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {each.name: _read_exactly(_member(value, each.name, kind), each.type) for each in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_read_exactly(each, kind.value_type) for each in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return {name: _read_exactly(each, kind.item_type) for name, each in value.items()}
    return _scalar_exactly(value, kind)


def _scalar_exactly(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool):
        return value if pa.types.is_boolean(kind) else UNKNOWN
    if isinstance(value, Number):
        if kind in INTEGERS or pa.types.is_decimal(kind):
            return Decimal(str(value))
        return float(value) if kind == pa.float64() else UNKNOWN
    if isinstance(value, str) and kind == pa.string():
        return value
    is_day = isinstance(value, str) and kind == pa.date32() and _DAY.fullmatch(value)
    return (dt.date.fromisoformat(value) - dt.date(1970, 1, 1)).days if is_day else UNKNOWN


def _member(value: dict[str, Any], name: str, kind: pa.StructType) -> Any:
    """The member of a column's name, else one of a name that differs from it by case alone."""
    names = {each.name for each in kind}
    others = [each for each in value if each not in names and each.lower() == name.lower()]
    return value[name] if name in value else value[others[-1]] if others else None


def _agrees(found: Any, exact: Any) -> bool:
    if exact is UNKNOWN:
        return True
    if isinstance(exact, dict):
        return isinstance(found, dict) and all(_agrees(found.get(name), each) for name, each in exact.items())
    if isinstance(exact, list):
        return len(found) == len(exact) and all(map(_agrees, found, exact))
    return bool(found == exact)
