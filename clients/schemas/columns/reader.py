"""Binary columns in Confluent's wire format as typed Arrow columns, with an error for each row that does not fit. Pure.

A format (`avro`, `json_schema`, `protobuf`) is a `ColumnFormat`: it has the type of the reader's schema and reads
payloads that one writer's schema wrote. `read_column` groups rows by the schema that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.columns.prefixes import split
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.storage.errors import StratalogError

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_SHOWN_MAX = 80
Meanings = Mapping[tuple[str, ...], frozenset[str]]
"""What types of columns do not say, by path (`element`, `key` and `value` stand for parts of lists and maps): values of
two schemas mean other things where their names for one path have none in common."""


class ReadValues(NamedTuple):
    """n values, null where the payload is null or does not fit; position -> why it does not."""

    values: pa.Array
    errors: Mapping[int, str]


class ColumnFormat(Protocol):
    """Reads payloads into columns of one type."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""

    @property
    def has_message_indexes(self) -> bool:
        """Whether message indexes follow a schema id."""

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        """The values of payloads that `writer` wrote; None means the reader's own schema."""


class SchemaColumns(ColumnFormat, Protocol):
    """The columns of one schema."""

    @property
    def meanings(self) -> Meanings:
        """What the types do not say."""


class ReadColumn(NamedTuple):
    """A column of n rows that was read. A row is null in `values` and in `errors` if its value was null."""

    values: pa.Array
    """The format's type."""
    schema_ids: pa.Array
    """int32; null for a GUID and without a valid prefix."""
    errors: pa.Array
    """string; null for a row that was read."""


WriterOf = Callable[[SchemaId], ResolvedSchema]
"""The writer's schema. A StratalogError makes the rows that name it errors, unless it is retriable."""


def read_column(
    data: pa.Array, column_format: ColumnFormat, writer_of: WriterOf, headers: pa.Array | None = None, *,
    is_key: bool = False,
) -> ReadColumn:  # fmt: skip
    """The typed values of binary `data`. `headers` as of `prefixes.split`. Retriable errors of `writer_of` are raised.

    >>> from stratalog.clients.schemas.columns.avro import AvroColumns
    >>> from stratalog.clients.schemas.schema import Schema
    >>> longs = ResolvedSchema(Schema('"long"'))
    >>> read = read_column(pa.array([bytes([0, 0, 0, 0, 1, 6]), b"x", None]), AvroColumns(longs), lambda _: longs)
    >>> read.values.to_pylist(), read.schema_ids.to_pylist(), read.errors[1].as_py()[:33]
    ([3, None, None], [1, None, None], "not in Confluent's wire format: f")
    """
    prefixed = split(data, headers, is_key=is_key, has_message_indexes=column_format.has_message_indexes)
    errors = dict(prefixed.errors)
    schema_ids = np.full(len(data), -1, np.int32)
    places = np.full(len(data), -1, np.int64)
    read: list[pa.Array] = []
    count = 0
    for named, rows, payloads in prefixed.groups:
        if named.id is not None:
            schema_ids[rows] = named.id
        try:
            values, failed = column_format.read(payloads, writer_of(named), named.message_indexes)
        except StratalogError as reason:
            if reason.retriable:
                raise
            errors |= dict.fromkeys(rows.tolist(), f"{shown(named)}: {reason}")
            continue
        errors |= {int(rows[place]): f"{shown(named)}: {reason}" for place, reason in failed.items()}
        places[rows] = np.arange(count, count + len(rows))
        count += len(rows)
        read.append(values)
    return ReadColumn(
        _in_order(read, places, column_format.arrow_type),
        pa.array(schema_ids, mask=schema_ids < 0),
        errors_column(errors, len(data)),
    )


def shown(named: SchemaId) -> str:
    """A schema id for people."""
    return f"schema id {named.id}" if named.id is not None else f"schema GUID {named.guid}"


def errors_column(errors: Mapping[int, str], size: int) -> pa.Array:
    """The errors as n strings, null where there is none; half of a surrogate pair in one is written as in JSON."""
    if not errors:
        return pa.nulls(size, pa.string())
    order = np.full(size, -1, np.int64)
    order[np.fromiter(errors, np.int64, len(errors))] = np.arange(len(errors))
    texts = [each.encode(errors="backslashreplace").decode() for each in errors.values()]
    return pa.array(texts, pa.string()).take(pa.array(order, mask=order < 0))


def _in_order(read: Sequence[pa.Array], places: Any, kind: pa.DataType) -> pa.Array:
    """Values of groups, one after the other, by the place of each row; null where the place is negative."""
    if not read:
        return pa.nulls(len(places), kind)
    joined = read[0] if len(read) == 1 else pa.concat_arrays(read)
    if len(joined) == len(places) and bool((places == np.arange(len(places))).all()):
        return joined
    return joined.take(pa.array(places, mask=places < 0))


def values_column(values: list[Any], kind: pa.DataType) -> ReadValues:
    """Python values as an Arrow column; those that the type does not hold become null and errors."""
    errors: dict[int, str] = {}

    def check(start: int, end: int) -> None:
        try:
            pa.array(values[start:end], kind)
        except _REFUSALS:
            if end - start > 1:
                middle = (start + end) // 2
                check(start, middle)
                check(middle, end)
            else:
                errors[start] = misfit(values[start], kind) or "the value does not fit"
                values[start] = None

    try:
        return ReadValues(pa.array(values, kind), {})
    except _REFUSALS:
        check(0, len(values))
    return ReadValues(pa.array(values, kind), errors)


def misfit(value: Any, kind: pa.DataType, path: str = "#") -> str | None:
    """Where and why the type does not hold the value, as `#/items/0: 'x' is no int64`; None if it does."""
    try:
        pa.array([value], kind)
    except _REFUSALS as reason:
        for name, inner, inner_kind in _parts(value, kind):
            found = misfit(inner, inner_kind, f"{path}/{name}")
            if found is not None:
                return found
        text = repr(value)
        return f"{path}: {text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} is no {kind} ({reason})"
    return None


def _parts(value: Any, kind: pa.DataType) -> list[tuple[str, Any, pa.DataType]]:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return [(field.name, value.get(field.name), field.type) for field in kind]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [(str(place), each, kind.value_type) for place, each in enumerate(value)]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(str(key), each, kind.item_type) for key, each in value.items()]
    return []
