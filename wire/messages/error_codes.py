"""The errors that a response has, at any depth. Pure.

Where a class of messages has error codes is found once for each class; other fields are not read.
Source: Kafka's `AbstractResponse.errorCounts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from stratalog.wire.messages.schema import Entity, EntityType, held_fields
from stratalog.wire.messages.values import code_of


class _Places(NamedTuple):
    """Where a class of messages or parts has error codes.

    codes   attributes of their objects
    parts   attributes with a part that has some, and where these are
    arrays  the same of arrays of parts
    """

    codes: tuple[str, ...]
    parts: tuple[tuple[str, _Places], ...]
    arrays: tuple[tuple[str, _Places], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.codes or self.parts or self.arrays)


def errors_in(response: Entity, of: EntityType = None) -> list[int]:
    """The codes of all errors in a response, each as often as it is there. `of`: kio's class of the response, if it is
    held as another object.

    >>> from stratalog.wire.api_keys import ApiKey
    >>> from stratalog.wire.messages.schema import response_type
    >>> partitions = [{"index": 0, "error_code": 0}, {"index": 1, "error_code": 6}, {"index": 2, "error_code": 6}]
    >>> topics = [{"name": "t", "partition_responses": partitions}]
    >>> errors_in({"responses": topics}, response_type(ApiKey.PRODUCE, 9))
    [6, 6]
    """
    found: list[int] = []
    held_as: EntityType = dict if isinstance(response, dict) else type(response)
    take: Any = dict.get if held_as is dict else getattr
    _collect(response, _places(of or held_as, held_as), found, take)
    return found


def _collect(entity: Entity, places: _Places, found: list[int], take: Callable[..., Any]) -> None:
    for name in places.codes:
        code = take(entity, name, None)
        if code:
            found.append(int(code_of(code)))
    for name, inner in places.parts:
        part = take(entity, name, None)
        if part is not None:
            _collect(part, inner, found, take)
    for name, inner in places.arrays:
        for part in take(entity, name, None) or ():
            _collect(part, inner, found, take)


@cache
def _places(entity_type: EntityType, held_as: EntityType) -> _Places:
    codes: list[str] = []
    parts: dict[bool, list[tuple[str, _Places]]] = {False: [], True: []}
    for shape, attribute, part in held_fields(entity_type, held_as):
        if shape.kafka_type == "error_code" and not shape.is_array:
            codes.append(attribute)
        elif shape.part is not None and not (inner := _places(shape.part, part)).is_empty:
            parts[shape.is_array].append((attribute, inner))
    return _Places(tuple(codes), tuple(parts[False]), tuple(parts[True]))
