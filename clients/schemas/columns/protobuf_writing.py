"""What protobuf's messages get of typed columns, so that no value of a column is lost or becomes another one. Pure.

A message takes 5 for a boolean, makes infinity of a double that is no float, and an entry of a map without a value is
left out. Here a value is one of its field's type, or an error.

Source: `org.apache.spark.sql.protobuf.ProtobufSerializer`, which refuses the same by type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stratalog.clients.schemas.avro_binary.checks import check_of
from stratalog.clients.schemas.columns.avro_writing import Fitted, entries, is_list, items, known, struct
from stratalog.clients.schemas.columns.protobuf import TIMESTAMP, check_timestamp
from stratalog.clients.schemas.compatibility.avro import AvroType
from stratalog.clients.schemas.protobuf_messages import is_map
from stratalog.storage.errors import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_DOUBLE, _FLOAT, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _ENUM = 1, 2, 8, 9, 10, 11, 12, 14
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_NANOS = 1_000_000_000
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": _NANOS}


def protobuf_fitted(kind: pa.DataType, message: Descriptor, path: str = "#") -> Fitted:
    """How a column of a type becomes messages. SerializationError for one that would be altered or left out."""
    if message.full_name == TIMESTAMP and pa.types.is_timestamp(kind):
        return _time(kind, path)
    if not pa.types.is_struct(kind):
        return Fitted(kind)
    fields = {each.name: each for each in message.fields}
    known(kind, list(fields), f"{path}: the message {message.full_name}")
    parts = {each.name: _field(each.type, fields[each.name], f"{path}/{each.name}") for each in kind}
    whole = struct(kind, parts)

    def fit(value: dict[str, Any]) -> dict[str, Any]:
        """A field that is null is absent."""
        given = value if whole.fit is None else whole.fit(value)
        return {name: each for name, each in given.items() if each is not None}

    return Fitted(whole.kind, fit)


def _field(kind: pa.DataType, field: FieldDescriptor, path: str) -> Fitted:
    if is_map(field):
        if not pa.types.is_map(kind):
            return Fitted(kind)
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        found = entries(kind, _value(kind.key_type, key, path), _value(kind.item_type, value, path))
        return _without_nulls(found, dict.values, path)
    if field.is_repeated:
        return (
            _without_nulls(items(kind, _value(kind.value_type, field, path)), list, path)
            if is_list(kind)
            else Fitted(kind)
        )
    return _value(kind, field, path)


def _without_nulls(fitted: Fitted, parts: Callable[[Any], Any], path: str) -> Fitted:
    """Protobuf has no null within a list or a map: it leaves the entry out."""
    fit_parts = fitted.fit

    def fit(value: Any) -> Any:
        if any(each is None for each in parts(value)):
            raise SerializationError(f"{path}: null is no value of a list or map in Protobuf")
        return value if fit_parts is None else fit_parts(value)

    return Fitted(fitted.kind, fit)


def _value(kind: pa.DataType, field: FieldDescriptor, path: str) -> Fitted:
    if field.type in (_MESSAGE, _GROUP):
        return protobuf_fitted(kind, field.message_type, path)
    if field.type == _ENUM:
        return Fitted(kind, partial(_enum, field.enum_type, path))
    return Fitted(kind, partial(_CHECKED.get(field.type, _integer), path))


def _enum(enum: EnumDescriptor, path: str, value: Any) -> Any:
    """The number of a name; one without a name is read as its digits."""
    if isinstance(value, str) and value not in enum.values_by_name:
        if not _NUMBER.fullmatch(value):
            raise SerializationError(f"{path}: {value[:60]!r} is no value of {enum.full_name}")
        return int(value)
    return value


def _integer(path: str, value: Any) -> Any:
    if isinstance(value, Decimal):
        if value != value.to_integral_value():
            raise SerializationError(f"{path}: {value} is no whole number")
        return int(value)
    return value


def _checked(kind: str) -> Callable[[str, Any], Any]:
    check = check_of(AvroType(kind))

    def fit(path: str, value: Any) -> Any:
        try:
            check(value)
        except ValueError as reason:
            raise SerializationError(f"{path}: {reason}") from reason
        return value

    return fit


_CHECKED = {
    _DOUBLE: _checked("double"), _FLOAT: _checked("float"), _BOOL: _checked("boolean"), _STRING: _checked("string"),
    _BYTES: _checked("bytes"),
}  # fmt: skip


def _time(kind: pa.DataType, path: str) -> Fitted:
    if not kind.tz:
        raise SerializationError(f"{path}: a column of times without a zone is no {TIMESTAMP}: cast it to TIMESTAMP")
    unit = _UNITS[kind.unit]

    def fit(time: int) -> dict[str, int]:
        seconds, nanos = time // unit, time % unit * (_NANOS // unit)
        try:
            check_timestamp(seconds, nanos)
        except ValueError as reason:
            raise SerializationError(f"{path}: {reason}") from reason
        return {"seconds": seconds, "nanos": nanos}

    return Fitted(pa.int64(), fit)
