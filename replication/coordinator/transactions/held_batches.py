"""The order in which a producer's batches reach a partition's log while its coordinator is asked about them. Pure.

A log that meets batch 2 of a transaction before batch 1 refuses it for its sequence, which ends the transaction though
nothing is missing. Several batches are under way at once, and each may be refused because its transaction is not
verified. So the batches of one producer and partition that have no final answer stand in a line, in the order in which
they came, and keep their place in it until then:

- One is asked about at a time: the first one that the log refused. What stands behind it waits, also when the log
  refuses it again because a marker was appended meanwhile, and it is asked about once more.
- Only that one is sent again as verified. Those behind it follow at once, unverified: the log accepts them if the
  first one has begun the transaction. If it has not, it refuses them as unverified, never for their sequence.
- None is sent while a later one, sent before, has still to come back from the log.

Source: `ReplicaManager.handleProduceAppend`, which answers a connection's next request only after that, and
`VerificationStateEntry`, which keeps the lowest sequence that was asked about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stratalog.storage.errors import UnverifiedTransactionError
from stratalog.storage.records import TopicPartition

Key = tuple[int, TopicPartition]
"""Producer id and partition."""
Send = Callable[[UnverifiedTransactionError | None], None]
"""Sends a batch to the log; as verified since this refusal, or unverified."""


@dataclass(slots=True, eq=False)
class HeldBatch:
    """A batch in its line.

    number    its last sending, over all batches of the line; -1 before the first
    is_sent   it is on its way to the log or there; else it waits, or its coordinator is asked about it
    is_asked  its question has no answer yet
    verified  the refusal that the coordinator was asked for, if the answer was yes
    """

    key: Key
    send: Send
    number: int = -1
    is_sent: bool = False
    is_asked: bool = False
    verified: UnverifiedTransactionError | None = None


@dataclass(slots=True)
class _Line:
    """One producer's batches in one partition without a final answer, oldest first."""

    batches: list[HeldBatch] = field(default_factory=list)
    sent_count: int = 0
    is_sending: bool = False

    def next(self) -> tuple[HeldBatch, UnverifiedTransactionError | None] | None:
        """The batch to send now, and its verification; None while those before it have to be waited for."""
        newest = -1
        for batch in self.batches:
            if batch.is_asked or (batch.is_sent and batch.number < newest):
                return None
            if not batch.is_sent:
                verified = batch.verified if batch.number >= newest else None
                batch.number, batch.is_sent, batch.verified = self.sent_count, True, None
                self.sent_count += 1
                return batch, verified
            newest = batch.number
        return None


class HeldBatches:
    """Any thread may call. A batch comes with `begin`; then `refused` and, if that is true, `answered` follow as often
    as the log refuses it as unverified; `done` ends it.

    >>> held, sent, key = HeldBatches(), [], (7, TopicPartition("t", 0))
    >>> first = HeldBatch(key, lambda verified: sent.append((1, verified is not None)))
    >>> second = HeldBatch(key, lambda verified: sent.append((2, verified is not None)))
    >>> held.begin(first)
    >>> held.refused(first)
    True
    >>> held.begin(second)
    >>> held.answered(first, UnverifiedTransactionError("not verified", 5))
    >>> sent
    [(1, False), (1, True), (2, False)]
    """

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}
        self._lock = threading.Lock()

    def begin(self, batch: HeldBatch) -> None:
        """A batch has come: send it, now or when its turn comes."""
        with self._lock:
            self._lines.setdefault(batch.key, _Line()).batches.append(batch)
        self._send_next(batch.key)

    def refused(self, batch: HeldBatch) -> bool:
        """The log refused it as unverified. True: its coordinator is to be asked, `answered` or `done` follows. False:
        one before it is asked about or on its way again; it is sent behind that one."""
        with self._lock:
            earlier = _before(batch, self._lines[batch.key].batches)
            follows = any(not each.is_sent or each.number > batch.number for each in earlier)
            batch.is_sent, batch.is_asked = False, not follows
        self._send_next(batch.key)
        return not follows

    def answered(self, batch: HeldBatch, refusal: UnverifiedTransactionError) -> None:
        """The coordinator has it in the transaction; it was asked because of `refusal`."""
        with self._lock:
            batch.is_asked, batch.verified = False, refusal
        self._send_next(batch.key)

    def done(self, batch: HeldBatch) -> None:
        """It has its final answer."""
        with self._lock:
            line = self._lines[batch.key]
            line.batches.remove(batch)
            if not line.batches and not line.is_sending:
                del self._lines[batch.key]
                return
        self._send_next(batch.key)

    def _send_next(self, key: Key) -> None:
        """Send what may be sent, one after the other; by one thread at a time, so that they leave in order."""
        with self._lock:
            line = self._lines.get(key)
            if line is None or line.is_sending:
                return
            line.is_sending = True
        while True:
            with self._lock:
                found = line.next()
                if found is None:
                    line.is_sending = False
                    if not line.batches:
                        del self._lines[key]
                    return
            batch, verified = found
            batch.send(verified)


def _before(batch: HeldBatch, batches: Iterable[HeldBatch]) -> Iterable[HeldBatch]:
    for each in batches:
        if each is batch:
            return
        yield each
