"""Keys and values of records as dump-log shows them: as text, numbers, metadata or committed offsets. Pure.

The offsets decoder reads Kafka's own binary format of `__consumer_offsets` (`replication.coordinator.groups.records`,
`replication.coordinator.groups.modern.records`) and prints the JSON that Kafka's decoder prints.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import Any

from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.coordinator.groups.modern.records import MODERN_RECORDS
from stratalog.replication.coordinator.groups.records import CLASSIC_RECORDS
from stratalog.replication.metadata.records import value_of_row
from stratalog.storage.errors import CorruptMessageError
from stratalog.wire.kafka_types import version_of

Decoder = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]
"""`(offset, key, value)` -> the texts of key and payload; None is not printed."""
Text = Callable[[bytes], str]

_OFFSETS_RECORDS = {**CLASSIC_RECORDS, **MODERN_RECORDS}
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


def _number(name: str, form: str) -> Text:
    def decode(data: bytes) -> str:
        if len(data) != struct.calcsize(form):
            raise UsageError(f"{name} needs {struct.calcsize(form)} bytes, found {len(data)}")
        return str(struct.unpack(form, data)[0])

    return decode


TEXTS: dict[str, Text] = {
    "StringDecoder": lambda data: data.decode(errors="replace"),
    "IntegerDecoder": _number("IntegerDecoder", ">i"),
    "LongDecoder": _number("LongDecoder", ">q"),
}
"""Kafka's decoder classes by their simple names."""


def text_of(class_name: str) -> Text:
    """A decoder class with or without its package. UsageError for one that is not known.

    >>> text_of("org.apache.kafka.tools.api.IntegerDecoder")(bytes(4))
    '0'
    """
    found = TEXTS.get(class_name.rpartition(".")[2])
    if found is None:
        raise UsageError(f"Failed to load decoder class {class_name}; known: {', '.join(TEXTS)}")
    return found


def text_decoder(key: Text = TEXTS["StringDecoder"], value: Text = TEXTS["StringDecoder"]) -> Decoder:
    """Keys and values each by a decoder of its own; null ones are left out."""

    def decode(_offset: int, key_data: bytes | None, value_data: bytes | None) -> tuple[str | None, str | None]:
        return (None if key_data is None else key(key_data), None if value_data is None else value(value_data))

    return decode


as_text = text_decoder()
"""A decoder of keys and values as UTF-8."""


def metadata_decoder(offset: int, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of the metadata log as Kafka's decoder prints KRaft records.

    >>> metadata_decoder(0, None, b'{"type":"ProducerIds","broker_id":1,"next_producer_id":2000}')[1]
    '{"type":"PRODUCER_IDS_RECORD","version":0,"data":{"brokerId":1,"nextProducerId":2000}}'
    """
    try:
        body = json.loads(value or b"" if key is None else value_of_row(key, value))
        name = f"{_WORD_START.sub('_', body.pop('type')).upper()}_RECORD"
        data = {_camel(field): content for field, content in body.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        return None, f"Error at {offset}, skipping. {reason}"
    return None, _json({"type": name, "version": 0, "data": data})


def offsets_decoder(offset: int, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of `__consumer_offsets`: a committed offset or a group's state; `<DELETE>` for a tombstone."""
    if key is None:
        raise UsageError(
            f"Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
        )
    try:
        key_version = version_of(key)
        tables = _OFFSETS_RECORDS.get(key_version)
        if tables is None:
            return f"Unknown record type {key_version} at offset {offset}, skipping.", None
        key_text = _json({"type": str(key_version), "data": _printed(tables.key.decode(key))})
        if value is None:
            return key_text, "<DELETE>"
        return key_text, _json({"version": str(version_of(value)), "data": _printed(tables.value.decode(value))})
    except CorruptMessageError as reason:
        return f"Error at offset {offset}, skipping. {reason}", None


def _printed(value: Any) -> Any:
    """As Kafka's JSON has it: names in camel case, bytes in base 64, topic ids without padding."""
    match value:
        case dict():
            printed = {_camel(name): _printed(each) for name, each in value.items()}
            if "topicId" in printed:
                printed["topicId"] = base64.urlsafe_b64encode(bytes.fromhex(value["topic_id"])).decode().rstrip("=")
            return printed
        case tuple():
            return [_printed(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
