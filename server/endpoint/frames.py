"""A connection's bytes cut into request frames. Pure.

A frame is an int32 length and so many bytes. Small frames are read many at a time into one buffer; a frame that is
larger than that is received once, into memory of its own, and its batches are slices of it.
Source: Kafka's `NetworkReceive`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Protocol

import numpy as np

from stratalog.server.request.api import Connection
from stratalog.storage.errors import InvalidRequestError
from stratalog.wire.messages.frames import Answer, Frame

_LENGTH = Struct(">i")
CHUNK_BYTES = 64 << 10
"""The size of the buffer for small frames."""
FIRST_CHUNK_BYTES = 4 << 10
"""The same until it was full once: many connections send little."""
SERIOUS_BYTES = 1 << 20
"""The bytes of a large frame that arrive before its whole size counts: a client can announce any size."""


class FrameHandler(Protocol):
    """Receiver of request frames: `server.handler.KafkaHandler`, or the SASL gate in front of it."""

    def handle(self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None]) -> None: ...


class FrameReader:
    """Cuts what arrives into frames: fill `buffer()`, then call `received`.

    >>> reader = FrameReader(100)
    >>> reader.buffer()[:9] = bytes([0, 0, 0, 2]) + b"ab" + bytes([0, 0, 0])
    >>> reader.received(9)
    [b'ab']
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._chunk = bytearray(FIRST_CHUNK_BYTES)
        self._view = memoryview(self._chunk)
        self._end = 0
        self._large: memoryview | None = None
        self._large_end = 0
        self._given = 0

    def buffer(self) -> memoryview:
        """Memory for the next bytes of the connection; at least one byte long."""
        if self._large is not None:
            return self._large[self._large_end :]
        self._given = len(self._chunk) - self._end
        return self._view[self._end :]

    @property
    def announced_bytes(self) -> int:
        """The size of a large frame of which a part has arrived that is worth counting; 0: there is none."""
        if self._large is None or self._large_end < min(SERIOUS_BYTES, len(self._large)):
            return 0
        return len(self._large)

    def drop(self) -> None:
        """Free the memory: no more bytes come."""
        self._large, self._chunk, self._end = None, bytearray(), 0
        self._view = memoryview(self._chunk)

    def received(self, count: int) -> list[Frame]:
        """The frames that are whole after `count` more bytes; a large one is a view of the memory that received it.

        InvalidRequestError for a length that is not allowed.
        """
        if self._large is not None:
            self._large_end += count
            if self._large_end < len(self._large):
                return []
            frame, self._large = self._large.toreadonly(), None
            self._grow()
            return [frame]
        self._end += count
        frames = self._cut()
        if count == self._given:
            self._grow()
        return frames

    def _grow(self) -> None:
        """The client sends much: the buffer has its full size from now on."""
        if len(self._chunk) == CHUNK_BYTES:
            return
        chunk = bytearray(CHUNK_BYTES)
        chunk[: self._end] = self._view[: self._end]
        self._chunk = chunk
        self._view = memoryview(chunk)

    def _cut(self) -> list[Frame]:
        found: list[Frame] = []
        start, end = 0, self._end
        while end - start >= _LENGTH.size:
            size = _LENGTH.unpack_from(self._chunk, start)[0]
            if not 0 <= size <= self.frame_bytes_max:
                raise InvalidRequestError(
                    f"Invalid receive (size = {size}; it must be between 0 and {self.frame_bytes_max})"
                )
            begin = start + _LENGTH.size
            if begin + size > end:
                if begin + size - start > len(self._chunk):
                    self._begin_large(size, begin, end)
                    start = end
                break
            found.append(bytes(self._view[begin : begin + size]))
            start = begin + size
        left = end - start
        if left and start:
            self._view[:left] = self._view[start:end]
        self._end = left
        return found

    def _begin_large(self, size: int, begin: int, end: int) -> None:
        self._large = memoryview(np.empty(size, np.uint8).data)  # the system gives pages as bytes arrive
        self._large_end = end - begin
        self._large[: self._large_end] = self._view[begin:end]
