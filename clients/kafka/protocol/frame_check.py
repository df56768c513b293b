"""Whether a frame's lengths fit into the frame: looked at before kio decodes it. Pure.

kio 0.6 makes room for as many elements as an array's length says before it reads one. A length of 2^32 in a frame of
forty bytes is an allocation that fails, and the process is aborted. So the frame is first gone through here: each
length must fit into what is left of it. A request of one partition takes some microseconds. Tagged fields that kio does
not know, which it would refuse, are cut out: a newer client may send them (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from struct import Struct

from stratalog.clients.kafka.protocol.schema import EntityType, FieldShape, shape_of
from stratalog.storage.errors import InvalidRequestError

Cut = tuple[int, int, bytes]
"""A piece of a frame, `[start, end)`, and what stands in its place."""
Walk = Callable[[bytes, int, list[Cut]], int]
"""From a position in a frame to the one behind what was gone through. IndexError or struct.error: it is cut off."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_SIZES = {
    "int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
VARINT_BYTES_MAX = 5
NULL_PART = 0xFF
"""The byte -1 before a part that is null (KIP-893)."""


def checked(header_type: EntityType, body_type: EntityType, frame: bytes) -> bytes:
    """The frame, without tagged fields that kio does not know. InvalidRequestError when a length does not fit."""
    cuts: list[Cut] = []
    body = _check(header_type, frame, 0, cuts)
    _check(body_type, frame, body, cuts)
    for start, end, instead in reversed(cuts):
        frame = frame[:start] + instead + frame[end:]
    return frame


def _check(entity_type: EntityType, frame: bytes, start: int, cuts: list[Cut]) -> int:
    try:
        end = _walk_of(entity_type)(frame, start, cuts)
    except (IndexError, struct.error) as reason:
        raise InvalidRequestError(f"{entity_type.__name__} is cut off: the frame has {len(frame)} bytes") from reason
    if end > len(frame):
        raise InvalidRequestError(f"{entity_type.__name__} goes on to byte {end}, the frame has {len(frame)} bytes")
    return end


@cache
def _walk_of(entity_type: EntityType) -> Walk:
    """Through all fields of an entity; neighbours of fixed size are one step."""
    is_flexible = bool(entity_type.__flexible__)
    is_header = entity_type.__name__ == "RequestHeader"
    steps: list[Walk] = []
    fixed_bytes = 0
    tagged: dict[int, Walk] = {}
    for field in shape_of(entity_type):
        if field.tag is not None:
            tagged[field.tag] = _field_walk(field, is_flexible)
            continue
        if not field.is_array and field.kafka_type in _SIZES:
            fixed_bytes += _SIZES[field.kafka_type]
            continue
        if fixed_bytes:
            steps.append(_skip(fixed_bytes))
            fixed_bytes = 0
        # The client id has an int16 length in every version: who reads the header may not know the version yet.
        steps.append(_field_walk(field, is_flexible and not is_header))
    if fixed_bytes:
        steps.append(_skip(fixed_bytes))
    if is_flexible:
        steps.append(_tagged_walk(tagged))
    return _in_order(steps)


def _field_walk(field: FieldShape, is_flexible: bool) -> Walk:
    walk = _element_walk(field, is_flexible)
    return _array_walk(walk, is_flexible) if field.is_array else walk


def _element_walk(field: FieldShape, is_flexible: bool) -> Walk:
    if field.part is not None:
        walk = _walk_of(field.part)
        return _nullable_part_walk(walk) if field.is_nullable and not field.is_array else walk
    if field.kafka_type in _SIZES:
        return _skip(_SIZES[field.kafka_type])
    return _bytes_walk(_length_reader(is_flexible, _INT16 if field.kafka_type == "string" else _INT32))


def _skip(size_bytes: int) -> Walk:
    return lambda _frame, at, _cuts: at + size_bytes


def _in_order(steps: list[Walk]) -> Walk:
    def walk(frame: bytes, at: int, cuts: list[Cut]) -> int:
        for step in steps:
            at = step(frame, at, cuts)
        return at

    return walk


def _bytes_walk(read_length: Callable[[bytes, int], tuple[int, int]]) -> Walk:
    def walk(frame: bytes, at: int, _cuts: list[Cut]) -> int:
        length, at = read_length(frame, at)
        if length > len(frame) - at:
            raise InvalidRequestError(f"a length of {length} at byte {at}, the frame has {len(frame)} bytes")
        return at + max(0, length)

    return walk


def _array_walk(walk_element: Walk, is_flexible: bool) -> Walk:
    read_length = _length_reader(is_flexible, _INT32)

    def walk(frame: bytes, at: int, cuts: list[Cut]) -> int:
        count, at = read_length(frame, at)
        if count > len(frame) - at:  # each element has a byte at least
            raise InvalidRequestError(f"an array of {count} at byte {at}, the frame has {len(frame)} bytes")
        for _ in range(count):
            at = walk_element(frame, at, cuts)
        return at

    return walk


def _nullable_part_walk(walk_part: Walk) -> Walk:
    return lambda frame, at, cuts: at + 1 if frame[at] == NULL_PART else walk_part(frame, at + 1, cuts)


def _tagged_walk(tagged: dict[int, Walk]) -> Walk:
    def walk(frame: bytes, at: int, cuts: list[Cut]) -> int:
        start = at
        count, at = _varint(frame, at)
        known: list[bytes] = []
        for _ in range(count):
            field_start = at
            tag, at = _varint(frame, at)
            size_bytes, at = _varint(frame, at)
            if size_bytes > len(frame) - at:
                raise InvalidRequestError(f"a tagged field of {size_bytes} bytes, the frame has {len(frame)}")
            if tag in tagged:
                inner: list[Cut] = []
                if tagged[tag](frame, at, inner) != at + size_bytes or inner:
                    raise InvalidRequestError(f"tagged field {tag} at byte {at} is not what its size says")
                known.append(frame[field_start : at + size_bytes])
            at += size_bytes
        if len(known) < count:
            # Fewer than 128 are known, so their number takes one byte.
            cuts.append((start, at, bytes([len(known)]) + b"".join(known)))
        return at

    return walk


def _length_reader(is_flexible: bool, legacy: Struct) -> Callable[[bytes, int], tuple[int, int]]:
    """Reads (length, position behind it); -1 means null."""

    def compact(frame: bytes, at: int) -> tuple[int, int]:
        length, at = _varint(frame, at)
        return length - 1, at

    def fixed(frame: bytes, at: int) -> tuple[int, int]:
        return legacy.unpack_from(frame, at)[0], at + legacy.size

    return compact if is_flexible else fixed


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = frame[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise InvalidRequestError(f"a length of more than {VARINT_BYTES_MAX} bytes before byte {at}")
