"""Columns of random Protobuf messages beside protobuf's own JSON mapping. I/O: Spark.

The mapping is read back into the values that columns have; what it does not write, such as a Timestamp beyond its
years, is no value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import Error, MessageToDict
from google.protobuf.message import DecodeError
from pyspark.sql import SparkSession

from stratalog import SchemaRegistryClient, from_registry
from stratalog.clients.schemas.wire_format import SchemaId
from tests.clients.schemas.oracle.java_values import values_of
from tests.lab.differential.values.known import JSON_MAPPING, Outcome, Tally
from tests.lab.differential.values.messages import ProtobufCase, class_of, schema_of

CASES_A_QUERY = 60
_DURATION = re.compile(r"(-?)(\d+)(?:\.(\d+))?s")
_WRAPPER = re.compile(r"google\.protobuf\.\w+Value")
_DECIMALS = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def registered(cases: Sequence[ProtobufCase]) -> dict[str, Any]:
    """The answers of a registry whose ids are the numbers of cases."""
    return {f"GET /schemas/ids/{each.number}": (200, schema_of(each.writer).as_json()) for each in cases}


def judge(spark: SparkSession, registry: SchemaRegistryClient, cases: Sequence[ProtobufCase], tally: Tally) -> None:
    """Count what the columns of the cases have, and what the mapping says."""
    for start in range(0, len(cases), CASES_A_QUERY):
        some = cases[start : start + CASES_A_QUERY]
        columns: dict[str, pa.Array] = {"place": pa.array(range(len(some[0].payloads)), pa.int32())}
        for case in some:
            prefix = SchemaId(case.number, None, (case.place,)).id_prefix()
            columns[f"framed{case.number}"] = pa.array([prefix + each for each in case.payloads], pa.binary())
        read = [
            from_registry(f"framed{each.number}", registry, schema_of(each.reader), message=each.message).alias(
                f"ours{each.number}"
            )
            for each in some
        ]
        found = spark.createDataFrame(pa.table(columns)).select("place", *read).toArrow().sort_by("place")
        for case in some:
            _judge_case(case, pa.concat_arrays(found.column(f"ours{case.number}").chunks), tally)


def _judge_case(case: ProtobufCase, read: pa.Array, tally: Tally) -> None:
    values, _, errors = read.flatten()
    for place, ours in enumerate(map(Outcome, values_of(values), errors.to_pylist())):
        assert ours.error is None or ours.value is None
        about = f"case {case.number}, row {place}: {case.payloads[place].hex()} as {case.message} of {case.reader}"
        tally.judge(JSON_MAPPING, ours, mapped(case, case.payloads[place]), re.sub(r"\s+", " ", about))


def mapped(case: ProtobufCase, payload: bytes) -> Outcome:
    """What the mapping says of a payload, as a column has it."""
    try:
        kind = class_of(case.reader, case.place)
        message = kind.FromString(payload)
        if not kind.IsInitialized(message):
            return Outcome(None, "required fields are missing")
        mapping = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    except (DecodeError, Error, ValueError) as reason:
        return Outcome(None, f"{type(reason).__name__} {reason}")
    return Outcome(column_value(kind.DESCRIPTOR, mapping), None)


def column_value(message: Descriptor, mapping: Any) -> Any:
    """What a column has for a message that the mapping writes so."""
    if message.full_name == "google.protobuf.Timestamp":
        return _micros(mapping)
    if message.full_name == "google.protobuf.Duration":
        return _duration(mapping)
    if _WRAPPER.fullmatch(message.full_name):
        mapping = {"value": mapping}
    return {
        each.name: _field_value(each, mapping[each.name]) if each.name in mapping else None for each in message.fields
    }


def _micros(text: str) -> int:
    """Microseconds of a time, rounded down."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    seconds = int(np.datetime64(whole, "s").astype(np.int64))
    return seconds * 1_000_000 + int(f"{rest:0<9}"[:6])


def _duration(text: str) -> dict[str, int]:
    found = _DURATION.fullmatch(text)
    assert found is not None, text
    sign, seconds, nanos = found.groups()
    factor = -1 if sign else 1
    return {"seconds": factor * int(seconds), "nanos": factor * int(f"{nanos or '':0<9}")}


def _field_value(field: FieldDescriptor, mapping: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return dict(sorted(_entries(entry["key"], entry["value"], mapping)))
    if field.is_repeated:
        return [_value(field, each) for each in mapping]
    return _value(field, mapping)


def _entries(key: FieldDescriptor, value: FieldDescriptor, mapping: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    for name, each in mapping.items():
        yield (name == "true" if key.type == FieldDescriptor.TYPE_BOOL else _value(key, name)), _value(value, each)


def _value(field: FieldDescriptor, mapping: Any) -> Any:
    if field.message_type is not None:
        return column_value(field.message_type, mapping)
    if field.type in _DECIMALS:
        return Decimal(mapping)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_ENUM:
            return str(mapping)
        case FieldDescriptor.CPPTYPE_FLOAT:
            return float(np.float32(float(mapping)))
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return float(mapping)
        case FieldDescriptor.CPPTYPE_STRING:
            return base64.b64decode(mapping) if field.type == FieldDescriptor.TYPE_BYTES else mapping
        case FieldDescriptor.CPPTYPE_BOOL:
            return mapping
    return int(mapping)
