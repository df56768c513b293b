"""Typed columns as binary columns in Confluent's wire format. Pure.

A value is a struct, or whatever else the schema is, in the types that the reader makes of the same schema. Null becomes
null. Of a union of several Avro types the member is written that is not null. Fields of a JSON object that are null are
left out, since most schemas demand another type where there is one; entries of a map stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro, value_type
from stratalog.clients.schemas.compatibility import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.protobuf_messages import messages_of
from stratalog.clients.schemas.schema import SchemaType
from stratalog.clients.schemas.wire_format import FIRST_MESSAGE, SchemaId
from stratalog.storage.errors import SerializationError

Encode = Callable[[Any], bytes]
Fit = Callable[[Any], Any]
_SAME_COLUMN = ({"int", "long"}, {"float", "double"})
"""Unions whose values have one type as a column."""


class ColumnWriter:
    """Writes values with one registered schema.

    schema_id  None: the id is in a header, and no prefix stands before the payload
    message    the full name of a Protobuf message, the file's first if None. InvalidSchemaError if the file lacks it.
    """

    def __init__(self, schema_id: int | None, schema: ResolvedSchema, message: str | None = None) -> None:
        indexes = None
        self._is_json = schema.schema.type == SchemaType.JSON
        if schema.schema.type == SchemaType.AVRO:
            self._encode = _avro(schema)
        elif self._is_json:
            self._encode = _encode_json
        else:
            indexes, self._encode = _protobuf(schema, message)
        self.message_indexes = indexes
        """Of a Protobuf message within its file."""
        self._prefix = b"" if schema_id is None else SchemaId(id=schema_id, message_indexes=indexes).id_prefix()

    def write(self, values: pa.Array) -> pa.Array:
        """The bytes of each value. SerializationError for one that the schema does not hold."""
        prefix, encode = self._prefix, self._encode
        rows = values.to_pylist(maps_as_pydicts="strict")
        if self._is_json:
            rows = [_without_nulls(values.type, value) for value in rows]
        found = [None if value is None else prefix + encode(value) for value in rows]
        return pa.array(found, pa.binary())


def _avro(schema: ResolvedSchema) -> Encode:
    avro = AvroSchema.of(schema.schema, schema.references)
    fit = _Unions(avro.parsed["__named_schemas"]).fit(value_type(avro.parsed))
    return lambda value: encode_avro(avro, value if fit is None else fit(value))


class _Unions:
    """What to do with values before fastavro writes them: of unions it gets the name of the type with the value."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []

    def fit(self, node: Any) -> Fit | None:
        """The function for values of a type; None where there is nothing to do."""
        if isinstance(node, list):
            return self._of_union(node)
        if isinstance(node, str):
            return self.fit(self._named[node]) if node in self._named and node not in self._open else None
        kind = node["type"]
        if kind in ("record", "error"):
            return self._of_record(node)
        if kind == "array":
            item = self.fit(node["items"])
            return None if item is None else _nullable(lambda value: [item(each) for each in value])
        if kind == "map":
            part = self.fit(node["values"])
            return None if part is None else _nullable(lambda value: {name: part(each) for name, each in value.items()})
        return self.fit(kind) if not isinstance(kind, str) or kind in self._named else None

    def _of_record(self, node: Any) -> Fit | None:
        self._open.append(node["name"])
        found = {each["name"]: self.fit(each["type"]) for each in node["fields"]}
        self._open.pop()
        fits = {name: fit for name, fit in found.items() if fit is not None}

        def fit_record(value: Any) -> Any:
            return value | {name: fit(value[name]) for name, fit in fits.items() if name in value}

        return _nullable(fit_record) if fits else None

    def _of_union(self, branches: Sequence[Any]) -> Fit | None:
        real = [each for each in branches if each != "null"]
        if len(real) < 2:
            return self.fit(real[0]) if real else None
        if {each["type"] if isinstance(each, dict) else each for each in real} in _SAME_COLUMN and len(real) == 2:
            return None
        members = [(f"member{place}", _branch_name(each), self.fit(each)) for place, each in enumerate(real)]

        def fit_union(value: Any) -> Any:
            for member, name, fit in members:
                if (inner := value.get(member)) is not None:
                    return name, inner if fit is None else fit(inner)
            return None

        return _nullable(fit_union)


def _branch_name(branch: Any) -> str:
    """How fastavro names a type of a union."""
    return str(branch.get("name") or branch["type"]) if isinstance(branch, dict) else str(branch)


def _nullable(fit: Fit) -> Fit:
    return lambda value: None if value is None else fit(value)


def _encode_json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as reason:
        raise SerializationError(f"the value has no JSON form: {reason}; make a string of it before") from reason


def _without_nulls(kind: pa.DataType, value: Any) -> Any:
    """A value of a type without the fields that are null."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = ((each.name, each.type, value[each.name]) for each in kind)
        return {name: _without_nulls(inner, each) for name, inner, each in fields if each is not None}
    if pa.types.is_map(kind):
        return {key: _without_nulls(kind.item_type, each) for key, each in value.items()}
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return [_without_nulls(kind.value_type, each) for each in value] if is_list else value


def _protobuf(schema: ResolvedSchema, message: str | None) -> tuple[tuple[int, ...], Encode]:
    types = messages_of(schema.schema, schema.references)
    names = {each.DESCRIPTOR.full_name: indexes for indexes, each in types.items()}
    if message is not None and message not in names:
        raise InvalidSchemaError(f"the file has no message {message}; it has {', '.join(names)}")
    indexes = FIRST_MESSAGE if message is None else names[message]
    made = types[indexes]

    def encode(value: Any) -> bytes:
        try:
            return bytes(made(**_for_protobuf(value)).SerializeToString())
        except (TypeError, ValueError, AttributeError) as reason:
            raise SerializationError(f"the value does not fit {made.DESCRIPTOR.full_name}: {reason}") from reason

    return indexes, encode


def _for_protobuf(value: Any) -> Any:
    """Absent fields instead of null ones; whole numbers for unsigned ones of 64 bits."""
    if isinstance(value, dict):
        return {name: _for_protobuf(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_for_protobuf(each) for each in value]
    return int(value) if isinstance(value, Decimal) else value
