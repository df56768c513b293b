"""Kafka's messages of any version, built from plain values. Pure.

A message is given as a mapping with the fields of all versions by kio's names. Fields that the version does not have
are left out, missing ones have Kafka's default. Milliseconds, hexadecimal ids and errors become kio's types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.storage.errors import StratalogError
from stratalog.wire.messages.schema import Entity, EntityType, FieldShape, names_in_any_version, shape_of

Values = Mapping[str, Any]
"""A message or a part of one by the names of its fields."""

_MILLISECOND = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_ERROR, _UNKNOWN_ERROR = ErrorCode(0), ErrorCode(-1)
_Convert = Callable[[Any], Any]


NAMES_ARE_CHECKED = False
"""Whether `build` compares names with those of all versions. Only tests do: it loads the classes of all versions, and a
broker's loop would do so at the first answer of each API."""


def build(entity_type: EntityType, values: Values) -> Entity:
    """A message of kio's class from plain values. TypeError for a field that no version of the API has, in tests.

    error codes  a StratalogError, None or a number; durations and times: milliseconds; ids: 32 hexadecimal digits
    parts        mappings of the same kind, arrays any iterables of them or of built parts
    """
    given = {}
    for name, convert, default in _plan(entity_type):
        given[name] = convert(values[name]) if name in values else default
    if NAMES_ARE_CHECKED and (len(values) != len(given) or not values.keys() <= given.keys()):
        _check_names(entity_type, frozenset(values))
    return entity_type(**given)


def milliseconds(duration: dt.timedelta) -> int:
    """A duration of a request in milliseconds."""
    return duration // _MILLISECOND


def code_of(error: StratalogError | int | None) -> ErrorCode:
    """Kafka's code of an error; None is 0. A code that kio does not know is UNKNOWN_SERVER_ERROR."""
    if error is None:
        return _NO_ERROR
    number = error if isinstance(error, int) else error.code
    try:
        return ErrorCode(number)
    except ValueError:
        return _UNKNOWN_ERROR


def id_text(topic_id: UUID | None) -> str | None:
    """A request's topic id as 32 hexadecimal digits; None for the zero id, which means none."""
    return None if topic_id is None or topic_id.int == 0 else topic_id.hex


@cache
def _plan(entity_type: EntityType) -> tuple[tuple[str, _Convert, Any], ...]:
    """Name, conversion and default of each field."""
    return tuple((field.name, _converter(field), default_of(field)) for field in shape_of(entity_type))


def _converter(field: FieldShape) -> _Convert:
    part = field.part
    if part is not None and field.is_array:
        return lambda values: None if values is None else tuple(_part(part, each) for each in values)
    if part is not None:
        return lambda values: None if values is None else build(part, values)
    convert = _CONVERTERS.get(field.kafka_type or "", _as_it_is)
    if convert is _time and not field.is_nullable:
        return lambda value_ms: _EPOCH + dt.timedelta(milliseconds=value_ms)  # -1 is a time, too
    if not field.is_array and not field.is_nullable and field.kafka_type in _EMPTY:
        empty = _EMPTY[field.kafka_type]
        return lambda value: empty if value is None else value  # null came with a later version
    if not field.is_array:
        return convert
    if convert is _as_it_is:
        return lambda values: None if values is None else tuple(values)
    return lambda values: None if values is None else tuple(map(convert, values))


def _part(part: EntityType, each: Any) -> Entity:
    return each if isinstance(each, part) else build(part, each)


def _as_it_is(value: Any) -> Any:
    return value


def _duration(value_ms: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=value_ms)


def _time(value_ms: int | None) -> dt.datetime | None:
    return None if value_ms is None or value_ms < 0 else _EPOCH + dt.timedelta(milliseconds=value_ms)


def _uuid(value: str | UUID | None) -> UUID | None:
    return UUID(value) if isinstance(value, str) else value


_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "records": b""}
_CONVERTERS: dict[str, _Convert] = {
    "error_code": code_of,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _time,
    "uuid": _uuid,
}


def default_of(field: FieldShape) -> Any:
    """The value of a missing field: Kafka's default, else the empty value of its type."""
    if field.has_default:
        return field.default
    if field.is_array:
        return ()
    if field.is_nullable:
        return None
    if field.part is not None:
        return build(field.part, {})
    convert = _CONVERTERS.get(field.kafka_type or "")
    if convert is not None:
        return convert(0)
    return {**_EMPTY, "bool": False, "float64": 0.0}.get(field.kafka_type or "", 0)


@cache
def _check_names(entity_type: EntityType, names: frozenset[str]) -> None:
    unknown = names - names_in_any_version(entity_type.__api_key__)
    if unknown:
        raise TypeError(f"no version of {entity_type.__name__} has {sorted(unknown)}")
