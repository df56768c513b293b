"""Records compressed as Kafka's clients compress them, and no more memory taken than was allowed."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.errors import (
    CorruptMessageError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from stratalog.wire.batches.compression import compressed, compression_type_of, decompressed
from tests.clients.batch_tools import CODECS

REAL_CODECS = CODECS[1:]
TEXT = b"a record of a web log, " * 9_000


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=st.binary(max_size=300).map(lambda part: part * 9))
def test_what_is_compressed_is_decompressed(codec: str, data: bytes) -> None:
    assert decompressed(memoryview(compressed(data, codec)), codec) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_text_becomes_much_smaller(codec: str) -> None:
    small = bytes(compressed(TEXT, codec))
    assert len(small) < len(TEXT) / 10
    assert decompressed(memoryview(small), codec) == TEXT


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_frames_one_after_the_other_are_read(codec: str) -> None:
    frames = bytes(compressed(b"one", codec)) + bytes(compressed(b"two", codec))
    assert decompressed(memoryview(frames), codec) == b"onetwo"


def test_snappy_is_read_with_and_without_framing_and_written_with_it() -> None:
    framed = bytes(compressed(TEXT, "snappy"))
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert decompressed(memoryview(bytes(cramjam.snappy.compress_raw(TEXT))), "snappy") == TEXT


def test_lz4_blocks_are_independent() -> None:
    """KIP-57: Java refuses linked ones. Bit 5 of the byte behind the magic; the upper two are the version, 1."""
    assert bytes(compressed(TEXT, "lz4"))[4] & 0xE0 == 0x60


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_more_than_allowed_is_not_made(codec: str) -> None:
    bomb = bytes(compressed(bytes(64 << 20), codec))
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLargeError, match="> 1000000"):
            decompressed(memoryview(bomb), codec, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_much_is_refused_before_it_is_made() -> None:
    with pytest.raises(RecordTooLargeError, match="hold 4294967295 bytes"):
        decompressed(memoryview(b"\xff\xff\xff\xff\x0f" + bytes(20)), "snappy")


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=st.binary(min_size=1, max_size=60), cut=st.integers(1, 20), flip=st.integers(0, 10_000))
def test_any_bytes_decompress_or_are_corrupt(codec: str, data: bytes, cut: int, flip: int) -> None:
    small = bytes(compressed(TEXT[:5_000], codec))
    at = flip % len(small)
    for candidate in (data, small[:-cut], small[:at] + bytes([small[at] ^ 0x41]) + small[at + 1 :]):
        with suppress(CorruptMessageError, RecordTooLargeError):
            assert isinstance(decompressed(memoryview(candidate), codec), bytes)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_what_is_cut_off_is_corrupt(codec: str) -> None:
    with pytest.raises(CorruptMessageError, match=rf"{codec}|snappy block"):
        decompressed(memoryview(bytes(compressed(TEXT, codec))[:-9]), codec)


def test_a_block_of_framed_snappy_that_is_too_long_is_corrupt() -> None:
    framed = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", 9) + b"\x02\x04ok"
    with pytest.raises(CorruptMessageError, match="snappy block of 9 bytes, 4 are left"):
        decompressed(memoryview(framed), "snappy")


def test_names_and_numbers_are_kafkas() -> None:
    assert [compression_type_of(number) for number in range(5)] == list(CODECS)
    for unknown in (5, 6, 7):
        with pytest.raises(UnsupportedCompressionTypeError, match=f"compression type {unknown}"):
            compression_type_of(unknown)
    with pytest.raises(UnsupportedCompressionTypeError, match="brotli"):
        compressed(b"x", "brotli")
