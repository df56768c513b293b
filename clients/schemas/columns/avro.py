"""Avro payloads as typed columns. Pure.

Types are those of Spark's `from_avro`: a union with null is nullable, int or long is long, float or double is double,
any other union a struct `member0`, `member1`, …; an enum is a string, a fixed binary. Timestamps have microseconds:
nanoseconds are rounded down to them. Times of day and durations stay the numbers and bytes that they are. Rows that the
reader's schema itself wrote are read by `avro_fast` where it can, all others one by one by `avro_binary`.

Source: `org.apache.spark.sql.avro.SchemaConverters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.avro_binary.decoding import AvroMisfitError, AvroReading, Convert
from stratalog.clients.schemas.avro_values import avro_type, decimal_of, misfit
from stratalog.clients.schemas.columns.avro_fast import FastSchema, read_fast
from stratalog.clients.schemas.columns.reader import Meanings, ReadValues, values_column
from stratalog.clients.schemas.compatibility.avro import AvroType
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_INSTANT, _LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
DECIMAL_DIGITS_MAX = 38
MICROS_OF_MILLI, NANOS_OF_MICRO = 1_000, 1_000
_MILLIS_LIMIT = (2**63 - 1) // MICROS_OF_MILLI


class AvroColumns:
    """Columns of the reader's schema, into which Avro resolves what other schemas wrote.

    InvalidSchemaError for a schema that is none, and for a recursive one, which has no column type.
    """

    def __init__(self, reader: ResolvedSchema) -> None:
        self._own = reader
        self._reader = avro_type(reader.schema, reader.references)
        self._type = _column_type(self._reader, ())
        self._fast = FastSchema.of(self._reader, self._type)
        self._readings: dict[ResolvedKey, tuple[AvroType, AvroReading]] = {}

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._type

    @property
    def meanings(self) -> Meanings:
        """The types of a union's members, and the units of times of day."""
        found: dict[tuple[str, ...], frozenset[str]] = {}
        _add_meanings(self._reader, (), found)
        return found

    @property
    def has_message_indexes(self) -> bool:
        return False

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        """The values of payloads that `writer` wrote."""
        del message_indexes
        written, reading = self._reading(writer or self._own)
        if is_plain_bytes(written) and is_plain_bytes(self._reader):
            return ReadValues(payloads.cast(self._type), {})
        fast = read_fast(self._fast if written is self._reader else None, payloads)
        if fast is None:
            return self._row_by_row(payloads, reading)
        if not len(fast.left):
            return ReadValues(fast.values, {})
        rest = self._row_by_row(payloads.take(pa.array(fast.left)), reading)
        order = np.arange(len(payloads))
        order[fast.left] = len(payloads) + np.arange(len(fast.left))
        merged = pa.concat_arrays([fast.values, rest.values]).take(pa.array(order))
        return ReadValues(merged, {int(fast.left[place]): text for place, text in rest.errors.items()})

    def _row_by_row(self, payloads: pa.Array, reading: AvroReading) -> ReadValues:
        values: list[Any] = [None] * len(payloads)
        errors: dict[int, str] = {}
        for place, payload in enumerate(payloads.to_pylist()):
            if payload is None:
                continue
            try:
                values[place] = reading.value(payload)
            except AvroMisfitError as reason:
                errors[place] = misfit(reason)
        read, refused = values_column(values, self._type)
        return ReadValues(read, {**errors, **refused})

    def _reading(self, writer: ResolvedSchema) -> tuple[AvroType, AvroReading]:
        key = (writer.schema, tuple(writer.references.items()))
        if key not in self._readings:
            is_own = key == (self._own.schema, tuple(self._own.references.items()))
            written = self._reader if is_own else avro_type(writer.schema, writer.references)
            self._readings[key] = written, AvroReading(written, self._reader, _ColumnForms())
        return self._readings[key]


ResolvedKey = tuple[Schema, tuple[tuple[str, Schema], ...]]


class _ColumnForms:
    """Plain values in the form that Arrow needs."""

    def value(self, node: AvroType) -> Convert | None:
        if node.logical == "decimal":
            return partial(decimal_of, precision=node.precision, scale=node.scale)
        if node.logical.endswith("timestamp-millis"):
            return _micros_of_millis
        return _micros_of_nanos if node.logical.endswith("timestamp-nanos") else None

    def member(self, union: AvroType, place: int) -> tuple[AvroType, Convert | None]:
        branch = union.branches[place]
        real = real_branches(union)
        if branch.type == "null" or len(real) == 1:
            return branch, None
        number = one_number(real)
        if number is not None:
            return AvroType(number), None
        name = f"member{sum(each.type != 'null' for each in union.branches[:place])}"
        return branch, lambda value: {name: value}


def real_branches(union: AvroType) -> list[AvroType]:
    """The types of a union without null."""
    return [each for each in union.branches if each.type != "null"]


def one_number(branches: Sequence[AvroType]) -> str | None:
    """The type of the column of a union of int and long, or float and double; None for other unions."""
    return _WIDER.get(frozenset(each.type for each in branches)) if len(branches) == 2 else None


def is_plain_bytes(node: AvroType) -> bool:
    """Whether payloads stand for themselves, as in Confluent's serializers."""
    return node.type == "bytes" and not node.logical


def _micros_of_millis(millis: int) -> int:
    if abs(millis) > _MILLIS_LIMIT:
        raise AvroMisfitError(f"{millis} ms are beyond the microseconds of 64 bits")
    return millis * MICROS_OF_MILLI


def _micros_of_nanos(nanos: int) -> int:
    return nanos // NANOS_OF_MICRO


def _column_type(node: AvroType, around: tuple[str, ...]) -> pa.DataType:
    if node.type == "union":
        return _union_type(node, around)
    if node.type == "record":
        if node.name in around:
            raise InvalidSchemaError(
                f"{node.name} contains itself, which no column type does: read with a schema that leaves the field out"
            )
        return pa.struct([(each.name, _column_type(each.type, (*around, node.name))) for each in node.fields])
    if node.type == "array":
        return pa.list_(_column_type(node.branches[0], around))
    if node.type == "map":
        return pa.map_(pa.string(), _column_type(node.branches[0], around))
    if node.logical == "decimal":
        if node.precision > DECIMAL_DIGITS_MAX:
            raise InvalidSchemaError(
                f"decimal({node.precision}) is wider than a column's {DECIMAL_DIGITS_MAX} digits: "
                "read with a schema that leaves the field out"
            )
        return pa.decimal128(node.precision, node.scale)
    if node.logical == "date":
        return pa.date32()
    if "timestamp-" in node.logical:
        return _LOCAL_TIME if node.logical.startswith("local-") else _INSTANT
    return _PRIMITIVES[node.type]


def _union_type(union: AvroType, around: tuple[str, ...]) -> pa.DataType:
    real = real_branches(union)
    if not real:
        return pa.null()
    if len(real) == 1:
        return _column_type(real[0], around)
    number = one_number(real)
    if number is not None:
        return _PRIMITIVES[number]
    return pa.struct([(f"member{place}", _column_type(each, around)) for place, each in enumerate(real)])


def _add_meanings(node: AvroType, path: tuple[str, ...], found: dict[tuple[str, ...], frozenset[str]]) -> None:
    if node.logical.startswith("time-"):
        found[path] = frozenset({node.logical})
    elif node.type == "record":
        for each in node.fields:
            _add_meanings(each.type, (*path, each.name), found)
    elif node.type in ("array", "map"):
        _add_meanings(node.branches[0], (*path, "element" if node.type == "array" else "value"), found)
    elif node.type == "union":
        real = real_branches(node)
        if len(real) == 1:
            _add_meanings(real[0], path, found)
        elif one_number(real) is None:
            for place, branch in enumerate(real):
                member = (*path, f"member{place}")
                found[member] = _names_of(branch)
                _add_meanings(branch, member, found)


def _names_of(branch: AvroType) -> frozenset[str]:
    """What a branch of a union is, as far as the type of its column does not say it. Names count as for a reader."""
    if branch.logical and branch.logical != "uuid":
        return frozenset({"a number"})
    if branch.name:
        return frozenset({branch.simple_name, *(each.rpartition(".")[2] for each in branch.aliases)})
    return frozenset({"a number" if branch.type in ("int", "long", "float", "double") else branch.type})
