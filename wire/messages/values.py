"""The values of messages, and messages as mappings: the fields of all versions by kio's names. Pure.

Of a mapping fields that the version does not have are left out, missing ones have Kafka's default.

error codes  written: a StratalogError, None or a number; read: Kafka's code, or in dataclasses of ours a StratalogError
times        milliseconds, durations, too; -1 is none
ids          32 hexadecimal digits; written, "" and None are none
parts        of the same kind as the message
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.storage.errors import StratalogError
from stratalog.wire.messages.schema import EntityType, FieldShape, names_in_any_version, shape_of

Values = Mapping[str, Any]
"""A message or a part of one by the names of its fields."""

_MILLISECOND = dt.timedelta(milliseconds=1)
_NO_ERROR, _UNKNOWN_ERROR = ErrorCode(0), ErrorCode(-1)
_EMPTY = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0}


NAMES_ARE_CHECKED = False
"""Whether the names of values are compared with those of all versions. Only tests do: it loads the classes of all
versions, and a broker's loop would do so at the first answer of each API."""


def values_taker(entity_type: EntityType, names: Sequence[str]) -> Callable[[Values], Sequence[Any]]:
    """A function that gives what is written for these fields of a message. TypeError for a field that no version of the
    API has, in tests."""
    shapes = {each.name: each for each in shape_of(entity_type)}
    defaults = [(name, default_of(shapes[name])) for name in names]
    tagged = [at for at, name in enumerate(names) if shapes[name].tag is not None]

    def take(values: Values) -> Sequence[Any]:
        if NAMES_ARE_CHECKED:
            _check_names(entity_type, frozenset(values))
        taken = [values.get(name, default) for name, default in defaults]
        for at in tagged:
            taken[at] = _comparable(taken[at], defaults[at][1])
        return taken

    return take


def _comparable(value: Any, default: Any) -> Any:
    """The value of a tagged field, which is not written if it equals the default."""
    if isinstance(value, list):
        return tuple(value)
    return {**default, **value} if isinstance(value, dict) and value is not default else value


def default_of(field: FieldShape) -> Any:
    """The value of a missing field: Kafka's default, else the empty value of its type."""
    if field.has_default:
        return _plain(field.default)
    if field.is_array:
        return ()
    if field.is_nullable:
        return None
    if field.part is not None:
        return {each.name: default_of(each) for each in shape_of(field.part)}
    return _EMPTY.get(field.kafka_type or "", 0)


def _plain(default: Any) -> Any:
    if isinstance(default, dt.timedelta):
        return default // _MILLISECOND
    if hasattr(default, "__dataclass_fields__"):
        part: EntityType = type(default)
        return {each.name: _plain(getattr(default, each.name)) for each in shape_of(part)}
    return default


@cache
def _check_names(entity_type: EntityType, names: frozenset[str]) -> None:
    unknown = names - names_in_any_version(entity_type.__api_key__)
    if unknown:
        raise TypeError(f"no version of {entity_type.__name__} has {sorted(unknown)}")


# -- values of fields ----------------------------------------------------------------------------------------------


def code_of(error: StratalogError | int | None) -> ErrorCode:
    """Kafka's code of an error; None is 0. A code that kio does not know is UNKNOWN_SERVER_ERROR."""
    if error is None:
        return _NO_ERROR
    number = error if isinstance(error, int) else error.code
    try:
        return ErrorCode(number)
    except ValueError:
        return _UNKNOWN_ERROR


def id_text(topic_id: str | None) -> str | None:
    """A request's topic id; None for the zero id, which means none."""
    return topic_id if topic_id and topic_id.strip("0") else None
