"""A connection's bytes cut into frames, however they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.server.endpoint.frames import CHUNK_BYTES, SERIOUS_BYTES, FrameReader
from stratalog.storage.errors import InvalidRequestError
from stratalog.wire.messages.frames import Frame

FRAME_BYTES_MAX = 4 * CHUNK_BYTES


def arrive(reader: FrameReader, data: bytes, most: int) -> list[Frame]:
    """The frames cut from `data` when it arrives in pieces of at most `most` bytes."""
    found: list[Frame] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data), most)
        buffer[:count] = data[:count]
        data = data[count:]
        found += reader.received(count)
    return found


def with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


SIZES = st.one_of(st.integers(0, 40), st.integers(CHUNK_BYTES - 9, CHUNK_BYTES + 9), st.just(FRAME_BYTES_MAX))


@given(st.lists(SIZES, max_size=6), st.sampled_from([1_000, 4_096, CHUNK_BYTES, 10 * CHUNK_BYTES]))
def test_frames_of_any_size_in_pieces_of_any_size(sizes: list[int], most: int) -> None:
    frames = [bytes([which]) * size for which, size in enumerate(sizes)]
    assert arrive(FrameReader(FRAME_BYTES_MAX), b"".join(map(with_length, frames)), most) == frames


def test_a_large_frame_is_received_once() -> None:
    """No copy of it is made, and what arrives later does not change it."""
    reader, large = FrameReader(FRAME_BYTES_MAX), bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    (frame,) = arrive(reader, with_length(large), 1_000)
    assert isinstance(frame, memoryview)
    assert frame.readonly
    arrive(reader, with_length(b"x" * len(large)), 1_000)
    assert frame == large


def test_a_length_that_arrives_byte_by_byte() -> None:
    data = with_length(b"abc") + with_length(b"") + with_length(b"d")
    assert arrive(FrameReader(100), data, 1) == [b"abc", b"", b"d"]


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1])
def test_a_length_that_is_not_allowed_is_refused(length: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"size = {length}; it must be between 0 and 100"):
        arrive(FrameReader(100), length.to_bytes(4, "big", signed=True), 4)


def test_no_memory_is_taken_for_a_frame_before_its_length_is_allowed() -> None:
    with pytest.raises(InvalidRequestError):
        arrive(FrameReader(FRAME_BYTES_MAX), (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), 4)


def test_a_large_frame_counts_whole_once_a_serious_part_has_arrived() -> None:
    size = 3 * SERIOUS_BYTES
    reader = FrameReader(size)
    data = with_length(bytes(size))
    arrive(reader, data[: SERIOUS_BYTES - 4], SERIOUS_BYTES)
    assert reader.announced_bytes == 0
    arrive(reader, data[SERIOUS_BYTES - 4 : 2 * SERIOUS_BYTES], SERIOUS_BYTES)
    assert reader.announced_bytes == size
    assert arrive(reader, data[2 * SERIOUS_BYTES :], SERIOUS_BYTES) == [bytes(size)]
    assert reader.announced_bytes == 0
