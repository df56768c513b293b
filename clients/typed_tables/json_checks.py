"""JSON texts before Spark reads them into columns: what Spark would read as another value is an error. Pure.

Spark's `from_json` reads the first document of a text and leaves the rest, rounds a number to a decimal's scale, makes
infinity of 1e400, takes NaN, and knows names in one case alone, while Delta's columns count without it. Here a text is
one document of RFC 8259 whose numbers fit; a member has the name of a column, or one that differs by case alone.

Source: `org.apache.spark.sql.catalyst.json.JacksonParser`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

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
from stratalog.clients.typed_tables.evolution import folded

Check = Callable[[Any], Any]
"""The value with the names of columns, itself where they are the same. JsonMisfitError."""
_PIECE_ROWS = 1_024
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LARGE_NUMBER = re.compile(r"[0-9][eE]|[0-9]{300}")
_WHOLE = re.compile(r"-?[0-9]{1,100}")
_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_SECONDS_MAX = (2**63 - 1) // 1_000_000
TEXT, ERROR = "text", "error"


def checked_texts(values: pa.Array, kind: pa.DataType | None) -> pa.StructArray:
    """The structs `text` and `error` of n binary values: what Spark is to read, or why it is not to.

    kind  the columns, a struct; None for a VARIANT
    """
    pieces = [_piece(values.slice(start, _PIECE_ROWS), kind) for start in range(0, len(values), _PIECE_ROWS)]
    empty = pa.StructArray.from_arrays([pa.nulls(0, pa.string())] * 2, names=[TEXT, ERROR])
    return pa.concat_arrays(pieces) if pieces else empty


def _piece(values: pa.Array, kind: pa.DataType | None) -> pa.StructArray:
    """By Arrow where it takes all, otherwise row by row."""
    read = None if kind is None or values.null_count or not _is_plain(kind) else read_lines(values, kind)
    if read is not None and not _has_nulls(read):  # a null may be a name of another case
        columns = [values.cast(pa.string()), pa.nulls(len(values), pa.string())]
        return pa.StructArray.from_arrays(columns, names=[TEXT, ERROR])
    texts: list[str | None] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        text, error = (None, None) if value is None else checked_text(value, kind)
        texts.append(text)
        errors.append(error)
    columns = [pa.array(texts, pa.string()), pa.array(errors, pa.string())]
    return pa.StructArray.from_arrays(columns, names=[TEXT, ERROR])


def checked_text(payload: bytes, kind: pa.DataType | None) -> tuple[str | None, str | None]:
    """What Spark is to read, or why it is not to.

    >>> checked_text(b'{"ID": 1}', pa.struct([("id", pa.int64())]))
    ('{"id":1}', None)
    >>> checked_text(b'{"id": 1.55}', pa.struct([("id", pa.decimal128(3, 1))]))
    (None, '#/id: 1.55 is no DECIMAL(3, 1)')
    """
    try:
        value = parsed(payload)
        text = payload.decode()
        if _SURROGATE.search(text):
            text_of(as_text(value))
    except JsonMisfitError as misfit:
        return None, str(misfit).removeprefix(": ")
    try:
        if kind is None:
            if _LARGE_NUMBER.search(text):
                _finite(value)
            return text, None
        checked = _check(kind)(value)
    except JsonMisfitError as misfit:
        return None, f"#{misfit}"
    return text if checked is value and not _has_maps(kind) else as_text(checked), None


@lru_cache(maxsize=64)
def _has_maps(kind: pa.DataType) -> bool:
    """Whether a map is in a type. Spark keeps all entries of a key, and finds the first; here the last one counts, the
    only one that was looked at."""
    return bool(pa.types.is_map(kind)) or any(_has_maps(kind.field(place).type) for place in range(kind.num_fields))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow's reader takes no value of a type that Spark reads otherwise."""
    if pa.types.is_struct(kind):
        return bool(len(kind)) and all(_is_plain(each.type) for each in kind)
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
