"""Columns that have grown from one Avro schema to another: each value is that of its own schema. I/O: Java.

Both schemas have the same fields, whose types are of one family: int and long, dates and times without a zone, decimals
of different digits. Rows of both are read into columns that hold both, as a typed table reads them; Avro's Java reader
reads each by its own schema alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Context, Decimal
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from stratalog import Schema
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.typed_tables.config import ValueFormat
from stratalog.clients.typed_tables.rows.evolution import folded
from stratalog.clients.typed_tables.rows.reading import ReadPlan, columns_of, read_batch, replanned
from tests.clients.schemas.oracle.__main__ import answered
from tests.clients.schemas.oracle.avro_questions import Json, payload_of
from tests.clients.schemas.oracle.java_values import values_of
from tests.lab.differential.values.avro import java_outcome
from tests.lab.differential.values.known import GROWN, Outcome, Tally

ROWS = 12
_MICROS_OF_DAY, _EXACT = 86_400_000_000, Context(prec=100)


def _logical(kind: str, logical: str, **digits: int) -> Json:
    return {"type": kind, "logicalType": logical, **digits}


FAMILIES: list[list[Json]] = [
    ["int", "long", _logical("int", "time-millis")],
    ["float", "double", "int"],
    [_logical("int", "date"), *(_logical("long", f"local-timestamp-{unit}") for unit in ("millis", "micros", "nanos"))],
    [_logical("long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos")],
    [_logical("bytes", "decimal", precision=p, scale=s) for p, s in ((4, 4), (12, 2), (9, 0), (20, 10))] + ["int"],
    ["string", "boolean", "bytes", "null"],
]


class GrowthCase(NamedTuple):
    """Two schemas of one table, and payloads of each."""

    number: int
    schemas: tuple[Json, Json]
    payloads: tuple[tuple[bytes, ...], tuple[bytes, ...]]


def drawn(seed: int, count: int) -> list[GrowthCase]:
    found = []
    for number in range(count):
        draw = Random(f"{seed} growth {number}")
        schemas = _pair(draw)
        first, second = (tuple(payload_of(draw, each) for _ in range(ROWS)) for each in schemas)
        found.append(GrowthCase(number, schemas, (first, second)))
    return found


def _pair(draw: Random) -> tuple[Json, Json]:
    pairs = {f"f{n}": _types(draw, 2) for n in range(draw.randint(1, 4))}
    one, other = (
        [{"name": name, "type": pair[side]} for name, pair in pairs.items() if side == 0 or draw.random() < 0.8]
        for side in (0, 1)
    )
    if draw.random() < 0.4:
        other.append({"name": "later", "type": "string"})
    draw.shuffle(other)
    return {"type": "record", "name": "R", "fields": one}, {"type": "record", "name": "R", "fields": other}


def _types(draw: Random, depth: int) -> tuple[Json, Json]:
    """The types of a field in two schemas."""
    made = draw.randrange(8) if depth else 7
    if made < 4:
        one, other = _types(draw, depth - 1)
        match made:
            case 0:
                return {"type": "array", "items": one}, {"type": "array", "items": other}
            case 1:
                return {"type": "map", "values": one}, {"type": "map", "values": other}
            case 2 if "null" not in (one, other) and not isinstance(one, list) and not isinstance(other, list):
                return ["null", one], draw.choice([other, [other, "null"]])
        return _inner(draw, one), _inner(draw, other)
    family = draw.choice(FAMILIES)
    return draw.choice(family), draw.choice(family)


def _inner(draw: Random, kind: Json) -> Json:
    return {"type": "record", "name": f"In{draw.getrandbits(40)}", "fields": [{"name": "a", "type": kind}]}


def judge(cases: Sequence[GrowthCase], tally: Tally) -> None:
    """Count what columns have that hold both schemas of a case, and what each schema's own bytes say."""
    asked = [
        {"writer": schema, "reader": schema, "payload": payload.hex()}
        for each in cases
        for schema, payloads in zip(each.schemas, each.payloads, strict=True)
        for payload in payloads
    ]
    answers = iter(answered(asked, "AvroValues"))
    for case in cases:
        by_java = [
            java_outcome(schema, next(answers))
            for schema, payloads in zip(case.schemas, case.payloads, strict=True)
            for _ in payloads
        ]
        _judge_case(case, by_java, tally)


def _judge_case(case: GrowthCase, by_java: Sequence[Outcome], tally: Tally) -> None:
    resolved = {n: ResolvedSchema(Schema(json.dumps(each))) for n, each in enumerate(case.schemas)}
    plan = replanned(ReadPlan(ValueFormat.AVRO, pa.struct([])), pa.struct([]), dict(resolved)).plan
    own = [columns_of(each, ValueFormat.AVRO, "").arrow_type for each in resolved.values()]
    framed = [SchemaId(n).id_prefix() + each for n, payloads in enumerate(case.payloads) for each in payloads]
    read = read_batch(plan, pa.array(framed, pa.binary()), None)
    assert read.unplanned is None
    for place, ours in enumerate(map(Outcome, values_of(read.values), read.errors.to_pylist())):
        theirs, kind = by_java[place], own[place // ROWS]
        if theirs.error is None:
            theirs = Outcome(grown(theirs.value, kind, plan.type), None)
        about = (
            f"growth {case.number}, row {place}: {framed[place][5:].hex()} of {json.dumps(case.schemas[place // ROWS])}"
        )
        tally.judge(GROWN, ours, theirs, f"{about} in {plan.type}")


def grown(value: Any, own: pa.DataType, kind: pa.DataType) -> Any:
    """A value of its schema's own column type in a type that has grown from it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        parts = {folded(each.name): each for each in own}
        given = {folded(name): each for name, each in value.items()}
        return {
            each.name: grown(given[folded(each.name)], parts[folded(each.name)].type, each.type)
            if folded(each.name) in given
            else None
            for each in kind
        }
    if pa.types.is_list(kind):
        return [grown(each, own.value_type, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {name: grown(each, own.item_type, kind.item_type) for name, each in value.items()}
    if pa.types.is_timestamp(kind) and pa.types.is_date(own):
        return value * _MICROS_OF_DAY
    if pa.types.is_decimal(kind):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return float(value) if pa.types.is_floating(kind) else value
