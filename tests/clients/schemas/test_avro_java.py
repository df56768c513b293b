"""Columns of random Avro schemas have what Avro's Java reader reads, or an error that says why.

`make oracle` recorded Java's answers; the long test asks Java itself.
"""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from decimal import Context, Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.avro_fast import ROWS_MIN
from stratalog.clients.schemas.compatibility import ResolvedSchema
from stratalog.clients.schemas.schema import Schema
from tests.clients.schemas.oracle.__main__ import RECORDED, RECORDED_SEED, answered, recorded_values
from tests.clients.schemas.oracle.avro_questions import Json, Question, questions

PER_MICRO = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}


NOTHING = object()


class NoColumnValueError(Exception):
    """A value of Java's that a column does not hold."""


def column_value(node: Json, shown: Json) -> Any:
    """What a column of a schema has for a value as the Java program shows it; times as microseconds, dates as days."""
    if isinstance(node, list):
        return _of_union(node, shown)
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        return {each["name"]: column_value(each["type"], shown[each["name"]]) for each in node["fields"]}
    if kind == "array":
        return [column_value(node["items"], each) for each in shown]
    if kind == "map":
        return {key: column_value(node["values"], shown[key]) for key in sorted(shown)}
    logical = "" if isinstance(node, str) else node.get("logicalType", "")
    if logical == "decimal":
        return _decimal(bytes.fromhex(shown), node["precision"], node["scale"])
    if "timestamp-" in logical:
        times, parts = PER_MICRO[logical.rpartition("-")[2]]
        micros = shown * times // parts
        if not -(2**63) <= micros < 2**63:
            raise NoColumnValueError
        return micros
    if kind in ("bytes", "fixed"):
        return bytes.fromhex(shown)
    if kind == "float":
        return struct.unpack(">f", bytes.fromhex(shown))[0]
    return struct.unpack(">d", bytes.fromhex(shown))[0] if kind == "double" else shown


def _decimal(data: bytes, precision: int, scale: int) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    if not data or abs(unscaled) >= 10**precision:
        raise NoColumnValueError
    return Decimal(unscaled).scaleb(-scale, Context(prec=100))


def _of_union(branches: Sequence[Json], shown: Json) -> Any:
    kinds = [each if isinstance(each, str) else each["type"] for each in branches]
    place, value = shown["branch"], shown["value"]
    if kinds[place] == "null":
        return None
    real = [number for number, kind in enumerate(kinds) if kind != "null"]
    if len(real) == 1:
        return column_value(branches[place], value)
    if {kinds[number] for number in real} in ({"int", "long"}, {"float", "double"}) and len(real) == 2:
        return column_value(kinds[place], value)
    members: dict[str, Any] = {f"member{number}": None for number in range(len(real))}
    return members | {f"member{real.index(place)}": column_value(branches[place], value)}


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column, with numbers for times: Python's own types of times have less years."""
    kind, missing = column.type, column.is_null().to_pylist()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values: list[Any] = column.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).to_pylist()
        return values
    if pa.types.is_struct(kind):
        parts = [values_of(each) for each in column.flatten()]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return [None if is_null else dict(zip(kind.names, row, strict=True))
                for is_null, row in zip(missing, rows, strict=True)]  # fmt: skip
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return list(column.to_pylist())
    ends = column.offsets.to_pylist()
    spans = list(zip(missing, ends, ends[1:], strict=False))
    if pa.types.is_list(kind):
        items = values_of(column.values)
        return [None if is_null else items[start:end] for is_null, start, end in spans]
    entries = list(zip(column.keys.to_pylist(), values_of(column.items), strict=True))
    return [None if is_null else dict(sorted(entries[start:end], key=itemgetter(0))) for is_null, start, end in spans]


def read(asked: Question, count: int) -> tuple[Any, str | None]:
    """The value and the error of the payload in a column of `count` times the same."""
    writer, reader = (ResolvedSchema(Schema(json.dumps(each))) for each in (asked.writer, asked.reader))
    columns = AvroColumns(reader)
    found = columns.read(pa.array([bytes.fromhex(asked.payload)] * count, pa.binary()), writer)
    assert set(found.errors) in (set(), set(range(count)))
    return values_of(found.values)[count - 1], found.errors.get(0)


def verdict(asked: Question, answer: Json, count: int) -> str:
    """`same`, `error` where Java has none, `both` for errors of both; anything else is a value that was altered."""
    value, error = read(asked, count)
    wanted: Any = NOTHING
    if "value" in answer:
        with suppress(NoColumnValueError):
            wanted = column_value(asked.reader, answer["value"])
    if error is not None:
        assert value is None
        return "both" if wanted is NOTHING else "error"
    return "same" if repr(value) == repr(wanted) else f"{value!r}, not {wanted!r} of {answer}"


def assert_judged(asked: Sequence[Question], answers: Sequence[Json], *, at_once: int) -> None:
    """All are as Java has them; every `at_once`-th also in a column that is read for all rows at once."""
    verdicts: Counter[str] = Counter()
    for number, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        if "refused" in answer or question.writer == question.reader == "bytes":
            continue  # the bytes of a schema that is bytes stand for themselves, as in Confluent's serializers
        found = verdict(question, answer, 1)
        assert found in ("same", "error", "both"), question
        if number % at_once == 0:
            assert verdict(question, answer, 2 * ROWS_MIN) == found, question
        verdicts[found] += 1
    assert sum(verdicts.values()) > 0.9 * len(asked)
    assert verdicts["same"] > 0.7 * len(asked)
    assert verdicts["error"] < 0.05 * len(asked), "damaged bytes that Java takes, and times of another unit"


def test_columns_have_what_avros_java_reader_reads() -> None:
    assert_judged(list(questions(RECORDED_SEED, RECORDED)), recorded_values(), at_once=7)


@pytest.mark.long
def test_columns_of_10_000_random_schemas_have_what_java_reads() -> None:
    asked = list(questions(random.randrange(2**32), 10_000))
    assert_judged(asked, answered([each._asdict() for each in asked], "AvroValues"), at_once=3)
