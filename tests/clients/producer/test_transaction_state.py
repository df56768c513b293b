"""What a transactional producer may do in which phase, and what an error leaves it."""

from __future__ import annotations

import pytest

from stratalog.clients.producer.producer import Producer
from stratalog.clients.producer.transaction_state import LEGAL_PREVIOUS, Phase, ProducerTransactions
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    RequestTimedOutError,
    StratalogError,
    TransactionAbortableError,
    UnknownServerError,
)
from tests.clients.memory_cluster import MemoryCluster

COMMITTING, ABORTING = Phase.COMMITTING_TRANSACTION, Phase.ABORTING_TRANSACTION


def at(phase: Phase, error: StratalogError | None = None) -> ProducerTransactions:
    state = ProducerTransactions("tx")
    state.producer_id, state.producer_epoch, state.phase, state.error = 7, 3, phase, error
    return state


ACTS = {
    "init": lambda state: state.begin_init(),
    "begin": lambda state: state.begin(),
    "send": lambda state: state.check_sending(),
    "commit": lambda state: state.begin_end(committed=True),
    "abort": lambda state: state.begin_end(committed=False),
}


@pytest.mark.parametrize(
    ("phase", "allowed"),
    [
        (Phase.UNINITIALIZED, {"init"}),
        (Phase.INITIALIZING, set()),
        (Phase.READY, {"begin"}),
        (Phase.IN_TRANSACTION, {"send", "commit", "abort"}),
        (COMMITTING, set()),
        (ABORTING, set()),
    ],
)
def test_what_may_be_done_in_a_phase(phase, allowed):
    for name, act in ACTS.items():
        state = at(phase)
        if name in allowed:
            act(state)
        else:
            with pytest.raises(IllegalStateError, match=phase.value):
                act(state)
            assert state.phase is phase


@pytest.mark.parametrize(
    ("phase", "error", "by_coordinator", "after"),
    [
        (Phase.IN_TRANSACTION, RequestTimedOutError("x"), False, Phase.ABORTABLE_ERROR),
        (Phase.IN_TRANSACTION, InvalidProducerEpochError("x"), False, Phase.ABORTABLE_ERROR),
        (Phase.IN_TRANSACTION, ProducerFencedError("x"), False, Phase.FATAL_ERROR),
        (COMMITTING, RequestTimedOutError("x"), False, Phase.ABORTABLE_ERROR),
        (COMMITTING, TransactionAbortableError("x"), True, Phase.ABORTABLE_ERROR),
        (COMMITTING, InvalidProducerEpochError("x"), True, Phase.FATAL_ERROR),
        (COMMITTING, InvalidTxnStateError("x"), True, Phase.FATAL_ERROR),
        (ABORTING, RequestTimedOutError("x"), False, ABORTING),
        (ABORTING, ProducerFencedError("x"), True, Phase.FATAL_ERROR),
        (Phase.READY, RequestTimedOutError("x"), False, Phase.READY),
        (Phase.FATAL_ERROR, ConcurrentTransactionsError("x"), False, Phase.FATAL_ERROR),
    ],
)
def test_what_an_error_leaves(phase, error, by_coordinator, after):
    state = at(phase)
    state.failed(error, by_coordinator=by_coordinator)
    assert state.phase is after
    assert (state.error is None) == (after in (ABORTING, Phase.READY) or phase is Phase.FATAL_ERROR)


def test_after_an_error_that_can_be_aborted_from_only_abort_is_left():
    state = at(Phase.IN_TRANSACTION)
    state.failed(RequestTimedOutError("lost"))
    for name in ("begin", "send", "commit"):
        with pytest.raises(TransactionAbortableError, match="REQUEST_TIMED_OUT: lost"):
            ACTS[name](state)
    state.begin_end(committed=False)
    state.ended(7, 4)
    state.begin()
    assert (state.producer_epoch, state.is_begun) == (4, False)


@pytest.mark.parametrize(
    ("error", "told"),
    [(ProducerFencedError("x"), ProducerFencedError), (InvalidTxnStateError("x"), UnknownServerError)],
)
def test_after_a_fatal_error_nothing_is_left(error, told):
    state = at(COMMITTING)
    state.failed(error, by_coordinator=True)
    for act in ACTS.values():
        with pytest.raises(told):
            act(state)


def test_every_phase_but_the_first_can_be_reached():
    assert {phase for phase, before in LEGAL_PREVIOUS.items() if before} == set(Phase) - {Phase.UNINITIALIZED}


def test_a_producer_without_a_name_or_without_brokers_has_no_transactions():
    cluster = MemoryCluster()
    view = ClusterView(cluster.root, stores=cluster.stores)
    with Producer(cluster, view=view) as producer, pytest.raises(IllegalStateError, match="non-transactional"):
        producer.begin_transaction()
    with pytest.raises(InvalidConfigError, match=r"Cannot set a transactional.id without also enabling idempotence"):
        Producer(cluster, transactional_id="tx", enable_idempotence=False)
    with Producer(cluster.root, transactional_id="tx", view=view) as alone, pytest.raises(RequestTimedOutError):
        alone.init_transactions(0.1)  # there are brokers, and no process of theirs
