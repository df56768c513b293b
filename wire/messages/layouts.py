"""kio's classes as tables of the codec: what a message of an API and version is as bytes. Pure.

kio holds the schemas of all APIs and versions as dataclasses. Each becomes a `Struct` of
`wire.kafka_types` once; kio's own readers and writers are not used: they do not compare lengths with
the frame before they allocate, refuse tagged fields of newer clients, and write slowly. Tests compare both.
In Python a message is an object of kio's class, or of a dataclass of ours that has the fields of all versions; a
mapping is written, too. Their values are those of `wire.messages.values`, whichever it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from stratalog.storage.errors import StratalogError, error_for_code
from stratalog.wire.kafka_types import Field, Layout, Number, Struct, layout
from stratalog.wire.messages.error_codes import errors_in
from stratalog.wire.messages.schema import Entity, EntityType, HeldField, held_fields
from stratalog.wire.messages.values import Values, code_of, default_of, values_taker

_MILLISECOND: Final = dt.timedelta(milliseconds=1)
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
def layout_of(entity_type: EntityType, held_as: EntityType = None) -> Layout:
    """How a message of this class of kio's is read and written. `held_as`: as an object of this dataclass of ours, or
    `dict`: as a mapping."""
    return layout(_struct(entity_type, held_as or entity_type), is_flexible=bool(entity_type.__flexible__))


class EncodedPart(dict[str, Any]):
    """A part of a message as bytes, which are not made again, in whatever message it is written. It keeps values only
    where they have errors, which are counted."""

    __slots__ = ("as_bytes",)

    def __init__(self, part_type: EntityType, values: Values) -> None:
        super().__init__(values if errors_in(values, part_type) else {})
        self.as_bytes = layout_of(part_type, dict).write(values)


def _struct(entity_type: EntityType, held_as: EntityType) -> Struct:
    has_all_versions = not issubclass(held_as, entity_type)
    table = tuple(_field(each, has_all_versions) for each in held_fields(entity_type, held_as))
    if held_as is dict:
        return Struct(entity_type.__name__, table, take=partial(values_taker, entity_type))
    return Struct(entity_type.__name__, table, partial(_maker_with_error if has_all_versions else _maker, held_as))


def _field(held: HeldField, is_null_empty: bool) -> Field:
    shape, kafka_type = held.shape, held.shape.kafka_type or ""
    return Field(
        held.attribute,
        _KINDS.get(kafka_type, kafka_type) if shape.part is None else _struct(shape.part, held.part),
        is_array=shape.is_array,
        is_nullable=shape.is_nullable,
        tag=shape.tag,
        default=None if shape.tag is None else _default_of_tagged(held),
        is_text=shape.name in TEXTS,
        is_null_empty=is_null_empty,
    )


def _default_of_tagged(held: HeldField) -> Any:
    values = default_of(held.shape)
    if not isinstance(values, dict) or held.part is dict:
        return values
    return layout_of(held.shape.part, held.part).read(layout_of(held.shape.part, dict).write(values))[0]


def _maker(of_type: EntityType, names: Sequence[str]) -> Callable[[Sequence[Any]], Entity]:
    """Sets the slots of a new object: the constructor of a frozen class takes more than twice the time."""
    new, setters = object.__new__, [getattr(of_type, name).__set__ for name in names]

    def make(values: Sequence[Any]) -> Entity:
        entity = new(of_type)
        for set_value, value in zip(setters, values, strict=True):
            set_value(entity, value)
        return entity

    return make


def _maker_with_error(of_type: EntityType, names: Sequence[str]) -> Callable[[Sequence[Any]], Entity]:
    """As `_maker`, for a dataclass of ours: what the version lacks has its default, code and message are an error."""
    kept = [name for name in names if name != "error_message"]
    absent = [each for each in fields(of_type) if each.name not in kept]
    defaults = [_default_of_absent(of_type, each) for each in absent]
    make = _maker(of_type, [*kept, *(each.name for each in absent)])
    if "error" not in kept:
        return (lambda values: make([*values, *defaults])) if defaults else make
    code = names.index("error")
    message = names.index("error_message") if len(kept) < len(names) else None

    def make_with_error(values: Sequence[Any]) -> Entity:
        own = [*values, *defaults]
        text = None if message is None else own.pop(message)
        own[code] = _error(own[code], text)
        return make(own)

    return make_with_error


def _default_of_absent(of_type: EntityType, absent: Any) -> Any:
    if absent.default is MISSING:
        raise TypeError(f"{of_type.__name__}.{absent.name} needs a default: there are versions without it")
    return absent.default


def error_of(part: Entity, code: str = "error_code") -> StratalogError | None:
    """The error in a response of kio's class, or a part of one; None for success.

    code  the name of the field with the code
    """
    return _error(getattr(part, code, 0), getattr(part, "error_message", None))


def _error(code: int, text: str | None) -> StratalogError | None:
    return error_for_code(int(code), text or "answered by the broker") if code else None


def _bounded_ms(number_ms: int) -> int:
    """OverflowError for one that no duration has."""
    return number_ms * _MILLISECOND // _MILLISECOND


def _time_ms(time_ms: int | None) -> int:
    return _NO_TIME_MS if time_ms is None else time_ms


def _id_bytes(topic_id: str | None) -> bytes:
    return bytes.fromhex(topic_id) if topic_id else _NO_ID


_KINDS: Final[dict[str, str | Number]] = {
    "error_code": Number("h", {int(code): code for code in ErrorCode}.__getitem__, code_of),
    "timedelta_i32": "int32",
    "timedelta_i64": Number("q", _bounded_ms),
    "datetime_i64": Number("q", None, _time_ms),
    "uuid": Number("16s", bytes.hex, _id_bytes),
}
"""kio's kinds that are not the codec's."""
