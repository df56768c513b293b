"""A transactional id's steps as tables: which state, which epoch, which error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.coordinator.transactions.transaction import (
    LEGAL_PREVIOUS,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TransactionState,
    completed,
    fenced,
    initialized,
    is_ended_already,
    needs_next_producer_id,
    needs_producer_id,
    prepared,
    verified,
    with_partitions,
)
from stratalog.replication.requests.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.storage.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from stratalog.storage.records import TopicPartition

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LAST = PRODUCER_EPOCH_MAX - 1
NOW = 5_000


def known(state=ONGOING, epoch=5, **fields) -> Transaction:
    partitions = frozenset({A}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset()
    return replace(Transaction("tx", 7, epoch, 60_000, state, partitions, 1_000, 900), **fields)


def init(producer_id=-1, epoch=-1) -> InitProducerIdRequest:
    return InitProducerIdRequest("tx", 30_000, producer_id, epoch)


def end(committed=True, epoch=5, version=2, producer_id=7) -> EndTxnRequest:
    return EndTxnRequest("tx", producer_id, epoch, committed, version)


def add(*partitions, epoch=5, producer_id=7) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest("tx", producer_id, epoch, partitions)


@pytest.mark.parametrize(
    ("before", "request_", "after"),
    [
        pytest.param(None, init(), (99, 0, -1, EMPTY), id="a new name"),
        pytest.param(None, init(4, 3), (99, 0, -1, EMPTY), id="a name that expired"),
        pytest.param(known(EMPTY), init(), (7, 6, -1, EMPTY), id="a new producer fences the older one"),
        pytest.param(known(COMPLETE_COMMIT), init(), (7, 6, -1, EMPTY), id="after a commit"),
        pytest.param(known(COMPLETE_ABORT), init(7, 5), (7, 6, 5, EMPTY), id="on with it after an error"),
        pytest.param(known(EMPTY, 6, last_producer_epoch=5), init(7, 5), (7, 6, 5, EMPTY), id="a retry of that"),
        pytest.param(known(EMPTY), init(7, 4), ProducerFencedError, id="an older epoch"),
        pytest.param(known(EMPTY), init(8, 5), ProducerFencedError, id="another id"),
        pytest.param(known(ONGOING), init(), (7, 6, 5, PREPARE_ABORT), id="an open transaction is aborted"),
        pytest.param(known(ONGOING), init(7, 5), (7, 6, 5, PREPARE_ABORT), id="the same, asked by its own producer"),
        pytest.param(
            known(COMPLETE_ABORT, 6, last_producer_epoch=5), init(7, 5), (7, 6, 5, EMPTY), id="which goes on after that"
        ),
        pytest.param(known(EMPTY, 7), init(7, 5), ProducerFencedError, id="unless a newer one has come meanwhile"),
        pytest.param(known(PREPARE_COMMIT), init(), ConcurrentTransactionsError, id="while it is committed"),
        pytest.param(known(PREPARE_ABORT), init(), ConcurrentTransactionsError, id="while it is aborted"),
        pytest.param(known(EMPTY, LAST), init(), (99, 0, -1, EMPTY), id="epochs used up: a new id"),
        pytest.param(known(EMPTY, LAST), init(7, LAST), (99, 0, LAST, EMPTY), id="the same, asked by the current one"),
        pytest.param(
            known(EMPTY, 0, producer_id=99, previous_producer_id=7, last_producer_epoch=LAST),
            init(7, LAST),
            (99, 0, LAST, EMPTY),
            id="a retry of that, too",
        ),
        pytest.param(known(ONGOING, LAST), init(), (7, LAST + 1, -1, PREPARE_ABORT), id="the last epoch can be fenced"),
        pytest.param(known(COMPLETE_ABORT, LAST + 1), init(), (99, 0, -1, EMPTY), id="and then comes a new id"),
    ],
)
def test_init_producer_id(before, request_, after):
    new_id = 99 if needs_producer_id(before, request_) else -1
    if not isinstance(after, tuple):
        with pytest.raises(after):
            initialized(before, request_, new_id, NOW)
        return
    found = initialized(before, request_, new_id, NOW)
    assert (found.producer_id, found.producer_epoch, found.last_producer_epoch, found.state) == after
    if found.state is EMPTY:
        assert (found.timeout_ms, found.partitions, found.started_ms, found.updated_ms) == (
            30_000,
            frozenset(),
            -1,
            NOW,
        )


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        pytest.param(None, add(A), InvalidProducerIdMappingError, id="an unknown name"),
        pytest.param(known(EMPTY), add(A), (ONGOING, {A}, NOW), id="the first partition"),
        pytest.param(known(COMPLETE_COMMIT), add(A, B), (ONGOING, {A, B}, NOW), id="the next transaction"),
        pytest.param(known(ONGOING), add(B), (ONGOING, {A, B}, 900), id="one more"),
        pytest.param(known(ONGOING), add(A), (ONGOING, {A}, 900), id="one that is in it"),
        pytest.param(known(ONGOING), add(A, epoch=4), ProducerFencedError, id="an older epoch"),
        pytest.param(known(ONGOING), add(A, epoch=6), ProducerFencedError, id="an epoch that nobody was given"),
        pytest.param(known(ONGOING), add(A, producer_id=8), InvalidProducerIdMappingError, id="another id"),
        pytest.param(known(PREPARE_COMMIT), add(A), ConcurrentTransactionsError, id="while the last one is committed"),
    ],
)
def test_add_partitions(before, asked, after):
    if not isinstance(after, tuple):
        with pytest.raises(after):
            with_partitions(before, asked, NOW)
        with pytest.raises(after):
            verified(before, asked)
        return
    found = with_partitions(before, asked, NOW)
    assert (found.state, found.partitions, found.started_ms) == after
    assert (found is before) == (before is not None and found == before)


def test_verification_says_which_partitions_are_in_the_transaction():
    (_, present), (_, absent) = verified(known(ONGOING), add(A, B))
    assert present is None
    assert isinstance(absent, TransactionAbortableError)


YES, NEW, CONCURRENT = True, False, ConcurrentTransactionsError
FENCED, STATE, MAPPING = ProducerFencedError, InvalidTxnStateError, InvalidProducerIdMappingError


@pytest.mark.parametrize(
    ("state", "commit_now", "abort_now", "commit_retry", "abort_retry"),
    [
        (EMPTY, STATE, NEW, FENCED, FENCED),
        (ONGOING, NEW, NEW, FENCED, FENCED),
        (PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT, STATE),
        (PREPARE_ABORT, CONCURRENT, CONCURRENT, STATE, CONCURRENT),
        (COMPLETE_COMMIT, STATE, NEW, YES, STATE),
        (COMPLETE_ABORT, STATE, NEW, STATE, YES),
    ],
)
def test_end_under_version_2(state, commit_now, abort_now, commit_retry, abort_retry):
    """Kafka's table above `endTransaction`: with the current epoch, and with the one before, as a retry has it. In
    Prepare the producer of the current epoch waits for its markers, where Kafka fences it."""
    before = known(state, epoch=6)
    for request, answer in [
        (end(True, epoch=6), commit_now),
        (end(False, epoch=6), abort_now),
        (end(True, epoch=5), commit_retry),
        (end(False, epoch=5), abort_retry),
        (end(True, epoch=4), FENCED),
        (end(True, epoch=7), FENCED),
        (end(True, epoch=6, producer_id=8), MAPPING),
    ]:
        assert ended(before, request) == answer


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, STATE, STATE),
        (ONGOING, NEW, NEW),
        (PREPARE_COMMIT, CONCURRENT, STATE),
        (PREPARE_ABORT, STATE, CONCURRENT),
        (COMPLETE_COMMIT, YES, STATE),
        (COMPLETE_ABORT, STATE, YES),
    ],
)
def test_end_before_version_2(state, commit, abort):
    before = known(state)
    for request, answer in [
        (end(True, version=0), commit),
        (end(False, version=0), abort),
        (end(True, epoch=4, version=0), FENCED),
        (end(True, epoch=6, version=0), FENCED),
        (end(True, producer_id=8, version=0), MAPPING),
    ]:
        assert ended(before, request) == answer


def ended(before, request):
    try:
        return is_ended_already(before, request)
    except (CONCURRENT, FENCED, STATE, MAPPING) as refusal:
        return type(refusal)


def test_a_name_that_is_not_known_ends_nothing():
    assert ended(None, end()) is MAPPING
    assert ended(known(COMPLETE_ABORT, PRODUCER_EPOCH_MAX), end(False, epoch=PRODUCER_EPOCH_MAX)) is FENCED


@pytest.mark.parametrize(
    ("epoch", "version", "markers", "goes_on"),
    [
        pytest.param(5, 0, (7, 5), (7, 5), id="before version 2 the epoch stays"),
        pytest.param(5, 2, (7, 6), (7, 6), id="version 2 bumps it"),
        pytest.param(LAST, 2, (7, LAST + 1), (99, 0), id="the last epoch: a new id"),
        pytest.param(LAST, 0, (7, LAST), (7, LAST), id="before version 2 only InitProducerId brings a new id"),
    ],
)
def test_the_way_to_complete(epoch, version, markers, goes_on):
    before = known(ONGOING, epoch)
    request = end(True, epoch, version)
    ending = prepared(before, request, 99 if needs_next_producer_id(before, request) else -1, NOW)
    assert (ending.producer_id, ending.producer_epoch, ending.state) == (*markers, PREPARE_COMMIT)
    assert ending.partitions == {A}
    done = completed(ending, NOW + 1)
    assert (done.producer_id, done.producer_epoch, done.state) == (*goes_on, COMPLETE_COMMIT)
    assert (done.partitions, done.previous_producer_id, done.next_producer_id) == (frozenset(), 7, -1)
    if version == 2:
        assert is_ended_already(done, request)


def test_an_abort_of_nothing_bumps_the_epoch_and_has_no_partitions():
    ending = prepared(known(COMPLETE_COMMIT), end(False), -1, NOW)
    assert (ending.state, ending.producer_epoch, ending.partitions, ending.started_ms) == (
        PREPARE_ABORT,
        6,
        frozenset(),
        NOW,
    )


@pytest.mark.parametrize("before", list(TransactionState))
@pytest.mark.parametrize("after", list(TransactionState))
def test_only_legal_steps_are_taken(before, after):
    here = known(before)
    if before in LEGAL_PREVIOUS[after]:
        assert here.stepped(after, NOW).state is after
        return
    with pytest.raises(IllegalStateError):
        here.stepped(after, NOW)


def test_a_fenced_transaction_is_aborted_under_the_next_epoch():
    ending = fenced(known(ONGOING), NOW)
    assert (ending.state, ending.producer_epoch, ending.last_producer_epoch) == (PREPARE_ABORT, 6, 5)
    assert known(ONGOING).deadline_ms == 60_900
    assert known(EMPTY).deadline_ms is None
