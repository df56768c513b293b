"""Columns of random pairs of Avro schemas beside Avro's Java reader and Spark's `from_avro`. I/O: Java, Spark.

A row is read among others of its schemas, some of them damaged: in columns of 4 rows one by one, in those of 40 rows
all at once where that can be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, NullType, StructField, StructType

from stratalog import Schema, SchemaRegistryClient, from_registry
from stratalog.clients.schemas.columns.avro_fast import ROWS_MIN
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.wire_format import SchemaId
from tests.clients.schemas.oracle.__main__ import answered
from tests.clients.schemas.oracle.avro_questions import Json, payload_of, questions
from tests.clients.schemas.oracle.java_values import NoColumnValueError, column_value, values_of
from tests.lab.differential.values.known import JAVA_AVRO, SPARK_AVRO, Outcome, Tally, shape_of

ROWS, ROWS_AT_ONCE = 4, ROWS_MIN + 8
CASES_A_QUERY = 60
BYTES_ALONE = "not compared: bytes of a schema that is bytes stand for themselves, as in Confluent's serializers"
_OPTIONS = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}


class AvroCase(NamedTuple):
    """A pair of schemas, and payloads of the writer's."""

    number: int
    writer: Json
    reader: Json
    payloads: tuple[bytes, ...]


def drawn(seed: int, count: int) -> list[AvroCase]:
    found = []
    for number, asked in enumerate(questions(seed, count)):
        rng = Random(f"{seed} {number} more")
        more = (ROWS_AT_ONCE if number % 5 == 0 else ROWS) - 1
        payloads = (bytes.fromhex(asked.payload), *(payload_of(rng, asked.writer) for _ in range(more)))
        found.append(AvroCase(number, asked.writer, asked.reader, payloads))
    return found


def registered(cases: Sequence[AvroCase]) -> dict[str, Any]:
    """The answers of a registry whose ids are the numbers of cases."""
    return {f"GET /schemas/ids/{each.number}": (200, {"schema": json.dumps(each.writer)}) for each in cases}


def judge(spark: SparkSession, registry: SchemaRegistryClient, cases: Sequence[AvroCase], tally: Tally) -> None:
    """Count what the columns of the cases have, and what the judges read."""
    asked = [
        {"writer": each.writer, "reader": each.reader, "payload": payload.hex()}
        for each in cases
        for payload in each.payloads
    ]
    answers = iter(answered(asked, "AvroValues"))
    by_java = {each.number: [next(answers) for _ in each.payloads] for each in cases}
    for rows in (ROWS, ROWS_AT_ONCE):
        alike = [each for each in cases if len(each.payloads) == rows]
        for start in range(0, len(alike), CASES_A_QUERY):
            _judge_query(spark, registry, alike[start : start + CASES_A_QUERY], by_java, tally)


def _judge_query(
    spark: SparkSession,
    registry: SchemaRegistryClient,
    cases: Sequence[AvroCase],
    by_java: dict[int, list[Json]],
    tally: Tally,
) -> None:
    frame = _frame(spark, cases)
    columns: list[Column] = []
    for case in cases:
        n = case.number
        try:
            columns.append(from_registry(f"framed{n}", registry, Schema(json.dumps(case.reader))).alias(f"ours{n}"))
        except InvalidSchemaError as reason:
            refused = by_java[n][0].get("refused")
            tally.judge(
                JAVA_AVRO, Outcome(None, f"the schema: {reason}"), Outcome(None, refused), f"case {n}: {case.reader}"
            )
            continue
        options = {**_OPTIONS, "avroSchema": json.dumps(_as_field(case.reader))}
        theirs = from_avro(f"bare{n}", json.dumps(_as_field(case.writer)), options)["value"].alias(f"spark{n}")
        try:
            frame.select(theirs).schema  # noqa: B018 - an error of Spark's analysis
        except PySparkException as reason:
            tally.count(SPARK_AVRO, f"schema refused: {shape_of(str(reason))}")
        else:
            columns.append(theirs)
    read = frame.select("place", *columns)
    found = read.select(*map(without_nulls, read.schema)).toArrow().sort_by("place").combine_chunks()
    for case in cases:
        if f"ours{case.number}" in found.column_names:
            for place, outcomes in enumerate(_outcomes(found, case)):
                ours, by_spark = outcomes
                shown = f"{case.payloads[place].hex()} of {json.dumps(case.writer)} as {json.dumps(case.reader)}"
                label = f"case {case.number}, row {place}: {shown}"
                if case.writer == case.reader == "bytes":
                    tally.count(JAVA_AVRO, BYTES_ALONE)
                    continue
                tally.judge(JAVA_AVRO, ours, java_outcome(case.reader, by_java[case.number][place]), label)
                if by_spark is not None:
                    tally.judge(SPARK_AVRO, ours, by_spark, label)


def _as_field(node: Json) -> Json:
    """A record with a schema as its only field, which has the same bytes. Spark reads no union with records otherwise,
    and a null of one with null as the value of the row before."""
    return {"type": "record", "name": "judge.Row", "fields": [{"name": "value", "type": node}]}


def without_nulls(column: StructField) -> Column:
    """A column with booleans for the type of nulls, whose values within lists Spark's `toArrow` does not count."""
    name = sf.col(column.name)
    return name.cast(_typed(column.dataType)).alias(column.name)


def _typed(kind: DataType) -> DataType:
    match kind:
        case NullType():
            return BooleanType()
        case ArrayType():
            return ArrayType(_typed(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _typed(kind.valueType))
        case StructType():
            return StructType([StructField(each.name, _typed(each.dataType)) for each in kind])
    return kind


def _frame(spark: SparkSession, cases: Sequence[AvroCase]) -> DataFrame:
    """A column of payloads alone and one in Confluent's wire format for each case."""
    columns: dict[str, pa.Array] = {"place": pa.array(range(len(cases[0].payloads)), pa.int32())}
    for case in cases:
        prefix = SchemaId(case.number).id_prefix()
        columns[f"bare{case.number}"] = pa.array(case.payloads, pa.binary())
        columns[f"framed{case.number}"] = pa.array([prefix + each for each in case.payloads], pa.binary())
    return spark.createDataFrame(pa.table(columns))


def _outcomes(found: pa.Table, case: AvroCase) -> Iterator[tuple[Outcome, Outcome | None]]:
    """Ours of each row, and Spark's, None if it has none."""
    values, _, errors = _array(found, f"ours{case.number}").flatten()
    name = f"spark{case.number}"
    by_spark = None
    if name in found.column_names:
        by_spark = [as_ours(case.reader, each) for each in values_of(_array(found, name))]
    for place, (value, error) in enumerate(zip(values_of(values), errors.to_pylist(), strict=True)):
        assert error is None or value is None
        spark_outcome = None
        if by_spark is not None:
            spark_outcome = Outcome(by_spark[place], "a null" if by_spark[place] is None else None)
        yield Outcome(value, error), spark_outcome


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def java_outcome(reader: Json, answer: Json) -> Outcome:
    if "value" not in answer:
        return Outcome(None, answer.get("error") or answer["refused"])
    try:
        return Outcome(column_value(reader, answer["value"]), None)
    except NoColumnValueError:
        return Outcome(None, "no value of a column")


def as_ours(node: Json, value: Any) -> Any:
    """A value of Spark's as our columns have it: nanoseconds are a number there, and a time of day a time."""
    if value is None:
        return None
    if isinstance(node, list):
        real = [each for each in node if each != "null"]
        if len(real) == 1:
            return as_ours(real[0], value)
        if not isinstance(value, dict):
            return value
        return {name: as_ours(real[int(name.removeprefix("member"))], each) for name, each in value.items()}
    if isinstance(node, str):
        return value
    match node["type"]:
        case "record":
            return {each["name"]: as_ours(each["type"], value[each["name"]]) for each in node["fields"]}
        case "array":
            return [as_ours(node["items"], each) for each in value]
        case "map":
            return {key: as_ours(node["values"], each) for key, each in value.items()}
    return value // 1_000 if node.get("logicalType", "").endswith("timestamp-nanos") else value
