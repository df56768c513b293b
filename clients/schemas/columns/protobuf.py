"""Protobuf payloads as typed columns. Pure.

They need the package protobuf (`stratalog[schemas]`). The reader's message reads what other versions of it wrote:
fields are known by number. Methods are those of a message's class, as its attributes are its fields, whatever their
names are. A field with presence is null where it is absent, any other has its default. An enum is the
name of its value, or its number where it has no name; `google.protobuf.Timestamp` a timestamp, rounded down to
microseconds; uint64 a decimal(20, 0), uint32 a long; a `oneof` is its fields.

Source: `org.apache.spark.sql.protobuf.utils.SchemaConverters`, but for unsigned numbers, which keep their values here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from stratalog.clients.schemas.columns.reader import Meanings, ReadValues
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.protobuf_messages import check_required, is_map, messages_of
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.schemas.wire_format import FIRST_MESSAGE
from stratalog.storage.errors import SerializationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_DOUBLE, _FLOAT, _UINT64, _UINT32, _FIXED64, _FIXED32 = 1, 2, 4, 13, 6, 7
_BOOL, _STRING, _MESSAGE, _BYTES, _ENUM, _GROUP = 8, 9, 11, 12, 14, 10
_SCALARS = {
    _DOUBLE: pa.float64(),
    _FLOAT: pa.float32(),
    _UINT64: pa.decimal128(20, 0),
    _FIXED64: pa.decimal128(20, 0),
    _UINT32: pa.int64(),
    _FIXED32: pa.int64(),
    _BOOL: pa.bool_(),
    _STRING: pa.string(),
    _BYTES: pa.binary(),
    _ENUM: pa.string(),
    3: pa.int64(),
    16: pa.int64(),
    18: pa.int64(),
    5: pa.int32(),
    15: pa.int32(),
    17: pa.int32(),
}
"""`FieldDescriptor.type` -> Arrow type."""
TIMESTAMP = "google.protobuf.Timestamp"
_SECONDS_MIN, _SECONDS_MAX, _NANOS = -62_135_596_800, 253_402_300_799, 1_000_000_000
"""0001-01-01 and 9999-12-31, as google/protobuf/timestamp.proto has them."""
_REFUSALS = (ValueError, TypeError, OverflowError, pa.ArrowException)
_SHOWN_MAX = 200
_MICROSECONDS = pa.timestamp("us", "UTC")


class ProtobufColumns:
    """Columns of a message, the first of the reader's file if `message` is not given as full name.

    InvalidSchemaError for a message that the file does not have, and for one that contains itself.
    """

    def __init__(self, reader: ResolvedSchema, message: str | None = None) -> None:
        self._known: dict[Schema, dict[tuple[int, ...], type[Message]]] = {}
        types = {each.DESCRIPTOR.full_name: each for each in self._messages(reader).values()}
        if message is not None and message not in types:
            raise InvalidSchemaError(f"the file has no message {message}; it has {', '.join(types)}")
        self._message = types[message] if message is not None else self._messages(reader)[FIRST_MESSAGE]
        self._type = _message_type(self._message.DESCRIPTOR, ())
        self._has_required = _has_required(self._message.DESCRIPTOR)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self._type

    @property
    def meanings(self) -> Meanings:
        """Nothing: types and names say all."""
        return {}

    @property
    def has_message_indexes(self) -> bool:
        return True

    def read(
        self, payloads: pa.Array, writer: ResolvedSchema | None, message_indexes: tuple[int, ...] | None = None
    ) -> ReadValues:
        """The values of payloads that are messages of `writer` with these indexes."""
        wanted = self._message.DESCRIPTOR.full_name
        if writer is not None:
            written = self._messages(writer).get(message_indexes or FIRST_MESSAGE)
            name = "no message" if written is None else written.DESCRIPTOR.full_name
            if name != wanted:
                reason = f"{name} was written with indexes {message_indexes}, {wanted} is read"
                return ReadValues(pa.nulls(len(payloads), self._type), dict.fromkeys(range(len(payloads)), reason))
        from google.protobuf.message import DecodeError

        errors: dict[int, str] = {}
        messages: list[Message | None] = [None] * len(payloads)
        kind = self._message
        for place, payload in enumerate(payloads.to_pylist()):
            if payload is not None:
                try:
                    message = kind.FromString(payload)
                    if self._has_required:
                        check_required(message)
                    messages[place] = message
                except (DecodeError, SerializationError) as reason:
                    errors[place] = f"the bytes do not fit {wanted}: {reason}"
        try:
            return ReadValues(self._column(messages), errors)
        except _REFUSALS:
            pass
        for place, message in enumerate(messages):  # one of them has a value that no column holds
            try:
                self._column([message])
            except _REFUSALS as reason:
                messages[place], errors[place] = None, f"a value of {wanted}: {str(reason)[:_SHOWN_MAX]}"
        return ReadValues(self._column(messages), errors)

    def _column(self, messages: Sequence[Message | None]) -> pa.Array:
        return _messages_column(self._message.DESCRIPTOR, messages, self._type)

    def _messages(self, schema: ResolvedSchema) -> dict[tuple[int, ...], type[Message]]:
        if schema.schema not in self._known:
            self._known[schema.schema] = messages_of(schema.schema, schema.references)
        return self._known[schema.schema]


def _has_required(message: Descriptor) -> bool:
    """Whether a field in a message, which does not contain itself, is required: Java refuses bytes without it, and
    Python does not."""
    return any(each.is_required or (each.message_type and _has_required(each.message_type)) for each in message.fields)


def _message_type(message: Descriptor, around: tuple[str, ...]) -> pa.DataType:
    name = message.full_name
    if name == TIMESTAMP:
        return _MICROSECONDS
    if name in around:
        raise InvalidSchemaError(
            f"{name} contains itself, which no column type does: read with a schema that leaves the field out"
        )
    return pa.struct([(each.name, _field_type(each, (*around, name))) for each in message.fields])


def _field_type(field: FieldDescriptor, around: tuple[str, ...]) -> pa.DataType:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_value_type(entry["key"], around), _value_type(entry["value"], around))
    value = _value_type(field, around)
    return pa.list_(value) if field.is_repeated else value


def _value_type(field: FieldDescriptor, around: tuple[str, ...]) -> pa.DataType:
    if field.type in (_MESSAGE, _GROUP):
        return _message_type(field.message_type, around)
    return _SCALARS[field.type]


def _messages_column(message: Descriptor, messages: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """n messages, or None, as a struct column: one pass over the messages for each field."""
    if message.full_name == TIMESTAMP:
        return pa.array([None if each is None else _micros(each) for each in messages], kind)
    mask = pa.array([each is None for each in messages], pa.bool_())
    columns = [_field_column(each, messages, kind.field(each.name).type) for each in message.fields]
    if not columns:
        return pa.array([None if each is None else {} for each in messages], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _micros(message: Any) -> int:
    """The microseconds of a Timestamp. ValueError beyond the years and nanoseconds that it may have."""
    seconds, nanos = int(message.seconds), int(message.nanos)
    check_timestamp(seconds, nanos)
    return seconds * 1_000_000 + nanos // 1000


def check_timestamp(seconds: int, nanos: int) -> None:
    """ValueError for a Timestamp beyond the years and nanoseconds that it may have."""
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < _NANOS:
        raise ValueError(f"{seconds} seconds and {nanos} nanoseconds are no Timestamp, whose years are 1 to 9999")


def _field_column(field: FieldDescriptor, messages: Sequence[Any], kind: pa.DataType) -> pa.Array:
    name = field.name
    if is_map(field):
        entries = [None if m is None else getattr(m, name) for m in messages]
        keys = [key for each in entries if each is not None for key in each]
        values = [each[key] for each in entries if each is not None for key in each]
        entry = field.message_type.fields_by_name
        key_column, value_column = (
            _values_column(entry["key"], keys, kind.key_type),
            _values_column(entry["value"], values, kind.item_type),
        )
        return pa.MapArray.from_arrays(_offsets(entries), key_column, value_column, type=kind)
    if field.is_repeated:
        lists = [None if m is None else getattr(m, name) for m in messages]
        flat = list(chain.from_iterable(each for each in lists if each is not None))
        return pa.ListArray.from_arrays(_offsets(lists), _values_column(field, flat, kind.value_type), type=kind)
    if field.has_presence:
        present = [getattr(m, name) if m is not None and type(m).HasField(m, name) else None for m in messages]
        return _values_column(field, present, kind)
    return _values_column(field, [None if m is None else getattr(m, name) for m in messages], kind)


def _offsets(lists: Sequence[Any]) -> pa.Array:
    """Where each list begins in their values, and their end; null for a list that is None."""
    sizes = [0 if each is None else len(each) for each in lists]
    offsets = np.concatenate([[0], np.cumsum(np.array(sizes, np.int32), dtype=np.int32)]).astype(np.int32)
    return pa.array(offsets, mask=np.array([*(each is None for each in lists), False], bool))


def _values_column(field: FieldDescriptor, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if field.type in (_MESSAGE, _GROUP):
        return _messages_column(field.message_type, values, kind)
    convert: Callable[[Any], Any] | None = None
    if field.type == _ENUM:
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        convert = lambda number: names.get(number, str(number))  # noqa: E731 - one of two short forms
    elif field.type in (_UINT64, _FIXED64):
        convert = Decimal
    if convert is not None:
        values = [None if each is None else convert(each) for each in values]
    return pa.array(values, kind)
