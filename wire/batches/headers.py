"""Kafka's record batches as bytes: headers, bounds, checksums. Pure.

    RecordBatch => BaseOffset:int64 Length:int32 PartitionLeaderEpoch:int32 Magic:int8 CRC:uint32 Attributes:int16
                   LastOffsetDelta:int32 BaseTimestamp:int64 MaxTimestamp:int64 ProducerId:int64 ProducerEpoch:int16
                   BaseSequence:int32 RecordsCount:int32 Records

The CRC (CRC-32C) covers the fields behind it, so a broker sets base offset and leader epoch without a new CRC.
Batches of magic 0 and 1 are UNSUPPORTED_FOR_MESSAGE_FORMAT, as in Kafka 4.
Source: Kafka's `DefaultRecordBatch`, `ByteBufferLogInputStream`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import crc32c

from stratalog.storage.errors import CorruptMessageError, UnsupportedForMessageFormatError
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE
from stratalog.wire.batches.compression import COMPRESSION_TYPES, compressed, compression_type_of

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 2
LOG_OVERHEAD_BYTES: Final = 12
"""The bytes of base offset and length, which the length does not count."""
HEADER_BYTES: Final = 61
NO_LEADER_EPOCH: Final = -1
LOG_APPEND_TIME: Final = 1

_ATTRIBUTES_AT: Final = 21
_LENGTH_MIN: Final = 14
_COMPRESSION_MASK: Final = 0x07
_TIMESTAMP_TYPE_BIT: Final = 0x08
_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_EPOCH = struct.Struct(">qii")
_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")


class BatchHeader(NamedTuple):
    """A batch's header in wire order; -1 for an absent value.

    length  bytes of the fields behind it; the whole batch has `size_bytes`, 12 more
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression_type(self) -> str:
        """Kafka's name of the codec. UnsupportedCompressionTypeError for an unknown number."""
        return compression_type_of(self.attributes & _COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> int:
        """0: CreateTime, 1: LogAppendTime."""
        return (self.attributes & _TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_ATTRIBUTE)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_ATTRIBUTE)


class EncodedBatch(NamedTuple):
    """A batch as bytes, with offsets `[base_offset, last_offset]`; some of them may have been compacted away. From the
    encoded tail also several batches, one behind the other.

    head  stands in place of the first bytes of `data`; see `pieces`
    """

    base_offset: int
    last_offset: int
    data: Buffer
    head: bytes = b""

    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """The batch's bytes, in as many buffers as they lie in."""
        if not self.head:
            return (self.data,)
        return self.head, memoryview(self.data)[len(self.head) :]


def batches_in(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch's header and its bytes, header included. A last batch that was cut off is left out, as clients do.

    Raises CorruptMessageError (an impossible length or magic, a wrong CRC) with the values compared, and
    UnsupportedForMessageFormatError (magic 0 or 1).
    """
    rest = memoryview(data)
    while len(rest) >= _BEFORE_CRC.size:
        base_offset, length, _, magic, _ = _BEFORE_CRC.unpack_from(rest)
        if length < _LENGTH_MIN:
            raise CorruptMessageError(f"batch at offset {base_offset}: length {length} < {_LENGTH_MIN}")
        if magic not in (0, 1, MAGIC):
            raise CorruptMessageError(f"batch at offset {base_offset}: magic {magic}, known are 0 to {MAGIC}")
        if length + LOG_OVERHEAD_BYTES > len(rest):
            return
        if magic < MAGIC:
            raise UnsupportedForMessageFormatError(f"batch at offset {base_offset}: magic {magic}, needed {MAGIC}")
        batch, rest = rest[: length + LOG_OVERHEAD_BYTES], rest[length + LOG_OVERHEAD_BYTES :]
        if len(batch) < HEADER_BYTES:
            raise CorruptMessageError(f"batch at offset {base_offset}: {len(batch)} bytes < {HEADER_BYTES}")
        header = header_of(batch)
        computed = crc32c.crc32c(batch[_ATTRIBUTES_AT:])
        if computed != header.crc:
            raise CorruptMessageError(f"batch at offset {base_offset}: stored CRC {header.crc}, computed {computed}")
        yield header, batch


def header_of(batch: Buffer) -> BatchHeader:
    """The header of a batch of magic 2, of at least 61 bytes."""
    return BatchHeader._make(_HEADER.unpack_from(batch))


def start_in_log(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The first bytes of a batch as it stands in the log, up to the last one that an append changes: base offset and
    leader epoch. The CRC stays."""
    (length,) = struct.unpack_from(">i", data, 8)
    return _OFFSET_AND_EPOCH.pack(base_offset, length, leader_epoch)


def with_append_time(data: Buffer, time_ms: int) -> bytes:
    """The batch with this time for each of its records: type and largest time in the header, whose CRC is computed
    again. The records keep the times that their producer wrote, which no reader looks at then."""
    header = header_of(data)
    attributes = header.attributes | _TIMESTAMP_TYPE_BIT
    fields = _AFTER_CRC.pack(*header._replace(attributes=attributes, max_timestamp_ms=time_ms)[5:])
    content = memoryview(data)[HEADER_BYTES:]
    crc = crc32c.crc32c(content, crc32c.crc32c(fields))
    before = _BEFORE_CRC.pack(*header[:4], crc)
    return b"".join((before, fields, content))


def batch_bytes(header: BatchHeader, records: memoryview, compression_type: str) -> bytes:
    """Header and compressed records; length, magic, CRC and codec are computed, not taken from `header`."""
    content = memoryview(compressed(records, compression_type))
    codec = COMPRESSION_TYPES.index(compression_type)
    fields = _AFTER_CRC.pack(header.attributes | codec, *header[6:])
    crc = crc32c.crc32c(content, crc32c.crc32c(fields))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(content)
    before = _BEFORE_CRC.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc)
    return b"".join((before, fields, content))
