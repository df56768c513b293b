"""Keys and values of records as dump-log shows them: as text, numbers, metadata or committed offsets. Pure.

The offsets decoder reads Kafka's own binary format of `__consumer_offsets` (OffsetCommitKey and -Value,
GroupMetadataKey and -Value) and prints the JSON that Kafka's decoder prints.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import Any

from jobs.terminal import UsageError

Decoder = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]
"""`(offset, key, value)` -> the texts of key and payload; None is not printed."""
Text = Callable[[bytes], str]

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
OFFSET_COMMIT, OFFSET_COMMIT_0, GROUP_METADATA = 1, 0, 2
"""Versions of keys in `__consumer_offsets`, by which Kafka tells what a record is."""
TOPIC_ID_TAG = 0
"""Of OffsetCommitValue, version 4."""
FLEXIBLE_FROM = 4
"""From this version on Kafka's values have compact lengths and tagged fields (KIP-482)."""


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
    """Keys and values each by a decoder of its own; what is null is left out."""

    def decode(_offset: int, key_data: bytes | None, value_data: bytes | None) -> tuple[str | None, str | None]:
        return (
            None if key_data is None else key(key_data),
            None if value_data is None else value(value_data),
        )

    return decode


as_text = text_decoder()
"""Both as UTF-8."""


def metadata_decoder(offset: int, _key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of the metadata log in the shape that Kafka's decoder gives KRaft records.

    >>> metadata_decoder(0, None, b'{"type":"ProducerIds","broker_id":1,"next_producer_id":2000}')[1]
    '{"type":"PRODUCER_IDS_RECORD","version":0,"data":{"brokerId":1,"nextProducerId":2000}}'
    """
    try:
        body = json.loads(value or b"")
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
        fields = _Fields(key)
        kind = fields.short()
        if kind not in (OFFSET_COMMIT_0, OFFSET_COMMIT, GROUP_METADATA):
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        is_group = kind == GROUP_METADATA
        key_data: dict[str, Any] = {"group": fields.string()}
        if not is_group:
            key_data |= {"topic": fields.string(), "partition": fields.int32()}
        key_text = _json({"type": str(kind), "data": key_data})
        if value is None:
            return key_text, "<DELETE>"
        fields = _Fields(value)
        version = fields.short()
        fields.is_flexible = version >= FLEXIBLE_FROM
        body = _group(fields, version) if is_group else _commit(fields, version)
    except (struct.error, ValueError, IndexError) as reason:
        return f"Error at offset {offset}, skipping. {reason}", None
    return key_text, _json({"version": str(version), "data": body})


def _commit(fields: _Fields, version: int) -> dict[str, Any]:
    """OffsetCommitValue, versions 0 to 4."""
    body: dict[str, Any] = {"offset": fields.int64()}
    if version >= 3:
        body["leaderEpoch"] = fields.int32()
    body |= {"metadata": fields.string(), "commitTimestamp": fields.int64()}
    if version == 1:
        body["expireTimestamp"] = fields.int64()
    topic_id = fields.tags().get(TOPIC_ID_TAG)
    if topic_id is not None:
        body["topicId"] = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return body


def _group(fields: _Fields, version: int) -> dict[str, Any]:
    """GroupMetadataValue, versions 0 to 4."""
    body: dict[str, Any] = {"protocolType": fields.string(), "generation": fields.int32()}
    body |= {"protocol": fields.nullable_string(), "leader": fields.nullable_string()}
    if version >= 2:
        body["currentStateTimestamp"] = fields.int64()
    body["members"] = [_member(fields, version) for _ in range(fields.length(">i"))]
    return body


def _member(fields: _Fields, version: int) -> dict[str, Any]:
    member: dict[str, Any] = {"memberId": fields.string()}
    if version >= 3:
        member["groupInstanceId"] = fields.nullable_string()
    member |= {"clientId": fields.string(), "clientHost": fields.string()}
    if version >= 1:
        member["rebalanceTimeout"] = fields.int32()
    member |= {"sessionTimeout": fields.int32(), "subscription": fields.binary(), "assignment": fields.binary()}
    fields.tags()
    return member


class _Fields:
    """Kafka's primitive types, one after the other. struct.error or ValueError when the data ends too early."""

    def __init__(self, data: bytes) -> None:
        self.is_flexible = False
        self._data = data
        self._at = 0

    def short(self) -> int:
        return self._unpacked(">h")

    def int32(self) -> int:
        return self._unpacked(">i")

    def int64(self) -> int:
        return self._unpacked(">q")

    def length(self, form: str) -> int:
        """Of a string, bytes or array; -1 = null."""
        return self._varint() - 1 if self.is_flexible else self._unpacked(form)

    def string(self) -> str:
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        length = self.length(">h")
        return None if length < 0 else self._taken(length).decode()

    def binary(self) -> str:
        """Bytes as Kafka's JSON has them: base 64."""
        return base64.b64encode(self._taken(max(0, self.length(">i")))).decode()

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a structure; versions before `FLEXIBLE_FROM` have none."""
        found: dict[int, bytes] = {}
        for _ in range(self._varint() if self.is_flexible else 0):
            tag, length = self._varint(), self._varint()
            found[tag] = self._taken(length)
        return found

    def _unpacked(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _taken(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError(f"{length} bytes at {self._at} of {len(self._data)}")
        self._at += length
        return self._data[self._at - length : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
