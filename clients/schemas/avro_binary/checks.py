"""What a value has to be before fastavro writes it, so that it is not written as another one. Pure.

fastavro writes 1.5 as the int 1, "no" and None as booleans, an int of 64 bits where a schema has 32, infinity for a
float that is too large. It is strict where it chooses a branch of a union. Times are cut to the unit of their type, as
Java's `TimeConversions` do.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MAX_PREC, Context, Decimal
from operator import index
from typing import Any

import numpy as np

from stratalog.clients.schemas.compatibility.avro import AvroType

Check = Callable[[Any], None]
"""Raises ValueError for a value that would be altered."""
_BITS = {"int": 32, "long": 64}
_SHOWN_MAX = 60
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX)


def check_of(node: AvroType) -> Check:
    """The check of values of a type."""
    return _Checks().of(node)


class _Checks:
    """Checks by type; a record's is made once, since it may contain itself."""

    def __init__(self) -> None:
        self._records: dict[int, list[Check]] = {}

    def of(self, node: AvroType) -> Check:
        if node.type == "union":
            return self._union(node)
        if node.type == "record":
            return self._record(node)
        if node.type == "array":
            return _each_of(self.of(node.branches[0]))
        if node.type == "map":
            return _each_value_of(self.of(node.branches[0]))
        if node.type in _BITS:
            return _time_of(node) if node.logical else _number_of(node.type)
        if node.logical == "decimal":
            return _decimal_of(node)
        return _LEAVES.get(node.type, _anything) if not node.logical else _anything

    def _record(self, node: AvroType) -> Check:
        known = self._records.get(id(node))
        if known is not None:
            return known[0] if known else _later(known)
        self._records[id(node)] = made = []
        fields = [(each.name, self.of(each.type), each.has_default) for each in node.fields]

        def check(value: Any) -> None:
            if not isinstance(value, Mapping):
                raise _wrong(value, f"record {node.name}")
            for name, check_field, has_default in fields:
                if name in value:
                    check_field(value[name])
                elif not has_default:
                    check_field(None)

        made.append(check)
        return check

    def _union(self, node: AvroType) -> Check:
        checks = [(each, self.of(each)) for each in node.branches]
        named = {each.name or each.type: check for each, check in reversed(checks)}

        def check(value: Any) -> None:
            if isinstance(value, tuple) and len(value) == 2:
                named.get(value[0], _anything)(value[1])
                return
            reason: ValueError | None = None
            for _, check_branch in checks:
                try:
                    check_branch(value)
                except ValueError as refused:
                    reason = refused
                else:
                    return
            if reason is not None:
                raise reason

        return check


def _later(made: list[Check]) -> Check:
    """The check that will be made, for a type within itself."""

    def check(value: Any) -> None:
        made[0](value)

    return check


def _anything(value: Any) -> None:
    """fastavro checks the value."""


def _nothing(value: Any) -> None:
    if value is not None:
        raise _wrong(value, "null")


def _boolean(value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise _wrong(value, "boolean")


def _number_of(kind: str) -> Check:
    limit = 1 << (_BITS[kind] - 1)

    def check(value: Any) -> None:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_):
                raise _wrong(value, kind)
            try:
                value = index(value)
            except TypeError:
                raise _wrong(value, kind) from None
        if not -limit <= value < limit:
            raise _wrong(value, kind)

    return check


def _time_of(node: AvroType) -> Check:
    """A date or time, or the number that stands for one."""
    check_number, is_local, is_date = _number_of(node.type), node.logical.startswith("local-"), node.logical == "date"

    def check(value: Any) -> None:
        if isinstance(value, int | float | np.number | np.bool_):
            check_number(value)
        elif isinstance(value, dt.datetime):
            if is_local and value.tzinfo is not None:
                raise ValueError(f"{value} has a zone, and {node.logical} has none: leave it out")
            if is_date and value.time() != dt.time():
                raise _wrong(value, "date")
        elif isinstance(value, dt.time) and value.tzinfo is not None:
            raise ValueError(f"{value} has a zone, and {node.logical} has none: leave it out")

    return check


def _float(value: Any) -> None:
    _double(value)
    if math.isfinite(value):
        with np.errstate(over="ignore"):
            narrow = float(np.float32(value))
        if not math.isfinite(narrow) or (not isinstance(value, float | np.floating) and narrow != value):
            raise _wrong(value, "float")


def _double(value: Any) -> None:
    if isinstance(value, float | np.floating):
        return
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise _wrong(value, "double")
    try:
        is_exact = int(float(value)) == value
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise _wrong(value, "double")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise _wrong(value, "string")


def _bytes(value: Any) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")


def _decimal_of(node: AvroType) -> Check:
    limit = 10**node.precision

    def check(value: Any) -> None:
        if not isinstance(value, Decimal):
            _bytes(value)
        elif not value.is_finite() or value.scaleb(node.scale, _WIDE).copy_abs() >= limit:
            raise _wrong(value, f"decimal of {node.precision} digits, {node.scale} of them behind the point,")

    return check


_LEAVES: dict[str, Check] = {
    "null": _nothing, "boolean": _boolean, "float": _float, "double": _double, "string": _text, "enum": _text,
    "bytes": _bytes, "fixed": _bytes,
}  # fmt: skip


def _each_of(check_item: Check) -> Check:
    def check(value: Any) -> None:
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            raise _wrong(value, "array")
        for each in value:
            check_item(each)

    return check


def _each_value_of(check_item: Check) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(value, "map")
        for each in value.values():
            check_item(each)

    return check


def _wrong(value: Any, kind: str) -> ValueError:
    text = repr(value)
    return ValueError(f"{text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} is no {kind}")
