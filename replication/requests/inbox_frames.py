"""Request and answer frames as objects of a broker's root: where there is no connection, these are one. Pure encoding.

`inbox/<channel>.<number>.frames` goes to the broker, `answers/<channel>.<number>` comes back. A channel is one client's
way to one registration of a broker; its objects are numbered from 0 in each direction, each is read once and in order.
One object has frames of any of the channel's conversations. A conversation is what a connection is over TCP: its
requests are answered one after the other. What a frame is, is its handler's matter: bytes here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.replication.requests.hand_over import INBOX_PREFIX
from stratalog.storage.errors import CorruptMessageError

FRAMES_SUFFIX = ".frames"
ANSWERS_PREFIX = "answers/"
WHOLE_CHANNEL = -1
"""The conversation of an entry about all of them."""
_HEADER = struct.Struct(">bqq")
_ENTRY = struct.Struct(">ii")
_VERSION = 0
_NO_FRAME = -1


@dataclass(frozen=True, slots=True)
class FrameEntry:
    """A frame of a conversation; None: the conversation, or with `WHOLE_CHANNEL` the channel, is over."""

    conversation: int
    frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class Frames:
    """The content of one object, in either direction.

    broker_epoch  the registration that the client knows; another one does not handle the frames
    next_answer   the number of the answer that the client waits for
    """

    broker_epoch: int
    next_answer: int
    entries: Sequence[FrameEntry]


NUMBER_DIGITS_MAX = 18


def frames_path(channel: str, number: int) -> str:
    return f"{INBOX_PREFIX}{channel}.{number:010d}{FRAMES_SUFFIX}"


def answers_path(channel: str, number: int) -> str:
    return f"{ANSWERS_PREFIX}{channel}.{number:010d}"


def channel_and_number(path: str) -> tuple[str, int] | None:
    """Of the path of frames to a broker; None for anything else in its inbox.

    >>> channel_and_number("inbox/c1.0000000007.frames"), channel_and_number("inbox/c1.json")
    (('c1', 7), None)
    """
    if not path.startswith(INBOX_PREFIX) or not path.endswith(FRAMES_SUFFIX):
        return None
    channel, _, number = path.removeprefix(INBOX_PREFIX).removesuffix(FRAMES_SUFFIX).rpartition(".")
    is_number = number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS_MAX
    return (channel, int(number)) if channel and is_number else None


def encode_frames(frames: Frames) -> bytes:
    parts = [_HEADER.pack(_VERSION, frames.broker_epoch, frames.next_answer)]
    for each in frames.entries:
        parts.append(_ENTRY.pack(each.conversation, _NO_FRAME if each.frame is None else len(each.frame)))
        parts.append(each.frame or b"")
    return b"".join(parts)


def decode_frames(data: bytes) -> Frames:
    """The reverse of `encode_frames`. CorruptMessageError for anything else."""
    try:
        version, broker_epoch, next_answer = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise CorruptMessageError(f"frames of version {version}, {_VERSION} is known")
        entries, at = [], _HEADER.size
        while at < len(data):
            conversation, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            if size > len(data) - at or size < _NO_FRAME:
                raise CorruptMessageError(f"a frame of {size} bytes at byte {at} of {len(data)}")
            entries.append(FrameEntry(conversation, None if size == _NO_FRAME else data[at : at + size]))
            at += max(size, 0)
    except struct.error as reason:
        raise CorruptMessageError(f"not frames: {data[:50]!r} ({reason})") from reason
    return Frames(broker_epoch, next_answer, entries)
