"""What a follower's log takes over from its leader's in one round, and what a truncation leaves. Pure.

What a log knows of its producers after a truncation, or after a part of its leader's log was copied. Pure.

Where the state itself cannot tell, the rows of the files can: `batches_in` reads those of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import GONE_ABORTED
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.rows import OpenTransactions, entries_of
from stratalog.storage.log.segments import files_between
from stratalog.storage.log.state import LogState
from stratalog.storage.producers import ProducerEntry, ProducerStates, StoredBatch
from stratalog.storage.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Copied:
    """A follower took over `[start_offset, end_offset)`; equal offsets mean that there was nothing to copy."""

    start_offset: int
    end_offset: int
    version: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One round of copying: `files` of the leader, of which the first may begin before `start_offset`.

    `removes` is the follower's whole log when the leader's log starts above its log end, or when the follower
    misses tombstones that the leader has no more; then nothing is copied yet.
    `is_complete` tells that the round reaches the leader's log end. `epochs` holds after the round.
    `segment` is the oldest one that files may go to: a leader whose compaction made one of several segments labels its
    files with the first, and the follower may have begun a later one.
    `lacks_aborted`: aborted records of the round may have gone from the leader, and its producer state does not know of
    their transactions any more.
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
    """A truncation: the log's new bounds, the files that go, and the one to slice first, if any."""

    log_start_offset: int
    log_end_offset: int
    removes: tuple[str, ...]
    straddling: FileEntry | None
    epochs: LeaderEpochCache
    is_full: bool
    cleaner_txns: Mapping[str, int]


def plan_copy(own: LogState, leader: LogState, max_bytes: int, unbroken: Sequence[tuple[int, int]] = ()) -> CopyPlan:
    """The next round: whole files up to `max_bytes` (at least one) from the follower's log end on.

    A round does not end inside one of the `unbroken` offsets `[base, last]`: a sink's batch of several files is
    copied wholly, with the note that it was appended, or not at all. Otherwise a new leader could hold a part of it
    without the note, and the sink's retry would append that part again.
    Raises OffsetOutOfRangeError when the follower must truncate first: it is ahead of the leader, or its last
    record has another epoch than the leader's.
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
    lacks_aborted = start < leader.txn_number(GONE_ABORTED)
    return CopyPlan(
        start,
        end,
        start if is_reset else max(own.log_start_offset, min(leader.log_start_offset, end)),
        own.files[-1].segment if own.files and not is_reset else 0,
        files,
        tuple(entry.path for entry in own.files) if is_reset else (),
        _epochs_after(LeaderEpochCache() if is_reset else own.epochs, leader.epochs, start, end),
        is_complete,
        _cleaner_txns(own, leader, is_anew=is_reset or not own.files),
        lacks_aborted,
    )


def _misses_tombstones(own: LogState, leader: LogState) -> bool:
    """Whether own records may have been deleted by tombstones that came above the own log end and have gone since: the
    follower was away for longer than `delete.retention.ms`. Its keys would come back (in Kafka they do)."""
    has_records = max(own.log_start_offset, leader.log_start_offset) < own.log_end_offset and bool(own.files)
    gone_end = leader.gone_tombstones_end
    return has_records and own.log_end_offset < gone_end and own.gone_tombstones_end < gone_end


def _emptied(own: LogState, leader: LogState) -> CopyPlan:
    start = max(own.log_start_offset, leader.log_start_offset)
    removes = tuple(entry.path for entry in own.files)
    txns = _cleaner_txns(own, leader, is_anew=True, cut_offset=start)
    return CopyPlan(start, start, start, 0, (), removes, LeaderEpochCache(), False, txns)


def _cleaner_txns(own: LogState, leader: LogState, *, is_anew: bool, cut_offset: int | None = None) -> dict[str, int]:
    """What a log lacks as the leader does: aborted records in any case, tombstones when it is copied from its start."""
    aborted_end = leader.txn_number(GONE_ABORTED)
    if not is_anew and aborted_end <= max(own.log_end_offset, own.txn_number(GONE_ABORTED)):
        return {}
    cleaner = own.cleaner if cut_offset is None else own.cleaner.truncated(cut_offset)
    if is_anew:
        cleaner = cleaner.without_tombstones(leader.gone_tombstones_end)
    return cleaner.without_aborted(aborted_end).txns_after(own.cleaner)


def check_agreement(own: LogState, leader: LogState) -> None:
    """Raise OffsetOutOfRangeError unless the leader's log goes on where the follower's ends (LogMatching)."""
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
    """What to do so that the log ends at `truncate_to` at most and starts at `log_start` at least.

    A cut below the log start, or a log start above the log end, empties the log (`is_full`), as Kafka's
    truncateFullyAndStartAt. None leaves the bound as it is.
    """
    start = max(state.log_start_offset, log_start or 0)
    end = state.log_end_offset if truncate_to is None else min(truncate_to, state.log_end_offset)
    if end < start:
        bound = end if log_start is None else max(end, log_start)
        everything = tuple(entry.path for entry in state.files)
        return Cut(bound, bound, everything, None, LeaderEpochCache(), True, _truncated(state, bound))
    above = reversed_files_above(state.files, end)
    straddling = next((entry for entry in above if entry.start_offset < end), None)
    epochs = state.epochs if truncate_to is None else state.epochs.truncate_from_end(end)
    removes = tuple(entry.path for entry in above)
    return Cut(start, end, removes, straddling, epochs, False, _truncated(state, end))


def _truncated(state: LogState, log_end_offset: int) -> dict[str, int]:
    if log_end_offset >= state.log_end_offset:
        return {}
    return state.cleaner.truncated(log_end_offset).txns_after(state.cleaner)


def reversed_files_above(files: Sequence[FileEntry], offset: int) -> list[FileEntry]:
    """The files that hold an offset at or above `offset`, newest first; `files` are ordered by offset."""
    above: list[FileEntry] = []
    for entry in reversed(files):
        if entry.end_offset <= offset:
            break
        above.append(entry)
    return above


def _within(files: Sequence[FileEntry], max_bytes: int, unbroken: Sequence[tuple[int, int]]) -> tuple[FileEntry, ...]:
    taken: list[FileEntry] = []
    size_bytes = 0
    for entry in files:
        size_bytes += entry.file.size_bytes
        if taken and size_bytes > max_bytes:
            is_inside = any(base < entry.start_offset <= last for base, last in unbroken)
            if not is_inside:
                break
        taken.append(entry)
    return tuple(taken)


def _epochs_after(own: LeaderEpochCache, leader: LeaderEpochCache, start: int, end: int) -> LeaderEpochCache:
    """Own entries that have records, then the leader's newer ones that begin below the new log end."""
    epochs = own.truncate_from_end(start)
    for entry in leader.entries:
        if entry.epoch > epochs.latest_epoch and entry.start_offset < end:
            epochs = epochs.assign(entry.epoch, entry.start_offset)
    return epochs


BatchesIn = Callable[[FileEntry], list[StoredBatch]]


def producers_after_cut(
    known: ProducerStates, end_offset: int, newest_first: Iterable[FileEntry], batches_in: BatchesIn
) -> ProducerStates | None:
    """Producer state of the log cut to end at `end_offset`; None when it stays. `newest_first` are the files then.

    Ids whose kept batches all went, or whose marker went, are looked up again. Their files are read only as far as
    needed: to the newest batch with a sequence of each, or one of an older epoch than its newest marker's.
    """
    states, missing, undecided = known.truncated(end_offset)
    found: dict[int, ProducerEntry] = {}
    searched = set(missing)
    still_open = OpenTransactions(undecided)
    for file in newest_first:
        if not searched and still_open.is_decided:
            break
        batches = batches_in(file)
        for producer_id, entry in entries_of(batches).items():
            if producer_id in searched:
                newer = found.get(producer_id, entry)
                is_same_epoch = entry.producer_epoch == newer.producer_epoch
                found[producer_id] = newer._replace(batches=entry.batches) if is_same_epoch else newer
                if entry.batches or not is_same_epoch:  # markers have no sequence: what does is older
                    searched.discard(producer_id)
        still_open.look_at(batches)
    states = states.with_entries(found)
    states = states.with_open(still_open.first_offsets)
    return None if states == known else states


def producers_after_copy(
    own: ProducerStates, theirs: ProducerStates, plan: CopyPlan, adds: Sequence[FileEntry], batches_in: BatchesIn
) -> ProducerStates | None:
    """The producer state after a round of copying; None when it stays.

    A round that reaches the leader's log end takes the leader's state. A shorter one must not know more
    than its records: it folds the batches that it copied onto the own state. Which aborted transactions still have
    records is each replica's own matter.
    """
    before = ProducerStates() if plan.removes else own
    if plan.is_complete:
        transactions = _transactions_after(before.transactions, theirs.transactions, plan, adds, batches_in)
        states = theirs if transactions is theirs.transactions else replace(theirs, transactions=transactions)
    else:
        states = before
        if theirs.producers or theirs.transactions.aborted or before.transactions.producers:
            for entry in adds:
                for batch in batches_in(entry):
                    states = states.with_batch(*batch)
        sinks = theirs.truncated(plan.end_offset).states.sinks
        states = replace(states, sinks={**states.sinks, **sinks})
    states = states.without_aborted(plan.log_start_offset)
    return None if states is own or states == own else states


def _transactions_after(
    own: Transactions, leader: Transactions, plan: CopyPlan, adds: Sequence[FileEntry], batches_in: BatchesIn
) -> Transactions:
    """The leader's, with the aborted transactions that have records here.

    Of one that is open here the leader may not know any more how it ended: its compaction has taken the records, and
    the marker came with the others.
    """
    if not plan.lacks_aborted:
        return own.followed_by(leader, plan.start_offset)
    for entry in adds:
        own = own.with_changes(batch.change for batch in batches_in(entry) if batch.change is not None)
    return Transactions(leader.producers, own.aborted)
