"""Frames as objects: what is written is read, and anything else is refused."""

from __future__ import annotations

import pytest

from stratalog.replication.requests.inbox_frames import (
    WHOLE_CHANNEL,
    FrameEntry,
    Frames,
    answers_path,
    channel_and_number,
    decode_frames,
    encode_frames,
    frames_path,
)
from stratalog.storage.errors import CorruptMessageError

FRAMES = Frames(7, 3, [FrameEntry(0, b"one"), FrameEntry(5, b""), FrameEntry(5), FrameEntry(WHOLE_CHANNEL)])


def test_what_is_written_is_read() -> None:
    assert decode_frames(encode_frames(FRAMES)) == FRAMES
    assert decode_frames(encode_frames(Frames(1, 0, []))) == Frames(1, 0, [])


def test_paths_name_channel_and_number() -> None:
    assert channel_and_number(frames_path("c-1", 12)) == ("c-1", 12)
    for other in (
        answers_path("c", 1),
        "inbox/c.frames",
        "inbox/c.x.frames",
        "inbox/.0000000001.frames",
        "t-0/a.frames",
    ):
        assert channel_and_number(other) is None


@pytest.mark.parametrize("cut", range(1, 20))
def test_what_is_cut_off_is_refused(cut: int) -> None:
    data = encode_frames(Frames(7, 3, [FrameEntry(0, b"one")]))
    with pytest.raises(CorruptMessageError):
        decode_frames(data[:-cut] if cut < 11 else data[: cut - 11])


def test_another_version_or_size_is_refused() -> None:
    data = encode_frames(FRAMES)
    with pytest.raises(CorruptMessageError, match="version 9"):
        decode_frames(b"\x09" + data[1:])
    with pytest.raises(CorruptMessageError, match="-2 bytes"):
        decode_frames(data[:21] + b"\xff\xff\xff\xfe" + data[25:])
