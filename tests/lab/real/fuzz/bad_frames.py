"""Request frames of every API and version, and what breaks in them: bits, lengths, nulls, counts, record batches. Pure.

Everything follows from one seed. Names come from small pools, so that requests meet what others made; the topics of a
neighbour are not among them. Requests that only ask to be validated do so, so that few of them change the cluster.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import cramjam
import crc32c

from stratalog.storage.records import NewRecordBatch, payload_table
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import HEADER_BYTES
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import encode_request
from stratalog.wire.messages.schema import (
    Entity,
    EntityType,
    FieldShape,
    known_versions,
    request_type,
    shape_of,
)
from stratalog.wire.messages.values import default_of
from tests.kio_messages import build

TOPICS = ("fuzz-a", "fuzz-b")
"""Topics that the run makes: requests may change and delete them."""
SETTINGS = {
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
"""Settings of the brokers: no topic of every name that a flipped bit makes, no wait for members of groups."""
NAMES = (*TOPICS, "fuzz-absent", "fuzz-group", "fuzz-member", "", "1", "range", "consumer")
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_TIMES_MS = (0, 1, 10, 50, 200, -1, 60_000)
BOMB_BYTES = 64 << 20
_CRC_AT, _ATTRIBUTES_AT, _COUNT_AT = 17, 21, 57
_HUGE = (0x7FFFFFFF, 0x7FFFFFF0, 1 << 24, 65_535, -1, -2, -(1 << 31))


class BadFrames:
    """An endless sequence of frames with the length before them, good ones and broken ones.

    served  the versions by API key
    """

    def __init__(self, seed: int, served: Mapping[int, Sequence[int]]) -> None:
        self._rng = random.Random(seed)
        known = [(key, sorted(known_versions(key) & set(versions))) for key, versions in sorted(served.items())]
        self._served = [(key, versions) for key, versions in known if versions]
        self._mutations: tuple[tuple[int, Callable[[bytes], bytes]], ...] = (
            (20, self._as_it_is),
            (20, self._flipped),
            (10, self._cut_off),
            (10, self._lengthened),
            (12, self._with_another_number),
            (6, self._with_random_bytes),
            (4, self._of_another_api),
            (4, self._random),
        )

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        frame = self._frame()
        size = len(frame)
        if self._rng.random() < 0.02:
            size = self._rng.choice((-1, -(1 << 31), 0x7FFFFFFF, 104_857_601, 50_000_000, size + 1, size - 1, 0))
        return struct.pack(">i", size) + frame

    def _frame(self) -> bytes:
        kind = self._rng.random()
        if kind < 0.1:
            return self._with_a_null()
        if kind < 0.2:
            return self._bad_produce()
        key, versions = self._rng.choice(self._served)
        frame = self._request(request_type(key, self._rng.choice(versions)))
        weights, mutations = zip(*self._mutations, strict=True)
        return self._rng.choices(mutations, weights)[0](frame)

    # -- good requests ------------------------------------------------------------------------------------

    def _request(self, entity_type: EntityType, change: Callable[[Entity], Entity] | None = None) -> bytes:
        request = build(entity_type, self._values(entity_type))
        client = self._rng.choice(("fuzz", "", None))
        return encode_request(self._rng.randrange(1 << 31), client, change(request) if change else request)

    def _values(self, entity_type: EntityType) -> dict[str, Any]:
        return {field.name: self._value(field) for field in shape_of(entity_type)}

    def _value(self, field: FieldShape) -> Any:
        if field.is_nullable and self._rng.random() < 0.15 and "entity_name" not in field.name:
            return None
        if field.is_array:
            count = self._rng.choices((0, 1, 2, 5), (1, 6, 2, 1))[0]
            return [self._one(field) for _ in range(count)]
        return self._one(field)

    def _one(self, field: FieldShape) -> Any:
        if field.part is not None:
            return self._values(field.part)
        kind, rng = field.kafka_type or "", self._rng
        if field.name == "validate_only":
            return True
        if kind == "records":
            return self._batch()
        if kind == "string":
            return rng.choice(TOPICS if "topic" in field.name or field.name == "name" else NAMES)
        if kind == "bytes":
            return rng.randbytes(rng.choice((0, 1, 16, 300)))
        if kind in _INTEGERS:
            return self._integer(kind)
        if kind.startswith("timedelta"):
            return rng.choice(_TIMES_MS)
        if kind == "datetime_i64":
            return rng.choice((-1, 0, 1_700_000_000_000))
        if kind == "uuid":
            return None if rng.random() < 0.5 else f"{rng.getrandbits(128):032x}"
        return default_of(dataclasses.replace(field, is_array=False))

    def _integer(self, kind: str) -> int:
        bits = _INTEGERS[kind]
        low, high = (0, (1 << bits) - 1) if kind[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
        if self._rng.random() < 0.05:
            return self._rng.choice((low, high))
        return max(low, self._rng.choice((0, 0, 0, 1, 1, 2, 3, -1, 10, 100)))

    def _batch(self) -> bytes:
        count = self._rng.choice((1, 1, 3, 50))
        rows = [(1_700_000_000_000 + n, b"key", self._rng.randbytes(20), None) for n in range(count)]
        codec = self._rng.choice(("none", "none", "gzip", "snappy", "lz4", "zstd"))
        return encode_batch(NewRecordBatch(payload_table(rows), compression_type=codec))

    # -- broken ones ---------------------------------------------------------------------------------------

    def _as_it_is(self, frame: bytes) -> bytes:
        return frame

    def _flipped(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        for _ in range(self._rng.choice((1, 1, 1, 2, 8))):
            changed[self._rng.randrange(len(changed))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)

    def _cut_off(self, frame: bytes) -> bytes:
        return frame[: self._rng.randrange(len(frame))]

    def _lengthened(self, frame: bytes) -> bytes:
        return frame + self._rng.randbytes(self._rng.choice((1, 4, 100)))

    def _with_another_number(self, frame: bytes) -> bytes:
        """A length, a count or a number somewhere is huge, negative, or one off."""
        form = self._rng.choice((">h", ">i"))
        at = self._rng.randrange(8, max(9, len(frame) - 4))
        if at + struct.calcsize(form) > len(frame):
            return frame
        (old,) = struct.unpack_from(form, frame, at)
        wanted = self._rng.choice((*_HUGE, old + 1, old - 1, -old))
        if form == ">h":
            wanted = max(-(1 << 15), min((1 << 15) - 1, wanted))
        changed = bytearray(frame)
        struct.pack_into(form, changed, at, max(-(1 << 31), min((1 << 31) - 1, wanted)))
        return bytes(changed)

    def _with_random_bytes(self, frame: bytes) -> bytes:
        at = self._rng.randrange(8, max(9, len(frame)))
        return frame[:at] + self._rng.randbytes(len(frame) - at)

    def _of_another_api(self, frame: bytes) -> bytes:
        key, version = self._rng.choice((-1, 4, 7, 36, 57, 70, 93, 1_000, 0, 18)), self._rng.randrange(-1, 20)
        return struct.pack(">hh", key, version) + frame[4:]

    def _random(self, frame: bytes) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 7, 8, 50, len(frame))))

    def _with_a_null(self) -> bytes:
        """A null where the schema has none."""
        while True:
            key, versions = self._rng.choice(self._served)
            entity_type = request_type(key, self._rng.choice(versions))
            names = [each for each in shape_of(entity_type) if _may_be_null_in_bytes(each)]
            if names:
                name = self._rng.choice(names).name
                return self._request(entity_type, partial(dataclasses.replace, **{name: None}))

    def _bad_produce(self) -> bytes:
        key, versions = self._served[0]
        assert key == ApiKey.PRODUCE
        records = self._rng.choice(
            (self._with_wrong_crc, self._with_another_header, self._with_other_records, self._bomb, self._two_batches)
        )()
        version = self._rng.choice([each for each in versions if each < 13])
        partition = {"index": self._rng.choice((0, 0, 1, 99)), "records": records}
        topic = {"name": self._rng.choice(TOPICS), "partition_data": [partition]}
        values = {"acks": self._rng.choice((-1, 1, 0, 2)), "timeout": 500, "topic_data": [topic]}
        return encode_request(7, "fuzz", values, request_type(ApiKey.PRODUCE, version))

    def _with_wrong_crc(self) -> bytes:
        return self._flipped(self._batch())

    def _with_another_header(self) -> bytes:
        """A field of the header is changed, and the CRC is right."""
        batch = bytearray(self._batch())
        at, form = self._rng.choice(((8, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (43, ">q"), (51, ">h"), (57, ">i")))
        bits = 8 * struct.calcsize(form)
        struct.pack_into(form, batch, at, self._rng.randrange(-(1 << bits - 1), 1 << bits - 1))
        return with_crc(batch)

    def _with_other_records(self) -> bytes:
        batch = bytearray(self._batch())
        for _ in range(self._rng.choice((1, 3, 10))):
            at = self._rng.randrange(HEADER_BYTES, len(batch))
            batch[at] = self._rng.choice((0, 0x7F, 0x80, 0xFF, self._rng.randrange(256)))
        return with_crc(batch)

    def _two_batches(self) -> bytes:
        return self._batch() + self._batch()[: self._rng.choice((1_000, 11, 61))]

    def _bomb(self) -> bytes:
        """Few bytes that hold very many."""
        batch = bytearray(encode_batch(NewRecordBatch(payload_table([(1, None, b"x", None)])))[:HEADER_BYTES])
        kind, content = self._rng.choice(_bombs())
        struct.pack_into(">h", batch, _ATTRIBUTES_AT, kind)
        struct.pack_into(">i", batch, _COUNT_AT, self._rng.choice((1, 1_000, 0x7FFFFFFF)))
        batch += content
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        return with_crc(batch)


def _may_be_null_in_bytes(field: FieldShape) -> bool:
    has_length = field.is_array or (field.part is None and field.kafka_type in ("string", "bytes"))
    return has_length and not field.is_nullable and field.tag is None


def with_crc(batch: bytearray) -> bytes:
    """The batch with the CRC of its content."""
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(bytes(batch[_ATTRIBUTES_AT:])))
    return bytes(batch)


_BOMBS: list[tuple[int, bytes]] = []


def _bombs() -> list[tuple[int, bytes]]:
    if not _BOMBS:
        zeros = bytes(BOMB_BYTES)
        gzip = zlib.compressobj(9, wbits=31)
        _BOMBS.append((1, gzip.compress(zeros) + gzip.flush()))
        _BOMBS.append((2, b"\xff\xff\xff\xff\x07" + bytes(cramjam.snappy.compress_raw(b"x"))[1:]))
        _BOMBS.append((3, bytes(cramjam.lz4.compress(zeros))))
        _BOMBS.append((4, bytes(cramjam.zstd.compress(zeros))))
    return _BOMBS
