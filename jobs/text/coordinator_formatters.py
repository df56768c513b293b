"""Records of `__consumer_offsets` as the console consumer prints them: committed offsets, or groups. Pure.

One JSON object a record, of the fields that Kafka's OffsetsMessageFormatter and GroupMetadataMessageFormatter (4.3.1)
print; ours ends with a line break, Kafka's stand behind each other. What is of another kind is passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from stratalog.clients.records import ConsumerRecord
from stratalog.jobs.text.record_decoders import offsets_decoder

OFFSETS, GROUPS = frozenset({0, 1}), frozenset({2})
"""Kafka's types of records, which are versions of their keys: committed offsets, and classic groups."""


@dataclass(frozen=True, slots=True)
class CoordinatorFormatter:
    """Prints records of these types. A tombstone's value is null."""

    types: frozenset[int]

    def format(self, record: ConsumerRecord) -> bytes:
        """The record's line; nothing for one of another type, or for what nobody can read."""
        if record.key is None:
            return b""
        key_text, value_text = offsets_decoder(record.offset, record.key, record.value)
        if key_text is None or value_text is None:  # an unknown type, or damaged
            return b""
        key = json.loads(key_text)
        key["type"] = int(key["type"])
        if key["type"] not in self.types:
            return b""
        value = None
        if record.value is not None:
            value = json.loads(value_text)
            value["version"] = int(value["version"])
        text = json.dumps({"key": key, "value": value}, separators=(",", ":"), ensure_ascii=False)
        return text.encode() + b"\n"


COORDINATOR_FORMATTERS = {
    "OffsetsMessageFormatter": CoordinatorFormatter(OFFSETS),
    "GroupMetadataMessageFormatter": CoordinatorFormatter(GROUPS),
}
"""By the names of Kafka's classes."""
