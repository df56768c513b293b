"""Values as Avro's Java reader gives them beside those of Arrow columns, as plain Python values. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

from tests.clients.schemas.oracle.avro_questions import Json

PER_MICRO = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}


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
    """The values of a column, with numbers for times, as Python's own types have less years; others than we may have
    strings that are no UTF-8."""
    kind, missing = column.type, column.is_null().to_pylist()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values: list[Any] = column.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).to_pylist()
        return values
    if pa.types.is_time64(kind):
        return list(column.cast(pa.time64("us")).cast(pa.int64()).to_pylist())
    if pa.types.is_struct(kind):
        parts = [values_of(each) for each in column.flatten()]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return [None if is_null else dict(zip(kind.names, row, strict=True))
                for is_null, row in zip(missing, rows, strict=True)]  # fmt: skip
    if pa.types.is_string(kind):
        texts = column.cast(pa.binary()).to_pylist()
        return [None if each is None else each.decode(errors="surrogateescape") for each in texts]
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return list(column.to_pylist())
    ends = column.offsets.to_pylist()
    spans = list(zip(missing, ends, ends[1:], strict=False))
    if pa.types.is_list(kind):
        items = values_of(column.values)
        return [None if is_null else items[start:end] for is_null, start, end in spans]
    entries = list(zip(values_of(column.keys), values_of(column.items), strict=True))
    return [None if is_null else dict(sorted(entries[start:end], key=itemgetter(0))) for is_null, start, end in spans]
