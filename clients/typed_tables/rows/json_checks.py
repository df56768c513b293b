"""JSON texts before Spark reads them into columns: what Spark would read as another value is an error. Pure.

Spark's `from_json` reads the first document of a text and leaves the rest, rounds a number to a decimal's scale, makes
infinity of 1e400, takes NaN, and knows names in one case alone, while Delta's columns count without it. Here a text is
one document of RFC 8259 whose numbers fit; a member has the name of a column, or one that differs by case alone.

Source: `org.apache.spark.sql.catalyst.json.JacksonParser`; `org.apache.kafka.connect.json.JsonConverter` for nulls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.columns.json_schema import read_lines
from stratalog.clients.schemas.columns.json_text import (
    JsonMisfitError,
    JsonNumber,
    as_text,
    decimal_of,
    double_of,
    fits_decimal,
    parsed,
    text_of,
    wrong,
)
from stratalog.clients.typed_tables.rows.evolution import DAYS_MAX, folded

Check = Callable[[Any], Any]
"""The value with the names of columns, itself where they are the same. JsonMisfitError."""
_PIECE_ROWS = 1_024
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LARGE_NUMBER = re.compile(r"[0-9][eE]|[0-9]{300}")
_WHOLE = re.compile(r"-?[0-9]{1,100}")
_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_SECONDS_MAX = (2**63 - 1) // 1_000_000
_YEAR_OR_DAYS = re.compile(r"\s*([+-]?)([0-9]{4,7}(?![0-9])|[0-9]{8,})")
"""How Spark reads a date: a year of up to seven digits, or days since 1970, which older releases wrote."""
_YEARS = {"": 294_245, "+": 294_245, "-": 290_307}
"""The last year after and before our era that a time in microseconds, into which a date may grow, holds as a whole."""
_YEAR_DIGITS, _DIGITS_MAX = 7, 12
TEXT, ERROR, IS_NULL, READ = "text", "error", "is_null", "read"


class CheckedText(NamedTuple):
    """A JSON text that was looked at.

    text     what Spark is to read in its place; None if that is the text itself
    error    why Spark is not to read it
    is_null  whether the document is a null: the text `null`, or Connect's envelope of one
    """

    text: str | None = None
    error: str | None = None
    is_null: bool = False


def checked_texts(values: pa.Array, kind: pa.DataType | None) -> pa.StructArray:
    """The structs `CheckedText` of n binary values; of plain columns with their value, `read`, where Arrow has read it
    as Spark would.

    kind  the columns, a struct; None for a VARIANT
    """
    pieces = [_piece(values.slice(start, _PIECE_ROWS), kind) for start in range(0, len(values), _PIECE_ROWS)]
    return pa.concat_arrays(pieces) if pieces else _checked([], kind)


def _checked(rows: Sequence[CheckedText], kind: pa.DataType | None) -> pa.StructArray:
    texts, errors, nulls = ([row[place] for row in rows] for place in range(3))
    columns = [pa.array(texts, pa.string()), pa.array(errors, pa.string()), pa.array(nulls, pa.bool_())]
    return _structs(columns, None if kind is None or not is_plain_kind(kind) else pa.nulls(len(rows), kind))


def _structs(columns: list[pa.Array], read: pa.Array | None) -> pa.StructArray:
    names = [TEXT, ERROR, IS_NULL]
    if read is None:
        return pa.StructArray.from_arrays(columns, names=names)
    return pa.StructArray.from_arrays([*columns, read], names=[*names, READ])


def _piece(values: pa.Array, kind: pa.DataType | None) -> pa.StructArray:
    """By Arrow where it takes all, otherwise row by row."""
    read = None if kind is None or values.null_count or not is_plain_kind(kind) else read_lines(values, kind)
    if read is not None and not _has_nulls(read):  # a null may be a name of another case, or a member of an envelope
        rows = len(values)
        columns = [pa.nulls(rows, pa.string()), pa.nulls(rows, pa.string()), pa.repeat(pa.scalar(False), rows)]
        return _structs(columns, read)
    rows_alone = [CheckedText() if value is None else checked_text(value, kind) for value in values.to_pylist()]
    return _checked(rows_alone, kind)


def checked_text(payload: bytes, kind: pa.DataType | None) -> CheckedText:
    """What Spark is to read, or why it is not to.

    >>> checked_text(b'{"ID": 1}', pa.struct([("id", pa.int64())]))
    CheckedText(text='{"id":1}', error=None, is_null=False)
    >>> checked_text(b'{"id": 1.55}', pa.struct([("id", pa.decimal128(3, 1))]))
    CheckedText(text=None, error='#/id: 1.55 is no DECIMAL(3, 1)', is_null=False)
    """
    try:
        value = parsed(payload)
        text = payload.decode()
        if _SURROGATE.search(text):
            text_of(as_text(value))
    except JsonMisfitError as misfit:
        return CheckedText(error=str(misfit).removeprefix(": "))
    is_null = is_null_document(value)
    try:
        if kind is None:
            if _LARGE_NUMBER.search(text):
                _finite(value)
            return CheckedText(is_null=is_null)
        checked = _check(kind)(value)
    except JsonMisfitError as misfit:
        return CheckedText(error=f"#{misfit}", is_null=is_null)
    is_same = checked is value and not _has_maps(kind)
    return CheckedText(None if is_same else as_text(checked), is_null=is_null)


@lru_cache(maxsize=64)
def _has_maps(kind: pa.DataType) -> bool:
    """Whether a map is in a type. Spark keeps all entries of a key, and finds the first; here the last one counts, the
    only one that was looked at."""
    return bool(pa.types.is_map(kind)) or any(_has_maps(kind.field(place).type) for place in range(kind.num_fields))


def is_null_document(value: Any) -> bool:
    """Whether Kafka Connect's JsonConverter reads a document as null: a null, or with `schemas.enable` an object of
    `schema` and `payload` alone whose payload is null, where the schema is null too, or optional without a default.

    >>> [is_null_document(parsed(text)) for text in (b"null", b'{"schema": null, "payload": null}')]
    [True, True]
    >>> is_null_document(parsed(b'{"schema": {"type": "int32", "optional": false}, "payload": null}'))
    False
    """
    if not isinstance(value, dict):
        return value is None
    if value.keys() != {"schema", "payload"} or value["payload"] is not None:
        return False
    schema = value["schema"]
    if not isinstance(schema, dict):
        return schema is None
    return isinstance(schema.get("type"), str) and schema.get("optional") is True and schema.get("default") is None


@lru_cache(maxsize=64)
def is_plain_kind(kind: pa.DataType) -> bool:
    """Whether Arrow's reader takes no value of a type that Spark reads otherwise."""
    if pa.types.is_struct(kind):
        return bool(len(kind)) and all(is_plain_kind(each.type) for each in kind)
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or kind in (pa.float64(), pa.string()))


def _has_nulls(values: pa.Array) -> bool:
    if pa.types.is_struct(values.type):
        return bool(values.null_count) or any(map(_has_nulls, values.flatten()))
    return bool(values.null_count)


@lru_cache(maxsize=64)
def _check(kind: pa.DataType) -> Check:
    if pa.types.is_struct(kind):
        return _struct({each.name: _check(each.type) for each in kind})
    if pa.types.is_list(kind):
        return _list(_check(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_check(kind.item_type))
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if kind in _INTEGER_BITS:
        return _integer(_INTEGER_BITS[kind])
    if kind == pa.float32():
        return _float
    if kind == pa.float64():
        return _double
    if kind == pa.date32():
        return _date
    return _instant if pa.types.is_timestamp(kind) and kind.tz else _same


def _same(value: Any) -> Any:
    return value


def _finite(value: Any) -> None:
    if isinstance(value, JsonNumber):
        double_of(value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _finite(each)


def _integer(bits: int) -> Check:
    limit = 1 << (bits - 1)

    def check(value: Any) -> Any:
        """Spark takes 200 for the byte -56."""
        if isinstance(value, JsonNumber) and _WHOLE.fullmatch(value) and not -limit <= int(value) < limit:
            raise wrong(value, f"integer of {bits} bits")
        return value

    return check


def _double(value: Any) -> Any:
    """Spark takes the text "Infinity", too."""
    if isinstance(value, JsonNumber):
        double_of(value)
    elif value is not None:
        raise wrong(value, "DOUBLE")
    return value


def _float(value: Any) -> Any:
    if _double(value) is not None:
        with np.errstate(over="ignore"):
            if not np.isfinite(np.float32(float(value))):
                raise wrong(value, "FLOAT")
    return value


def _decimal(precision: int, scale: int) -> Check:
    name = f"DECIMAL({precision}, {scale})"

    def check(value: Any) -> Any:
        if value is None:
            return None
        try:
            number = decimal_of(value) if isinstance(value, JsonNumber) else Decimal(value)
        except (InvalidOperation, TypeError, ValueError):
            raise wrong(value, name) from None
        if not fits_decimal(number, precision, scale):
            raise wrong(value, name)
        return value

    return check


def _instant(value: Any) -> Any:
    """Spark takes a number for seconds, and multiplies without a check."""
    if isinstance(value, JsonNumber) and decimal_of(value).copy_abs() > _SECONDS_MAX:
        raise wrong(value, "TIMESTAMP")
    return value


def _date(value: Any) -> Any:
    """A date that no time holds would end every reader of the column once it has grown into TIMESTAMP_NTZ."""
    found = _YEAR_OR_DAYS.match(value) if isinstance(value, str) else None
    if found is not None:
        sign, digits = found.groups()
        most = DAYS_MAX if len(digits) > _YEAR_DIGITS else _YEARS[sign]
        if len(digits.lstrip("0")) > _DIGITS_MAX or int(digits) > most:
            raise wrong(value, "DATE that a TIMESTAMP_NTZ holds")
    return value


def _list(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        found = [_inside(check_item, each, place) for place, each in enumerate(value)]
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found

    return check


def _map(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = {name: _inside(check_item, each, name) for name, each in value.items()}
        return value if all(found[name] is value[name] for name in value) else found

    return check


def _struct(checks: Mapping[str, Check]) -> Check:
    by_case: dict[str, str] = {folded(name): name for name in checks}

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            if value is None:
                return value
            raise wrong(value, "STRUCT")
        found: dict[str, Any] = {}
        is_same = True
        for name, each in value.items():
            own = name
            if name not in checks:
                own = by_case.get(folded(name), name)
            if own != name and (own in value or own in found):
                if own in value:
                    continue
                raise JsonMisfitError(f": two members are {own}, if case does not count")
            found[own] = _inside(checks[own], each, name) if own in checks else each
            is_same = is_same and own == name and found[own] is each
        return value if is_same and len(found) == len(value) else found

    return check


def _inside(check: Check, value: Any, step: str | int) -> Any:
    try:
        return check(value)
    except JsonMisfitError as misfit:
        raise JsonMisfitError(f"/{step}{misfit}") from misfit
