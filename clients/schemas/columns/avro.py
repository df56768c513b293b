"""Avro payloads as typed columns. Pure.

Types are those of Spark's `from_avro`: a union with null is nullable, int or long is long, float or double is double,
any other union a struct `member0`, `member1`, …; an enum is a string, a fixed binary. Timestamps have microseconds;
times of day and durations stay the numbers and bytes that they are. fastavro reads them as plain numbers, and Arrow
makes the column's type of them. Rows that the reader's schema itself wrote are read by `avro_fast` where it can.

Source: `org.apache.spark.sql.avro.SchemaConverters`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.avro_values import is_bytes, misfit, parsed_avro, value_type
from stratalog.clients.schemas.columns.avro_fast import FastSchema, read_fast
from stratalog.clients.schemas.columns.reader import ReadValues, values_column
from stratalog.clients.schemas.compatibility import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema, loads

Fit = Callable[[Any], Any]
"""A value of fastavro's in the form that Arrow needs."""

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
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""What the plain number of a logical type is in Arrow."""
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
DECIMAL_DIGITS_MAX = 38
_PYTHON_TYPES = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


class AvroColumns:
    """Columns of the reader's schema, into which Avro resolves what other schemas wrote.

    InvalidSchemaError for a schema that is none, and for a recursive one, which has no column type.
    """

    def __init__(self, reader: ResolvedSchema) -> None:
        shape = _Shape(parsed_avro(reader.schema, reader.references))
        self._built, self._fit, self._has_unions = shape.type, shape.fit, shape.has_unions
        self._own = reader
        self._type = in_microseconds(shape.type)
        self._parsed: dict[ResolvedKey, Any] = {}
        self._reader = self._form(reader)
        self._fast = FastSchema.of(self._reader, self._built)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._type

    @property
    def has_message_indexes(self) -> bool:
        return False

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        """The values of payloads that `writer` wrote."""
        del message_indexes
        form = self._form(writer or self._own)
        if is_bytes(form) and is_bytes(self._reader):
            return ReadValues(payloads.cast(self._type), {})
        read, errors = self._read(payloads, form)
        return ReadValues(read.cast(self._type, safe=False), errors)

    def _read(self, payloads: pa.Array, form: Any) -> ReadValues:
        """The values as they are built, before timestamps have Spark's unit."""
        fast = read_fast(self._fast if form is self._reader else None, payloads)
        if fast is None:
            return self._read_by_row(payloads, form)
        if not len(fast.left):
            return ReadValues(fast.values, {})
        rest = self._read_by_row(payloads.take(pa.array(fast.left)), form)
        order = np.arange(len(payloads))
        order[fast.left] = len(payloads) + np.arange(len(fast.left))
        merged = pa.concat_arrays([fast.values, rest.values]).take(pa.array(order))
        return ReadValues(merged, {int(fast.left[place]): text for place, text in rest.errors.items()})

    def _read_by_row(self, payloads: pa.Array, form: Any) -> ReadValues:
        values, errors = self._values(payloads.to_pylist(), form)
        read, refused = values_column(values, self._built)
        return ReadValues(read, {**errors, **refused})

    def _values(self, payloads: Sequence[bytes | None], form: Any) -> tuple[list[Any], dict[int, str]]:
        reader = None if form is self._reader else self._reader
        values: list[Any] = [None] * len(payloads)
        errors: dict[int, str] = {}
        decode: Any = fastavro.schemaless_reader
        stream, fit, named = io.BytesIO, self._fit, self._has_unions
        for place, payload in enumerate(payloads):
            if payload is None:
                continue
            try:
                value = decode(stream(payload), form, reader, return_named_type=named)["value"]
                values[place] = value if fit is None else fit(value)
            except Exception as reason:  # noqa: BLE001 - fastavro raises whatever its decoding ran into
                errors[place] = misfit(reason)
        return values, errors

    def _form(self, schema: ResolvedSchema) -> Any:
        """fastavro's form of a schema without the logical types that Arrow makes of plain values."""
        key = (schema.schema, tuple(schema.references.items()))
        if key not in self._parsed:
            references = {name: _plain(each) for name, each in schema.references.items()}
            self._parsed[key] = parsed_avro(_plain(schema.schema), references)
        return self._parsed[key]


ResolvedKey = tuple[Schema, tuple[tuple[str, Schema], ...]]


class _Shape:
    """The column type of a parsed schema, and what to do with values of fastavro's before Arrow takes them."""

    def __init__(self, parsed: Any) -> None:
        self._named: Mapping[str, Any] = parsed["__named_schemas"]
        self._open: list[str] = []
        self.has_unions = any(_has_wide_union(each) for each in self._named.values())
        self.type, self.fit = self._of(value_type(parsed))

    def _of(self, node: Any) -> tuple[pa.DataType, Fit | None]:
        if isinstance(node, list):
            return self._union(node)
        if isinstance(node, str):
            return self._of(self._named[node]) if node in self._named else (_PRIMITIVES[node], None)
        kind = node["type"]
        if not isinstance(kind, str):
            return self._of(kind)
        if kind in ("record", "error"):
            return self._record(node)
        if kind == "array":
            items, fit = self._of(node["items"])
            return pa.list_(items), None if fit is None else partial(_fit_list, fit)
        if kind == "map":
            values, fit = self._of(node["values"])
            return pa.map_(pa.string(), values), None if fit is None else partial(_fit_map, fit)
        if kind not in _PRIMITIVES:
            return self._of(kind)
        logical = node.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            if node["precision"] > DECIMAL_DIGITS_MAX:
                raise InvalidSchemaError(
                    f"decimal({node['precision']}) is wider than a column's {DECIMAL_DIGITS_MAX} digits: "
                    "read with a schema that leaves the field out"
                )
            return pa.decimal128(node["precision"], node.get("scale", 0)), None
        return _LOGICAL.get((kind, logical), _PRIMITIVES[kind]), None

    def _record(self, node: Any) -> tuple[pa.DataType, Fit | None]:
        name = node["name"]
        if name in self._open:
            raise InvalidSchemaError(
                f"{name} contains itself, which no column type does: read with a schema that leaves the field out"
            )
        self._open.append(name)
        shapes = {each["name"]: self._of(each["type"]) for each in node["fields"]}
        self._open.pop()
        fits = {field: fit for field, (_, fit) in shapes.items() if fit is not None}

        def fit_record(value: Any) -> Any:
            return value | {field: fit(value[field]) for field, fit in fits.items()}

        return pa.struct([(field, kind) for field, (kind, _) in shapes.items()]), fit_record if fits else None

    def _union(self, branches: Sequence[Any]) -> tuple[pa.DataType, Fit | None]:
        real = [each for each in branches if each != "null"]
        names = frozenset(each for each in real if isinstance(each, str))
        if len(real) <= 1 or (len(names) == len(real) and names in _WIDER):
            only = real[0] if len(real) == 1 else _WIDER.get(names, "null")
            kind, fit = self._of(only)
            if self.has_unions and _name(self._defined(only)) is not None:
                fit = _unwrapped(fit)
            return kind, None if fit is None else partial(_fit_nullable, fit)
        members = [(f"member{place}", *self._of(each), self._test(each)) for place, each in enumerate(real)]

        def fit_union(value: Any) -> Any:
            for member, _, fit, test in members:
                if value is not None and test(value):
                    inner = value[1] if isinstance(value, tuple) else value
                    return {member: inner if fit is None else fit(inner)}
            return None

        return pa.struct([(member, kind) for member, kind, _, _ in members]), fit_union

    def _test(self, branch: Any) -> Callable[[Any], bool]:
        """Whether a value is of the branch: of a named type fastavro gives the name and the value."""
        node = self._defined(branch)
        name = _name(node)
        if name is not None:
            return lambda value: isinstance(value, tuple) and value[0] == name
        python = _PYTHON_TYPES[node if isinstance(node, str) else node["type"]]
        return lambda value: type(value) is python

    def _defined(self, branch: Any) -> Any:
        return self._named.get(branch, branch) if isinstance(branch, str) else branch


def _fit_list(fit: Fit, value: Any) -> Any:
    return [fit(each) for each in value]


def _fit_map(fit: Fit, value: Any) -> Any:
    return {key: fit(each) for key, each in value.items()}


def _fit_nullable(fit: Fit, value: Any) -> Any:
    return None if value is None else fit(value)


def _name(node: Any) -> str | None:
    """The name of a record, enum or fixed."""
    return node.get("name") if isinstance(node, dict) else None


def _unwrapped(fit: Fit | None) -> Fit:
    def fit_named(value: Any) -> Any:
        inner = value[1] if isinstance(value, tuple) else value
        return inner if fit is None else fit(inner)

    return fit_named


def _has_wide_union(node: Any) -> bool:
    """Whether a union has more than one type besides null: fastavro is then asked for the names of values."""
    if isinstance(node, list):
        return len([each for each in node if each != "null"]) > 1 or any(map(_has_wide_union, node))
    if not isinstance(node, dict):
        return False
    inside = [each["type"] for each in node.get("fields", ())]
    return any(map(_has_wide_union, [node.get("type"), node.get("items"), node.get("values"), *inside]))


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with timestamps in microseconds, as Spark has them."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, in_microseconds(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, in_microseconds(kind.item_type))
    return pa.list_(in_microseconds(kind.value_type)) if pa.types.is_list(kind) else kind


def _plain(schema: Schema) -> Schema:
    return Schema(json.dumps(_without_logical(loads(schema))), schema.type, schema.references)


def _without_logical(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_logical(each) for each in node]
    if not isinstance(node, dict):
        return node
    dropped = "type" in node and node.get("logicalType") != "decimal"
    return {name: _without_logical(each) for name, each in node.items() if not (dropped and name == "logicalType")}
