"""The order of one connection's requests and answers. Pure.

Answers leave in the order of the requests. A request begins when the one before it is answered, as Kafka mutes a
connection meanwhile, except Produce: up to `PIPELINED_MAX` consecutive ones are under way at once, in their order, so
that one commit can hold several batches of a producer. Kafka's producers rely on no more than that order.
Source: Kafka's `SocketServer.Processor`, `KafkaChannel.mute`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Frame, api_key_of

PIPELINED_MAX = 5
"""Produce requests under way at a time: `max.in.flight.requests.per.connection` of an idempotent producer."""
_API_VERSION = Struct(">xxh")
_NOT_ANSWERED: Any = object()


def version_of(frame: Frame) -> int:
    """The version of a request frame; -1 for one that is too short to have one."""
    return int(_API_VERSION.unpack_from(frame)[0]) if len(frame) >= _API_VERSION.size else -1


class Flight:
    """A request under way: `answer` is what to send, None to send nothing. `taken_bytes` were counted for it.

    begun_s     when its turn came, on its loop's clock
    answered_s  when its answer was there, in whatever thread
    """

    __slots__ = ("answer", "answered_s", "api_key", "begun_s", "frame", "size_bytes", "taken_bytes", "version")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.api_key = api_key_of(frame)
        self.version = version_of(frame)
        self.begun_s = self.answered_s = 0.0
        self.size_bytes = len(frame)
        self.taken_bytes = 0
        self.answer: Any = _NOT_ANSWERED


class RequestOrder:
    """The requests of one connection that have arrived and are not answered."""

    def __init__(self) -> None:
        self._waiting: deque[Frame] = deque()
        self._flying: deque[Flight] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flying)

    @property
    def is_blocked(self) -> bool:
        """Whether a whole request waits here: there is no need to read another."""
        return bool(self._waiting)

    @property
    def oldest(self) -> Flight | None:
        """The request that holds up the others."""
        return self._flying[0] if self._flying else None

    def received(self, frames: Sequence[Frame]) -> None:
        """These frames arrived, in this order."""
        self._waiting.extend(frames)

    def next(self) -> Flight | None:
        """The request that begins now; None while those under way have to be answered first."""
        if not self._waiting:
            return None
        if self._flying:
            is_produce = self._flying[-1].api_key == ApiKey.PRODUCE == api_key_of(self._waiting[0])
            if not is_produce or len(self._flying) >= PIPELINED_MAX:
                return None
        flight = Flight(self._waiting.popleft())
        self._flying.append(flight)
        return flight

    def answered(self, flight: Flight, answer: Any) -> list[Flight]:
        """The flights whose answers leave now, in order: this one is answered."""
        flight.answer = answer
        done: list[Flight] = []
        while self._flying and self._flying[0].answer is not _NOT_ANSWERED:
            done.append(self._flying.popleft())
        return done
