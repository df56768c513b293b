"""How a table's columns grow into those of its records: new columns, wider types, and what fits neither. Pure.

Types are Arrow's. A type grows into a wider one that holds all its values; these are the changes of Delta's type
widening. What a record has and the table lacks becomes a column. Names are compared without case, as Delta does.
Source: `org.apache.spark.sql.delta.TypeWidening`, `io.delta` protocol, "Type Widening".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.schemas.columns.reader import ReadValues

VALUE_COLUMN = "value"
"""The column of values that are no records."""
PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS = (
    "_partition", "_offset", "_timestamp", "_key", "_value", "_headers",
)  # fmt: skip
RECORD_COLUMNS = frozenset({PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS})
"""The columns of a record's place and of its raw parts, before those of its value."""
DECIMAL_DIGITS_MAX = 38
DAYS_MAX = (2**63 - 1) // 86_400_000_000
"""Days from 1970 to the last date that a time in microseconds holds, in the year 294,247."""
LOCAL_TIMES_FEATURE = "delta.feature.timestampNtz"
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta allows in no column name."""
_TWICE = "is there twice, as names count without case"
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_IN_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32())
"""What a double holds exactly."""
_SQL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
}

Path = tuple[str, ...]
"""A column within columns; `element`, `key` and `value` stand for the parts of lists and maps, as in Delta."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add."""

    path: Path
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class WiderColumn:
    """A column whose type is to grow."""

    path: Path
    before: pa.DataType
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What a table needs before records of a schema fit; `misfits` say why they never will.

    type  the table's columns after the change, a struct
    """

    type: pa.DataType
    new: tuple[NewColumn, ...] = ()
    wider: tuple[WiderColumn, ...] = ()
    misfits: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when the table stays as it is."""
        return not (self.new or self.wider)


@dataclass(slots=True)
class _Steps:
    new: list[NewColumn] = field(default_factory=list)
    wider: list[WiderColumn] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)


def schema_change(table: pa.DataType, record: pa.DataType, reserved: frozenset[str] = frozenset()) -> SchemaChange:
    """What the columns `table` need for records of type `record`. A change with misfits is not to be made.

    table     a struct: the table's columns without those of offsets
    record    a struct, or another type, which is the column `value`
    reserved  names that no column of a record may have

    >>> table, record = pa.struct([("id", pa.int32())]), pa.struct([("id", pa.int64()), ("item", pa.string())])
    >>> change = schema_change(table, record)
    >>> [each.path for each in change.new], [str(each.type) for each in change.wider]
    ([('item',)], ['int64'])
    """
    steps = _Steps()
    grown = _struct(table, as_columns(record), (), steps)
    taken = [each.name for each in as_columns(record) if folded(each.name) in reserved]
    steps.misfits += [f"{name} is the name of a column of the record's place: rename the field" for name in taken]
    if steps.misfits:
        return SchemaChange(table, misfits=tuple(steps.misfits))
    return SchemaChange(grown, tuple(steps.new), tuple(steps.wider))


@lru_cache(maxsize=10_000)
def folded(name: str) -> str:
    """A name without its case, equal for names that are one to Spark, as the signs for micro and the letter mu are.

    Source: `String.equalsIgnoreCase` of Java, by which Spark resolves names.

    >>> folded("ID") == folded("ıd") == folded("id"), folded("µs") == folded("μS"), folded("ß") == folded("ss")
    (True, True, False)
    """
    return "".join(map(_folded_letter, name))


def _folded_letter(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]


def as_columns(record: pa.DataType) -> pa.DataType:
    """The columns of a record's type: its own, or one of a value that is no record."""
    return record if pa.types.is_struct(record) else pa.struct([(VALUE_COLUMN, record)])


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type without parts that holds all values of both; None if Delta can widen neither into it.

    >>> wider_type(pa.int32(), pa.int64()), wider_type(pa.int64(), pa.float64())
    (DataType(int64), None)
    """
    if one == other:
        return one
    if one in _INTEGER_DIGITS and other in _INTEGER_DIGITS:
        return max(one, other, key=lambda kind: _INTEGER_DIGITS[kind])
    floats = {pa.float32(), pa.float64()}
    if {one, other} & floats:
        return pa.float64() if {one, other} <= {*_IN_DOUBLE, pa.float64()} else None
    digits, other_digits = _digits(one), _digits(other)
    if digits is not None and other_digits is not None:
        whole, scale = max(digits[0], other_digits[0]), max(digits[1], other_digits[1])
        return pa.decimal128(whole + scale, scale) if whole + scale <= DECIMAL_DIGITS_MAX else None
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return None


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """Digits before and behind the point."""
    if kind in _INTEGER_DIGITS:
        return max(10, _INTEGER_DIGITS[kind]) + (kind == pa.int64()), 0
    return (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else None


def _grown(table: pa.DataType, record: pa.DataType, path: Path, steps: _Steps) -> pa.DataType:
    if pa.types.is_null(record) or table == record:
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(record):
        return _struct(table, record, path, steps)
    if _is_list(table) and _is_list(record):
        return pa.list_(_grown(table.value_type, record.value_type, (*path, "element"), steps))
    if pa.types.is_map(table) and pa.types.is_map(record):
        keys = _grown(table.key_type, record.key_type, (*path, "key"), steps)
        return pa.map_(keys, _grown(table.item_type, record.item_type, (*path, "value"), steps))
    if _storable(record) is None:  # nothing of it would be in a column of its own
        return table
    wider = wider_type(table, record)
    if wider is None:
        steps.misfits.append(f"{'.'.join(path)} is {_name(table)} in the table and {_name(record)} in the record")
        return table
    if wider != table:
        steps.wider.append(WiderColumn(path, table, wider))
    return wider


def _struct(table: pa.DataType, record: pa.DataType, path: Path, steps: _Steps) -> pa.DataType:
    columns = {folded(each.name): (each.name, each.type) for each in table}
    seen: set[str] = set()
    for each in record:
        name, inner = folded(each.name), (*path, each.name)
        if name in seen or _FORBIDDEN.search(each.name):
            reason = _TWICE if name in seen else "has a sign that Delta refuses"
            steps.misfits.append(f"{'.'.join(inner)} {reason}: rename the field")
            continue
        seen.add(name)
        if name in columns:
            own, kind = columns[name]
            columns[name] = (own, _grown(kind, each.type, (*path, own), steps))
            continue
        kind = _storable(each.type)
        if kind is not None:
            bad = [place for place in _names(kind) if _FORBIDDEN.search(place)]
            steps.misfits += [f"{'.'.join(inner)}: {place} has a sign that Delta refuses" for place in bad]
            steps.misfits += [f"{'.'.join(inner)}: {place} {_TWICE}: rename the field" for place in _twice(kind)]
            steps.new.append(NewColumn(inner, kind))
            columns[name] = (each.name, kind)
    return pa.struct(list(columns.values()))


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The type without parts that no Parquet file holds: nulls and structs without fields; None if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        parts = [(each.name, _storable(each.type)) for each in kind]
        left = [(name, part) for name, part in parts if part is not None]
        return pa.struct(left) if left else None
    if _is_list(kind):
        inner = _storable(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(kind):
        inner = _storable(kind.item_type)
        return None if inner is None else pa.map_(kind.key_type, inner)
    return kind


def _names(kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [name for each in kind for name in (each.name, *_names(each.type))]
    if _is_list(kind):
        return _names(kind.value_type)
    return _names(kind.item_type) if pa.types.is_map(kind) else []


def _twice(kind: pa.DataType) -> list[str]:
    """Names within a type that a struct has before, if case does not count."""
    own = [folded(each.name) for each in kind] if pa.types.is_struct(kind) else []
    twice = [kind.field(place).name for place, name in enumerate(own) if name in own[:place]]
    return [*twice, *(name for place in range(kind.num_fields) for name in _twice(kind.field(place).type))]


def as_here(kind: pa.DataType) -> pa.DataType:
    """A type of Spark's as this module writes it: without names of elements, times of the zone UTC."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, as_here(each.type)) for each in kind])
    if _is_list(kind):
        return pa.list_(as_here(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(as_here(kind.key_type), as_here(kind.item_type))
    return pa.timestamp("us", "UTC" if kind.tz else None) if pa.types.is_timestamp(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


# -- SQL ---------------------------------------------------------------------------------------------------


def sql_type(kind: pa.DataType) -> str:
    """The type in Spark's SQL.

    >>> sql_type(pa.struct([("a", pa.list_(pa.int32()))]))
    'STRUCT<`a`: ARRAY<INT>>'
    """
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(each.name)}: {sql_type(each.type)}' for each in kind)}>"
    if _is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    return _SQL[kind]


def quoted(name: str) -> str:
    """A name in backticks."""
    return f"`{name.replace('`', '``')}`"


def alterations(table: str, change: SchemaChange) -> list[str]:
    """The statements that make the change; `table` as SQL names it.

    Types grow only with Delta's type widening on, and a column of times without a zone needs a feature of the table's
    that Delta turns on by itself for new tables alone.
    """
    statements = []
    kinds = [*(each.type for each in change.new), *(each.type for each in change.wider)]
    if any(map(has_local_times, kinds)):
        statements.append(f"ALTER TABLE {table} SET TBLPROPERTIES ('{LOCAL_TIMES_FEATURE}' = 'supported')")
    if change.new:
        columns = ", ".join(f"{_sql_path(each.path)} {sql_type(each.type)}" for each in change.new)
        statements.append(f"ALTER TABLE {table} ADD COLUMNS ({columns})")
    if change.wider:
        statements.append(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    statements += [
        f"ALTER TABLE {table} ALTER COLUMN {_sql_path(each.path)} TYPE {sql_type(each.type)}" for each in change.wider
    ]
    return statements


def has_local_times(kind: pa.DataType) -> bool:
    """Whether a type has TIMESTAMP_NTZ in it.

    >>> has_local_times(pa.list_(pa.struct([("at", pa.timestamp("us"))]))), has_local_times(pa.timestamp("us", "UTC"))
    (True, False)
    """
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(has_local_times(kind.field(place).type) for place in range(kind.num_fields))


def _sql_path(path: Path) -> str:
    return ".".join(map(quoted, path))


def _name(kind: pa.DataType) -> str:
    shown = _storable(kind)
    return "nothing" if shown is None else sql_type(shown)


# -- values ------------------------------------------------------------------------------------------------


def fitting(values: pa.Array, kind: pa.DataType) -> ReadValues:
    """Values as the type into which their own has grown, where it holds them.

    A date beyond the times that there are fits no column, also one of dates: it could not grow into TIMESTAMP_NTZ, and
    every reader of the column would end at it.
    """
    try:
        if _has_late_dates(values):
            raise pa.ArrowInvalid(f"a date is more than {DAYS_MAX} days from 1970")
        return ReadValues(conformed(values, kind), {})
    except pa.ArrowInvalid as reason:
        if len(values) == 1:
            return ReadValues(pa.nulls(1, kind), {0: f"the value does not fit the columns: {reason}"})
    middle = len(values) // 2
    first, second = fitting(values.slice(0, middle), kind), fitting(values.slice(middle), kind)
    errors = {**first.errors, **{middle + place: text for place, text in second.errors.items()}}
    return ReadValues(pa.concat_arrays([first.values, second.values]), errors)


def _has_late_dates(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_date32(kind):
        days = values.view(pa.int32())
        return bool(pc.any(pc.greater(pc.abs(days.cast(pa.int64())), DAYS_MAX)).as_py())
    if not _has_dates(kind):
        return False
    if pa.types.is_struct(kind):
        return any(map(_has_late_dates, values.flatten()))
    whole = pa.concat_arrays([values])
    parts = [whole.keys, whole.items] if pa.types.is_map(kind) else [whole.values]
    return any(map(_has_late_dates, parts))


def _has_dates(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind)) or any(_has_dates(kind.field(place).type) for place in range(kind.num_fields))


def conformed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as the type into which their own has grown: columns that they lack are null, numbers become wider. What no
    file holds, such as a record without fields, is null in a column that another schema has made of its name.

    ArrowInvalid for a value that the type does not hold.

    >>> conformed(pa.array([{"id": 1}]), pa.struct([("ID", pa.int64()), ("item", pa.string())])).to_pylist()
    [{'ID': 1, 'item': None}]
    """
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _conformed_struct(values, kind)
    if _storable(values.type) is None and not _is_alike(values.type, kind):
        return pa.nulls(len(values), kind)
    if _is_list(kind):
        whole = pa.concat_arrays([values])
        inner = conformed(whole.values, kind.value_type)
        return pa.ListArray.from_arrays(_offsets(whole), inner, type=kind)
    if pa.types.is_map(kind):
        whole = pa.concat_arrays([values])
        keys, items = conformed(whole.keys, kind.key_type), conformed(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(whole), keys, items, type=kind)
    return values.cast(kind)


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are lists, or both maps."""
    return (_is_list(one) and _is_list(other)) or bool(pa.types.is_map(one) and pa.types.is_map(other))


def _conformed_struct(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not len(kind):
        return pa.array([None if is_null else {} for is_null in values.is_null().to_pylist()], kind)
    places = {folded(each.name): place for place, each in enumerate(values.type)}
    parts = values.flatten()
    columns = [
        conformed(parts[places[folded(each.name)]], each.type)
        if folded(each.name) in places
        else pa.nulls(len(values), each.type)
        for each in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pc.is_null(values))


def _offsets(lists: pa.Array) -> pa.Array:
    """The offsets of lists or maps, null where the list is null."""
    offsets = lists.offsets
    if not lists.null_count:
        return offsets
    missing = [*pc.is_null(lists).to_pylist(), False]
    return pa.array(offsets.to_numpy(zero_copy_only=False), pa.int32(), mask=pa.array(missing).to_numpy(False))
