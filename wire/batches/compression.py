"""How the records of a Kafka batch are compressed: gzip, snappy, lz4, zstd. Pure.

Written as by Kafka's Java client: snappy in xerial's framing, lz4 as a frame of independent blocks (Kafka accepts no
others, KIP-57). Read as any client writes them: snappy with and without framing, several frames in a row.

cramjam compresses: Arrow's lz4 frames have linked blocks, which Java refuses. Arrow's streams decompress, since they
can stop: a kilobyte of zstd may hold gigabytes, and cramjam returns all or nothing.
"""

from __future__ import annotations

from typing import Any, Final

import cramjam
import pyarrow as pa

from stratalog.storage.errors import CorruptMessageError, RecordTooLargeError, UnsupportedCompressionTypeError
from stratalog.storage.files.codecs import NO_COMPRESSION

COMPRESSION_TYPES: Final = (NO_COMPRESSION, "gzip", "snappy", "lz4", "zstd")
"""Kafka's names; the index is the number in a batch's attributes."""
DECOMPRESSED_BYTES_MAX = 16 << 20
"""The default bound of a decompressed batch. Kafka sets none: its `max.message.bytes` bounds the compressed size."""

_XERIAL_HEADER: Final = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
_XERIAL_MAGIC_BYTES = 8
_XERIAL_BLOCK_BYTES = 32 * 1024
_READ_BYTES_MIN = 64 * 1024
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
"""Kafka's defaults (KIP-390); its lz4 writes with the fast compressor."""


def compression_type_of(number: int) -> str:
    """The name of a codec by its number in a batch's attributes. UnsupportedCompressionTypeError for an unknown one.

    >>> compression_type_of(4)
    'zstd'
    """
    if number >= len(COMPRESSION_TYPES):
        raise UnsupportedCompressionTypeError(f"compression type {number}: known are 0 to {len(COMPRESSION_TYPES) - 1}")
    return COMPRESSION_TYPES[number]


def compressed(data: Any, compression_type: str) -> Any:
    """A batch's records compressed; `data` itself for `none`. UnsupportedCompressionTypeError for an unknown name."""
    match compression_type:
        case "none":
            return data
        case "gzip":
            return cramjam.gzip.compress(data, level=_GZIP_LEVEL)
        case "snappy":
            return _xerial(memoryview(data))
        case "lz4":
            frame = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            frame.compress(bytes(data))  # it takes no other buffers
            return frame.finish()
        case "zstd":
            return cramjam.zstd.compress(data, level=_ZSTD_LEVEL)
    raise UnsupportedCompressionTypeError(f"compression type {compression_type!r}: known are {COMPRESSION_TYPES}")


def decompressed(data: memoryview, compression_type: str, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The decompressed bytes, at most `bytes_max`.

    Raises CorruptMessageError (another codec's bytes, or cut off) and RecordTooLargeError (more than `bytes_max`).
    """
    try:
        return _snappy(data, bytes_max) if compression_type == "snappy" else _stream(data, compression_type, bytes_max)
    except (OSError, cramjam.DecompressionError) as reason:
        raise CorruptMessageError(f"{len(data)} bytes do not decompress as {compression_type}: {reason}") from reason


def _stream(data: memoryview, compression_type: str, bytes_max: int) -> bytes:
    step_bytes = max(_READ_BYTES_MIN, 4 * len(data))
    parts: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), compression_type) as stream:
        while part := stream.read(step_bytes):
            parts.append(part)
            size += len(part)
            _check_size(size, bytes_max, len(data), compression_type)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[:_XERIAL_MAGIC_BYTES]) != _XERIAL_HEADER[:_XERIAL_MAGIC_BYTES]:
        return _snappy_block(data, 0, bytes_max)
    parts: list[bytes] = []
    made_bytes = 0
    at = len(_XERIAL_HEADER)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if not 0 < size <= len(data) - at:
            raise CorruptMessageError(f"snappy block of {size} bytes, {len(data) - at} are left")
        parts.append(_snappy_block(data[at : at + size], made_bytes, bytes_max))
        made_bytes += len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(data: memoryview, made_bytes: int, bytes_max: int) -> bytes:
    if not data:
        raise CorruptMessageError("a snappy block has at least one byte, found 0")
    _check_size(made_bytes + cramjam.snappy.decompress_raw_len(data), bytes_max, len(data), "snappy")
    return bytes(cramjam.snappy.decompress_raw(data))


def _xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


def _check_size(size: int, bytes_max: int, compressed_bytes: int, compression_type: str) -> None:
    if size > bytes_max:
        raise RecordTooLargeError(
            f"{compressed_bytes} bytes of {compression_type} hold {size} bytes or more > {bytes_max}"
        )
