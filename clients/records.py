"""Values that clients return: record metadata, consumed records, and the futures of records under way. Pure.

A `Delivery` is shared by all records of one producer batch: it completes once, in one or several pieces
(a batch that was too large is split), and each record's future finds its own offset in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stratalog.storage.errors import RequestTimedOutError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import Header, TopicPartition

UNKNOWN_OFFSET = -1

_log = line_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """A sent record's partition and offset. `offset` is -1 without acknowledgement (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Part of a table as stored: `record_count` records of one partition, `[base_offset, last_offset]`."""

    partition: int
    base_offset: int
    last_offset: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Offsets of the rows of a table: one range for each batch, in sending order within a partition."""

    topic: str
    record_count: int
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """An RE2 expression that a group's coordinator matches with whole topic names (Kafka's SubscriptionPattern)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record as consumed. `timestamp_type` is 0 (CreateTime) or 1 (LogAppendTime).

    `key` and `value` are bytes or None, or what the consumer's deserializers made of them.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: that of the next record to read, a text of the application's own (4 KiB at most), and the
    leader epoch of the last record read, if known."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The records `[first_index, first_index + count)` of a batch, stored from `base_offset` on, or refused."""

    first_index: int
    count: int
    base_offset: int
    error: StratalogError | None


@dataclass(slots=True, eq=False)
class Delivery:
    """The outcome of one producer batch of `record_count` records. Thread-safe; completes once."""

    record_count: int = 0
    pieces: list[Piece] = field(default_factory=list)
    _missing: int | None = None
    _is_done: bool = False
    _waiters: threading.Event | None = None  # made by the first `wait`: most records have a callback
    _callbacks: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, piece: Piece) -> None:
        """Add the outcome of some records; the last missing one wakes the waiters and runs the callbacks."""
        with self._lock:
            self.pieces.append(piece)
            missing = self.record_count if self._missing is None else self._missing
            self._missing = missing - piece.count
            if self._missing > 0:
                return
            self._is_done = True
            waiters, self._waiters = self._waiters, None
            callbacks, self._callbacks = self._callbacks, []
        if waiters is not None:
            waiters.set()
        for callback in callbacks:
            _run(callback)

    def is_done(self) -> bool:
        return self._is_done

    def wait(self, timeout: float | None) -> bool:
        """True when it completed within `timeout` seconds (None: no limit)."""
        with self._lock:
            if self._is_done:
                return True
            if self._waiters is None:
                self._waiters = threading.Event()
            waiters = self._waiters
        return waiters.wait(timeout)

    def on_done(self, callback: Callable[[], None]) -> None:
        """Run `callback` once complete, on the completing thread; at once if it already is."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        _run(callback)

    def piece_of(self, index: int) -> Piece:
        """The outcome of record `index`; only after completion."""
        if len(self.pieces) == 1:
            return self.pieces[0]
        return next(p for p in self.pieces if p.first_index <= index < p.first_index + p.count)


@dataclass(slots=True, eq=False)
class RecordFuture:
    """The future of one record; `result` and friends as in `concurrent.futures.Future`, without cancelling."""

    topic_partition: TopicPartition
    timestamp_ms: int | None
    _delivery: Delivery
    _index: int

    @classmethod
    def failed(cls, topic_partition: TopicPartition, error: StratalogError) -> RecordFuture:
        """The future of a record that was refused before it entered a batch."""
        delivery = Delivery(1)
        delivery.complete(Piece(0, 1, UNKNOWN_OFFSET, error))
        return cls(topic_partition, None, delivery, 0)

    def done(self) -> bool:
        return self._delivery.is_done()

    def cancel(self) -> bool:
        """Always False, as in Kafka: a record cannot be recalled."""
        return False

    def exception(self, timeout: float | None = None) -> StratalogError | None:
        """The record's error or None, waiting up to `timeout` seconds; RequestTimedOutError after that."""
        if not self._delivery.wait(timeout):
            raise RequestTimedOutError(f"{self.topic_partition}: no answer within {timeout} s, still under way")
        return self._delivery.piece_of(self._index).error

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The record's metadata, waiting up to `timeout` seconds; raises its error, or RequestTimedOutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def add_done_callback(self, callback: Callable[[RecordFuture], None]) -> None:
        """`callback(self)` once done; at once if it already is."""
        self._delivery.on_done(lambda: callback(self))

    def notify(self, on_delivery: Callable[[RecordMetadata | None, StratalogError | None], None]) -> None:
        """Call `on_delivery(metadata, error)` once done; one of the two is None."""

        def done() -> None:
            error = self._delivery.piece_of(self._index).error
            on_delivery(None if error else self._metadata(), error)

        self._delivery.on_done(done)

    def _metadata(self) -> RecordMetadata:
        piece = self._delivery.piece_of(self._index)
        known = piece.base_offset != UNKNOWN_OFFSET
        offset = piece.base_offset + self._index - piece.first_index if known else UNKNOWN_OFFSET
        return RecordMetadata(*self.topic_partition, offset, self.timestamp_ms)


def _run(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001
        # A user's callback must not stop the sender thread, which completes all records.
        _log.exception("a delivery callback failed")


NO_GENERATION_ID = -1
NO_COORDINATOR = -1


@dataclass(frozen=True, slots=True)
class Generation:
    """A member's generation (or epoch) and id, and the assignor of the group."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer's identity in its group, for offsets that a transactional producer commits (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
