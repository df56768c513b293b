"""A register on a local disk: one small value in one file, replaced in place, so that no write makes a file.

I/O: plain system calls. The file holds two slots, and a write goes to the one that does not hold the newest
value, so that a reader finds one whole value whenever the writer dies. That is cheaper than a new file and a rename.

    magic (8 bytes), capacity of a slot (4), zeros (4)
    twice: sequence (8), length of the value (4), CRC32C of sequence, length and value (4), value, room to grow
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

import crc32c

MAGIC = b"\x89slog-r1"
CAPACITY_MIN = 2_016
"""Bytes of the smallest slot: the whole file is then in one page."""
READ_TRIES = 100
"""Reads of a value that a writer is replacing at that moment."""

_HEADER = struct.Struct("<8sI4x")
_SLOT = struct.Struct("<QII")
_SIGNED = struct.Struct("<QI")
_PAGE_BYTES = 4_096


class _Slot(NamedTuple):
    """A slot's content. `value` is None when it is torn, or when it was never written (then sequence is 0)."""

    position: int
    sequence: int
    value: bytes | None


def new_file(value: bytes) -> bytes:
    """The content of a file that holds `value`, with room to grow to twice its size."""
    capacity = max(CAPACITY_MIN, 2 * len(value))
    slots = (encoded_slot(1, value), bytes(_SLOT.size))
    return _HEADER.pack(MAGIC, capacity) + b"".join(slot.ljust(_SLOT.size + capacity, b"\0") for slot in slots)


def replace_in_place(path: str, value: bytes) -> bool:
    """Replace a register's value. False when there is no register, or none with room: a new file is needed.

    Two writers at once may spoil each other's values, never the value before. Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        page = os.pread(descriptor, _PAGE_BYTES, 0)
        capacity = _capacity(page)
        if capacity is None or len(value) > capacity:
            return False
        whole = _whole(descriptor, page, capacity)
        newer = _newest_if_sound(whole, capacity) or max(_slots(whole, capacity), key=_age)
        if newer.value is None:
            return False
        data = encoded_slot(newer.sequence + 1, value)
        older_position = 2 * _HEADER.size + _SLOT.size + capacity - newer.position
        return os.pwrite(descriptor, data, older_position) == len(data)
    finally:
        os.close(descriptor)


def read(path: str) -> bytes | None:
    """A register's value, None when there is none. A file that is no register is a value as a whole.

    Two spoilt slots, as after a power loss, are no value. Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        page = os.pread(descriptor, _PAGE_BYTES, 0)
        capacity = _capacity(page)
        if capacity is None:
            return page if len(page) < _PAGE_BYTES else page + _rest(descriptor)
        newest = _newest_if_sound(_whole(descriptor, page, capacity), capacity)
        return newest.value if newest is not None else _read_closely(descriptor)
    finally:
        os.close(descriptor)


def _newest_if_sound(whole: bytes, capacity: int) -> _Slot | None:
    """The newest slot if it is sound and one ahead of the other, as nearly always; else None: read closely.

    The other slot need not be decoded: no later write can have ended before the file was read, since it would have
    gone to that slot and raised its number. A slot that is being written, or whose writer died, is the higher one and
    not sound; one that was written while the slot before it was being read is further ahead.
    """
    second = _HEADER.size + _SLOT.size + capacity
    if len(whole) < second + _SLOT.size:
        return None
    sequence, length, crc = _SLOT.unpack_from(whole, _HEADER.size)
    other_sequence, other_length, other_crc = _SLOT.unpack_from(whole, second)
    position = _HEADER.size
    if sequence != other_sequence + 1:
        if other_sequence != sequence + 1:
            return None
        position, sequence, length, crc = second, other_sequence, other_length, other_crc
    start = position + _SLOT.size
    value = whole[start : start + length]
    if length > capacity or crc32c.crc32c(value, crc32c.crc32c(whole[position : position + _SIGNED.size])) != crc:
        return None
    return _Slot(position, sequence, value)


def _read_closely(descriptor: int) -> bytes | None:
    """The newest whole value of a register with a slot that is not sound or is being written."""
    before: list[_Slot] = []
    newest: bytes | None = None
    for _ in range(READ_TRIES):
        page = os.pread(descriptor, _PAGE_BYTES, 0)
        capacity = _capacity(page)
        if capacity is None:
            return None
        slots = _slots(_whole(descriptor, page, capacity), capacity)
        newest = max(slots, key=_age).value
        # A slot that is being written may make the other one, read before it, look like the newest.
        if slots == before or all(slot.value is not None or slot.sequence == 0 for slot in slots):
            return newest
        before = slots
    return newest


def _capacity(page: bytes) -> int | None:
    if len(page) < _HEADER.size:
        return None
    magic, capacity = _HEADER.unpack_from(page)
    return int(capacity) if magic == MAGIC else None


def _whole(descriptor: int, page: bytes, capacity: int) -> bytes:
    """The register whose first bytes, or all of them, are `page`."""
    size_bytes = _HEADER.size + 2 * (_SLOT.size + capacity)
    return page if size_bytes <= len(page) else os.pread(descriptor, size_bytes, 0)


def _slots(whole: bytes, capacity: int) -> list[_Slot]:
    slot_bytes = _SLOT.size + capacity
    return [_read_slot(whole, position, capacity) for position in (_HEADER.size, _HEADER.size + slot_bytes)]


def _read_slot(whole: bytes, position: int, capacity: int) -> _Slot:
    if len(whole) < position + _SLOT.size:
        return _Slot(position, 0, None)
    sequence, length, crc = _SLOT.unpack_from(whole, position)
    start = position + _SLOT.size
    value = whole[start : start + length]
    if sequence == 0 or length > capacity or _crc(sequence, value) != crc:
        return _Slot(position, sequence, None)
    return _Slot(position, sequence, value)


def _age(slot: _Slot) -> tuple[bool, int]:
    return slot.value is not None, slot.sequence


def encoded_slot(sequence: int, value: bytes) -> bytes:
    """A slot of the file that is sound: its checksum covers the sequence, the length and the value."""
    return _SLOT.pack(sequence, len(value), _crc(sequence, value)) + value


def _crc(sequence: int, value: bytes) -> int:
    return int(crc32c.crc32c(value, crc32c.crc32c(_SIGNED.pack(sequence, len(value)))))


def _rest(descriptor: int) -> bytes:
    chunks = []
    position = _PAGE_BYTES
    while chunk := os.pread(descriptor, 1 << 20, position):
        chunks.append(chunk)
        position += len(chunk)
    return b"".join(chunks)
