"""The branch of a union as which a value is written: one that holds it as it is. Pure.

fastavro takes the first branch that accepts a value, and its floats accept any int: of 2**53 + 1 a double becomes
another number where the union has a long as well, and of a time a date. Here an int is an int or a long before it is a
float, as in Java, and a branch that would alter the value, anywhere within it, is none.

Source: `org.apache.avro.generic.GenericData.resolveUnion`; for records `fastavro.write.write_union`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from stratalog.clients.schemas.avro_binary.checks import Check, check_of
from stratalog.clients.schemas.compatibility.avro import AvroType

Choose = Callable[[Any], Any]
"""The value with the name of a branch for each union within it, as fastavro's `(name, value)`."""
_BYTES = (bytes, bytearray, memoryview)
_INTEGERS = (int, np.integer)
_FLOATS = (float, np.floating)
_MAP_RANK = 1 << 30
"""A map that fits comes before records, as in fastavro."""


def choice_of(node: AvroType) -> Choose | None:
    """The choice for values of a type that its check has passed; None for a type without a union of several types.

    >>> choose = choice_of(AvroType("union", branches=(AvroType("double"), AvroType("long"))))
    >>> choose(2**53 + 1), choose(0.5)
    (('long', 9007199254740993), ('double', 0.5))
    """
    return _Choices().of(node)


class _Member(NamedTuple):
    """A branch of a union."""

    name: str
    node: AvroType
    check: Check
    choose: Choose | None

    def holds(self, value: Any) -> bool:
        if not _could_be(self.node, value):
            return False
        try:
            self.check(value)
        except ValueError:
            return False
        return True

    def written(self, value: Any) -> tuple[str, Any]:
        return self.name, value if self.choose is None else self.choose(value)


class _Choices:
    """Choices by type; a record's is made once, since it may contain itself."""

    def __init__(self) -> None:
        self._records: dict[int, list[Choose]] = {}

    def of(self, node: AvroType) -> Choose | None:
        if not _has_choices(node, set()):
            return None
        if node.type == "union":
            return self._union(node)
        if node.type == "record":
            return self._record(node)
        inner = self.of(node.branches[0])
        assert inner is not None
        if node.type == "array":
            return lambda value: [inner(each) for each in value]
        return lambda value: {key: inner(each) for key, each in value.items()}

    def _record(self, node: AvroType) -> Choose:
        known = self._records.get(id(node))
        if known is not None:
            return known[0] if known else _later(known)
        self._records[id(node)] = made = []
        found = [(each.name, self.of(each.type)) for each in node.fields]
        fields = [(name, choose) for name, choose in found if choose is not None]

        def choose_fields(value: Mapping[str, Any]) -> dict[str, Any]:
            return {**value, **{name: choose(value[name]) for name, choose in fields if name in value}}

        made.append(choose_fields)
        return choose_fields

    def _union(self, node: AvroType) -> Choose:
        members = [
            _Member(each.name or each.type, each, check_of(each), self.of(each))
            for each in node.branches
            if each.type != "null"
        ]
        named = {each.name: each for each in reversed(members)}

        def choose(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, tuple) and len(value) == 2:
                return named[value[0]].written(value[1]) if value[0] in named and value[1] is not None else value
            fitting = [each for each in members if each.holds(value)]
            return max(fitting, key=lambda each: _rank(each.node, value)).written(value) if fitting else value

        return choose


def _later(made: list[Choose]) -> Choose:
    """The choice that will be made, for a type within itself."""

    def choose(value: Any) -> Any:
        return made[0](value)

    return choose


def _has_choices(node: AvroType, seen: set[int]) -> bool:
    """Whether a union of several types besides null is in a type."""
    if id(node) in seen:
        return False
    seen.add(id(node))
    if node.type == "union" and sum(each.type != "null" for each in node.branches) > 1:
        return True
    return any(_has_choices(each, seen) for each in (*node.branches, *(each.type for each in node.fields)))


def _rank(node: AvroType, value: Any) -> int:
    """How well a branch fits that holds a value; of equals the first counts."""
    if isinstance(value, Mapping):
        return _MAP_RANK if node.type == "map" else sum(each.name in value for each in node.fields)
    if isinstance(value, _INTEGERS):
        return 2 - bool(node.logical) if node.type in ("int", "long") else 0
    if isinstance(value, dt.datetime):
        return int("timestamp-" in node.logical)
    return int(node.type == "double")


def _could_be(node: AvroType, value: Any) -> bool:
    """Whether a value of this Python type may be one of the branch; its check says the rest."""
    return isinstance(value, bool | np.bool_) if node.type == "boolean" else _OF_TYPE[node.type](node, value)


def _is_number(node: AvroType, value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    times = (dt.datetime,) if "timestamp-" in node.logical else (dt.time,) if node.logical.startswith("time-") else ()
    kinds = (dt.date,) if node.logical == "date" else times
    return isinstance(value, (*_INTEGERS, *kinds))


def _is_float(_: AvroType, value: Any) -> bool:
    return isinstance(value, (*_FLOATS, *_INTEGERS)) and not isinstance(value, bool)


def _is_text(node: AvroType, value: Any) -> bool:
    if node.type == "enum":
        return isinstance(value, str) and value in node.symbols
    return isinstance(value, (str, UUID) if node.logical == "uuid" else str)


def _is_bytes(node: AvroType, value: Any) -> bool:
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return node.logical == "decimal" and isinstance(exponent, int) and -exponent <= node.scale
    if isinstance(value, UUID):
        return node.logical == "uuid"
    return isinstance(value, _BYTES) and (node.type == "bytes" or bool(node.logical) or len(value) == node.size)


def _is_array(_: AvroType, value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, *_BYTES, Mapping))


def _is_mapping(_: AvroType, value: Any) -> bool:
    return isinstance(value, Mapping)


_OF_TYPE: Mapping[str, Callable[[AvroType, Any], bool]] = {
    "int": _is_number, "long": _is_number, "float": _is_float, "double": _is_float, "string": _is_text,
    "enum": _is_text, "bytes": _is_bytes, "fixed": _is_bytes, "array": _is_array, "map": _is_mapping,
    "record": _is_mapping,
}  # fmt: skip
