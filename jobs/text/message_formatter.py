"""Records as the console consumer prints them: Kafka's DefaultMessageFormatter, and committed offsets and groups. Pure.

A record of `__consumer_offsets` is one JSON object of the fields that Kafka's OffsetsMessageFormatter and
GroupMetadataMessageFormatter (4.3.1) print. Ours ends with a line break; Kafka's follow each other without one. Records
of other types are not printed.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from stratalog.clients.records import ConsumerRecord
from stratalog.jobs.command.properties import truth, typed_fields
from stratalog.jobs.text.record_decoders import offsets_decoder
from stratalog.storage.errors import InvalidConfigError, InvalidRecordError

Deserializer = Callable[[bytes], str]

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def _number(name: str, format_code: str) -> Deserializer:
    size = struct.calcsize(format_code)

    def deserialize(data: bytes) -> str:
        if len(data) != size:
            raise InvalidRecordError(f"Size of data received by {name} is not {size}")
        return str(struct.unpack(format_code, data)[0])

    return deserialize


def _boolean(data: bytes) -> str:
    if data not in (b"\x00", b"\x01"):
        raise InvalidRecordError(f"Unexpected byte received by BooleanDeserializer: {data!r}")
    return "true" if data == b"\x01" else "false"


def _uuid(data: bytes) -> str:
    try:
        return str(uuid.UUID(data.decode()))
    except ValueError as reason:
        raise InvalidRecordError(f"Error parsing data into UUID: {data!r}") from reason


_KNOWN: dict[str, Deserializer | None] = {
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "StringDeserializer": lambda data: data.decode(errors="replace"),
    **{
        f"{kind}Deserializer": _number(f"{kind}Deserializer", code)
        for kind, code in (("Short", ">h"), ("Integer", ">i"), ("Long", ">q"), ("Float", ">f"), ("Double", ">d"))
    },
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}


@dataclass(frozen=True, slots=True)
class MessageFormatter:
    """Which parts of a record to print, in Kafka's order; a deserializer None prints the bytes as they are."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    headers_deserializer: Deserializer | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Kafka's formatter properties. InvalidConfigError for an unknown name or deserializer."""
        return cls(**typed_fields(properties, _KINDS, "formatter"))

    def format(self, record: ConsumerRecord) -> bytes:
        """What is printed for a record, its line's end included. InvalidRecordError when it does not deserialize."""
        parts = [part for is_wanted, part in self._columns(record) if is_wanted]
        columns = [part() for part in parts]
        return self.key_separator.join(columns) + self.line_separator if columns else b""

    def _columns(self, record: ConsumerRecord) -> list[tuple[bool, Callable[[], bytes]]]:
        return [
            (self.print_timestamp, lambda: _timestamp(record)),
            (self.print_partition, lambda: b"Partition:%d" % record.partition),
            (self.print_offset, lambda: b"Offset:%d" % record.offset),
            # Delivery counts belong to share groups.
            (self.print_delivery, lambda: b"Delivery:NONE"),
            (self.print_epoch, lambda: b"Epoch:%d" % record.leader_epoch),
            (self.print_headers, lambda: self._headers(record)),
            (self.print_key, lambda: self._shown(record.key, self.key_deserializer)),
            (self.print_value, lambda: self._shown(record.value, self.value_deserializer)),
        ]

    def _headers(self, record: ConsumerRecord) -> bytes:
        shown = (h.key.encode() + b":" + self._shown(h.value, self.headers_deserializer) for h in record.headers)
        return self.headers_separator.join(shown) or b"NO_HEADERS"

    def _shown(self, data: bytes | None, deserialize: Deserializer | None) -> bytes:
        if data is None:
            return self.null_literal
        return data if deserialize is None else deserialize(data).encode()


def deserializer(class_name: str) -> Deserializer | None:
    """Kafka's deserializer of a class name, with or without its package. InvalidConfigError for an unknown one."""
    name = class_name.strip().rpartition(".")[2]
    if name not in _KNOWN:
        raise InvalidConfigError(f"Class {class_name} could not be found; known: {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name]


def _timestamp(record: ConsumerRecord) -> bytes:
    if record.timestamp_ms is None:
        return b"NO_TIMESTAMP"
    return f"{_TIMESTAMP_TYPES[record.timestamp_type]}:{record.timestamp_ms}".encode()


_FLAGS = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
_KINDS: dict[str, Callable[[str], Any]] = {
    **{f"print.{part}": truth for part in _FLAGS},
    **dict.fromkeys(("key.separator", "line.separator", "headers.separator", "null.literal"), str.encode),
    **dict.fromkeys(("key.deserializer", "value.deserializer", "headers.deserializer"), deserializer),
}
"""What makes the value of each formatter property."""


@dataclass(frozen=True, slots=True)
class CoordinatorFormatter:
    """Prints records of these types. A tombstone's value is null."""

    types: frozenset[int]

    def format(self, record: ConsumerRecord) -> bytes:
        """The record's line; nothing for one of another type, or that cannot be decoded."""
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


OFFSETS, GROUPS = frozenset({0, 1}), frozenset({2})

COORDINATOR_FORMATTERS = {
    "OffsetsMessageFormatter": CoordinatorFormatter(OFFSETS),
    "GroupMetadataMessageFormatter": CoordinatorFormatter(GROUPS),
}
"""By the names of Kafka's classes."""
