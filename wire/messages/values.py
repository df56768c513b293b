"""Kafka's messages to and from the dataclasses of `replication.requests`, which have the same fields by name. Pure.

Values of groups and transactions name and nest their fields as the message JSON does. kio leaves out `_ms` where it has
durations and times, and has `error_code` where a value has `error`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from stratalog.storage.errors import StratalogError, error_for_code
from stratalog.wire.messages.entities import milliseconds
from stratalog.wire.messages.schema import Entity

V = TypeVar("V")
_ABSENT = object()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def value_of(value_type: type[V], entity: Entity, **given: Any) -> V:
    """A value from a message or a part of one; fields that the version lacks have the value's default, as do times that
    are not set. A code and a message become an `error`.

    given  fields that the message does not have, or not in this form
    """
    found: dict[str, Any] = {}
    for name, short, part, default in _fields(cast(Any, value_type)):
        if name in given:
            found[name] = given[name]
            continue
        if name == "error":
            found[name] = error_of(entity)
            continue
        content = getattr(entity, short, _ABSENT)
        if content is _ABSENT or (content is None and name != short):
            if default is MISSING:
                raise TypeError(f"{type(entity).__name__} has no {short} for {value_type.__name__}")
            continue
        found[name] = _plain(content, part)
    return value_type(**found)


def error_of(part: Entity, code: str = "error_code") -> StratalogError | None:
    """The error in a response or a part of one; None for success.

    code  the name of the field with the code
    """
    number = getattr(part, code, 0)
    if not number:
        return None
    return error_for_code(int(number), getattr(part, "error_message", None) or "answered by the broker")


def time_ms_of(time: dt.datetime) -> int:
    """A message's time in milliseconds since 1970 UTC."""
    return milliseconds(time - _EPOCH)


def _plain(content: Any, part: Any) -> Any:
    if isinstance(content, dt.timedelta):
        return milliseconds(content)
    if isinstance(content, dt.datetime):
        return time_ms_of(content)
    if isinstance(content, UUID):
        return content.hex
    if part is not None and content is not None:
        is_array = isinstance(content, tuple)
        return tuple(value_of(part, each) for each in content) if is_array else value_of(part, content)
    return content


@cache
def _fields(value_type: Any) -> tuple[tuple[str, str, Any, Any], ...]:
    """Name, kio's name, class of the parts, and default of each field."""
    hints = get_type_hints(value_type)
    return tuple((f.name, _short(f.name), _part(hints[f.name]), f.default) for f in fields(value_type))


def _short(name: str) -> str:
    return name.removesuffix("_ms")


def _part(hint: Any) -> Any:
    """The dataclass within `X`, `X | None`, `tuple[X, ...]`; None for anything else."""
    if get_origin(hint) in (UnionType, Union):
        return next((_part(each) for each in get_args(hint) if each is not NoneType), None)
    if get_origin(hint) is tuple:
        return _part(get_args(hint)[0])
    return hint if hasattr(hint, "__dataclass_fields__") else None


def fields_of(value: Any, rename: Mapping[str, Callable[[Any], Any]] | None = None) -> dict[str, Any]:
    """A response, or a part of one, as the fields of a message.

    rename  for fields of the outermost value that the message has in another form
    """
    found: dict[str, Any] = {}
    for name, message_name in _names(value.__class__):
        content = getattr(value, name)
        if rename is not None and name in rename:
            found[name] = rename[name](content)
        else:
            found[message_name] = _nested(content)
    return found


@cache
def _names(value_type: Any) -> tuple[tuple[str, str], ...]:
    """For each field of the class: its name, and the name of the message's field."""
    return tuple((f.name, "error_code" if f.name == "error" else _short(f.name)) for f in fields(value_type))


def _nested(content: Any) -> Any:
    if hasattr(content, "__dataclass_fields__"):
        return fields_of(content)
    if isinstance(content, tuple) and content and hasattr(content[0], "__dataclass_fields__"):
        return [fields_of(each) for each in content]
    return content


def as_error(answer: object) -> StratalogError | None:
    """The error that a coordinator answered instead of a response; None for a response."""
    return answer.as_value() if isinstance(answer, StratalogError) else None


def message_of(error: StratalogError | None) -> str | None:
    """An error's message; None without an error."""
    return None if error is None else str(error)
