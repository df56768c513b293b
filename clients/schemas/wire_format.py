"""Confluent's wire format: the bytes, or the record header, that name the schema of a key or value. Pure.

    0x00  id, 4 bytes, big-endian   [message indexes]  payload
    0x01  GUID, 16 bytes            [message indexes]  payload

Message indexes are there with Protobuf only: the way from the file to the message, e.g. (1, 0) for the first message
nested in the second one. They are zigzag varints, their count first; the single byte 0 stands for (0,). With the id in
a header, the header's value has the form of the prefix, and the payload stands alone.

Source: `io.confluent.kafka.serializers.schema.id.SchemaId`, `DualSchemaIdDeserializer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from stratalog.storage.errors import SerializationError

MAGIC_BYTE_V0, MAGIC_BYTE_V1 = 0, 1
KEY_SCHEMA_ID_HEADER = "__key_schema_id"
VALUE_SCHEMA_ID_HEADER = "__value_schema_id"
FIRST_MESSAGE = (0,)
"""The message indexes of the first message of a file."""
_ID_BYTES, _GUID_BYTES = 4, 16
_ID_MAX = 2**31 - 1
_INDEXES_MAX = 100_000
_VARINT_BYTES_MAX = 5


@dataclass(frozen=True, slots=True)
class SchemaId:
    """What names a schema: its id, its GUID, or both; and the message within a Protobuf file."""

    id: int | None = None
    guid: UUID | None = None
    message_indexes: tuple[int, ...] | None = None

    def id_prefix(self) -> bytes:
        """The prefix with the id. SerializationError without one."""
        if self.id is None:
            raise SerializationError("the schema has no id: register it, or write its GUID into a header")
        if not 0 <= self.id <= _ID_MAX:
            raise SerializationError(f"schema id {self.id} is not within 0 and {_ID_MAX}")
        return bytes([MAGIC_BYTE_V0]) + self.id.to_bytes(_ID_BYTES, "big") + self._indexes()

    def guid_prefix(self) -> bytes:
        """The prefix with the GUID. SerializationError without one."""
        if self.guid is None:
            raise SerializationError(
                f"the registry gave no GUID for schema id {self.id}: use ids in the payload "
                "(Confluent Platform before 8.0 and other servers know no GUIDs)"
            )
        return bytes([MAGIC_BYTE_V1]) + self.guid.bytes + self._indexes()

    def _indexes(self) -> bytes:
        return b"" if self.message_indexes is None else encode_message_indexes(self.message_indexes)


def decode_prefix(data: bytes, *, has_message_indexes: bool = False) -> tuple[SchemaId, bytes]:
    """The schema id at the beginning of `data`, and what follows it. SerializationError for anything else."""
    size = {MAGIC_BYTE_V0: _ID_BYTES, MAGIC_BYTE_V1: _GUID_BYTES}.get(data[0]) if data else None
    if size is None:
        found = f"first byte {data[0]}" if data else "no byte"
        raise SerializationError(
            f"not in Confluent's wire format: {found}, needed 0 (schema id) or 1 (schema GUID). "
            "Read data of other producers without a deserializer."
        )
    if len(data) < 1 + size:
        raise SerializationError(f"cut off: {len(data)} bytes, needed at least {1 + size} for magic byte {data[0]}")
    named = data[1 : 1 + size]
    position, indexes = 1 + size, None
    if has_message_indexes:
        indexes, position = decode_message_indexes(data, position)
    if data[0] == MAGIC_BYTE_V0:
        return SchemaId(id=int.from_bytes(named, "big"), message_indexes=indexes), data[position:]
    return SchemaId(guid=UUID(bytes=bytes(named)), message_indexes=indexes), data[position:]


def schema_id_header(is_key: bool) -> str:
    """The name of the record header for the schema of a key or a value."""
    return KEY_SCHEMA_ID_HEADER if is_key else VALUE_SCHEMA_ID_HEADER


def decode_headers_or_prefix(
    data: bytes, headers: Iterable[tuple[str, bytes | None]], *, is_key: bool, has_message_indexes: bool = False
) -> tuple[SchemaId, bytes]:
    """The schema id, from the first header for it, else from the prefix of `data`; and the payload."""
    name = schema_id_header(is_key)
    value = next((value for key, value in headers if key == name and value is not None), None)
    if value is None:
        return decode_prefix(data, has_message_indexes=has_message_indexes)
    return decode_prefix(value, has_message_indexes=has_message_indexes)[0], data


def encode_message_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes of message indexes.

    >>> encode_message_indexes((0,)).hex(), encode_message_indexes((1, 0)).hex()
    ('00', '040200')
    """
    if tuple(indexes) == FIRST_MESSAGE:
        return b"\0"
    return b"".join(_zigzag_varint(number) for number in (len(indexes), *indexes))


def decode_message_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The message indexes at `position` of `data`, and the position behind them. SerializationError."""
    count, position = _read_zigzag_varint(data, position)
    if not 0 <= count <= _INDEXES_MAX:
        raise SerializationError(f"{count} message indexes: not a Protobuf value in Confluent's wire format")
    if count == 0:
        return FIRST_MESSAGE, position
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag_varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _zigzag_varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 31)
    written = bytearray()
    while left & ~0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


def _read_zigzag_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for count in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            raise SerializationError("cut off within the message indexes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise SerializationError(f"a message index of more than {_VARINT_BYTES_MAX} bytes")
