"""Messages with something in every field, as mappings, and with kio's own values."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.wire.messages.schema import Entity, EntityType, FieldShape, shape_of
from stratalog.wire.messages.values import id_text

NONE = {"uuid": "0" * 32, "datetime_i64": -1}
"""What is read where nothing is written, if that is not null."""


def filled(entity_type: EntityType, draw: random.Random) -> Entity:
    """A message with something in every field, or null where that may be."""
    return entity_type(**{field.name: content(field, draw) for field in shape_of(entity_type)})


def content(field: FieldShape, draw: random.Random) -> Any:
    if field.is_nullable and field.tag is None and draw.random() < 0.3:
        return NONE.get(field.kafka_type or "")
    if field.is_array:
        return tuple(
            element(field, draw) for _ in range(draw.choice((0, 1, 2, 130 if field.kafka_type == "int32" else 3)))
        )
    return element(field, draw)


def element(field: FieldShape, draw: random.Random) -> Any:
    if field.part is not None:
        return filled(field.part, draw)
    sizes = {"int8": 8, "uint8": 7, "int16": 16, "uint16": 15, "int32": 32, "uint32": 31, "int64": 64, "uint64": 63}
    kind = field.kafka_type or ""
    if kind in sizes:
        return draw.getrandbits(sizes[kind] - 1) * draw.choice((1, -1) if kind.startswith("int") else (1,))
    number_ms = draw.randrange(1 << 31)
    return {
        "string": draw.choice(("", "ä", "t" * 200)),
        "bytes": draw.randbytes(draw.choice((0, 7, 127, 300))),
        "records": draw.randbytes(300),
        "bool": draw.random() < 0.5,
        "float64": draw.random(),
        "error_code": draw.choice(list(ErrorCode)),
        "timedelta_i32": number_ms,
        "timedelta_i64": number_ms,
        "datetime_i64": number_ms,
        "uuid": f"{draw.getrandbits(128):032x}",
    }[kind]


def plain(value: Any) -> Any:
    """A message, or the value of one of its fields, where messages are mappings."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: plain(getattr(value, each.name)) for each in shape_of(type(value))}
    return value


def as_kio(message: Entity) -> Entity:
    """The same message with the values that kio's own reader makes: durations, times and ids are objects."""
    of_type = type(message)
    return of_type(**{each.name: _kios(each, getattr(message, each.name)) for each in shape_of(of_type)})


def _kios(field: FieldShape, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_kios_one(field, each) for each in value)
    return None if value is None else _kios_one(field, value)


def _kios_one(field: FieldShape, value: Any) -> Any:
    if field.part is not None:
        return as_kio(value)
    kind = field.kafka_type or ""
    if kind.startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
    if kind == "uuid":
        return uuid.UUID(value) if id_text(value) else None
    return value
