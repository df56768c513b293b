"""Requests from plain values by Kafka's names, answers as such values. Pure.

Names are those of Kafka's message definitions: `timeoutMs`, `partitionIndex`. A value that a version does not have is
left out, so that one step of a script says both `topicNames` and `topics`. Text stands for bytes; of a record batch,
a table of `batch_of`'s arguments, or hexadecimal digits after `0x`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kio.schema.index import api_key_map

from stratalog.clients.wire.rows import decode_rows
from stratalog.wire.messages.schema import Entity, FieldShape, names_in_any_version, request_type, shape_of
from stratalog.wire.messages.values import id_text
from tests.clients.kafka_client import batch_of
from tests.kio_messages import build

TIMES = {"timedelta_i32", "timedelta_i64", "datetime_i64"}
_BATCH = struct.Struct(">qiibIhiqqqhii")
"""The header of a batch: base offset, length, leader epoch, magic, CRC, attributes, last delta, times, producer …"""
_LENGTH_AT, _BEFORE_LENGTH = 8, 12


@cache
def api_key(name: str) -> int:
    """The key of an API by Kafka's name, e.g. 0 of `Produce`."""
    return next(key for key, known in api_key_map.items() if known.replace("_", "") == name.lower())


def request_of(name: str, version: int, values: Mapping[str, Any]) -> Entity:
    """A request. ValueError for a field that no version of the API has."""
    key = api_key(name)
    _check(key, values)
    entity_type = request_type(key, version)
    return build(entity_type, _kio_values(entity_type, values))


def values_of(entity: Entity) -> dict[str, Any]:
    """An answer or a part of one: times in milliseconds, ids as hexadecimal digits, batches as `batches_in`."""
    return {kafka_name(field): _plain(field, getattr(entity, field.name)) for field in shape_of(type(entity))}


def kafka_name(field: FieldShape) -> str:
    """Kafka's name of a field; kio's lacks the unit of a time.

    `log_append_time` of kind `datetime_i64` is `logAppendTimeMs`.
    """
    return _camel(field.name.rstrip("_")) + ("Ms" if field.kafka_type in TIMES else "")


def batches_in(records: bytes) -> list[dict[str, Any]]:
    """What a batch says about itself, and the values of its records."""
    return list(_batches(bytes(records)))


def _batches(records: bytes) -> Iterator[dict[str, Any]]:
    while len(records) >= _BATCH.size:
        end = _BEFORE_LENGTH + int.from_bytes(records[_LENGTH_AT:_BEFORE_LENGTH], "big")
        fields = _BATCH.unpack_from(records)
        names = ("baseOffset", "attributes", "producerId", "producerEpoch", "baseSequence", "recordCount")
        found = dict(zip(names, (fields[0], fields[5], *fields[9:]), strict=True))
        if not fields[5] & 0x20:
            found["values"] = [(value or b"").decode() for value in decode_rows(records[:end])["value"].to_pylist()]
        yield found
        records = records[end:]


def _plain(field: FieldShape, value: Any) -> Any:
    if value is None:
        return -1 if field.kafka_type in TIMES else None
    if field.kafka_type == "records":
        return batches_in(value)
    if field.is_array:
        return [_plain_one(field, each) for each in value]
    if field.kafka_type == "uuid":
        return id_text(value)
    return _plain_one(field, value)


def _plain_one(field: FieldShape, value: Any) -> Any:
    if field.part is not None:
        return values_of(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("latin-1")
    return int(value) if field.kafka_type == "error_code" else value


def _kio_values(entity_type: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    fields = {kafka_name(field): field for field in shape_of(entity_type)}
    return {fields[name].name: _kio_value(fields[name], value) for name, value in values.items() if name in fields}


def _kio_value(field: FieldShape, value: Any) -> Any:
    if value is None:
        return None
    if field.part is not None:
        return [_kio_values(field.part, each) for each in value] if field.is_array else _kio_values(field.part, value)
    if field.kafka_type == "records" and not isinstance(value, str):
        return _records(value)
    if field.kafka_type in {"bytes", "records"}:
        return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()
    return value


def _records(batch: Mapping[str, Any]) -> bytes:
    fields = dict(batch)
    values = [value.encode() for value in fields.pop("values")]
    damage = fields.pop("damage", False)
    twice = fields.pop("twice", False)
    magic = fields.pop("magic", None)
    if "key" in fields and fields["key"] is not None:
        fields["key"] = fields["key"].encode()
    encoded = bytearray(batch_of(*values, **fields))
    if damage:
        encoded[-1] ^= 1
    if magic is not None:
        encoded[16] = magic
    return bytes(encoded) * (2 if twice else 1)


def _check(key: int, values: Any) -> None:
    if isinstance(values, Mapping):
        known = {_camel(name.rstrip("_")) for name in names_in_any_version(key)}
        strange = [name for name in values if name not in known and name.removesuffix("Ms") not in known]
        if strange:
            raise ValueError(f"no version of API {key} has {strange}")
        for name, value in values.items():
            if name != "records":
                _check(key, value)
    elif isinstance(values, list):
        for each in values:
            _check(key, each)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
