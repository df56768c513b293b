"""The appends of a shard's decisions, and their answers in order. Pure.

While an append is under way, later decisions gather; together they are the next append (group commit). An answer is
returned only when the next coordinator is certain to have its state, as in Kafka's `CoordinatorRuntime`, where answers
wait for the last offset written when they were made.

The log may refuse a producer's transactional records and its marker because of that producer alone. So the shard
replays them only when they are stored, and nothing has to be rolled back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.replication.coordinator.shard.shard import (
    Answered,
    CoordinatorRecord,
    Decision,
    RemoteAppend,
    size_bytes,
)
from stratalog.storage import errors
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.records import NO_PRODUCER_ID, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, payload_table
from stratalog.storage.transactions import NOT_VERIFIED, OffsetAndEpoch

APPEND_BYTES_MAX = 4 << 20
"""Size of an append; decisions beyond it are in the next one."""

_LEADERSHIP = (
    errors.NotLeaderOrFollowerError,
    errors.FencedLeaderEpochError,
    errors.UnknownLeaderEpochError,
    errors.KafkaStorageError,
    StoreError,
)


@dataclass(slots=True)
class Write:
    """A decision that waits for its append; one without records waits for those before it.

    marker   the control batch that ends a transaction
    verified of a transaction's records: see `Decision`
    is_read  its answers wait further until the shard is known to have led meanwhile
    refusal  why the log refused it, while it stored the writes before and after it
    """

    records: tuple[CoordinatorRecord, ...]
    timestamp_ms: int
    deadline_ms: int
    answers: tuple[Answered, ...] = ()
    effects: tuple[RemoteAppend, ...] = ()
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    verified: OffsetAndEpoch = NOT_VERIFIED
    marker: NewRecordBatch | None = None
    is_read: bool = False
    refusal: StratalogError | None = None
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = self.marker.size_bytes if self.marker is not None else size_bytes(self.records)

    @property
    def is_appended(self) -> bool:
        return bool(self.records) or self.marker is not None

    @property
    def is_of_transaction(self) -> bool:
        """The shard replays it when it is stored, not at the decision."""
        return self.producer_id != NO_PRODUCER_ID or self.marker is not None


class Append(NamedTuple):
    """One batch and the writes that it consists of."""

    batch: NewRecordBatch
    writes: tuple[Write, ...]


class CoordinatorWrites:
    """The writes of one shard under one leader epoch. `batch_bytes_max` is the topic's `max.message.bytes`."""

    def __init__(self, batch_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._waiting: deque[Write] = deque()
        self._under_way = 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits: the next decision depends on committed records only."""
        return not self._waiting

    def add(self, write: Write) -> None:
        """Add a write. RecordTooLargeError when its records do not fit into one batch: they would not be one piece."""
        if write.size_bytes > self._batch_bytes_max and write.is_appended:
            raise errors.RecordTooLargeError(
                f"{len(write.records)} records of about {write.size_bytes} bytes > "
                f"max.message.bytes {self._batch_bytes_max}"
            )
        self._waiting.append(write)

    def next_append(self) -> list[Append]:
        """The batches of the next append, in order; none while one is under way, or when nothing waits for it.

        Decisions of one kind, without a producer or of the same one, share batches as long as they fit.
        """
        if self._under_way:
            return []
        taken: list[Write] = []
        total_bytes = 0
        for write in self._waiting:
            if taken and total_bytes + write.size_bytes > APPEND_BYTES_MAX:
                break
            taken.append(write)
            total_bytes += write.size_bytes
        self._under_way = len(taken)
        return _appends([write for write in taken if write.is_appended], self._batch_bytes_max)

    def stored(self) -> list[Write]:
        """The append under way is committed: its writes, and those after it without records, in order. Their answers
        depend on committed records only."""
        done = [self._waiting.popleft() for _ in range(self._under_way)]
        self._under_way = 0
        while self._waiting and not self._waiting[0].is_appended:
            done.append(self._waiting.popleft())
        return done

    def drain(self) -> list[Write]:
        """Removes and returns all writes that were not answered."""
        lost = list(self._waiting)
        self._waiting.clear()
        self._under_way = 0
        return lost

    @property
    def next_deadline_ms(self) -> int | None:
        """The first deadline of an answer; None without one. Deadlines grow from write to write."""
        return next((write.deadline_ms for write in self._waiting if write.answers), None)

    def overdue(self, now_ms: int) -> list[Answered]:
        """Answers whose deadline has passed, removed from their writes. The records are written all the same."""
        late: list[Answered] = []
        for write in self._waiting:
            if write.deadline_ms > now_ms:
                break
            late.extend(write.answers)
            write.answers = ()
        return late


def writes_of(decision: Decision, timestamp_ms: int, deadline_ms: int, bytes_max: int) -> list[Write]:
    """A decision as writes: one, or of a divisible one as many as have `bytes_max` each; the last has the answers."""
    *before, last = _divided(decision.records, bytes_max) if decision.is_divisible else [decision.records]
    return [
        *(Write(records, timestamp_ms, deadline_ms) for records in before),
        Write(
            last,
            timestamp_ms,
            deadline_ms,
            decision.answers,
            decision.effects,
            decision.producer_id,
            decision.producer_epoch,
            decision.verified,
            is_read=decision.is_read,
        ),
    ]


def _divided(records: Sequence[CoordinatorRecord], bytes_max: int) -> list[tuple[CoordinatorRecord, ...]]:
    """The records in pieces of at most `bytes_max`, or of one record; one piece without any."""
    pieces: list[list[CoordinatorRecord]] = [[]]
    piece_bytes = size_bytes(())
    for record in records:
        record_bytes = size_bytes((record,)) - size_bytes(())
        if pieces[-1] and piece_bytes + record_bytes > bytes_max:
            pieces.append([])
            piece_bytes = size_bytes(())
        pieces[-1].append(record)
        piece_bytes += record_bytes
    return [tuple(piece) for piece in pieces]


def _appends(writes: Sequence[Write], bytes_max: int) -> list[Append]:
    groups: list[list[Write]] = []
    group_bytes = 0
    for write in writes:
        first = groups[-1][0] if groups else None
        if first is None or not _share_a_batch(first, write) or group_bytes + write.size_bytes > bytes_max:
            groups.append([])
            group_bytes = 0
        groups[-1].append(write)
        group_bytes += write.size_bytes
    return [Append(_batch(group), tuple(group)) for group in groups]


def _share_a_batch(first: Write, write: Write) -> bool:
    if first.marker is not None or write.marker is not None:
        return False
    return _of_producer(first) == _of_producer(write)


def _of_producer(write: Write) -> tuple[int, int, OffsetAndEpoch]:
    return write.producer_id, write.producer_epoch, write.verified


def _batch(writes: Sequence[Write]) -> NewRecordBatch:
    first = writes[0]
    if first.marker is not None:
        return first.marker
    rows = [(write.timestamp_ms, record.key, record.value, None) for write in writes for record in write.records]
    return NewRecordBatch(
        payload_table(rows),
        first.producer_id,
        first.producer_epoch,
        attributes=TRANSACTIONAL_ATTRIBUTE if first.is_of_transaction else 0,
        verified_offset=first.verified.offset,
        verified_leader_epoch=first.verified.leader_epoch,
    )


def leaves_shard_sound(write: Write, error: StratalogError) -> bool:
    """Whether the shard is as its log after this write was refused with `error`.

    Records of a transaction were not replayed yet. Records that are stored on too few replicas are stored.
    """
    return write.is_of_transaction and not isinstance(error, (*_LEADERSHIP, errors.NotEnoughReplicasAfterAppendError))


def as_coordinator_error(error: StratalogError) -> StratalogError:
    """The error of an append for a client of the coordinator (Kafka: CoordinatorOperationExceptionHelper).

    >>> as_coordinator_error(errors.NotEnoughReplicasError("1 < 2")).name
    'COORDINATOR_NOT_AVAILABLE'
    """
    match error:
        case (
            errors.UnknownTopicOrPartitionError()
            | errors.NotEnoughReplicasError()
            | errors.NotEnoughReplicasAfterAppendError()
        ):
            return errors.CoordinatorNotAvailableError(str(error))
        case errors.RequestTimedOutError():
            return errors.CoordinatorNotAvailableError(str(error))
        case errors.RecordTooLargeError() | errors.RecordListTooLargeError():
            return errors.UnknownServerError(str(error))
        case _:
            return errors.NotCoordinatorError(str(error)) if isinstance(error, _LEADERSHIP) else error
