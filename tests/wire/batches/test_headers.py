"""Batches are found in what was sent, their checksums are checked, and what is no batch is named."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.errors import CorruptMessageError, StratalogError, UnsupportedForMessageFormatError
from stratalog.wire.batches.headers import BatchHeader, batches_in, header_of
from tests.clients.batch_tools import CODECS, ONE_RECORD, kafka_batches, raw_batch
from tests.wire.batches.decoded import with_offsets

BATCH = raw_batch(ONE_RECORD, 1)


def test_a_header_is_as_kafka_wrote_it() -> None:
    (header, batch), *others = batches_in(kafka_batches()["zstd"])
    assert others == []
    assert header == BatchHeader(
        0, len(batch) - 12, -1, 2, header.crc, 0x14, 39, 1_700_000_000_000, 1_700_000_010_000, 4711, 3, 17, 40
    )
    assert (header.compression_type, header.timestamp_type) == ("zstd", 0)
    assert (header.is_transactional, header.is_control, header.last_offset) == (True, False, 39)


def test_codecs_and_control_batches_are_told_by_kafkas_bits() -> None:
    headers = {name: header_of(batch) for name, batch in kafka_batches().items()}
    assert [headers[name].compression_type for name in CODECS] == list(CODECS)
    assert headers["commit"].is_control
    assert (headers["commit"].base_offset, headers["commit"].leader_epoch) == (99, 6)


@given(st.integers(1, 4), st.integers(0, len(BATCH) - 1))
def test_a_last_batch_that_was_cut_off_is_passed_over(whole: int, more: int) -> None:
    found = list(batches_in(BATCH * whole + BATCH[:more]))
    assert [bytes(batch) for _, batch in found] == [BATCH] * whole


def test_base_offset_and_leader_epoch_are_set_without_a_new_crc() -> None:
    ((header, batch),) = batches_in(with_offsets(BATCH, 1 << 40, 9))
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert bytes(batch[16:]) == BATCH[16:]


@given(st.integers(21, len(BATCH) - 1), st.integers(1, 255))
def test_a_bit_that_flipped_behind_the_crc_is_noticed(at: int, bits: int) -> None:
    flipped = BATCH[:at] + bytes([BATCH[at] ^ bits]) + BATCH[at + 1 :]
    with pytest.raises(CorruptMessageError, match=r"batch at offset 0: stored CRC \d+, computed \d+"):
        list(batches_in(flipped))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_not_read(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match=f"magic {magic}, needed 2"):
        list(batches_in(BATCH[:16] + bytes([magic]) + BATCH[17:]))


@pytest.mark.parametrize(
    ("at", "change", "reason"),
    [
        (8, struct.pack(">i", 13), "length 13 < 14"),
        (8, struct.pack(">i", -1), "length -1 < 14"),
        (8, struct.pack(">i", 14), "26 bytes < 61"),
        (16, b"\x03", "magic 3, known are 0 to 2"),
        (16, b"\xff", "magic -1, known"),
    ],
)
def test_what_cannot_be_a_batch_is_corrupt(at: int, change: bytes, reason: str) -> None:
    with pytest.raises(CorruptMessageError, match=f"batch at offset 0: {reason}"):
        list(batches_in(BATCH[:at] + change + BATCH[at + len(change) :]))


def test_a_length_beyond_what_was_sent_is_a_batch_that_was_cut_off() -> None:
    assert list(batches_in(BATCH[:8] + struct.pack(">i", (1 << 31) - 1) + BATCH[12:])) == []


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_an_error_of_ours(data: bytes) -> None:
    found = []
    try:
        found.extend(bytes(batch) for _, batch in batches_in(data))
    except StratalogError as error:
        code = error.code
    else:
        code = 0
    assert code in (0, 2, 43)
    assert data.startswith(b"".join(found))
