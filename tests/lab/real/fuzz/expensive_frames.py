"""Valid requests that ask for much: one array of any API grown to its bound, bombs, expressions, subscriptions. Pure.

Everything follows from one seed. Requests that would change the cluster for long are left out: what an administrator
stores stays in memory by right.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import cramjam

from stratalog.storage.records import Header, NewRecordBatch, payload_table
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import HEADER_BYTES
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import encode_request
from stratalog.wire.messages.schema import EntityType, FieldShape, request_type, shape_of
from tests.lab.real.fuzz.bad_frames import TOPICS, BadFrames, with_crc

CHANGING = {
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
}
VALIDATING_FROM = {ApiKey.CREATE_TOPICS: 1, ApiKey.CREATE_PARTITIONS: 0}
COUNTS = (1_000, 10_000, 50_000, 99_000, 120_000)
"""Elements of the array that is grown: the last number is beyond the bound."""
EXPRESSIONS = (
    "(a+)+b", "(.*a.*b.*c)*" * 300, "(((a?){10}){10}){9}b", r"\p{L}+" * 500, "a|" * 1_900, "(x+x+)+y" * 3_000,
)  # fmt: skip
BOMB_BYTES = 16 * 1024 * 1024 - 4_096
BYTES_MAX = 9 << 20
ID_DIGITS = 32


class ExpensiveFrames(BadFrames):
    """An endless sequence of valid frames, with the length before them."""

    def __init__(self, seed: int, served: Mapping[int, Sequence[int]]) -> None:
        kept = {
            key: [version for version in versions if version >= VALIDATING_FROM.get(key, 0)]
            for key, versions in served.items()
            if key not in CHANGING
        }
        super().__init__(seed, kept)
        self._own = random.Random(seed)
        self._grown: FieldShape | None = None
        self._bombs: list[bytes] = []

    def __next__(self) -> bytes:
        frame = self._frame()
        return struct.pack(">i", len(frame)) + frame

    def _frame(self) -> bytes:
        kind = self._own.random()
        if kind < 0.15:
            return self._bomb_request()
        if kind < 0.25:
            return self._expression_request()
        if kind < 0.30:
            return self._subscription_request()
        if kind < 0.33:
            return self._tags_request()
        return self._grown_request()

    @property
    def served(self) -> Sequence[tuple[int, Sequence[int]]]:
        """The APIs that are asked, and their versions."""
        return self._served

    def grown(self, key: int, version: int, field: FieldShape, count: int, *, is_same: bool) -> bytes:
        """A request in which one array has so many elements, all the same or all different."""
        self._grown, self._count, self._is_same = field, count, is_same
        try:
            return self._request(request_type(key, version))
        finally:
            self._grown = None

    def _grown_request(self) -> bytes:
        while True:
            key, versions = self._own.choice(self._served)
            version = self._own.choice(versions)
            arrays = arrays_of(request_type(key, version))
            if not arrays:
                continue
            field, count = self._own.choice(arrays), self._own.choice(COUNTS)
            frame = self.grown(key, version, field, count, is_same=self._own.random() < 0.3)
            if len(frame) <= BYTES_MAX:
                return frame

    def _value(self, field: FieldShape) -> Any:
        grown = self._grown
        if field is not grown:
            return super()._value(field)
        self._grown = None  # once: not within its own elements
        one = self._one(field)
        if self._is_same:
            return [one] * self._count
        return [_numbered(one, number) for number in range(self._count)]

    # -- single kinds ------------------------------------------------------------------------------------------

    def _bomb_request(self) -> bytes:
        """One batch in each of many partitions, or of one of them; with many tiny records, or one large one, or headers
        by the hundred thousand."""
        if not self._bombs:
            self._bombs = [zeros_bomb(), records_bomb(), headers_bomb()]
        bomb, count = self._own.choice(self._bombs), self._own.choice((1, 2, 30, 200))
        partitions = [{"index": number, "records": bomb} for number in range(min(count, BYTES_MAX // len(bomb)))]
        topic = {"name": self._own.choice(TOPICS), "partition_data": partitions}
        values = {"acks": self._own.choice((1, -1)), "timeout": 1_000, "topic_data": [topic]}
        return encode_request(7, "fuzz", values, request_type(ApiKey.PRODUCE, 9))

    def _expression_request(self) -> bytes:
        expression = self._own.choice(EXPRESSIONS)
        if self._own.random() < 0.5:
            values: dict[str, Any] = {"duration_filter": -1, "transactional_id_pattern": expression}
            return encode_request(7, "fuzz", values, request_type(ApiKey.LIST_TRANSACTIONS, 2))
        member = {"member_id": f"m{self._own.randrange(50)}", "member_epoch": 0, "rebalance_timeout": 1_000}
        asked = {"group_id": "fuzz-group", "subscribed_topic_regex": expression, "topic_partitions": []}
        return encode_request(7, "fuzz", {**member, **asked}, request_type(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1))

    def _subscription_request(self) -> bytes:
        count = self._own.choice((10_000, 200_000, 500_000))
        metadata = struct.pack(">hi", 0, count) + b"\0\0" * count + struct.pack(">i", -1)
        values = {
            "group_id": f"fuzz-join-{self._own.randrange(3)}", "session_timeout": 6_000, "rebalance_timeout": 1_000,
            "member_id": "", "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}],
        }  # fmt: skip
        return encode_request(7, "fuzz", values, request_type(ApiKey.JOIN_GROUP, 3))

    def _tags_request(self) -> bytes:
        count = self._own.choice((100, 20_000, 2_000_000))
        number, written = count, bytearray()
        while number > 0x7F:
            written.append(number & 0x7F | 0x80)
            number >>= 7
        head = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 7, -1)
        return head + bytes([*written, number]) + b"\x63\0" * count + b"\x01\x01\0"


def arrays_of(entity_type: EntityType) -> list[FieldShape]:
    """Every array of a request, also those within others."""
    found: list[FieldShape] = []
    waiting = [entity_type]
    while waiting:
        for field in shape_of(waiting.pop()):
            if field.is_array:
                found.append(field)
            if field.part is not None:
                waiting.append(field.part)
    return found


def _numbered(value: Any, number: int) -> Any:
    """The value with the number in its names, or instead of it."""
    if isinstance(value, dict):
        names = [name for name, each in value.items() if isinstance(each, str | int) and not isinstance(each, bool)]
        texts = [name for name in names if isinstance(value[name], str)]
        chosen = (texts or [name for name in names if name in ("partition", "partition_index", "index")])[:1]
        return {**value, **{name: _numbered(value[name], number) for name in chosen}}
    if isinstance(value, str):
        return f"{number:032x}" if len(value) == ID_DIGITS else f"{value}{number}"
    return number % 100 if isinstance(value, int) and not isinstance(value, bool) else value


def zeros_bomb() -> bytes:
    """One record of nearly 16 MiB, in some hundred bytes."""
    return encode_batch(NewRecordBatch(payload_table([(1, None, bytes(BOMB_BYTES), None)]), compression_type="zstd"))


def headers_bomb() -> bytes:
    """One record with a hundred thousand headers."""
    headers = [Header("h", b"")] * 100_000
    return encode_batch(NewRecordBatch(payload_table([(1, None, b"", headers)]), compression_type="zstd"))


def records_bomb(count: int = 500_000) -> bytes:
    """Half a million empty records."""
    parts = []
    for number in range(count):
        delta, written = number << 1, bytearray()
        while delta > 0x7F:
            written.append(delta & 0x7F | 0x80)
            delta >>= 7
        body = b"\0\0" + bytes([*written, delta]) + b"\x01\x01\0"
        parts.append(bytes([len(body) << 1]) + body)
    head = bytearray(encode_batch(NewRecordBatch(payload_table([(1, None, b"x", None)])))[:HEADER_BYTES])
    batch = head + bytes(cramjam.zstd.compress(b"".join(parts), level=3))
    struct.pack_into(">h", batch, 21, 4)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_crc(batch)
