"""A follower's copy of its leader's log, the truncation before it, and producer state after either. Pure.

One round of copying is a `CopyPlan`, a truncation is a `Cut`. Producer state follows from the state before, and where
that does not suffice from the rows of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import GONE_ABORTED, GONE_TOMBSTONES
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from stratalog.storage.log.segments import files_between
from stratalog.storage.log.state import LogState
from stratalog.storage.producers import ProducerEntry, ProducerStates, StoredBatch
from stratalog.storage.transactions import BEGIN, Transactions

BatchesIn = Callable[[FileEntry], list[StoredBatch]]
"""The producers' batches in a file, in order of offset."""


ROUND_FILES_MAX = 32
"""Files that one round copies at most. A follower that was away lacks thousands of small ones; the partitions in whose
ISR it is again wait for its rounds of the others, and their producers with them."""


class LogBounds(Protocol):
    """Of a log, as it is folded or as it was published: its offsets are `[log_start_offset, log_end_offset)`."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...


def lacks_records(own: LogBounds, leader: LogBounds) -> bool:
    """Whether the leader's log has records above the follower's."""
    return own.log_end_offset < leader.log_end_offset


def is_behind(own: LogBounds, leader: LogBounds) -> bool:
    """Whether a copy would change the follower's log, of which both show the same leader epoch: it lacks records, or
    keeps some below the leader's log start. `plan_copy` says what is copied then; of a log that is not behind, nothing.
    """
    return lacks_records(own, leader) or own.log_start_offset < leader.log_start_offset


@dataclass(frozen=True, slots=True)
class Copied:
    """A follower copied `[start_offset, end_offset)`; equal offsets: there was nothing to copy."""

    start_offset: int
    end_offset: int
    version: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One round of copying: the follower's log bounds and epochs after it, and the leader's files that it copies.

    segment        the oldest segment that files may go to: a leader whose compaction joined segments labels its files
                   with the first, and the follower may have begun a later one
    files          the leader's; the first may begin before `start_offset`
    removes        the follower's whole log, when the leader's log starts above its end, or when the follower misses
                   tombstones that the leader no longer has; then nothing is copied yet
    is_complete    the round reaches the leader's log end
    lacks_aborted  aborted records of the round may be gone from the leader, and their transactions from its producer
                   state
    """

    start_offset: int
    end_offset: int
    log_start_offset: int
    segment: int
    files: tuple[FileEntry, ...]
    removes: tuple[str, ...]
    epochs: LeaderEpochCache
    is_complete: bool
    cleaner_txns: Mapping[str, int]
    lacks_aborted: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation: the log's new bounds, the files that it removes, and the one to slice first, if any."""

    log_start_offset: int
    log_end_offset: int
    removes: tuple[str, ...]
    straddling: FileEntry | None
    epochs: LeaderEpochCache
    is_full: bool
    cleaner_txns: Mapping[str, int]


def plan_copy(own: LogState, leader: LogState, max_bytes: int, unbroken: Sequence[tuple[int, int]] = ()) -> CopyPlan:
    """The next round: whole files up to `max_bytes` (at least one), and `ROUND_FILES_MAX`, from the follower's log end
    on.

    unbroken  offsets `[base, last]` of sinks' batches, inside which a round does not end: a batch of several files and
              its record in producer state are copied together. Otherwise a new leader could hold a part of the batch
              without that record, and the sink's retry would append the part again.
    Raises OffsetOutOfRangeError when the follower must truncate first: it is ahead of the leader, or its last record
    has another epoch than the leader's.
    """
    check_agreement(own, leader)
    if _misses_tombstones(own, leader):
        return _emptied(own, leader)
    is_reset = leader.log_start_offset > own.log_end_offset
    start = leader.log_start_offset if is_reset else own.log_end_offset
    wanted = files_between(leader.files, start, leader.log_end_offset)
    files = _within(wanted, max_bytes, unbroken)
    is_complete = len(files) == len(wanted)
    end = leader.log_end_offset if is_complete else files[-1].end_offset
    return CopyPlan(
        start,
        end,
        start if is_reset else max(own.log_start_offset, min(leader.log_start_offset, end)),
        own.files[-1].segment if own.files and not is_reset else 0,
        files,
        tuple(entry.path for entry in own.files) if is_reset else (),
        epochs_after(LeaderEpochCache() if is_reset else own.epochs, leader.epochs, start, end),
        is_complete,
        _cleaner_txns(own, leader, is_rewritten=is_reset or not own.files),
        lacks_aborted=start < leader.txn_number(GONE_ABORTED),
    )


def _misses_tombstones(own: LogState, leader: LogState) -> bool:
    """Whether own records may have been deleted by tombstones above the own log end that are gone by now: the follower
    was away for longer than `delete.retention.ms`. Its deleted keys would come back (in Kafka they do)."""
    has_records = max(own.log_start_offset, leader.log_start_offset) < own.log_end_offset and bool(own.files)
    gone_end = leader.txn_number(GONE_TOMBSTONES)
    return has_records and own.log_end_offset < gone_end and own.txn_number(GONE_TOMBSTONES) < gone_end


def _emptied(own: LogState, leader: LogState) -> CopyPlan:
    start = max(own.log_start_offset, leader.log_start_offset)
    removes = tuple(entry.path for entry in own.files)
    txns = _cleaner_txns(own, leader, is_rewritten=True, cut_offset=start)
    return CopyPlan(start, start, start, 0, (), removes, LeaderEpochCache(), False, txns)


def _cleaner_txns(
    own: LogState, leader: LogState, *, is_rewritten: bool, cut_offset: int | None = None
) -> dict[str, int]:
    """The gone ends of the leader that hold for the copy: of aborted records always, of tombstones when rewritten."""
    aborted_end = leader.txn_number(GONE_ABORTED)
    if not is_rewritten and aborted_end <= max(own.log_end_offset, own.txn_number(GONE_ABORTED)):
        return {}
    cleaner = own.cleaner if cut_offset is None else own.cleaner.truncated(cut_offset)
    if is_rewritten:
        cleaner = cleaner.without_tombstones(leader.txn_number(GONE_TOMBSTONES))
    return cleaner.without_aborted(aborted_end).txns_after(own.cleaner)


def check_agreement(own: LogState, leader: LogState) -> None:
    """Raise OffsetOutOfRangeError unless the leader's log continues the follower's (promise 16)."""
    if own.log_end_offset > leader.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{own.name}: log end {own.log_end_offset} > the leader's {leader.log_end_offset}: truncate first"
        )
    last_offset = own.log_end_offset - 1
    if last_offset < max(own.log_start_offset, leader.log_start_offset):
        return
    own_epoch, leader_epoch = own.epochs.epoch_at(last_offset), leader.epochs.epoch_at(last_offset)
    if own_epoch != leader_epoch:
        raise OffsetOutOfRangeError(
            f"{own.name}: offset {last_offset} has epoch {own_epoch}, the leader's {leader_epoch}: truncate first"
        )


def plan_cut(state: LogState, truncate_to: int | None, log_start: int | None) -> Cut:
    """The truncation after which the log ends at `truncate_to` or below and starts at `log_start` or above.

    A cut below the log start, or a log start above the log end, empties the log (`is_full`), as Kafka's
    truncateFullyAndStartAt. None keeps the bound.
    """
    start = max(state.log_start_offset, log_start or 0)
    end = state.log_end_offset if truncate_to is None else min(truncate_to, state.log_end_offset)
    if end < start:
        bound = end if log_start is None else max(end, log_start)
        everything = tuple(entry.path for entry in state.files)
        return Cut(bound, bound, everything, None, LeaderEpochCache(), True, _truncated(state, bound))
    above = files_between(state.files, end, state.log_end_offset)[::-1]
    straddling = above[-1] if above and above[-1].start_offset < end else None
    epochs = state.epochs if truncate_to is None else state.epochs.truncate_from_end(end)
    removes = tuple(entry.path for entry in above)
    return Cut(start, end, removes, straddling, epochs, False, _truncated(state, end))


def _truncated(state: LogState, log_end_offset: int) -> dict[str, int]:
    if log_end_offset >= state.log_end_offset:
        return {}
    return state.cleaner.truncated(log_end_offset).txns_after(state.cleaner)


def _within(files: Sequence[FileEntry], max_bytes: int, unbroken: Sequence[tuple[int, int]]) -> tuple[FileEntry, ...]:
    size_bytes = 0
    for count, entry in enumerate(files):
        size_bytes += entry.file.size_bytes
        is_inside = any(base < entry.start_offset <= last for base, last in unbroken)
        is_full = size_bytes > max_bytes or count >= ROUND_FILES_MAX
        if count and is_full and not is_inside:
            return tuple(files[:count])
    return tuple(files)


def epochs_after(own: LeaderEpochCache, leader: LeaderEpochCache, start: int, end: int) -> LeaderEpochCache:
    """The own entries that begin below `start`, then the leader's newer ones that begin at the new log end or below:
    a replica that has all that an epoch began with knows of that epoch, which `LeaderEpochCache.log_end` compares.
    Without any, as of a leader's log without records, the one in force there.

    example  own (0,0) with end 17, leader (0,0) (3,17): (0,0) (3,17); with own end 15: (0,0)
    """
    has_records = bool(own.entries) and own.entries[0].start_offset < start
    epochs = own.truncate_from_end(start) if has_records else LeaderEpochCache()
    for entry in leader.entries:
        if entry.epoch > epochs.latest_epoch and entry.start_offset <= end:
            epochs = epochs.assign(entry.epoch, entry.start_offset)
    in_force = UNDEFINED_EPOCH if epochs.entries else leader.epoch_at(end)
    return epochs if in_force == UNDEFINED_EPOCH else epochs.assign(in_force, end)


def producers_after_cut(
    known: ProducerStates, end_offset: int, newest_first: Iterable[FileEntry], batches_in: BatchesIn
) -> ProducerStates | None:
    """Producer state of the log cut to end at `end_offset`; None when it stays. `newest_first`: the files that stay.

    Producers whose remembered batches, or whose marker, were all cut off are looked up in the files, which are read
    only as far as needed: to the newest batch with a sequence of each, or one of an older epoch than its newest
    marker's.
    """
    states, missing, undecided = known.truncated(end_offset)
    found: dict[int, ProducerEntry] = {}
    searched = set(missing)
    still_open = _OpenTransactions(undecided)
    for file in newest_first:
        if not searched and still_open.is_decided:
            break
        batches = batches_in(file)
        for producer_id, entry in _entries_of(batches).items():
            if producer_id in searched:
                newer = found.get(producer_id, entry)
                is_same_epoch = entry.producer_epoch == newer.producer_epoch
                found[producer_id] = newer._replace(batches=entry.batches) if is_same_epoch else newer
                if entry.batches or not is_same_epoch:  # a marker has no sequence: the last batch is in an older file
                    searched.discard(producer_id)
        still_open.fold_older(batches)
    states = states.with_found(found, still_open.first_offsets)
    return None if states == known else states


def _entries_of(batches: list[StoredBatch]) -> Mapping[int, ProducerEntry]:
    """The producers' entries after these batches alone."""
    states = ProducerStates()
    for batch in batches:
        states = states.with_batch(*batch)
    return states.producers


class _OpenTransactions:
    """The first offsets of transactions that are open at the end of a log, folded from its files, newest first.

    It is for producers of which a truncation removed a whole transaction, so that producer state does not suffice.
    """

    def __init__(self, producer_ids: frozenset[int]) -> None:
        self._undecided = set(producer_ids)
        self.first_offsets: dict[int, int] = {}

    @property
    def is_decided(self) -> bool:
        return not self._undecided

    def fold_older(self, batches: Sequence[StoredBatch]) -> None:
        """Fold the next older file: a producer's newest marker decides, transactional batches above it are open."""
        for batch in reversed(batches):
            if batch.change is None or batch.producer_id not in self._undecided:
                continue
            if batch.change.kind == BEGIN:
                self.first_offsets[batch.producer_id] = batch.change.offset
            else:
                self._undecided.discard(batch.producer_id)


def producers_after_copy(
    own: ProducerStates, theirs: ProducerStates, plan: CopyPlan, adds: Sequence[FileEntry], batches_in: BatchesIn
) -> ProducerStates | None:
    """Producer state after a round of copying; None when it stays.

    A round that reaches the leader's log end copies the leader's state. A shorter one must not know more than its
    records, so it folds the copied batches onto the own state. Which aborted transactions still have records differs
    between replicas.
    """
    before = ProducerStates(forgotten_below=own.forgotten_below) if plan.removes else own
    if plan.is_complete:
        transactions = _transactions_after(before.transactions, theirs.transactions, plan, adds, batches_in)
        states = theirs if transactions is theirs.transactions else replace(theirs, transactions=transactions)
    else:
        states = before
        if theirs.producers or theirs.transactions.aborted or before.transactions.producers:
            for entry in adds:
                for batch in batches_in(entry):
                    states = states.with_batch(*batch)
        states = replace(states, sinks={**states.sinks, **theirs.sinks_below(plan.end_offset)})
    states = states.without_aborted(plan.log_start_offset)
    return None if states is own or states == own else states


def _transactions_after(
    own: Transactions, leader: Transactions, plan: CopyPlan, adds: Sequence[FileEntry], batches_in: BatchesIn
) -> Transactions:
    """The leader's transactions, with the aborted ones that have records here.

    The end of a transaction that is open here may be unknown to the leader: its compaction removed the records. Then
    the copied marker shows the end.
    """
    if not plan.lacks_aborted:
        return own.followed_by(leader, plan.start_offset)
    for entry in adds:
        own = own.with_changes(batch.change for batch in batches_in(entry) if batch.change is not None)
    return Transactions(leader.producers, own.aborted)
