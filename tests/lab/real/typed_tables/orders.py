"""Orders in five versions of a schema and a sixth that is registered late: values, and what the table has of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from stratalog.clients.schemas.schema import Schema

PARTITIONS = 4
VERSIONS = 5
LATE = 6
"""The version of records that do not fit until it is registered, one in a hundred."""
_ZIP_INT = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
_ZIP_LONG = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "long"}]}
_V1 = {"id": "long", "item": "string", "amount": "int"}
_V2 = {**_V1, "price": ["null", "double"]}
_V3 = {**_V2, "amount": "long", "address": _ZIP_INT}
_V4 = {**_V3, "address": _ZIP_LONG, "tags": {"type": "array", "items": "string"}}
_V5 = {**_V4, "at": {"type": "long", "logicalType": "timestamp-micros"}}
_V6 = {**_V5, "note": "string"}
_FIELDS: list[dict[str, Any]] = [_V1, _V2, _V3, _V4, _V5, _V6]
SCHEMAS = [
    Schema(
        json.dumps(
            {"type": "record", "name": "Order", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}
        )
    )
    for fields in _FIELDS
]
COLUMNS = (
    "_partition INT, _offset BIGINT, id BIGINT, item STRING, amount BIGINT, price DOUBLE, address STRUCT<zip: BIGINT>, "
    "tags ARRAY<STRING>, at TIMESTAMP, note STRING"
)
ARROW = pa.schema(
    {
        "_partition": pa.int32(), "_offset": pa.int64(), "id": pa.int64(), "item": pa.string(), "amount": pa.int64(),
        "price": pa.float64(), "address": pa.struct([("zip", pa.int64())]), "tags": pa.list_(pa.string()),
        "at": pa.timestamp("us", "UTC"), "note": pa.string(),
    }
)  # fmt: skip
"""The table's columns once all versions are known."""


@dataclass(frozen=True, slots=True)
class Orders:
    """All orders of a run, by their numbers: order n is in partition n % 4, at offset n // 4.

    is_upsert  a tenth as many keys as orders, and one order in twenty deletes its key; else each has a key of its own
    """

    count: int
    is_upsert: bool = False

    def version(self, number: int) -> int:
        """Versions follow one another over the topic, and older producers go on for a while."""
        if is_turn(number, 100):
            return LATE
        newest = 1 + number * VERSIONS // self.count
        return max(1, newest - 1) if number % 5 == 0 else newest

    def key(self, number: int) -> int:
        """A key is in one partition, and each has orders of every kind."""
        return number % (PARTITIONS * (self.count // (10 * PARTITIONS) | 1)) if self.is_upsert else number

    def is_deletion(self, number: int) -> bool:
        """Whether the record has a null value."""
        return self.is_upsert and is_turn(number, 20)

    def values(self, first: int, end: int, late: int = LATE) -> Iterator[bytes | None]:
        """The bytes of orders `[first, end)`. Ids of schemas are their versions, `late` at most."""
        parsed = [AvroSchema.of(schema) for schema in SCHEMAS]
        for number in range(first, end):
            version = min(late, self.version(number))
            prefix = struct.pack(">bI", 0, version)
            is_null = self.is_deletion(number)
            yield None if is_null else prefix + encode_avro(parsed[version - 1], order(number, version))

    def outcome(self, *, has_late: bool) -> tuple[list[int], list[int]]:
        """The numbers whose rows the table has at the end, and those of dead letters; with the late schema or not."""
        numbers = range(self.count)
        unfit = [n for n in numbers if not (has_late or self.is_deletion(n)) and self.version(n) == LATE]
        unfit_ones = set(unfit)
        fitting = [number for number in numbers if number not in unfit_ones]
        if not self.is_upsert:
            return fitting, unfit
        newest = {self.key(number): number for number in fitting}
        rows = sorted(number for number in newest.values() if not self.is_deletion(number))
        return rows, [number for number in unfit if number > newest.get(self.key(number), -1)]

    def row(self, number: int) -> dict[str, Any]:
        """The row of an order; what its version does not have is null."""
        row: dict[str, Any] = dict.fromkeys(ARROW.names)
        row |= order(number, self.version(number))
        if row["at"] is not None:
            row["at"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["at"])
        return row | {"_partition": number % PARTITIONS, "_offset": number // PARTITIONS}


def is_turn(number: int, span: int) -> bool:
    """Whether it is the one of its span: each place of a span has its turn, so that each partition has them.

    >>> [number for number in range(16) if is_turn(number, 4)]
    [0, 5, 10, 15]
    """
    return number % span == number // span % span


def order(number: int, version: int) -> dict[str, Any]:
    """An order as its version writes it."""
    whole = {
        "id": number,
        "item": f"item-{number % 1000}",
        "amount": number % 2**31 if version < 3 else number * 1_000_003,
        "price": None if number % 7 == 0 else number / 4,
        "address": {"zip": number % 90_000 if version < 4 else 2**40 + number},
        "tags": [f"t{each}" for each in range(number % 3)],
        "at": number * 1_000,
        "note": "late",
    }
    return {name: whole[name] for name in _FIELDS[version - 1]}
