"""Compaction of transactions, as tables: whole logs in one line, cleaned once or several times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from stratalog.storage.log.rows import producer_batches
from stratalog.storage.producers import BatchMetadata, ProducerEntry, ProducerStates
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, data_table
from stratalog.storage.transactions import (
    ABORT,
    BEGIN,
    COMMIT,
    AbortedTransaction,
    EndMarker,
    TransactionChange,
    Transactions,
    marker_batch,
    marker_of,
)
from stratalog.storage.upkeep.cleaned_transactions import EVERY_OFFSET, AbortedRecords, CleanedTransactions, horizon_of
from stratalog.storage.upkeep.compaction import Cleaning, KeyedRows, OffsetMap, last_batch_ends, survivors
from tests.storage.keyed import keyed

RETENTION_MS = 100


def log_of(words: str) -> pa.Table:
    """A log from offset 0 on, a batch a word: "a=1" is plain, "7.a=1" of producer 7's transaction, which
    "7.commit" or "7.abort" ends."""
    batches: list[NewRecordBatch] = []
    for sequence, word in enumerate(words.split()):
        producer, dot, what = word.rpartition(".")
        if what in ("commit", "abort"):
            batches.append(marker_batch(int(producer), 0, EndMarker(what == "commit", 0), 1_000))
        elif dot:
            of_producer = {"producer_id": int(producer), "sequence": sequence, "attributes": TRANSACTIONAL_ATTRIBUTE}
            batches.append(keyed(what, **of_producer))
        else:
            batches.append(keyed(what))
    return data_table(batches)


def words_of(rows: pa.Table) -> str:
    """The remaining records: "0:a=1 4:7.commit 5:7.abort@100", the last with its delete horizon; "3:-" was emptied."""
    words = []
    for row in rows.to_pylist():
        key, value = row["key"], row["value"]
        if not row["attributes"] & CONTROL_ATTRIBUTE:
            words.append(f"{row['offset_delta']}:{key.decode()}" + ("" if value is None else f"={value.decode()}"))
        elif key is None:
            words.append(f"{row['offset_delta']}:-")
        else:
            kind = "commit" if marker_of(key, value).is_commit else "abort"
            horizon_ms = horizon_of(row["headers"])
            words.append(
                f"{row['offset_delta']}:{row['producer_id']}.{kind}" + (f"@{horizon_ms}" if horizon_ms else "")
            )
    return " ".join(words)


def states_of(rows: pa.Table, *known: int) -> ProducerStates:
    """Producer state at the end of a log, of the known producers; the others have expired."""
    states = ProducerStates()
    for batch in producer_batches(rows, 0, 1_000):
        states = states.with_batch(*batch)
    producers = {i: entry for i, entry in states.producers.items() if i in known}
    return ProducerStates(producers, {}, states.transactions.of_producers(producers))


def passed(rows: pa.Table, states: ProducerStates, now_ms: int, *, parts: int = 1, end: int = EVERY_OFFSET):
    """A log after one pass in so many parts; the offsets below `end` were compacted long ago."""
    transactions = CleanedTransactions.of(states, EVERY_OFFSET, end, now_ms, RETENTION_MS)
    tables = [rows.take(each) for each in np.array_split(np.arange(rows.num_rows), parts) if len(each)]
    keyed_parts = [KeyedRows.of(table, 0, transactions.aborted) for table in tables]
    known = OffsetMap()
    for part in keyed_parts:
        known.put(part)
    last_offsets = last_batch_ends(states, EVERY_OFFSET)
    rules = Cleaning(known, 0, last_offsets, transactions)
    kept = []
    for table, part in zip(tables, keyed_parts, strict=True):
        (fates,) = rules.retained([part])
        kept.append(survivors(table, fates, transactions.horizon_ms))
        assert fates.is_changed is not kept[-1].equals(table)
    return pa.concat_tables(kept)


ONCE_AND_TWICE = {
    "a marker stays with its records": ("7.a=1 7.commit", "0:a=1 1:7.commit", "0:a=1 1:7.commit"),
    "aborted records go at once, the marker later": ("7.a=1 7.abort", "1:7.abort@110", ""),
    "an aborted record is no update": ("a=1 7.a=2 7.abort", "0:a=1 2:7.abort@110", "0:a=1"),
    "a committed one is": ("a=1 7.a=2 7.commit", "1:a=2 2:7.commit", "1:a=2 2:7.commit"),
    "without records a commit marker goes, too": ("7.a=1 7.commit a=2", "1:7.commit@110 2:a=2", "2:a=2"),
    "one record is left": ("7.a=1 7.b=1 7.commit a=2", "1:b=1 2:7.commit 3:a=2", "1:b=1 2:7.commit 3:a=2"),
    "two at a time": (
        "7.a=1 8.b=1 8.commit 7.b=2 7.abort",
        "1:b=1 2:8.commit 4:7.abort@110",
        "1:b=1 2:8.commit",
    ),
    "one by one": ("7.a=1 7.abort 7.a=2 7.commit", "1:7.abort@110 2:a=2 3:7.commit", "2:a=2 3:7.commit"),
    "the other way": ("7.a=1 7.commit 7.b=2 7.abort", "0:a=1 1:7.commit 3:7.abort@110", "0:a=1 1:7.commit"),
    "markers of nothing": ("7.commit 8.abort a=1", "0:7.commit@110 1:8.abort@110 2:a=1", "2:a=1"),
    "a tombstone is a record": ("7.a 7.commit", "0:a 1:7.commit", "0:a 1:7.commit"),
    "no transactions": ("a=1 b=1 a=2", "1:b=1 2:a=2", "1:b=1 2:a=2"),
}


@pytest.mark.parametrize("parts", [1, 2, 3, 99])
@pytest.mark.parametrize(("log", "once", "twice"), ONCE_AND_TWICE.values(), ids=ONCE_AND_TWICE)
def test_what_a_pass_leaves_and_one_a_retention_later(log, once, twice, parts):
    """Of producers that are no longer known, for which no marker is kept."""
    rows = log_of(log)
    aborted = states_of(rows, 7, 8).transactions
    states = ProducerStates({}, {}, Transactions({}, aborted.aborted))
    first = passed(rows, states, 10, parts=parts)
    assert words_of(first) == once
    assert words_of(passed(first, ProducerStates(), 109, parts=parts)) == once
    assert words_of(passed(first, ProducerStates(), 110, parts=parts)) == twice


def test_a_marker_stays_while_the_log_knows_its_transaction_as_aborted():
    """An interrupted pass marked it; readers still expect a marker there."""
    rows = log_of("7.a=1 7.abort")
    states = ProducerStates({}, {}, states_of(rows, 7).transactions)
    first = passed(rows, states, 10)
    assert words_of(passed(first, states, 1_000)) == "1:7.abort@110"


def test_a_marker_above_the_last_due_tombstone_stays():
    """Then a follower that lacks it is emptied and copied again (`CleanerCheckpoint.gone_tombstones_end`)."""
    rows = log_of("7.commit 7.commit a=1")
    first = passed(rows, ProducerStates(), 10)
    assert words_of(passed(first, ProducerStates(), 110, end=1)) == "1:7.commit@110 2:a=1"


@pytest.mark.parametrize(
    ("known", "high_watermark", "expected"),
    [
        ((), 9, "8:b=1"),
        ((8,), 9, "8:b=1"),
        ((7,), 9, "7:7.abort@110 8:b=1"),
        ((7,), 7, "1:7.commit@110 4:7.abort@110 7:7.abort@110 8:b=1"),
    ],
)
def test_the_last_marker_of_a_known_producer_stays_for_its_epoch(known, high_watermark, expected):
    """All of them if the last one is above the high watermark: it may be truncated, and then the one before counts."""
    rows = log_of("b=0 7.commit 7.a=1 7.b=1 7.abort 7.a=2 7.c=2 7.abort b=1")
    states = states_of(rows, *known)
    first = passed(rows, ProducerStates({}, {}, states_of(rows, 7).transactions), 10)
    producers = {i: ProducerEntry(0, (), 1_000) for i in known}
    transactions = Transactions(states.transactions.producers, ())
    rules = CleanedTransactions.of(ProducerStates(producers, {}, transactions), high_watermark, EVERY_OFFSET, 110, 0)
    part = KeyedRows.of(first, 0)
    cleaning = Cleaning(OffsetMap(), 0, np.array([], np.int64), rules)
    assert words_of(survivors(first, cleaning.retained([part])[0])) == expected


def test_an_aborted_record_that_is_a_producers_last_is_emptied():
    rows = log_of("7.a=1 7.b=2 7.abort")
    kept = passed(rows, states_of(rows, 7), 10)
    assert words_of(kept) == "1:- 2:7.abort@110"
    assert kept["sequence"].to_pylist() == [1, -1]
    assert words_of(passed(kept, states_of(rows, 7).without_aborted(3), 500)) == "1:- 2:7.abort@110"
    assert words_of(passed(kept, ProducerStates(), 500)) == ""


def test_records_belong_to_an_aborted_transaction_by_producer_and_offset():
    aborted = AbortedRecords(
        [AbortedTransaction(7, 10, 14), AbortedTransaction(8, 2, 15), AbortedTransaction(7, 20, 20)]
    )
    asked = [(7, 9), (7, 10), (7, 13), (7, 15), (7, 20), (7, 21), (8, 2), (8, 15), (8, 16), (9, 12)]
    producers, offsets = np.array(asked, np.int64).T
    assert [pair for pair, is_out in zip(asked, aborted.holds(producers, offsets), strict=True) if is_out] == [
        (7, 10), (7, 13), (7, 20), (8, 2), (8, 15),
    ]  # fmt: skip
    assert [aborted.has_marker(7, 14), aborted.has_marker(8, 14), aborted.has_marker(9, 14)] == [True, False, False]
    assert not AbortedRecords().holds(producers, offsets).any()


@pytest.mark.parametrize(
    ("marker_offset", "base_sequence", "expected"),
    [(5, 0, []), (5, 3, None), (-1, 0, None), (25, 0, None)],
)
def test_of_an_epoch_that_began_above_the_high_watermark_the_marker_before_it_tells_enough(
    marker_offset, base_sequence, expected
):
    batches = (BatchMetadata(base_sequence, base_sequence, 20, 20, 0),)
    changes = [TransactionChange(7, COMMIT, marker_offset, 0)] if marker_offset >= 0 else []
    states = ProducerStates({7: ProducerEntry(3, batches, 0)}, {}, Transactions().with_changes(changes))
    ends = last_batch_ends(states, 10)
    assert (None if ends is None else ends.tolist()) == expected


def folded(*changes: tuple[int, int, int]) -> Transactions:
    return Transactions().with_changes(TransactionChange(*change) for change in changes)


def test_a_follower_keeps_its_own_aborted_transactions_and_takes_the_leaders_newer_ones():
    leader = folded((7, BEGIN, 0), (7, ABORT, 2), (8, BEGIN, 3), (8, ABORT, 6))
    own = folded((7, BEGIN, 0), (7, ABORT, 2), (8, BEGIN, 3))
    assert own.followed_by(leader, 5) is leader
    assert own.followed_by(leader.without_aborted(5), 5) == leader, "the leader has compacted, the follower has not"
    cleaned = own.without_aborted(5)
    assert cleaned.followed_by(leader, 5).aborted == (AbortedTransaction(8, 3, 6),), "the other way"
    assert Transactions().followed_by(leader, 0) is leader
    again = own.followed_by(leader.without_aborted(99), 7)
    assert (again.aborted, again.producers) == (own.aborted, leader.producers)
