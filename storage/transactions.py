"""The transactions of a log: which are open, where they ended, and which were aborted. Pure.

A transaction begins in a log with its first batch and ends with a marker: a control batch that the transaction's
coordinator appends. Below the last stable offset the outcome of every transaction is known. Kafka:
`ProducerStateManager` (open and unreplicated transactions), `TransactionIndex` (aborted ones), `EndTransactionMarker`
(the marker's bytes). Here all of it is producer state: the commits that append, copy and truncate records carry it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from stratalog.storage.errors import InvalidRecordError
from stratalog.storage.layered_map import LayeredMap
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, OneRecord

ABORT, COMMIT = 0, 1
"""Kafka's types of control records, at the end of a marker's key."""
BEGIN = 2
"""The change of a transactional batch: a transaction begins, unless the producer has one open in this log."""
NO_OFFSET = -1
NO_EPOCH = -1
FORGOTTEN = -2
"""The offsets of a last transaction that a truncation removed: one before it may have ended here."""
_KEY, _VALUE = struct.Struct(">hh"), struct.Struct(">hi")
_VERSION = 0


class OffsetAndEpoch(NamedTuple):
    """Where a log ended, and under which leader epoch. Another epoch may have cut it, so ends of different epochs are
    not compared. NO_EPOCH: a high watermark, which the log has under every leader."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH

    def is_after(self, marker_offset: int, end: OffsetAndEpoch) -> bool:
        """Whether the log, which ends at `end`, had a marker at this offset here."""
        is_known = self.offset <= end.offset if self.leader_epoch == NO_EPOCH else self.leader_epoch == end.leader_epoch
        return is_known and self.offset > marker_offset


NOT_VERIFIED = OffsetAndEpoch()


class EndMarker(NamedTuple):
    """The content of a marker: the outcome, and the coordinator epoch under which it was decided."""

    is_commit: bool
    coordinator_epoch: int


class TransactionChange(NamedTuple):
    """The effect of a batch on the transactions of its log.

    kind    BEGIN, COMMIT or ABORT
    offset  of the batch's first record: where the transaction begins, or where its marker is
    """

    producer_id: int
    kind: int
    offset: int
    coordinator_epoch: int = -1


class ProducerTransaction(NamedTuple):
    """One producer's transactions in a log; offsets are -1 where there is none.

    first_offset       where the open one begins
    coordinator_epoch  of the last marker: one of an older epoch is refused
    marker_offset      of the last marker, whether or not it ended anything here
    completed_first, completed_last
        first offset and marker offset of the last one that ended here. Readers regard it as open until the high
        watermark has passed the marker. One is enough: a producer begins its next transaction only after that.
        FORGOTTEN after a truncation below it.
    """

    first_offset: int = NO_OFFSET
    coordinator_epoch: int = -1
    marker_offset: int = NO_OFFSET
    completed_first: int = NO_OFFSET
    completed_last: int = NO_OFFSET

    @property
    def is_open(self) -> bool:
        return self.first_offset != NO_OFFSET

    def after(self, change: TransactionChange) -> ProducerTransaction:
        """The value after a batch of this producer."""
        if change.kind == BEGIN:
            return self if self.is_open else self._replace(first_offset=change.offset)
        ended = (self.first_offset, change.offset) if self.is_open else (self.completed_first, self.completed_last)
        return ProducerTransaction(NO_OFFSET, change.coordinator_epoch, change.offset, *ended)


class AbortedTransaction(NamedTuple):
    """A producer's records in `[first_offset, last_offset]` are aborted; the marker is at `last_offset`.

    Kafka's `AbortedTxn`. All records of the producer in between belong to the transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions(NamedTuple):
    """The transactions of one log up to its log end; every change gives a new value.

    producers  by producer id, of those that had a transaction here
    aborted    in order of `last_offset`
    """

    producers: Mapping[int, ProducerTransaction] = {}
    aborted: tuple[AbortedTransaction, ...] = ()

    def of(self, producer_id: int) -> ProducerTransaction:
        """A producer's transactions; an unknown producer has none."""
        return self.producers.get(producer_id, _NONE)

    def with_change(self, change: TransactionChange) -> Transactions:
        """The value after a batch."""
        before = self.of(change.producer_id)
        after = before.after(change)
        if after == before:
            return self
        aborted = self.aborted
        if change.kind == ABORT and before.is_open:
            aborted = (*aborted, AbortedTransaction(change.producer_id, before.first_offset, change.offset))
        return Transactions(LayeredMap.of(self.producers).with_items({change.producer_id: after}), aborted)

    def with_changes(self, changes: Iterable[TransactionChange]) -> Transactions:
        """The value after several batches, in order."""
        after = self
        for change in changes:
            after = after.with_change(change)
        return after

    def changes_to(self, later: Transactions) -> tuple[TransactionChange, ...] | None:
        """Changes that lead from this value to `later`; None when no changes do."""
        if later is self or later == self:
            return ()
        changed = LayeredMap.of(later.producers).items_since(self.producers)
        if changed is None:
            return None
        changes: list[TransactionChange] = []
        for producer_id, after in changed.items():
            changes.extend(_changes(producer_id, self.of(producer_id), after, later.aborted))
        changes.sort(key=lambda change: change.offset)
        return tuple(changes) if self.with_changes(changes) == later else None

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction has ended, by a marker below the high watermark.

        With a transaction open since offset 40, one that ended [20, 60] and a high watermark of 50 it is 20; once the
        high watermark is 61, it is 40. Kafka: `UnifiedLog.lastStableOffset`.
        """
        return _stable_below(high_watermark, self.producers.values())

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Those with a record in `[start_offset, end_offset)`, in order of `first_offset` as in a Fetch response."""
        first = bisect_left(self.aborted, start_offset, key=_last_of)
        found = (aborted for aborted in self.aborted[first:] if aborted.first_offset < end_offset)
        return tuple(sorted(found, key=_first_of))

    def truncated(self, end_offset: int) -> tuple[Transactions, frozenset[int], frozenset[int]]:
        """The transactions of the log cut to end at `end_offset`, and two sets of producer ids.

        The first set lost a marker: only the rows of the log show which epoch they had before. The second set, a part
        of the first, lost a whole transaction: only the rows show whether an earlier one is open again.
        """
        producers: dict[int, ProducerTransaction] = {}
        unmarked: set[int] = set()
        unknown: set[int] = set()
        for producer_id, known in self.producers.items():
            kept, is_known = _cut(known, end_offset)
            if not is_known:
                unknown.add(producer_id)
            if not is_known or known.marker_offset >= end_offset:
                unmarked.add(producer_id)
            if kept != _NONE:
                producers[producer_id] = kept
        aborted = self.aborted[: bisect_left(self.aborted, end_offset, key=_last_of)]
        cut = Transactions(producers, aborted)
        return (self if cut == self else cut), frozenset(unmarked), frozenset(unknown)

    def of_producers(self, producer_ids: Iterable[int]) -> Transactions:
        """Without the other producers; aborted transactions stay."""
        known = {i: self.producers[i] for i in producer_ids if i in self.producers}
        return self if len(known) == len(self.producers) else Transactions(known, self.aborted)

    def without_aborted(self, end_offset: int) -> Transactions:
        """Without the aborted transactions that end below this offset: the log start, or the end of compaction.

        None of their records is left, so no reader needs them. Compaction removes their markers only later, since a
        reader that knows of the transaction expects its marker.
        """
        first = bisect_left(self.aborted, end_offset, key=_last_of)
        return Transactions(self.producers, self.aborted[first:]) if first else self

    def followed_by(self, leader: Transactions, log_end_offset: int) -> Transactions:
        """The leader's as of its log end, in a log that ended at `log_end_offset` before it copied the rest.

        Which aborted transactions still have records differs between replicas: below `log_end_offset` the own ones
        stay, above it they are the leader's.
        """
        first = bisect_left(leader.aborted, log_end_offset, key=_last_of)
        if leader.aborted[:first] == self.aborted:
            return leader
        added = leader.aborted[first:]
        return Transactions(leader.producers, (*self.aborted, *added) if added else self.aborted)

    def to_value(self) -> dict[str, object]:
        """As JSON: `{"transactions": {"<id>": [first, coordinator epoch, marker, completed …]}, "aborted": [[…]]}`.

        Empty without transactions.
        """
        value: dict[str, object] = {}
        if self.producers:
            value["transactions"] = {str(i): known for i, known in sorted(self.producers.items())}
        if self.aborted:
            value["aborted"] = self.aborted
        return value

    @staticmethod
    def from_value(value: Mapping[str, Any]) -> Transactions:
        """The inverse of `to_value`; other keys are ignored. TypeError or AttributeError when it is malformed."""
        producers = {int(i): ProducerTransaction(*known) for i, known in value.get("transactions", {}).items()}
        aborted = tuple(AbortedTransaction(*row) for row in value.get("aborted", ()))
        return Transactions(producers, aborted) if producers or aborted else NO_TRANSACTIONS


class LastStableOffset:
    """`Transactions.last_stable_offset` for a log that grows. It looks only at the transactions that have changed since
    the last call, or had not ended below the high watermark then. May be called from several threads."""

    def __init__(self) -> None:
        self._known: tuple[Transactions, int, Mapping[int, ProducerTransaction]] = NO_TRANSACTIONS, 0, {}

    def of(self, transactions: Transactions, high_watermark: int) -> int:
        """The last stable offset; quick as long as the high watermark only grows."""
        known, known_at, unstable = self._known
        if transactions is not known or high_watermark < known_at:
            changed = LayeredMap.of(transactions.producers).items_since(known.producers)
            is_behind = changed is None or high_watermark < known_at
            candidates = transactions.producers if is_behind else {**unstable, **(changed or {})}
            unstable = {
                producer_id: transaction
                for producer_id, transaction in candidates.items()
                if transaction.is_open or transaction.completed_last >= high_watermark
            }
            self._known = transactions, high_watermark, unstable
        return _stable_below(high_watermark, unstable.values())


def _stable_below(high_watermark: int, transactions: Iterable[ProducerTransaction]) -> int:
    stable = high_watermark
    for transaction in transactions:
        if transaction.is_open:
            stable = min(stable, transaction.first_offset)
        if transaction.completed_last >= high_watermark:
            stable = min(stable, transaction.completed_first)
    return stable


_NONE = ProducerTransaction()
_first_of, _last_of = attrgetter("first_offset"), attrgetter("last_offset")
NO_TRANSACTIONS = Transactions()


def marker_batch(
    producer_id: int, producer_epoch: int, marker: EndMarker, timestamp_ms: int, transaction_version: int = 0
) -> NewRecordBatch:
    """A marker as the control batch that ends a producer's transaction: one record, without sequence.

    Key `>hh` version 0 and type (0 ABORT, 1 COMMIT), value `>hi` version 0 and coordinator epoch (Kafka's
    `EndTransactionMarker`). Producer 7's commit under coordinator epoch 3: key 0000 0001, value 0000 00000003.
    """
    key = _KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return NewRecordBatch(
        OneRecord(timestamp_ms, key, value),
        producer_id,
        producer_epoch,
        attributes=TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE,
        transaction_version=transaction_version,
    )


def marker_of(key: bytes | None, value: bytes | None) -> EndMarker | None:
    """The marker in a transactional control record; None for another control record, such as one that compaction
    emptied. Newer versions add fields after those that are read. Raises InvalidRecordError for a truncated one."""
    if key is None or len(key) < _KEY.size:
        return None
    version, kind = _KEY.unpack_from(key)
    if version < 0 or kind not in (ABORT, COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecordError(f"a marker's value has {_VALUE.size} bytes at least, found {value!r}")
    return EndMarker(kind == COMMIT, _VALUE.unpack_from(value)[1])


def is_transactional(attributes: int) -> bool:
    """Whether a batch with these attribute bits belongs to a transaction; markers do."""
    return bool(attributes & TRANSACTIONAL_ATTRIBUTE)


def is_control(attributes: int) -> bool:
    return bool(attributes & CONTROL_ATTRIBUTE)


def change_of(
    producer_id: int, attributes: int, base_offset: int, key: bytes | None, value: bytes | None
) -> TransactionChange | None:
    """The effect of a batch on transactions; `key` and `value` are those of its first record."""
    if not is_transactional(attributes):
        return None
    if not is_control(attributes):
        return TransactionChange(producer_id, BEGIN, base_offset)
    marker = marker_of(key, value)
    if marker is None:
        return None
    return TransactionChange(producer_id, COMMIT if marker.is_commit else ABORT, base_offset, marker.coordinator_epoch)


def _changes(
    producer_id: int, before: ProducerTransaction, after: ProducerTransaction, aborted: Sequence[AbortedTransaction]
) -> list[TransactionChange]:
    """At most one ended transaction, then the one that is open now: the usual difference between two commits."""
    changes: list[TransactionChange] = []
    if after.marker_offset != before.marker_offset:
        if after.completed_last == after.marker_offset and not before.is_open:
            changes.append(TransactionChange(producer_id, BEGIN, after.completed_first))
        ended = AbortedTransaction(producer_id, after.completed_first, after.marker_offset)
        kind = ABORT if _contains(aborted, ended) else COMMIT
        changes.append(TransactionChange(producer_id, kind, after.marker_offset, after.coordinator_epoch))
    if after.is_open and after.first_offset != before.first_offset:
        changes.append(TransactionChange(producer_id, BEGIN, after.first_offset))
    return changes


def _contains(aborted: Sequence[AbortedTransaction], wanted: AbortedTransaction) -> bool:
    position = bisect_left(aborted, wanted.last_offset, key=_last_of)
    return position < len(aborted) and aborted[position] == wanted


def _cut(known: ProducerTransaction, end_offset: int) -> tuple[ProducerTransaction, bool]:
    """A producer's transactions in the log cut there, and whether they are known completely."""
    first = known.first_offset if known.first_offset < end_offset else NO_OFFSET
    if known.completed_last == FORGOTTEN and first == NO_OFFSET:
        return ProducerTransaction(NO_OFFSET, known.coordinator_epoch, NO_OFFSET, FORGOTTEN, FORGOTTEN), False
    if known.completed_last < end_offset:
        marker = known.marker_offset if known.marker_offset < end_offset else max(known.completed_last, NO_OFFSET)
        return known._replace(first_offset=first, marker_offset=marker), True
    first = known.completed_first if known.completed_first < end_offset else NO_OFFSET
    cut = ProducerTransaction(first, known.coordinator_epoch, NO_OFFSET, FORGOTTEN, FORGOTTEN)
    return cut, first != NO_OFFSET
