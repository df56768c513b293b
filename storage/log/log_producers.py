"""What a log knows of its producers after a truncation, or after a part of its leader's log was copied. Pure.

Where the state itself cannot tell, the rows of the files can: `batches_in` reads those of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from stratalog.storage.delta.table import FileEntry
from stratalog.storage.log.log_copy import CopyPlan
from stratalog.storage.log.rows import OpenTransactions, entries_of
from stratalog.storage.producers import ProducerBatch, ProducerEntry, ProducerStates
from stratalog.storage.transactions import Transactions

BatchesIn = Callable[[FileEntry], list[ProducerBatch]]


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
