"""Kafka's primitive types as bytes: what the schemas of group records and of the consumer protocol are made of. Pure.

Source: the types of Kafka's message JSON. Flexible versions write lengths as unsigned varints of length + 1 (compact
strings, arrays) and end each structure with tagged fields; older ones write int16 lengths of strings and int32
lengths of bytes and arrays. Numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from stratalog.storage.errors import CorruptMessageError

T = TypeVar("T")


class KafkaWriter:
    """Appends values; `flexible` picks the compact forms of strings, bytes and arrays."""

    def __init__(self, *, flexible: bool) -> None:
        self.flexible = flexible
        self._parts = bytearray()

    def bytes_written(self) -> bytes:
        """What was written so far."""
        return bytes(self._parts)

    def int8(self, number: int) -> None:
        self._parts += struct.pack(">b", number)

    def int16(self, number: int) -> None:
        self._parts += struct.pack(">h", number)

    def int32(self, number: int) -> None:
        self._parts += struct.pack(">i", number)

    def int64(self, number: int) -> None:
        self._parts += struct.pack(">q", number)

    def unsigned_varint(self, number: int) -> None:
        while number >= 0x80:
            self._parts.append(number & 0x7F | 0x80)
            number >>= 7
        self._parts.append(number)

    def uuid(self, hexadecimal: str) -> None:
        """A UUID given as 32 hexadecimal digits."""
        self._parts += bytes.fromhex(hexadecimal)

    def string(self, text: str | None) -> None:
        """A string, or the null of a nullable one."""
        encoded = None if text is None else text.encode()
        if self.flexible:
            self._compact_length(encoded)
        else:
            self.int16(-1 if encoded is None else len(encoded))
        self._parts += encoded or b""

    def byte_string(self, data: bytes | None) -> None:
        """Bytes, or the null of nullable ones."""
        if self.flexible:
            self._compact_length(data)
        else:
            self.int32(-1 if data is None else len(data))
        self._parts += data or b""

    def array(self, items: Iterable[T] | None, write: Callable[[T], object]) -> None:
        """An array whose items `write` appends, or the null of a nullable one."""
        present = None if items is None else list(items)
        if self.flexible:
            self._compact_length(present)
        else:
            self.int32(-1 if present is None else len(present))
        for item in present or ():
            write(item)

    def no_tagged_fields(self) -> None:
        """The end of a structure; nothing in versions that are not flexible."""
        self.tagged_fields({})

    def tagged_fields(self, fields: Mapping[int, bytes]) -> None:
        """The end of a structure with encoded fields by tag, which versions that are not flexible cannot have."""
        if self.flexible:
            self.unsigned_varint(len(fields))
            for tag in sorted(fields):
                self.unsigned_varint(tag)
                self.unsigned_varint(len(fields[tag]))
                self._parts += fields[tag]

    def _compact_length(self, sized: bytes | list[T] | None) -> None:
        self.unsigned_varint(0 if sized is None else len(sized) + 1)


class KafkaReader:
    """Takes values off the front of `data`; CorruptMessageError where it is too short."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self.flexible = flexible
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def int8(self) -> int:
        return int(struct.unpack(">b", self._take(1))[0])

    def int16(self) -> int:
        return int(struct.unpack(">h", self._take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def int64(self) -> int:
        return int(struct.unpack(">q", self._take(8))[0])

    def unsigned_varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise CorruptMessageError(f"a varint of more than 5 bytes ends at byte {self._at}")

    def uuid(self) -> str:
        return self._take(16).hex()

    def nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1 if self.flexible else self.int16()
        return None if length < 0 else self._take(length).decode()

    def string(self) -> str:
        return self._present(self.nullable_string(), "string")

    def nullable_byte_string(self) -> bytes | None:
        length = self.unsigned_varint() - 1 if self.flexible else self.int32()
        return None if length < 0 else self._take(length)

    def byte_string(self) -> bytes:
        return self._present(self.nullable_byte_string(), "byte string")

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        length = self.unsigned_varint() - 1 if self.flexible else self.int32()
        if length > self.left:
            raise CorruptMessageError(f"an array of {length} items at byte {self._at} of {len(self._data)}")
        return None if length < 0 else [read() for _ in range(length)]

    def array(self, read: Callable[[], T]) -> list[T]:
        return self._present(self.nullable_array(read), "array")

    def tagged_fields(self) -> dict[int, bytes]:
        """The end of a structure: fields by tag; none in versions that are not flexible."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self._take(self.unsigned_varint())
        return fields

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise CorruptMessageError(f"{count} bytes wanted at byte {self._at} of {len(self._data)}")
        self._at += count
        return taken

    def _present(self, value: T | None, kind: str) -> T:
        if value is None:
            raise CorruptMessageError(f"a null {kind} before byte {self._at} that may not be null")
        return value
