"""Producer state of a log, by which a batch that is sent twice is stored once. Pure.

Per producer id: its epoch and its last five batches (Kafka's ProducerStateManager), and its transactions
(`storage.transactions`). Per sink (a Spark query that hands over whole files): its last five batch ids. All of it is
tied to offsets, so it is truncated with the log. A commit carries its changes; every few commits the whole state is
written as one JSON object, which a commit names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from stratalog.storage import cadence, errors
from stratalog.storage.layered_map import LayeredMap
from stratalog.storage.records import NO_PRODUCER_ID, NO_SEQUENCE
from stratalog.storage.transactions import BEGIN, NO_TRANSACTIONS, OffsetAndEpoch, TransactionChange, Transactions

BATCHES_KEPT = 5
"""Batches that are remembered of a producer or sink, as in Kafka."""
_SEQUENCE_COUNT = 1 << 31

T = TypeVar("T")


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`; after 2^31 - 1 comes 0."""
    return (sequence + count) % _SEQUENCE_COUNT


class Accept(NamedTuple):
    """The batch is new and in order."""


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets (inclusive); base_offset is -1 of a sink's batch."""

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
    """A producer's batch in a log, and its effect on the producer's transaction."""

    producer_id: int
    producer_epoch: int
    batch: BatchMetadata
    change: TransactionChange | None = None


class SinkBatch(NamedTuple):
    """One appended batch of a sink, offsets `[base_offset, last_offset]`; base_offset -1: unknown."""

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
        """Whether `batches` is all that the producer ever appended."""
        return self.producer_epoch == 0 and bool(self.batches) and self.batches[0].base_sequence == 0


Sinks = Mapping[str, tuple[SinkBatch, ...]]
"""Each sink's last batches by sink id, oldest first."""


class ProducerChanges(NamedTuple):
    """The changes of a commit to producer state, in order.

    batches       (producer id, producer epoch, batch); markers and other batches without sequences have -1 there
    sink_batches  (sink id, batch)
    transactions  those that began or ended
    """

    batches: tuple[tuple[int, int, BatchMetadata], ...] = ()
    sink_batches: tuple[tuple[str, SinkBatch], ...] = ()
    transactions: tuple[TransactionChange, ...] = ()

    def to_value(self) -> list[list[list[object]]]:
        """As JSON: `[[[producer id, epoch, …BatchMetadata], …], [[sink id, …SinkBatch], …]]`, with a third list
        `[[…TransactionChange], …]` when there are any."""
        value: list[list[list[object]]] = [
            [[producer_id, epoch, *batch] for producer_id, epoch, batch in self.batches],
            [[sink_id, *batch] for sink_id, batch in self.sink_batches],
        ]
        if self.transactions:
            value.append([[*change] for change in self.transactions])
        return value

    @staticmethod
    def from_value(value: Sequence[Sequence[Sequence[Any]]]) -> ProducerChanges:
        """The inverse of `to_value`. ValueError or TypeError when it is malformed."""
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
    """The producer and sink state of one log up to its log end; every change gives a new value.

    forgotten_below  a producer with an id below this may have written to the partition, though it has no entry: its
                     state expired, or it is older than the log
    """

    producers: Mapping[int, ProducerEntry] = field(default_factory=dict)
    sinks: Sinks = field(default_factory=dict)
    transactions: Transactions = NO_TRANSACTIONS
    forgotten_below: int = 0

    def check(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> Accept | Duplicate:
        """Whether a producer's batch is new or a duplicate. A batch without a producer id is always new.

        A control batch has `base_sequence` -1: only its epoch is checked.
        Raises InvalidProducerEpochError (the epoch is below the known one), OutOfOrderSequenceNumberError (a gap, or
        older than the five batches kept), UnknownProducerIdError (a producer that never wrote here begins above 0).
        """
        if producer_id == NO_PRODUCER_ID:
            return Accept()
        entry = self.producers.get(producer_id)
        if entry is None:
            if base_sequence > 0 and producer_id >= self.forgotten_below:
                raise errors.UnknownProducerIdError(
                    f"producer {producer_id} is not known and starts at sequence {base_sequence}"
                )
            return Accept()
        if producer_epoch < entry.producer_epoch:
            raise errors.InvalidProducerEpochError(
                f"producer {producer_id}: epoch {producer_epoch} is below the current {entry.producer_epoch}"
            )
        if base_sequence < 0:
            return Accept()
        if producer_epoch > entry.producer_epoch:
            if base_sequence != 0:
                raise errors.OutOfOrderSequenceNumberError(
                    f"producer {producer_id}: sequence {base_sequence} for the new epoch {producer_epoch}, expected 0"
                )
            return Accept()
        return _check_next(producer_id, entry, base_sequence, record_count)

    def check_transactional(
        self,
        producer_id: int,
        producer_epoch: int,
        is_transactional: bool,
        verified: OffsetAndEpoch,
        end: OffsetAndEpoch,
    ) -> None:
        """Check a batch of records, new and in order, against the producer's transaction; `end` is the log end.

        The first batch of a transaction in this log must be verified: unless the coordinator knows of this partition,
        no marker ever ends the transaction here (KIP-890). The coordinator verified it when the log ended at
        `verified`; a verification from before the last marker is of the transaction before (Kafka's VerificationGuard).
        One of another leader epoch may be: the log was perhaps cut, and the marker appended below. So is a transaction
        that is open under an older epoch: its marker is on the way (`hasOngoingTransaction`).
        Raises UnverifiedTransactionError, InvalidTxnStateError (not transactional, while a transaction is open).
        """
        known = self.transactions.of(producer_id)
        if known.is_open and not is_transactional:
            raise errors.InvalidTxnStateError(
                f"producer {producer_id} has had a transaction open since offset {known.first_offset}; "
                "the batch is not transactional"
            )
        entry = self.producers.get(producer_id)
        is_ongoing = known.is_open and entry is not None and entry.producer_epoch == producer_epoch
        if is_transactional and not is_ongoing and not verified.is_after(known.marker_offset, end):
            raise errors.UnverifiedTransactionError(
                f"producer {producer_id} has none of epoch {producer_epoch} open, its coordinator was asked at "
                f"offset {verified.offset} of leader epoch {verified.leader_epoch}, the last marker is at "
                f"{known.marker_offset}, the log ends at {end.offset} of leader epoch {end.leader_epoch}",
                *end,
            )

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Check a marker.

        Raises InvalidProducerEpochError (an older epoch; under version 2 also the open transaction's own, since the
        marker would end a later transaction than its own, KIP-890 and KIP-1228) and TransactionCoordinatorFencedError
        (a newer coordinator has written a marker here).
        """
        entry, known = self.producers.get(producer_id), self.transactions.of(producer_id)
        if entry is not None:
            least = entry.producer_epoch + (1 if transaction_version >= 2 and known.is_open else 0)
            if producer_epoch < least:
                raise errors.InvalidProducerEpochError(
                    f"producer {producer_id}: a marker of epoch {producer_epoch}, needed {least} or above"
                )
        if coordinator_epoch < known.coordinator_epoch:
            raise errors.TransactionCoordinatorFencedError(
                f"producer {producer_id}: coordinator epoch {coordinator_epoch} < current {known.coordinator_epoch}"
            )

    def check_sink(self, sink_id: str, batch_id: int) -> Accept | Duplicate:
        """Whether a sink's batch is new: ids only grow, gaps are allowed."""
        batches = self.sinks.get(sink_id)
        if batches is None or batch_id > batches[-1].batch_id:
            return Accept()
        at_or_after = next(b for b in batches if b.batch_id >= batch_id)
        return Duplicate(-1, at_or_after.last_offset)

    def with_batch(
        self, producer_id: int, producer_epoch: int, batch: BatchMetadata, change: TransactionChange | None = None
    ) -> ProducerStates:
        """The states after `batch` was appended. A newer epoch forgets the batches of the older one."""
        new = _entry_with(self.producers.get(producer_id), producer_epoch, batch)
        transactions = self.transactions if change is None else self.transactions.with_change(change)
        producers = LayeredMap.of(self.producers).with_items({producer_id: new})
        return ProducerStates(producers, self.sinks, transactions, self.forgotten_below)

    def with_sink(self, sink_id: str, batch: SinkBatch) -> ProducerStates:
        """The states after a sink's batch was appended."""
        return replace(self, sinks=_with_sinks(self.sinks, [(sink_id, batch)]))

    def with_changes(self, changes: ProducerChanges) -> ProducerStates:
        """The states after a commit with these changes."""
        if not any(changes):
            return self
        producers, sinks = self.producers, self.sinks
        if changes.batches:
            entries: dict[int, ProducerEntry] = {}
            for producer_id, producer_epoch, batch in changes.batches:
                known = entries.get(producer_id) or producers.get(producer_id)
                entries[producer_id] = _entry_with(known, producer_epoch, batch)
            producers = LayeredMap.of(producers).with_items(entries)
        if changes.sink_batches:
            sinks = _with_sinks(sinks, changes.sink_batches)
        transactions = self.transactions.with_changes(changes.transactions)
        return ProducerStates(producers, sinks, transactions, self.forgotten_below)

    def changes_to(self, later: ProducerStates) -> ProducerChanges | None:
        """The changes that lead from these states to `later`; None when no changes do, as after an expiry."""
        if later is self:
            return ProducerChanges()
        entries = LayeredMap.of(later.producers).items_since(self.producers)
        sinks = LayeredMap.of(later.sinks).items_since(self.sinks)
        if self.forgotten_below != later.forgotten_below or entries is None or sinks is None:
            return None
        batches: list[tuple[int, int, BatchMetadata]] = []
        for producer_id, entry in entries.items():
            new = _new_batches(self.producers.get(producer_id), entry)
            if new is None:
                return None
            batches.extend((producer_id, entry.producer_epoch, batch) for batch in new)
        sink_batches = tuple(
            (sink_id, batch)
            for sink_id, newest in sinks.items()
            for batch in _after(self.sinks.get(sink_id, ()), newest)
        )
        transactions = self.transactions.changes_to(later.transactions)
        if transactions is None or _with_sinks(self.sinks, sink_batches) != later.sinks:
            return None
        return ProducerChanges(tuple(batches), sink_batches, transactions)

    def without_aborted(self, end_offset: int) -> ProducerStates:
        """The states after `Transactions.without_aborted`; the same object when that changes nothing."""
        transactions = self.transactions.without_aborted(end_offset)
        return self if transactions is self.transactions else replace(self, transactions=transactions)

    def with_found(self, entries: Mapping[int, ProducerEntry], first_offsets: Mapping[int, int]) -> ProducerStates:
        """The states with entries, and transactions open since `first_offsets`, by producer id: found in rows."""
        begun = (TransactionChange(producer_id, BEGIN, offset) for producer_id, offset in first_offsets.items())
        transactions = self.transactions.with_changes(begun)
        return replace(self, producers=LayeredMap.of(self.producers).with_items(entries), transactions=transactions)

    def truncated(self, end_offset: int) -> Truncated:
        """The states of the log cut to end at `end_offset`, as far as they are known without its rows."""
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
        cut = replace(self, producers=producers, sinks=self.sinks_below(end_offset), transactions=transactions)
        return Truncated(self if cut == self else cut, frozenset(emptied), undecided)

    def sinks_below(self, end_offset: int) -> Sinks:
        """The sinks' batches in the log cut to end at `end_offset`."""
        below = {name: tuple(b for b in batches if b.last_offset < end_offset) for name, batches in self.sinks.items()}
        return {name: batches for name, batches in below.items() if batches}

    def expired(
        self,
        now_ms: int,
        producer_expiration_ms: int = cadence.PRODUCER_ID_EXPIRATION.ms,
        sink_expiration_ms: int = cadence.SINK_EXPIRATION.ms,
        log_start_offset: int = 0,
    ) -> ProducerStates:
        """The states without producers and sinks that were silent for so long, and without aborted transactions below
        the log start; the same object if there are none. A producer with an open transaction stays."""
        is_open = self.transactions.of
        producers = {
            i: e
            for i, e in self.producers.items()
            if now_ms - e.timestamp_ms < producer_expiration_ms or is_open(i).is_open
        }
        sinks = {n: b for n, b in self.sinks.items() if now_ms - b[-1].timestamp_ms < sink_expiration_ms}
        transactions = self.transactions.without_aborted(log_start_offset).of_producers(producers)
        forgotten_below = max((i + 1 for i in self.producers.keys() - producers.keys()), default=0)
        kept = ProducerStates(producers, sinks, transactions, max(self.forgotten_below, forgotten_below))
        return self if kept == self else kept

    def sink_ranges(self) -> list[tuple[int, int]]:
        """The offsets `[base, last]` of the sinks' last batches, each of one or more files."""
        batches = (batch for of_sink in self.sinks.values() for batch in of_sink)
        return [(batch.base_offset, batch.last_offset) for batch in batches if batch.base_offset >= 0]

    def to_json(self) -> bytes:
        """Compact JSON; equal states give equal bytes.

        {"producers":{"<id>":[epoch,timestamp_ms,[[base_sequence,last_sequence,base_offset,last_offset,
        timestamp_ms],…]]},"sinks":{"<sink id>":[[batch_id,last_offset,timestamp_ms,base_offset],…]}}, the keys of
        `Transactions.to_value`, and "forgotten_below" unless that is 0
        """
        content = {
            "producers": {
                str(i): [e.producer_epoch, e.timestamp_ms, e.batches] for i, e in sorted(self.producers.items())
            },
            "sinks": dict(sorted(self.sinks.items())),
            **self.transactions.to_value(),
            **({"forgotten_below": self.forgotten_below} if self.forgotten_below else {}),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> ProducerStates:
        """The inverse of `to_json`. Raises ValueError when it is malformed."""
        content = json.loads(data)
        try:
            producers = {
                int(i): ProducerEntry(epoch, tuple(BatchMetadata(*b) for b in batches), timestamp_ms)
                for i, (epoch, timestamp_ms, batches) in content["producers"].items()
            }
            sinks = {name: tuple(SinkBatch(*b) for b in batches) for name, batches in content["sinks"].items()}
            transactions = Transactions.from_value(content)
            forgotten_below = int(content.get("forgotten_below", 0))
        except (KeyError, TypeError, AttributeError) as reason:
            raise ValueError(f"not a producer state object: {reason}") from reason
        return ProducerStates(producers, sinks, transactions, forgotten_below)


class Truncated(NamedTuple):
    """The result of `ProducerStates.truncated`.

    missing    producer ids that are absent from `states`, since all their batches or their marker were cut off: the
               rows of the remaining files show what they wrote before
    undecided  those of which the rows show also whether a transaction is open again
    """

    states: ProducerStates
    missing: frozenset[int]
    undecided: frozenset[int]


def _entry_with(entry: ProducerEntry | None, producer_epoch: int, batch: BatchMetadata) -> ProducerEntry:
    earlier = entry.batches if entry and entry.producer_epoch == producer_epoch else ()
    batches = earlier if batch.base_sequence < 0 else (*earlier, batch)[-BATCHES_KEPT:]
    return ProducerEntry(producer_epoch, batches, batch.timestamp_ms)


def _with_sinks(sinks: Sinks, added: Iterable[tuple[str, SinkBatch]]) -> Sinks:
    after: dict[str, tuple[SinkBatch, ...]] = {}
    for sink_id, batch in added:
        known = after.get(sink_id) or sinks.get(sink_id, ())
        after[sink_id] = (*known, batch)[-BATCHES_KEPT:]
    return LayeredMap.of(sinks).with_items(after)


def _new_batches(known: ProducerEntry | None, entry: ProducerEntry) -> tuple[BatchMetadata, ...] | None:
    """The batches that lead from the entry known before to `entry`; None when none do."""
    if known is entry or known == entry:
        return ()
    earlier = known.batches if known and known.producer_epoch == entry.producer_epoch else ()
    new = _after(earlier, entry.batches)
    without_sequence = BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, entry.timestamp_ms)
    candidates = (new, (without_sequence, *new), (*new, without_sequence))
    return next((each for each in candidates if _entry_after(known, entry.producer_epoch, each) == entry), None)


def _entry_after(
    known: ProducerEntry | None, producer_epoch: int, batches: Iterable[BatchMetadata]
) -> ProducerEntry | None:
    for batch in batches:
        known = _entry_with(known, producer_epoch, batch)
    return known


def _after(earlier: tuple[T, ...], later: tuple[T, ...]) -> tuple[T, ...]:
    """The part of `later` after the newest of `earlier`; all of it when that is absent."""
    if not earlier or earlier[-1] not in later:
        return later
    return later[later.index(earlier[-1]) + 1 :]


def _check_next(producer_id: int, entry: ProducerEntry, base_sequence: int, record_count: int) -> Accept | Duplicate:
    last_sequence = sequence_after(base_sequence, record_count - 1)
    for batch in entry.batches:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return Duplicate(batch.base_offset, batch.last_offset)
    expected = sequence_after(entry.batches[-1].last_sequence, 1) if entry.batches else 0
    if base_sequence != expected:
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {producer_id}, epoch {entry.producer_epoch}: sequence {base_sequence}, expected {expected}"
        )
    return Accept()
