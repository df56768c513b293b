"""The errors that a response has, at any depth. Pure.

Where a class of messages has error codes is found once for each class; other fields are not read.
Source: Kafka's `AbstractResponse.errorCounts`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from stratalog.wire.messages.schema import Entity, EntityType, shape_of


class _Places(NamedTuple):
    """Where a class of messages or parts has error codes.

    codes   names of fields
    parts   names of fields with a part that has some, and where these are
    arrays  the same of arrays of parts
    """

    codes: tuple[str, ...]
    parts: tuple[tuple[str, _Places], ...]
    arrays: tuple[tuple[str, _Places], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.codes or self.parts or self.arrays)


def errors_in(response: Entity) -> list[int]:
    """The codes of all errors in a response, each as often as it is there.

    >>> from stratalog.wire.api_keys import ApiKey
    >>> from stratalog.wire.messages.entities import build
    >>> from stratalog.wire.messages.schema import response_type
    >>> partitions = [{"index": 0, "error_code": 0}, {"index": 1, "error_code": 6}, {"index": 2, "error_code": 6}]
    >>> topics = [{"name": "t", "partition_responses": partitions}]
    >>> errors_in(build(response_type(ApiKey.PRODUCE, 9), {"responses": topics}))
    [6, 6]
    """
    found: list[int] = []
    _collect(response, _places(response.__class__), found)
    return found


def _collect(entity: Entity, places: _Places, found: list[int]) -> None:
    for name in places.codes:
        code = getattr(entity, name)
        if code:
            found.append(int(code))
    for name, inner in places.parts:
        part = getattr(entity, name)
        if part is not None:
            _collect(part, inner, found)
    for name, inner in places.arrays:
        for part in getattr(entity, name) or ():
            _collect(part, inner, found)


@cache
def _places(entity_type: EntityType) -> _Places:
    codes: list[str] = []
    parts: dict[bool, list[tuple[str, _Places]]] = {False: [], True: []}
    for field in shape_of(entity_type):
        if field.kafka_type == "error_code" and not field.is_array:
            codes.append(field.name)
        elif field.part is not None and not (inner := _places(field.part)).is_empty:
            parts[field.is_array].append((field.name, inner))
    return _Places(tuple(codes), tuple(parts[False]), tuple(parts[True]))
