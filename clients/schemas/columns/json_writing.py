"""What typed columns are as JSON, so that no value becomes another one. Pure.

Fields of an object that are null are left out, since most schemas demand another type where there is one; entries of a
map stay. Where a schema names no one type, the reader makes a string with its JSON of a value: such a string is written
as it is, and has to be JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from stratalog.clients.schemas.columns.avro_writing import Fitted, is_list
from stratalog.clients.schemas.columns.json_schema import ANY_JSON
from stratalog.clients.schemas.columns.json_text import JsonMisfitError, parsed
from stratalog.clients.schemas.columns.reader import Meanings
from stratalog.storage.errors import SerializationError

Text = Callable[[Any], str]
"""The JSON of a value of a type."""


def json_fitted(meanings: Meanings, kind: pa.DataType) -> Fitted:
    """How a column of a type becomes texts. `meanings`: those of its schema's own columns."""
    return Fitted(kind, _text_of(kind, (), meanings))


def _text_of(kind: pa.DataType, path: tuple[str, ...], meanings: Meanings) -> Text:
    if not any(each[: len(path)] == path and ANY_JSON in names for each, names in meanings.items()):
        return partial(_plain, kind)
    if pa.types.is_struct(kind):
        return _object({each.name: _text_of(each.type, (*path, each.name), meanings) for each in kind})
    if pa.types.is_map(kind):
        return _entries(_text_of(kind.item_type, (*path, "value"), meanings))
    if is_list(kind):
        return _items(_text_of(kind.value_type, (*path, "element"), meanings))
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return _as_it_is if is_string and ANY_JSON in meanings.get(path, ()) else _dumped


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as reason:
        raise SerializationError(f"the value has no JSON form: {reason}; make a string of it before") from reason


def _plain(kind: pa.DataType, value: Any) -> str:
    return _dumped(_without_nulls(kind, value))


def _without_nulls(kind: pa.DataType, value: Any) -> Any:
    """A value of a type without the fields that are null."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = ((each.name, each.type, value[each.name]) for each in kind)
        return {name: _without_nulls(inner, each) for name, inner, each in fields if each is not None}
    if pa.types.is_map(kind):
        return {key: _without_nulls(kind.item_type, each) for key, each in value.items()}
    return [_without_nulls(kind.value_type, each) for each in value] if is_list(kind) else value


# -- around a value without one type -----------------------------------------------------------------------


def _as_it_is(text: str) -> str:
    try:
        parsed(text.encode())
    except JsonMisfitError as reason:
        raise SerializationError(
            f"a value without one type in its schema is a string with its JSON: {reason}"
        ) from reason
    return text


def _or_null(text: Text, value: Any) -> str:
    return "null" if value is None else text(value)


def _object(members: Mapping[str, Text]) -> Text:
    starts = [(name, f"{_dumped(name)}:", text) for name, text in members.items()]
    return lambda value: _braced(start + text(value[name]) for name, start, text in starts if value[name] is not None)


def _entries(text: Text) -> Text:
    return lambda value: _braced(f"{_key(name)}:{_or_null(text, each)}" for name, each in value.items())


def _items(text: Text) -> Text:
    return lambda value: "[" + ",".join(_or_null(text, each) for each in value) + "]"


def _braced(members: Iterable[str]) -> str:
    return "{" + ",".join(members) + "}"


def _key(name: Any) -> str:
    """A key, as `json.dumps` has those that are no strings."""
    return _dumped(name) if isinstance(name, str) else f'"{_dumped(name)}"'
