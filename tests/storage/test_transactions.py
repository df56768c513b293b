"""Transactions of one log, as tables: which batches are accepted, what readers read, what a cut keeps."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest

from stratalog.storage.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    TransactionCoordinatorFencedError,
    UnverifiedTransactionError,
)
from stratalog.storage.producers import BatchMetadata, ProducerStates, Truncated
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE
from stratalog.storage.transactions import (
    ABORT,
    BEGIN,
    COMMIT,
    NO_TRANSACTIONS,
    AbortedTransaction,
    EndMarker,
    LastStableOffset,
    OffsetAndEpoch,
    ProducerTransaction,
    TransactionChange,
    Transactions,
    change_of,
    marker_batch,
    marker_of,
)


def folded(*changes: tuple[int, int, int]) -> Transactions:
    """(producer id, kind, offset) in order; markers of coordinator epoch 3."""
    return NO_TRANSACTIONS.with_changes(
        TransactionChange(p, kind, offset, -1 if kind == BEGIN else 3) for p, kind, offset in changes
    )


def states(*changes: tuple[int, int, int], epoch: int = 5) -> ProducerStates:
    """The same with the producers' entries under `epoch`, each batch one record."""
    known = ProducerStates()
    for producer_id, kind, offset in changes:
        change = TransactionChange(producer_id, kind, offset, -1 if kind == BEGIN else 3)
        known = known.with_batch(producer_id, epoch, BatchMetadata(-1, -1, offset, offset, 1_000), change)
    return known


@pytest.mark.parametrize(
    ("known", "is_transactional", "verified_offset", "error"),
    [
        pytest.param(states(), False, -1, None, id="no transaction, none wanted"),
        pytest.param(states(), True, -1, UnverifiedTransactionError, id="not verified"),
        pytest.param(states(), True, 0, None, id="verified"),
        pytest.param(states((7, BEGIN, 4)), True, -1, None, id="the open one continues"),
        pytest.param(
            states((7, BEGIN, 4), epoch=4),
            True,
            -1,
            UnverifiedTransactionError,
            id="the one before waits for its marker",
        ),
        pytest.param(states((7, BEGIN, 4)), False, -1, InvalidTxnStateError, id="not transactional while one is open"),
        pytest.param(states((8, BEGIN, 4)), False, -1, None, id="another producer's is open"),
        pytest.param(states((7, BEGIN, 4), (7, COMMIT, 6)), True, 5, UnverifiedTransactionError, id="verified early"),
        pytest.param(states((7, BEGIN, 4), (7, COMMIT, 6)), True, 7, None, id="verified again"),
        pytest.param(states((7, ABORT, 6)), True, 6, UnverifiedTransactionError, id="a marker that ended nothing"),
        pytest.param(states((7, BEGIN, 4), (7, COMMIT, 6)), False, -1, None, id="plain again after the marker"),
    ],
)
def test_what_batches_of_records_may_be_appended(known, is_transactional, verified_offset, error):
    verified, end = OffsetAndEpoch(verified_offset, 3), OffsetAndEpoch(10, 3)
    if error is None:
        known.check_transactional(7, 5, is_transactional, verified, end)
        return
    with pytest.raises(error) as raised:
        known.check_transactional(7, 5, is_transactional, verified, end)
    assert raised.value.name == "INVALID_TXN_STATE"
    if error is UnverifiedTransactionError:
        assert (raised.value.log_end_offset, raised.value.leader_epoch) == end
        assert raised.value.verification == {"verified_offset": 10, "verified_leader_epoch": 3}


@pytest.mark.parametrize(
    ("verified", "is_void"),
    [
        pytest.param(OffsetAndEpoch(7, 3), False, id="of this leader epoch"),
        pytest.param(OffsetAndEpoch(7, 2), True, id="of an earlier one, which may have ended elsewhere"),
        pytest.param(OffsetAndEpoch(7, 4), True, id="of a later one"),
        pytest.param(OffsetAndEpoch(7), False, id="a high watermark"),
        pytest.param(OffsetAndEpoch(11), True, id="beyond the end: not one of this log"),
    ],
)
def test_a_log_end_is_compared_within_its_leader_epoch(verified, is_void):
    known = states((7, BEGIN, 4), (7, ABORT, 6))
    with pytest.raises(UnverifiedTransactionError) if is_void else nullcontext():
        known.check_transactional(7, 5, True, verified, OffsetAndEpoch(10, 3))


@pytest.mark.parametrize(
    ("known", "epoch", "coordinator_epoch", "version", "error"),
    [
        pytest.param(states(), 0, 0, 0, None, id="nothing known"),
        pytest.param(states((7, BEGIN, 4)), 5, 3, 0, None, id="version 0: the transaction's own epoch"),
        pytest.param(states((7, BEGIN, 4)), 6, 3, 0, None, id="version 0: a fencing epoch"),
        pytest.param(states((7, BEGIN, 4)), 4, 3, 0, InvalidProducerEpochError, id="version 0: an older epoch"),
        pytest.param(states((7, BEGIN, 4)), 6, 3, 2, None, id="version 2: the epoch after the transaction's"),
        pytest.param(states((7, BEGIN, 4)), 5, 3, 2, InvalidProducerEpochError, id="version 2: a delayed marker"),
        pytest.param(states((7, BEGIN, 4), (7, COMMIT, 5)), 5, 3, 2, None, id="version 2: the same marker again"),
        pytest.param(states((7, COMMIT, 5)), 9, 2, 0, TransactionCoordinatorFencedError, id="an older coordinator"),
        pytest.param(states((7, COMMIT, 5)), 9, 4, 0, None, id="a newer coordinator"),
    ],
)
def test_what_markers_may_be_appended(known, epoch, coordinator_epoch, version, error):
    if error is None:
        known.check_marker(7, epoch, coordinator_epoch, version)
        return
    with pytest.raises(error):
        known.check_marker(7, epoch, coordinator_epoch, version)


@pytest.mark.parametrize(
    ("known", "high_watermark", "stable"),
    [
        pytest.param(folded(), 50, 50, id="no transaction"),
        pytest.param(folded((7, BEGIN, 40)), 50, 40, id="one is open"),
        pytest.param(folded((7, BEGIN, 40)), 30, 30, id="it begins above the high watermark"),
        pytest.param(folded((7, BEGIN, 40), (7, COMMIT, 60)), 61, 61, id="its marker is committed"),
        pytest.param(folded((7, BEGIN, 40), (7, COMMIT, 60)), 60, 40, id="its marker may still go"),
        pytest.param(folded((7, BEGIN, 40), (7, ABORT, 60)), 50, 40, id="an abort as much as a commit"),
        pytest.param(folded((7, BEGIN, 20), (8, BEGIN, 40), (7, COMMIT, 60)), 50, 20, id="the docstring's, before"),
        pytest.param(folded((7, BEGIN, 20), (8, BEGIN, 40), (7, COMMIT, 60)), 61, 40, id="the docstring's, after"),
        pytest.param(folded((7, BEGIN, 20), (7, COMMIT, 30), (7, COMMIT, 60)), 50, 50, id="a marker twice, late"),
        pytest.param(folded((7, BEGIN, 20), (7, COMMIT, 30), (7, COMMIT, 31)), 30, 20, id="a marker twice, at once"),
    ],
)
def test_last_stable_offset(known, high_watermark, stable):
    assert known.last_stable_offset(high_watermark) == stable


@pytest.mark.parametrize("seed", range(20))
def test_last_stable_offset_of_a_log_that_grows(seed):
    rng = random.Random(seed)
    known, log_end, high_watermark, found = NO_TRANSACTIONS, 0, 0, LastStableOffset()
    for _ in range(300):
        match rng.randrange(5):
            case 0 | 1:
                producer_id = rng.randrange(40)
                transaction = known.of(producer_id)
                kind = rng.choice([COMMIT, ABORT]) if transaction.is_open else BEGIN
                if kind != BEGIN or transaction.completed_last < high_watermark:
                    known = known.with_change(TransactionChange(producer_id, kind, log_end, 3))
                    log_end += 1
            case 2:
                high_watermark = rng.randint(high_watermark, log_end)
            case 3 if rng.random() < 0.1:
                log_end = rng.randint(high_watermark, log_end)
                known = known.truncated(log_end)[0]
            case 3 if rng.random() < 0.1:
                known = known.of_producers(producer_id for producer_id in range(40) if rng.random() < 0.7)
        asked = rng.choice([high_watermark, high_watermark, rng.randint(0, log_end)])
        assert found.of(known, asked) == known.last_stable_offset(asked)


SOME = folded(
    (7, BEGIN, 0), (8, BEGIN, 5), (7, ABORT, 9), (7, BEGIN, 10), (8, ABORT, 12), (9, BEGIN, 13), (7, COMMIT, 14)
)
OF_7, OF_8 = AbortedTransaction(7, 0, 9), AbortedTransaction(8, 5, 12)


@pytest.mark.parametrize(
    ("start", "end", "aborted"),
    [(0, 20, (OF_7, OF_8)), (0, 5, (OF_7,)), (9, 10, (OF_7, OF_8)), (10, 11, (OF_8,)), (12, 13, (OF_8,)), (13, 20, ())],
)
def test_aborted_transactions_of_a_range(start, end, aborted):
    assert SOME.aborted_between(start, end) == aborted


@pytest.mark.parametrize(
    ("end", "left", "unmarked", "undecided"),
    [
        pytest.param(15, SOME, set(), set(), id="nothing goes"),
        pytest.param(14, folded((7, BEGIN, 10), (9, BEGIN, 13)).of(7), {7}, set(), id="a commit goes: open again"),
        pytest.param(12, None, {7, 8}, set(), id="an abort goes, too"),
        pytest.param(9, None, {7, 8}, {7}, id="below the last whole transaction of 7"),
    ],
)
def test_a_cut(end, left, unmarked, undecided):
    cut, lost_marker, lost_transaction = SOME.truncated(end)
    assert (lost_marker, lost_transaction) == (unmarked, undecided)
    if isinstance(left, Transactions):
        assert cut is SOME
    if end == 14:
        assert cut.of(7).first_offset == left.first_offset == 10
        assert cut.aborted == (OF_7, OF_8)
    if end == 12:
        assert (cut.of(8).first_offset, cut.of(9), cut.aborted) == (5, ProducerTransaction(), (OF_7,))
    if end == 9:
        assert cut.aborted == ()
        assert cut.of(8).first_offset == 5


def test_a_cut_below_a_marker_forgets_the_markers_epoch():
    known = states((7, BEGIN, 0)).with_batch(7, 6, BatchMetadata(-1, -1, 1, 1, 1), TransactionChange(7, COMMIT, 1, 3))
    assert known.producers[7].producer_epoch == 6
    cut = known.truncated(1)
    assert isinstance(cut, Truncated)
    assert (cut.missing, cut.undecided) == ({7}, set())
    assert 7 not in cut.states.producers
    assert cut.states.transactions.of(7).first_offset == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (folded(), folded((7, BEGIN, 0))),
        (folded((7, BEGIN, 0)), folded((7, BEGIN, 0), (7, ABORT, 3))),
        (folded(), folded((7, BEGIN, 0), (8, BEGIN, 1), (7, ABORT, 3), (8, COMMIT, 4))),
        (folded((7, BEGIN, 0)), folded((7, BEGIN, 0), (7, COMMIT, 3), (7, BEGIN, 4))),
        (folded(), folded((7, COMMIT, 3))),
        (folded((7, BEGIN, 0), (7, ABORT, 1)), folded((7, BEGIN, 0), (7, ABORT, 1), (7, COMMIT, 3))),
    ],
)
def test_changes_lead_to_the_later_state(before, after):
    changes = before.changes_to(after)
    assert changes is not None
    assert before.with_changes(changes) == after


def test_no_changes_hold_two_transactions_of_a_producer():
    assert folded().changes_to(folded((7, BEGIN, 0), (7, ABORT, 1), (7, BEGIN, 2), (7, ABORT, 3))) is None
    assert folded((7, BEGIN, 0)).changes_to(folded()) is None


def test_states_survive_json_and_have_no_key_for_transactions_without_any():
    known = states((7, BEGIN, 0), (8, BEGIN, 5), (7, ABORT, 9), (7, BEGIN, 10))
    assert ProducerStates.from_json(known.to_json()) == known
    assert b"transactions" not in ProducerStates().with_batch(7, 0, BatchMetadata(0, 0, 0, 0, 1)).to_json()
    assert ProducerStates.from_json(b'{"producers":{},"sinks":{}}') == ProducerStates()


def test_a_producer_with_an_open_transaction_does_not_expire_and_aborted_ones_go_with_the_log_start():
    known = states((7, BEGIN, 0), (8, BEGIN, 5), (7, ABORT, 9))
    later = known.expired(1_000 + 86_400_000, log_start_offset=10)
    assert set(later.producers) == {8}
    assert later.transactions == Transactions({8: known.transactions.of(8)})
    assert known.expired(1_001, log_start_offset=9) is known


def test_a_marker_is_kafkas_control_batch():
    batch = marker_batch(7, 4, EndMarker(True, 3), 1_234)
    key, value = batch.payload["key"][0].as_py(), batch.payload["value"][0].as_py()
    assert (key.hex(), value.hex()) == ("00000001", "000000000003")
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.attributes) == (7, 4, -1, 0x30)
    assert marker_of(key, value) == EndMarker(True, 3)
    assert change_of(7, batch.attributes, 40, key, value) == TransactionChange(7, COMMIT, 40, 3)
    assert marker_of(bytes.fromhex("00000000"), bytes.fromhex("000000000009ff")) == EndMarker(False, 9)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", bytes.fromhex("00000002"), bytes.fromhex("ffff0001")])
def test_other_control_records_are_no_markers(key):
    assert marker_of(key, b"\0\0\0\0\0\0") is None
    assert change_of(7, 0x30, 4, key, None) is None
    assert change_of(7, 0x20, 4, b"\0\0\0\1", b"") is None
    assert change_of(7, TRANSACTIONAL_ATTRIBUTE, 4, key, None) == TransactionChange(7, BEGIN, 4)


def test_a_truncated_marker_is_refused():
    with pytest.raises(InvalidRecordError):
        marker_of(bytes.fromhex("00000001"), b"\0\0")
