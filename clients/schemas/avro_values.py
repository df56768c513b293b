"""Avro schemas and values as fastavro has them. Pure."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from stratalog.clients.schemas.avro_binary.checks import Check, check_of
from stratalog.clients.schemas.avro_binary.choices import Choose, choice_of
from stratalog.clients.schemas.avro_binary.decoding import AvroMisfitError, AvroReading, Convert
from stratalog.clients.schemas.compatibility import avro as avro_compatibility
from stratalog.clients.schemas.compatibility.avro import AvroType
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema, loads
from stratalog.storage.errors import SerializationError

WRAPPER = "stratalog_value"
_SHOWN_MAX = 60
_EXACT = Context(prec=10_000)
_OF_DAY = ("time-millis", "time-micros")


def parsed_avro(schema: Schema, references: Mapping[str, Schema] | None = None) -> Any:
    """fastavro's form of a record with the schema as its only field, which has the same bytes as the value alone.

    fastavro keeps named types with a parsed record only: another type with references could not be written.
    references: what the schema refers to, in an order in which each follows its own. InvalidSchemaError.
    """
    used = {name: loads(each) for name, each in (references or {}).items()}
    own = loads(schema)
    avro_compatibility.parsed(own, used)
    wrapper = {"type": "record", "name": WRAPPER, "fields": [{"name": "value", "type": own}]}
    named: dict[str, Any] = {}
    try:
        for each in used.values():
            fastavro.parse_schema(each, named_schemas=named)
        return fastavro.parse_schema(wrapper, named_schemas=named)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as reason:
        raise InvalidSchemaError(f"not an Avro schema: {type(reason).__name__} {reason}") from reason


def record_name(parsed: Any) -> str:
    """The full name of a record, enum or fixed; empty for other types."""
    kind = value_type(parsed)
    return str(kind.get("name", "")) if isinstance(kind, dict) else ""


class AvroSchema(NamedTuple):
    """A schema as fastavro has it, its nodes, the check of values before they are written, and the choice of branches
    for the unions within them, if there is any."""

    parsed: Any
    type: AvroType
    check: Check
    choose: Choose | None

    @classmethod
    def of(cls, schema: Schema, references: Mapping[str, Schema] | None = None) -> AvroSchema:
        """InvalidSchemaError."""
        node = avro_type(schema, references)
        return cls(parsed_avro(schema, references), node, check_of(node), choice_of(node))


def encode_avro(schema: AvroSchema, value: Any) -> bytes:
    """A value in Avro's binary form; bytes stand for themselves, as in Confluent's serializers. SerializationError."""
    if is_bytes(schema.parsed):
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(f"the Avro schema is bytes, the value is {type(value).__name__}")
        return bytes(value)
    written = io.BytesIO()
    try:
        schema.check(value)
        chosen = value if schema.choose is None else schema.choose(value)
        fastavro.schemaless_writer(written, schema.parsed, {"value": chosen})
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError) as reason:
        raise SerializationError(f"the value does not fit the Avro schema: {reason}") from reason
    return written.getvalue()


class AvroValues:
    """Reads payloads of a writer's schema as Python values, resolved into the reader's schema if there is one.

    The values are fastavro's, but fastavro does not read them: it takes the last branch or symbol for -1, cuts numbers,
    rounds decimals, and has defaults of a reader's schema as they stand in its JSON.
    """

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        self._is_bytes = is_bytes(writer.parsed) and (reader is None or is_bytes(reader.parsed))
        self._reading = AvroReading(writer.type, (reader or writer).type, _PythonForms())

    def value(self, payload: bytes) -> Any:
        """The value of bytes that `encode_avro` made. SerializationError."""
        if self._is_bytes:
            return payload
        try:
            return self._reading.value(payload)
        except AvroMisfitError as reason:
            raise SerializationError(misfit(reason)) from reason


class _PythonForms:
    """Plain values as fastavro's logical types have them."""

    def value(self, node: AvroType) -> Convert | None:
        if node.logical == "decimal":
            return partial(decimal_of, precision=node.precision, scale=node.scale)
        convert = LOGICAL_READERS.get(f"{node.type}-{node.logical}")
        if convert is None:
            return None
        return partial(_time_of_day, convert) if node.logical in _OF_DAY else lambda value: convert(value, None, None)

    def member(self, union: AvroType, place: int) -> tuple[AvroType, Convert | None]:
        return union.branches[place], None


def avro_type(schema: Schema, references: Mapping[str, Schema] | None = None) -> AvroType:
    """The nodes of a schema. InvalidSchemaError."""
    return avro_compatibility.parsed(loads(schema), {name: loads(each) for name, each in (references or {}).items()})


def decimal_of(data: bytes, precision: int, scale: int) -> Decimal:
    """The decimal of two's-complement bytes. AvroMisfitError for no bytes, and for more digits than the schema has."""
    if not data:
        raise AvroMisfitError("a decimal of no bytes")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10**precision:
        raise AvroMisfitError(f"a decimal of more than {precision} digits: {str(unscaled)[:_SHOWN_MAX]}")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _time_of_day(convert: Callable[..., dt.time], value: int) -> dt.time:
    time = convert(value, None, None) if value >= 0 else None
    if time is None:
        raise AvroMisfitError(f"{value} is before midnight, and no time of a day")
    return time


def misfit(reason: AvroMisfitError) -> str:
    """The text for bytes that do not fit."""
    return f"the bytes do not fit the Avro schema: {reason}"


def value_type(parsed: Any) -> Any:
    """The type of a value within its wrapper."""
    return parsed["fields"][0]["type"]


def is_bytes(parsed: Any) -> bool:
    """Whether values are bytes, which stand for themselves."""
    kind = value_type(parsed)
    return kind == "bytes" or (isinstance(kind, dict) and kind["type"] == "bytes" and "logicalType" not in kind)
