"""Batches that wait while the coordinator is asked about one before them, of the same producer and partition. Pure.

A log that meets batch 2 of a transaction before batch 1 refuses it for its sequence. A client that has the answers in
order then sees batch 1 stored and batch 2 refused though nothing is missing, which ends its transaction. So from the
question about batch 1 until that is sent again, later batches are kept here, in their order. Batches that were asked
about together are sent again in the order of their questions, also if the first question is answered last, as when it
alone met CONCURRENT_TRANSACTIONS and was asked once more.
Source: `ReplicaManager.handleProduceAppend`, which answers a connection's next request only after that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from stratalog.storage.records import TopicPartition

Key = tuple[int, TopicPartition]
"""Producer id and partition."""
Send = Callable[[], None]


@dataclass(slots=True, eq=False)
class OpenQuestion:
    """A question about a batch; `then` sends the batch again or answers it, None until the question is answered."""

    then: Send | None = None


@dataclass(slots=True)
class _Held:
    """One producer's batches in one partition: the questions about them, oldest first, and what waits for them."""

    questions: deque[OpenQuestion] = field(default_factory=deque)
    is_sending: bool = False
    waiting: deque[Send] = field(default_factory=deque)


class HeldBatches:
    """Any thread may call.

    >>> held, sent, key = HeldBatches(), [], (7, TopicPartition("t", 0))
    >>> held.begin(key, lambda: sent.append(1))
    >>> question = held.asked(key)
    >>> held.begin(key, lambda: sent.append(2))
    >>> held.answered(key, question, lambda: sent.append("1 again"))
    >>> sent
    [1, '1 again', 2]
    """

    def __init__(self) -> None:
        self._held: dict[Key, _Held] = {}
        self._lock = threading.Lock()

    def begin(self, key: Key, send: Send) -> None:
        """Send a batch for the first time: now, or behind those that wait."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.waiting.append(send)
                return
        send()

    def asked(self, key: Key) -> OpenQuestion:
        """The coordinator is being asked about a batch; `answered` follows, once."""
        question = OpenQuestion()
        with self._lock:
            self._held.setdefault(key, _Held()).questions.append(question)
        return question

    def answered(self, key: Key, question: OpenQuestion, then: Send) -> None:
        """Call `then`, which sends the batch again or answers it, once all earlier questions are answered; send what
        waits when no question is open."""
        with self._lock:
            held = self._held[key]
            question.then = then
            if held.is_sending:
                return
            held.is_sending = True
        while (send := self._next(key, held)) is not None:
            send()

    def _next(self, key: Key, held: _Held) -> Send | None:
        with self._lock:
            if held.questions and held.questions[0].then is not None:
                return held.questions.popleft().then
            if not held.questions and held.waiting:
                return held.waiting.popleft()
            held.is_sending = False
            if not held.questions:
                del self._held[key]
            return None
