"""Serializers of producers and deserializers of consumers: their interface. Pure.

It is that of confluent-kafka's Python client, so that its serializers work here and ours there; Kafka's Java interface
has the same arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

KEY, VALUE = "key", "value"
"""The values of `SerializationContext.field`."""


@dataclasses.dataclass(slots=True)
class SerializationContext:
    """Where the data belongs: topic, `key` or `value`, and the record's headers, to which a serializer may append."""

    topic: str
    field: str
    headers: list[tuple[str, bytes | None]] = dataclasses.field(default_factory=list)

    @property
    def is_key(self) -> bool:
        return self.field == KEY


Serializer = Callable[[Any, Any], bytes | None]
"""`serializer(data, SerializationContext)`; SerializationError for data that does not fit."""

Deserializer = Callable[[bytes | None, Any], Any]
"""`deserializer(bytes, SerializationContext)`; SerializationError for bytes that do not fit."""
