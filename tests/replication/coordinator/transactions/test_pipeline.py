"""A transactional client with several requests in flight is refused nothing, whatever its batches meet, by seed."""

from __future__ import annotations

import pytest

from tests.replication.coordinator.transactions.pipeline import BrokenPromiseError, run
from tests.replication.coordinator.transactions.pipeline_mutations import MUTATIONS, Mutation

SEEDS, LONG_SEEDS = 10, 400


def test_transactions_that_follow_each_other_at_once_are_refused_nothing() -> None:
    """Nothing fails; the marker of the transaction before is on its way while batches of the next one come."""
    done = [run(seed, has_faults=False).client.transactions for seed in range(SEEDS)]
    assert sum(done) > 20, "the runs must do some work"


def test_so_are_they_while_leaders_and_coordinators_change_and_connections_break() -> None:
    done = [run(seed).client.transactions for seed in range(SEEDS)]
    assert sum(done) > 10, "the runs must do some work"


def test_the_last_stable_offset_moves_on_when_an_older_client_gives_up_what_is_under_way() -> None:
    for seed in range(SEEDS // 2):
        run(seed, version=0, gives_up=True)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_without_this_rule_a_batch_is_refused(mutation: Mutation) -> None:
    with mutation.bug(), pytest.raises(BrokenPromiseError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        run(mutation.seed, **mutation.settings)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(1_000, 1_000 + LONG_SEEDS, 50))
def test_many_histories(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        run(seed)
        run(seed, has_faults=False)
        run(seed, version=0, gives_up=True)
