"""Values as a table's columns: which schemas a table has grown into, and rows read by them. Pure.

The driver plans: a schema that a batch names is fetched once, and its columns are compared with the table's
(`evolution`). Tasks read by the plan, which has all that they need. A row whose schema the plan does not have is
reported as such, and the driver plans again before it reads again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.reader import Meanings, ReadValues, SchemaColumns, read_column
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import SchemaNotFoundError
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.clients.schemas.wire_format import SchemaId, schema_id_header
from stratalog.clients.typed_tables.config import ValueFormat
from stratalog.clients.typed_tables.rows.evolution import (
    RECORD_COLUMNS,
    VALUE_COLUMN,
    SchemaChange,
    as_columns,
    fitting,
    folded,
    schema_change,
)
from stratalog.storage.errors import SerializationError, StratalogError

WriterKey = int | UUID
"""What names a writer's schema: its id, or its GUID."""
NO_VALUE = "the record has no value: only upsert has a use for it, as a deletion"
NO_KEY = "the record has no key, which upsert needs"
SCHEMA_TYPES = {
    ValueFormat.AVRO: SchemaType.AVRO,
    ValueFormat.JSON: SchemaType.JSON,
    ValueFormat.PROTOBUF: SchemaType.PROTOBUF,
}


LACKING_MAX = 1_000
"""Names of schemas that are reported for some rows: a producer can name a million that nobody has."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How tasks read values.

    type      the table's columns, a struct
    writers   the schemas of which the table has all columns
    refused   why rows of other schemas do not fit
    others    the same for all schemas that are neither; "": what names them is reported
    message   full name of the Protobuf message; the first of the file if empty
    """

    value_format: ValueFormat
    type: pa.DataType
    writers: Mapping[WriterKey, ResolvedSchema] = field(default_factory=dict)
    refused: Mapping[WriterKey, str] = field(default_factory=dict)
    message: str = ""
    others: str = ""


class Planned(NamedTuple):
    """A plan, and what the table needs before rows that were read by it fit."""

    plan: ReadPlan
    change: SchemaChange


def replanned(plan: ReadPlan, columns: pa.DataType, found: Mapping[WriterKey, ResolvedSchema | str]) -> Planned:
    """The plan with further schemas, for a table that has `columns` now.

    found  schemas by what names them, or why there is none. Of two that contradict each other the one that comes first
           by name counts, and those of the plan come before new ones.
    """
    grown, refused = columns, {key: text for key, text in found.items() if isinstance(text, str)}
    writers: dict[WriterKey, ResolvedSchema] = {}
    meant: dict[tuple[str, ...], tuple[frozenset[str], WriterKey]] = {}
    known = {key: each for key, each in found.items() if not isinstance(each, str)}
    for key, schema in [*_in_order(plan.writers), *_in_order(known)]:
        change, meanings = _change_for(plan, grown, schema)
        reason = change if isinstance(change, str) else _contradiction(meanings, meant)
        if isinstance(change, str) or reason:
            refused[key] = reason
        else:
            writers[key], grown = schema, change.type
            meant = {**{path: (names, key) for path, names in meanings.items()}, **meant}
    return Planned(replace(plan, type=grown, writers=writers, refused=refused), schema_change(columns, grown))


def _in_order(schemas: Mapping[WriterKey, ResolvedSchema]) -> list[tuple[WriterKey, ResolvedSchema]]:
    return sorted(schemas.items(), key=lambda item: (isinstance(item[0], UUID), str(item[0]).zfill(40)))


def _change_for(plan: ReadPlan, columns: pa.DataType, schema: ResolvedSchema) -> tuple[SchemaChange | str, Meanings]:
    """What the table needs for a schema, or why its rows never fit; and what its types do not say."""
    expected = SCHEMA_TYPES[plan.value_format]
    if schema.schema.type != expected:
        return f"the schema is {schema.schema.type}, value.format is {plan.value_format}", {}
    try:
        read = columns_of(schema, plan.value_format, plan.message)
    except StratalogError as reason:
        return str(reason), {}
    own = () if pa.types.is_struct(read.arrow_type) else (VALUE_COLUMN,)
    meanings = {(*own, *map(folded, path)): names for path, names in read.meanings.items()}
    change = schema_change(columns, read.arrow_type, RECORD_COLUMNS)
    return "; ".join(change.misfits) if change.misfits else change, meanings


def _contradiction(meanings: Meanings, meant: Mapping[tuple[str, ...], tuple[frozenset[str], WriterKey]]) -> str:
    """Where values would have another meaning than those of a schema before, in columns of the same type; else ""."""
    for path, names in meanings.items():
        before, key = meant.get(path, (names, 0))
        if not before & names:
            return (
                f"{'.'.join(path)} is {_any_of(names)} here and {_any_of(before)} in schema {key}: name the field again"
            )
    return ""


def _any_of(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))


# -- in tasks ----------------------------------------------------------------------------------------------


class ReadBatch(NamedTuple):
    """n rows that were read.

    values     the plan's type, null where it does not fit
    errors     string: why; null for rows that fit, and for those that the plan cannot tell
    unplanned  what names the schemas that the plan lacks, as `shown_keys`; None without such rows
    """

    values: pa.Array
    errors: pa.Array
    unplanned: str | None


def read_batch(plan: ReadPlan, values: pa.Array, headers: pa.Array | None) -> ReadBatch:
    """The columns of n values in Confluent's wire format. A null value is neither an error nor a row."""
    lacking: set[WriterKey] = set()

    def writer_of(named: SchemaId) -> ResolvedSchema:
        key = key_of(named)
        if key in plan.writers:
            return plan.writers[key]
        if key in plan.refused:
            raise SerializationError(plan.refused[key])
        if plan.others:
            raise SerializationError(plan.others)
        if len(lacking) < LACKING_MAX:
            lacking.add(key)
        raise SchemaNotFoundError(f"schema {key} is not planned")

    read = read_column(values, _TableColumns(plan), writer_of, headers)
    return ReadBatch(read.values, read.errors, shown_keys(lacking) if lacking else None)


class _TableColumns:
    """The columns of a table as a format: what any planned schema wrote, as the table has it."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    @property
    def arrow_type(self) -> pa.DataType:
        return self._plan.type

    @property
    def has_message_indexes(self) -> bool:
        return self._plan.value_format == ValueFormat.PROTOBUF

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        assert writer is not None
        read = columns_of(writer, self._plan.value_format, self._plan.message).read(payloads, writer, message_indexes)
        values = read.values
        if not pa.types.is_struct(values.type):
            values = pa.StructArray.from_arrays([values], [VALUE_COLUMN], mask=values.is_null())
        fit = fitting(values, self._plan.type)
        return ReadValues(fit.values, {**fit.errors, **read.errors})


def columns_of(schema: ResolvedSchema, value_format: ValueFormat, message: str) -> SchemaColumns:
    """The columns of a schema itself. InvalidSchemaError for one that has none."""
    return _columns_of(schema.schema, tuple(schema.references.items()), value_format, message)


@lru_cache(maxsize=256)
def _columns_of(
    schema: Schema, references: tuple[tuple[str, Schema], ...], value_format: ValueFormat, message: str
) -> SchemaColumns:
    """Kept in the process of a task, which reads many batches by the same schemas."""
    resolved = ResolvedSchema(schema, dict(references))
    if value_format == ValueFormat.AVRO:
        return AvroColumns(resolved)
    return JsonColumns(resolved) if value_format == ValueFormat.JSON else ProtobufColumns(resolved, message or None)


def key_of(named: SchemaId) -> WriterKey:
    """What names a schema in plans."""
    key = named.guid if named.guid is not None else named.id
    assert key is not None
    return key


def shown_keys(keys: Iterable[WriterKey]) -> str:
    """Names of schemas as text.

    >>> shown_keys({2, 1}), parse_keys('["1", "2"]')
    ('["1", "2"]', {1, 2})
    """
    return json.dumps(sorted(map(str, keys)))


def parse_keys(text: str) -> set[WriterKey]:
    """What `shown_keys` wrote."""
    return {int(each) if each.isdigit() else UUID(each) for each in json.loads(text)}


READ_COLUMN, ERROR_COLUMN, UNPLANNED_COLUMN = "read", "error", "unplanned"


def read_rows(plan: ReadPlan, values: pa.Array, ids: pa.Array) -> pa.StructArray:
    """The structs `read`, `error`, `unplanned` of n values; `unplanned` of the first row is that of all.

    `read` is null where the value does not fit, and where it is a null of its format.

    ids  binary: the values of the headers with schema ids; null for rows without one
    """
    read = read_batch(plan, values, header_column(ids))
    rows = len(values)
    columns = read.values
    if not len(plan.type):
        columns = pa.StructArray.from_arrays(
            [pa.nulls(rows, pa.bool_())], fields=list(read_type(plan.type)), mask=columns.is_null()
        )
    unplanned = pa.array([read.unplanned, *[None] * (rows - 1)], pa.string()) if rows else pa.nulls(0, pa.string())
    return pa.StructArray.from_arrays(
        [columns, read.errors, unplanned], names=[READ_COLUMN, ERROR_COLUMN, UNPLANNED_COLUMN]
    )


def header_column(ids: pa.Array) -> pa.Array | None:
    """Headers with nothing but schema ids; None if there are none.

    >>> header_column(pa.array([None, b"x"])).to_pylist()
    [[], [{'key': '__value_schema_id', 'value': b'x'}]]
    """
    found = ids.drop_null()
    if not len(found):
        return None
    offsets = np.concatenate([[0], np.cumsum(ids.is_valid().to_numpy(zero_copy_only=False))]).astype(np.int32)
    keys = pa.array([schema_id_header(is_key=False)] * len(found), pa.string())
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays([keys, found], names=["key", "value"])
    )


def read_type(columns: pa.DataType) -> pa.DataType:
    """The type of `read`: Spark has no struct without fields.

    >>> read_type(pa.struct([]))
    StructType(struct<nothing: bool>)
    """
    return as_columns(columns) if len(columns) else pa.struct([("nothing", pa.bool_())])
