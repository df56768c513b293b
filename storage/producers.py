"""What a log remembers of its producers, so that a repeated batch is not appended twice. Pure.

Per producer id: its epoch and its last five batches (Kafka's ProducerStateManager), and its transactions
(`storage.transactions`). Per sink, a Spark query that hands over whole files: its last five batch ids. All are values
tied to offsets, so they can be truncated with the log. A commit carries what it changes in them; the whole is written
now and then, as one small JSON object that a commit names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from stratalog.storage.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
    UnverifiedTransactionError,
)
from stratalog.storage.records import NO_PRODUCER_ID, NO_SEQUENCE
from stratalog.storage.transactions import BEGIN, NO_TRANSACTIONS, TransactionChange, Transactions

BATCHES_KEPT = 5
PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`: one day."""
SINK_EXPIRATION_MS = 30 * 86_400_000
"""A sink's batch ids outlive producer ids: a Spark query may be restarted weeks later."""
_SEQUENCE_COUNT = 1 << 31

T = TypeVar("T")


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`; after 2^31 - 1 comes 0."""
    return (sequence + count) % _SEQUENCE_COUNT


class Accept(NamedTuple):
    """The batch is new and in order."""


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets (inclusive). A sink's base_offset is not kept: -1."""

    base_offset: int
    last_offset: int


class BatchMetadata(NamedTuple):
    """One appended batch of a producer; `timestamp_ms` is the time of the append."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class StoredBatch(NamedTuple):
    """A producer's batch in a log, and what it did to the producer's transaction."""

    producer_id: int
    producer_epoch: int
    batch: BatchMetadata
    change: TransactionChange | None = None


class SinkBatch(NamedTuple):
    """One appended batch of a sink, offsets `[base_offset, last_offset]`; base_offset -1 where it is not known."""

    batch_id: int
    last_offset: int
    timestamp_ms: int
    base_offset: int = -1


class ProducerEntry(NamedTuple):
    """A producer's epoch, its last batches of that epoch (oldest first) and the time of its last append."""

    producer_epoch: int
    batches: tuple[BatchMetadata, ...]
    timestamp_ms: int

    @property
    def is_complete(self) -> bool:
        """True when `batches` is everything that the producer ever appended."""
        return self.producer_epoch == 0 and bool(self.batches) and self.batches[0].base_sequence == 0


class SinkEntry(NamedTuple):
    """A sink's last batches, oldest first."""

    batches: tuple[SinkBatch, ...]


class ProducerChanges(NamedTuple):
    """What a commit adds to producer and sink state: the batches that it appended, in order.

    batches       (producer id, producer epoch, batch); those without sequences, such as markers, have -1 there
    sink_batches  (sink id, batch)
    transactions  what began and ended
    """

    batches: tuple[tuple[int, int, BatchMetadata], ...] = ()
    sink_batches: tuple[tuple[str, SinkBatch], ...] = ()
    transactions: tuple[TransactionChange, ...] = ()

    def to_value(self) -> list[list[list[object]]]:
        """As a JSON value: `[[[producer id, epoch, …BatchMetadata], …], [[sink id, …SinkBatch], …]]`, and
        `[…TransactionChange]` as third when there is one."""
        value: list[list[list[object]]] = [
            [[producer_id, epoch, *batch] for producer_id, epoch, batch in self.batches],
            [[sink_id, *batch] for sink_id, batch in self.sink_batches],
        ]
        if self.transactions:
            value.append([[*change] for change in self.transactions])
        return value

    @staticmethod
    def from_value(value: Sequence[Sequence[Sequence[Any]]]) -> ProducerChanges:
        """What `to_value` gave. ValueError or TypeError when it is something else."""
        batches, sink_batches, *transactions = value
        if len(transactions) > 1:
            raise ValueError(f"producer changes are two or three lists, found {len(value)}")
        return ProducerChanges(
            tuple((row[0], row[1], BatchMetadata(*row[2:])) for row in batches),
            tuple((row[0], SinkBatch(*row[1:])) for row in sink_batches),
            tuple(TransactionChange(*row) for rows in transactions for row in rows),
        )


@dataclass(frozen=True, slots=True)
class ProducerStates:
    """The producer and sink state of one log up to its log end; every change gives a new value."""

    producers: Mapping[int, ProducerEntry] = field(default_factory=dict)
    sinks: Mapping[str, SinkEntry] = field(default_factory=dict)
    transactions: Transactions = NO_TRANSACTIONS

    def check(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> Accept | Duplicate:
        """Whether a batch of a producer may be appended. Batches without a producer id always may.

        A control batch has `base_sequence` -1: only its epoch is checked.
        Raises InvalidProducerEpochError (epoch below the known one), OutOfOrderSequenceNumberError (a gap,
        or older than the five batches kept), UnknownProducerIdError (never seen, yet sequence above 0).
        """
        if producer_id == NO_PRODUCER_ID:
            return Accept()
        entry = self.producers.get(producer_id)
        if entry is None:
            return _check_unknown(producer_id, base_sequence)
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id}: epoch {producer_epoch} is below the current {entry.producer_epoch}"
            )
        if base_sequence < 0:
            return Accept()
        if producer_epoch > entry.producer_epoch:
            return _check_first(producer_id, producer_epoch, base_sequence)
        return _check_next(producer_id, entry, base_sequence, record_count)

    def check_transactional(
        self, producer_id: int, producer_epoch: int, is_transactional: bool, verified_offset: int, end: int
    ) -> None:
        """Whether a batch of records, new and in order, may go to the log end `end` as far as transactions go.

        The first one of a transaction in this log needs that its coordinator knows of this partition, or nobody would
        ever end the transaction here (KIP-890). The coordinator was asked when the log ended at `verified_offset`; an
        answer from before the last marker is of the transaction before (Kafka's VerificationGuard). A transaction that
        is open under an older epoch is the one before, too: its marker is on the way (`hasOngoingTransaction`).
        Raises UnverifiedTransactionError, InvalidTxnStateError (not transactional, while a transaction is open).
        """
        known = self.transactions.of(producer_id)
        if known.is_open and not is_transactional:
            raise InvalidTxnStateError(
                f"producer {producer_id} has had a transaction open since offset {known.first_offset}; "
                "the batch is not transactional"
            )
        entry = self.producers.get(producer_id)
        is_ongoing = known.is_open and entry is not None and entry.producer_epoch == producer_epoch
        if is_transactional and not is_ongoing and verified_offset <= known.marker_offset:
            raise UnverifiedTransactionError(
                f"producer {producer_id} has none of epoch {producer_epoch} open, its coordinator was asked at "
                f"offset {verified_offset}, the last marker is at {known.marker_offset}",
                end,
            )

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Whether a marker may be appended.

        Raises InvalidProducerEpochError (under an older epoch; under version 2 also under the open transaction's own:
        it would end a later transaction than it was written for, KIP-890 and KIP-1228), and
        TransactionCoordinatorFencedError (a newer coordinator has written here).
        """
        entry, known = self.producers.get(producer_id), self.transactions.of(producer_id)
        if entry is not None:
            least = entry.producer_epoch + (1 if transaction_version >= 2 and known.is_open else 0)
            if producer_epoch < least:
                raise InvalidProducerEpochError(
                    f"producer {producer_id}: a marker of epoch {producer_epoch}, needed {least} or above"
                )
        if coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"producer {producer_id}: coordinator epoch {coordinator_epoch} < current {known.coordinator_epoch}"
            )

    def check_sink(self, sink_id: str, batch_id: int) -> Accept | Duplicate:
        """Whether a sink's batch is new: ids only grow, gaps are allowed."""
        entry = self.sinks.get(sink_id)
        if entry is None or batch_id > entry.batches[-1].batch_id:
            return Accept()
        at_or_after = next(b for b in entry.batches if b.batch_id >= batch_id)
        return Duplicate(-1, at_or_after.last_offset)

    def with_batch(
        self, producer_id: int, producer_epoch: int, batch: BatchMetadata, change: TransactionChange | None = None
    ) -> ProducerStates:
        """The states after `batch` was appended. A newer epoch forgets the batches of the older one."""
        new = _entry_with(self.producers.get(producer_id), producer_epoch, batch)
        transactions = self.transactions if change is None else self.transactions.with_change(change)
        return ProducerStates({**self.producers, producer_id: new}, self.sinks, transactions)

    def with_sink(self, sink_id: str, batch: SinkBatch) -> ProducerStates:
        """The states after a sink's batch was appended."""
        entry = _sink_with(self.sinks.get(sink_id), batch)
        return replace(self, sinks={**self.sinks, sink_id: entry})

    def with_changes(self, changes: ProducerChanges) -> ProducerStates:
        """The states after a commit that states these changes."""
        if not changes.batches and not changes.sink_batches and not changes.transactions:
            return self
        producers, sinks = self.producers, self.sinks
        if changes.batches:
            producers = dict(producers)
            for producer_id, producer_epoch, batch in changes.batches:
                producers[producer_id] = _entry_with(producers.get(producer_id), producer_epoch, batch)
        if changes.sink_batches:
            sinks = dict(sinks)
            for sink_id, sink_batch in changes.sink_batches:
                sinks[sink_id] = _sink_with(sinks.get(sink_id), sink_batch)
        return ProducerStates(producers, sinks, self.transactions.with_changes(changes.transactions))

    def changes_to(self, later: ProducerStates) -> ProducerChanges | None:
        """The changes that make `later` of these states; None when something went, or they are not to be had."""
        if later is self:
            return ProducerChanges()
        transactions = self.transactions.changes_to(later.transactions)
        if transactions is None:
            return None
        if not (self.producers.keys() <= later.producers.keys() and self.sinks.keys() <= later.sinks.keys()):
            return None
        batches: list[tuple[int, int, BatchMetadata]] = []
        for producer_id, entry in later.producers.items():
            new = _new_batches(self.producers.get(producer_id), entry)
            if new is None:
                return None
            batches.extend((producer_id, entry.producer_epoch, batch) for batch in new)
        sink_batches: list[tuple[str, SinkBatch]] = []
        for sink_id, sink in later.sinks.items():
            new_sinks = _new_sink_batches(self.sinks.get(sink_id), sink)
            if new_sinks is None:
                return None
            sink_batches.extend((sink_id, batch) for batch in new_sinks)
        return ProducerChanges(tuple(batches), tuple(sink_batches), transactions)

    def without_aborted(self, end_offset: int) -> ProducerStates:
        """The states as `Transactions.without_aborted` has them; itself where that changes nothing."""
        transactions = self.transactions.without_aborted(end_offset)
        return self if transactions is self.transactions else replace(self, transactions=transactions)

    def with_entries(self, entries: Mapping[int, ProducerEntry]) -> ProducerStates:
        """The states with some producers' entries put in."""
        return replace(self, producers={**self.producers, **entries}) if entries else self

    def with_open(self, first_offsets: Mapping[int, int]) -> ProducerStates:
        """The states with transactions that are open since these offsets."""
        begun = (TransactionChange(producer_id, BEGIN, offset) for producer_id, offset in first_offsets.items())
        return replace(self, transactions=self.transactions.with_changes(begun)) if first_offsets else self

    def truncated(self, end_offset: int) -> Truncated:
        """The states of the log cut to end at `end_offset`, and whom the rows have to tell more of.

        `missing` are absent from the states: ids left without a batch, or without a marker that was cut off. Where
        they wrote more than is kept here, the rows of the remaining files tell what came before, and the caller puts
        that back. Of those in `undecided` the rows tell also whether a transaction is open again.
        """
        transactions, unmarked, undecided = self.transactions.truncated(end_offset)
        producers: dict[int, ProducerEntry] = {}
        emptied: set[int] = set(unmarked)
        for producer_id, entry in self.producers.items():
            if producer_id in unmarked:
                continue
            kept = tuple(b for b in entry.batches if b.last_offset < end_offset)
            if len(kept) == len(entry.batches):
                producers[producer_id] = entry
            elif kept:
                producers[producer_id] = ProducerEntry(entry.producer_epoch, kept, kept[-1].timestamp_ms)
            elif not entry.is_complete:
                emptied.add(producer_id)
        sinks = {name: SinkEntry(kept_s) for name, kept_s in _sinks_below(self.sinks, end_offset) if kept_s}
        if producers == self.producers and sinks == self.sinks and transactions is self.transactions:
            return Truncated(self, frozenset(emptied), undecided)
        return Truncated(ProducerStates(producers, sinks, transactions), frozenset(emptied), undecided)

    def expired(
        self,
        now_ms: int,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        sink_expiration_ms: int = SINK_EXPIRATION_MS,
        log_start_offset: int = 0,
    ) -> ProducerStates:
        """The states without producers and sinks that were silent for so long, and without aborted transactions below
        the log start; itself if there are none. A producer with an open transaction stays."""
        is_open = self.transactions.of
        producers = {
            i: e
            for i, e in self.producers.items()
            if now_ms - e.timestamp_ms < producer_expiration_ms or is_open(i).is_open
        }
        sinks = {n: e for n, e in self.sinks.items() if now_ms - e.batches[-1].timestamp_ms < sink_expiration_ms}
        transactions = self.transactions.without_aborted(log_start_offset).of_producers(producers)
        are_kept = len(producers) == len(self.producers) and len(sinks) == len(self.sinks)
        if are_kept and transactions is self.transactions:
            return self
        return ProducerStates(producers, sinks, transactions)

    def sink_ranges(self) -> list[tuple[int, int]]:
        """The offsets `[base, last]` of the sinks' last batches: each is one hand-over, of one or more files."""
        batches = (batch for entry in self.sinks.values() for batch in entry.batches)
        return [(batch.base_offset, batch.last_offset) for batch in batches if batch.base_offset >= 0]

    def to_json(self) -> bytes:
        """Compact JSON; equal states give equal bytes.

        {"producers":{"<id>":[epoch,timestamp_ms,[[base_sequence,last_sequence,base_offset,last_offset,
        timestamp_ms],…]]},"sinks":{"<sink id>":[[batch_id,last_offset,timestamp_ms,base_offset],…]}}, and what
        `Transactions.to_value` gives
        """
        content = {
            "producers": {
                str(i): [e.producer_epoch, e.timestamp_ms, e.batches] for i, e in sorted(self.producers.items())
            },
            "sinks": {name: e.batches for name, e in sorted(self.sinks.items())},
            **self.transactions.to_value(),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> ProducerStates:
        """What `to_json` wrote. Raises ValueError when it is something else."""
        content = json.loads(data)
        try:
            producers = {
                int(i): ProducerEntry(epoch, tuple(BatchMetadata(*b) for b in batches), timestamp_ms)
                for i, (epoch, timestamp_ms, batches) in content["producers"].items()
            }
            sinks = {
                name: SinkEntry(tuple(SinkBatch(*b) for b in batches)) for name, batches in content["sinks"].items()
            }
            transactions = Transactions.from_value(content)
        except (KeyError, TypeError, AttributeError) as reason:
            raise ValueError(f"not a producer state object: {reason}") from reason
        return ProducerStates(producers, sinks, transactions)


class Truncated(NamedTuple):
    """What `ProducerStates.truncated` leaves, and the producer ids that it cannot tell of."""

    states: ProducerStates
    missing: frozenset[int]
    undecided: frozenset[int]


def _entry_with(entry: ProducerEntry | None, producer_epoch: int, batch: BatchMetadata) -> ProducerEntry:
    earlier = entry.batches if entry and entry.producer_epoch == producer_epoch else ()
    batches = earlier if batch.base_sequence < 0 else (*earlier, batch)[-BATCHES_KEPT:]
    return ProducerEntry(producer_epoch, batches, batch.timestamp_ms)


def _sink_with(entry: SinkEntry | None, batch: SinkBatch) -> SinkEntry:
    return SinkEntry((*(entry.batches if entry else ()), batch)[-BATCHES_KEPT:])


def _new_batches(known: ProducerEntry | None, entry: ProducerEntry) -> tuple[BatchMetadata, ...] | None:
    """The batches that make `entry` of the entry known before; None when none do."""
    if known is entry or known == entry:
        return ()
    earlier = known.batches if known and known.producer_epoch == entry.producer_epoch else ()
    new = _after(earlier, entry.batches)
    if _entry_after(known, entry.producer_epoch, new) == entry:
        return new
    without_sequence = BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, entry.timestamp_ms)
    for candidate in ((without_sequence, *new), (*new, without_sequence)):
        if _entry_after(known, entry.producer_epoch, candidate) == entry:
            return candidate
    return None


def _entry_after(
    known: ProducerEntry | None, producer_epoch: int, batches: Iterable[BatchMetadata]
) -> ProducerEntry | None:
    for batch in batches:
        known = _entry_with(known, producer_epoch, batch)
    return known


def _new_sink_batches(known: SinkEntry | None, entry: SinkEntry) -> tuple[SinkBatch, ...] | None:
    if known is entry or known == entry:
        return ()
    new = _after(known.batches if known else (), entry.batches)
    for batch in new:
        known = _sink_with(known, batch)
    return new if known == entry else None


def _after(earlier: tuple[T, ...], later: tuple[T, ...]) -> tuple[T, ...]:
    """What comes in `later` after the newest of `earlier`; all of it when that is not in it."""
    if not earlier or earlier[-1] not in later:
        return later
    return later[later.index(earlier[-1]) + 1 :]


def _check_unknown(producer_id: int, base_sequence: int) -> Accept:
    if base_sequence > 0:
        raise UnknownProducerIdError(f"producer {producer_id} is not known and starts at sequence {base_sequence}")
    return Accept()


def _check_first(producer_id: int, producer_epoch: int, base_sequence: int) -> Accept:
    if base_sequence != 0:
        raise OutOfOrderSequenceNumberError(
            f"producer {producer_id}: sequence {base_sequence} for the new epoch {producer_epoch}, expected 0"
        )
    return Accept()


def _check_next(producer_id: int, entry: ProducerEntry, base_sequence: int, record_count: int) -> Accept | Duplicate:
    last_sequence = sequence_after(base_sequence, record_count - 1)
    for batch in entry.batches:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return Duplicate(batch.base_offset, batch.last_offset)
    expected = sequence_after(entry.batches[-1].last_sequence, 1) if entry.batches else 0
    if base_sequence != expected:
        raise OutOfOrderSequenceNumberError(
            f"producer {producer_id}, epoch {entry.producer_epoch}: sequence {base_sequence}, expected {expected}"
        )
    return Accept()


def _sinks_below(sinks: Mapping[str, SinkEntry], end_offset: int) -> Iterable[tuple[str, tuple[SinkBatch, ...]]]:
    for name, entry in sinks.items():
        yield name, tuple(b for b in entry.batches if b.last_offset < end_offset)
