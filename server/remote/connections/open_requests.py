"""Which request of a connection waits for which answer, and when a broker is connected again. Pure.

A broker answers the requests of a connection in their order. A connection that ends, or on which a request is not
answered in its time, answers every request that waits there once, with `Lost`.
Source: Kafka's `InFlightRequests`, `NetworkClient`, `ClusterConnectionStates`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from stratalog.storage.errors import InvalidRequestError, StratalogError

_CORRELATION_ID = Struct(">i")
CORRELATION_IDS = 1 << 31
"""The number of correlation ids; they begin again at 0."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The request has no answer.

    was_sent  the broker may have performed it
    error     what repeating it does not help against: the login was refused
    """

    reason: str
    was_sent: bool
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request of which the answer is awaited; `answer` gets its frame, or `Lost`, once.

    has_answer  False for a request that the broker does not answer (acks=0): `answer` gets b"" when it is sent
    """

    correlation_id: int
    frame: bytes
    deadline_ms: int
    answer: Callable[[bytes | Lost], None]
    has_answer: bool = True


class OpenRequests:
    """The requests of one connection: some wait for it to be made, then each is sent and waits for its answer."""

    def __init__(self) -> None:
        self._waiting: deque[OpenRequest] = deque()
        self._sent: deque[OpenRequest] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def put(self, request: OpenRequest) -> None:
        """A request that is to be sent."""
        self._waiting.append(request)

    def to_send(self) -> list[OpenRequest]:
        """The requests to send now, in order; from now on those with an answer wait for it."""
        requests = list(self._waiting)
        self._waiting.clear()
        self._sent.extend(request for request in requests if request.has_answer)
        return requests

    def answered(self, frame: bytes) -> OpenRequest:
        """The request of this answer. InvalidRequestError for an answer to any but the oldest."""
        if len(frame) < _CORRELATION_ID.size:
            raise InvalidRequestError(f"an answer of {len(frame)} bytes")
        correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
        expected = self._sent[0].correlation_id if self._sent else None
        if correlation_id != expected:
            raise InvalidRequestError(f"correlation id {correlation_id}, {expected} is expected")
        return self._sent.popleft()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first request is late; None without requests."""
        return min((each.deadline_ms for each in (*self._sent, *self._waiting)), default=None)

    @property
    def awaits_answers(self) -> bool:
        """Whether a request that was sent has no answer yet."""
        return bool(self._sent)

    def lost(self, reason: str, error: StratalogError | None = None) -> list[tuple[OpenRequest, Lost]]:
        """Every request with its answer: the connection has ended. None is left."""
        ended = [(each, Lost(reason, was_sent=True)) for each in self._sent]
        ended += [(each, Lost(reason, was_sent=False, error=error)) for each in self._waiting]
        self._sent.clear()
        self._waiting.clear()
        return ended


class ReconnectBackoff:
    """Pauses between attempts to reach one broker: they double up to a limit, and begin again after a success.

    >>> backoff = ReconnectBackoff(50, 150)
    >>> [(backoff.failed(0), backoff.wait_ms(0))[1] for _ in range(3)], backoff.wait_ms(100)
    ([50, 100, 150], 50)
    """

    def __init__(self, backoff_ms: int, backoff_max_ms: int) -> None:
        """`reconnect.backoff.ms` and `reconnect.backoff.max.ms`."""
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = max(backoff_ms, backoff_max_ms)
        self._next_ms = 0
        self._failures = 0

    def succeeded(self) -> None:
        """There is a connection."""
        self._failures = 0

    def failed(self, now_ms: int) -> None:
        """An attempt failed, or a connection broke."""
        pause_ms = min(self._backoff_ms << min(self._failures, 20), self._backoff_max_ms)
        self._failures += 1
        self._next_ms = max(self._next_ms, now_ms + pause_ms)

    def wait_ms(self, now_ms: int) -> int:
        """The time until the next attempt."""
        return max(0, self._next_ms - now_ms)
