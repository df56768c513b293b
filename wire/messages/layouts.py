"""kio's classes as tables of the codec: what a message of an API and version is as bytes. Pure.

kio holds the schemas of all APIs and versions as dataclasses. Each becomes a `Struct` of
`wire.kafka_types` once; kio's own readers and writers are not used: they do not compare lengths with
the frame before they allocate, refuse tagged fields of newer clients, and write slowly. Tests compare both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import field, make_dataclass
from functools import cache
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.wire.kafka_types import Field, Layout, Number, Struct, layout
from stratalog.wire.messages.entities import default_of
from stratalog.wire.messages.schema import Entity, EntityType, FieldShape, shape_of

_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_ID: Final = bytes(16)
_NO_TIME_MS: Final = -1

TEXTS: Final = frozenset(
    {
        "value", "committed_metadata", "reason", "subscribed_topic_regex", "transactional_id_pattern",
        "error_message", "metadata",
    }
)  # fmt: skip
"""The fields that are texts, which may be longer than names, by kio's names."""


@cache
def layout_of(entity_type: EntityType) -> Layout:
    """How a message of this class is read and written."""
    return layout(_struct(entity_type), is_flexible=bool(entity_type.__flexible__))


def with_bytes(part: Entity) -> Entity:
    """The same part of a message, with its bytes: it is not encoded again, in whatever message it is written."""
    part_type: EntityType = type(part)
    values = {each.name: getattr(part, each.name) for each in shape_of(part_type)}
    return _with_bytes_type(part_type)(**values, as_bytes=layout_of(part_type).write(part))


@cache
def _with_bytes_type(entity_type: EntityType) -> EntityType:
    return make_dataclass(
        entity_type.__name__, [("as_bytes", bytes, field(kw_only=True))], bases=(entity_type,), frozen=True, slots=True
    )


def _struct(entity_type: EntityType) -> Struct:
    fields = tuple(_field(each) for each in shape_of(entity_type))
    return Struct(entity_type.__name__, fields, lambda names: _maker(entity_type, names))


def _field(shape: FieldShape) -> Field:
    return Field(
        shape.name,
        _KINDS.get(shape.kafka_type or "", shape.kafka_type or "") if shape.part is None else _struct(shape.part),
        is_array=shape.is_array,
        is_nullable=shape.is_nullable,
        tag=shape.tag,
        default=None if shape.tag is None else default_of(shape),
        is_text=shape.name in TEXTS,
    )


def _maker(entity_type: EntityType, names: Sequence[str]) -> Callable[[Sequence[Any]], Entity]:
    """Sets the slots of a new object: the constructor of a frozen class takes more than twice the time."""
    new, setters = object.__new__, [getattr(entity_type, name).__set__ for name in names]

    def make(values: Sequence[Any]) -> Entity:
        entity = new(entity_type)
        for set_value, value in zip(setters, values, strict=True):
            set_value(entity, value)
        return entity

    return make


def _duration(number_ms: int) -> dt.timedelta:
    return number_ms * _MILLISECOND


def _duration_ms(duration: dt.timedelta) -> int:
    return duration // _MILLISECOND


def _time(number_ms: int) -> dt.datetime | None:
    return None if number_ms == _NO_TIME_MS else _EPOCH + number_ms * _MILLISECOND


def _time_ms(time: dt.datetime | None) -> int:
    return _NO_TIME_MS if time is None else (time - _EPOCH) // _MILLISECOND


def _id(data: bytes) -> UUID | None:
    return None if data == _NO_ID else UUID(bytes=data)


def _id_bytes(topic_id: UUID | None) -> bytes:
    return _NO_ID if topic_id is None else topic_id.bytes


_KINDS: Final[dict[str, str | Number]] = {
    "error_code": Number("h", {int(code): code for code in ErrorCode}.__getitem__),
    "timedelta_i32": Number("i", _duration, _duration_ms),
    "timedelta_i64": Number("q", _duration, _duration_ms),
    "datetime_i64": Number("q", _time, _time_ms),
    "uuid": Number("16s", _id, _id_bytes),
}
"""kio's kinds that are not the codec's. A time of -1 and a UUID of zeros are null."""
