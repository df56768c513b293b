"""Java's hash and order of strings, the order of a HashMap with them as keys, and its text of a number. Pure.

Kafka's coordinator hashes a group's id with `String.hashCode`, its assignors sort members with `String.compareTo`,
and its sticky assignors iterate HashMaps, so that their choice among equals depends on the buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

_HASH_MAP_CAPACITY = 16


def string_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial of the UTF-16 units, as a signed 32-bit number.

    >>> string_hash("my-group")
    -1906497762
    """
    hashed = 0
    if text.isascii():
        for unit in text.encode():
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return hashed - 0x100000000 if hashed & 0x80000000 else hashed


def string_order(text: str) -> bytes:
    """A key that sorts as Java's `String.compareTo`: by UTF-16 units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_order(names: Iterable[str], capacity: int = _HASH_MAP_CAPACITY) -> list[str]:
    """Distinct `names` in the order of a `java.util.HashMap` with these keys, put in this order; it was made with
    `capacity`, a power of two, and has grown.

    By bucket, and within a bucket in order of insertion; Java's trees for buckets of more than eight are not modelled.

    >>> hash_order(["c", "b", "a"])
    ['a', 'b', 'c']
    """
    distinct = list(dict.fromkeys(names))
    return [distinct[index] for index in bucket_order([string_hash(name) for name in distinct], capacity)]


def bucket_order(hashes: Sequence[int], capacity: int = _HASH_MAP_CAPACITY) -> list[int]:
    """Indexes of the keys with these hash codes in the order of a HashMap that grew as they were put in."""
    buckets = capacity
    while len(hashes) > buckets * 3 // 4:
        buckets *= 2
    return sorted(range(len(hashes)), key=lambda index: _bucket(hashes[index], buckets))


def _bucket(hashed: int, buckets: int) -> int:
    spread = hashed & 0xFFFFFFFF
    return (spread ^ spread >> 16) & (buckets - 1)


def double_text(value: float) -> str:
    """Java's `Double.toString`.

    >>> [double_text(each) for each in (1024.0, 12.5, 1e7, 1.5e-4, 123456789.0)]
    ['1024.0', '12.5', '1.0E7', '1.5E-4', '1.23456789E8']
    """
    if not 0 < abs(value) < math.inf or 1e-3 <= abs(value) < 1e7:
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if value != value else repr(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{exponent + len(digits) - 1}"
