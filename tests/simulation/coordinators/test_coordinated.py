"""Groups and transactions under crashes, pauses, cut links, lost answers and late requests, by seed."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from stratalog.storage.transactions import Transactions
from tests.simulation.coordinators.coordinated import (
    COMMITTING,
    ENDING,
    run_coordinated_in_domain,
    simulate_coordinated,
)
from tests.simulation.faults import Faults
from tests.simulation.run import COMPACTED, Outcome, quiet

SEEDS = 12
"""`make simulate` runs 1,000."""
CLEANED = (*COMPACTED, ("delete.retention.ms", "300"))
STATES = (
    *("folding", "PreparingRebalance", "CompletingRebalance", "Stable", COMMITTING),
    *("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", ENDING),
)
"""Of join, sync, commit and end-transaction."""


def run(seed: int) -> tuple[Outcome, Counter[str]]:
    with quiet():
        return simulate_coordinated(seed)


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_transactions_and_groups_hold_in_every_run(first_seed: int) -> None:
    outcomes = [run(seed)[0] for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 50, "the runs must do some work"


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_transactions_and_groups_hold_in_a_storage_domain(first_seed: int) -> None:
    outcomes = run_coordinated_in_domain(first_seed, 4)
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 25, "the runs must do some work"


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_transactions_hold_where_the_topic_is_compacted(first_seed: int) -> None:
    """Each replica removes aborted records and old markers separately, and soon."""
    dropped: Counter[bool] = Counter()

    def counted(known: Transactions, end_offset: int) -> Transactions:
        after = without_aborted(known, end_offset)
        dropped[True] += len(known.aborted) - len(after.aborted)
        return after

    without_aborted = Transactions.without_aborted
    with quiet(), patch.object(Transactions, "without_aborted", counted):
        outcomes = [simulate_coordinated(seed, configs=CLEANED)[0] for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 25, "the runs must do some work"
    assert dropped[True] > 5, "and the cleaner, too"


def test_a_deposed_coordinator_under_which_the_metadata_log_was_cleaned_up_answers_nothing_old() -> None:
    assert run(3602)[0].violation is None


def test_a_loss_by_a_power_cut_just_before_the_last_fault_is_known_before_the_run_ends() -> None:
    """Of a partition whose only replica it was. There was no other fault, so the run was checked before the restart."""
    assert run(600_082)[0].violation is None


@pytest.mark.slow
@pytest.mark.long
def test_coordinators_are_killed_in_every_state() -> None:
    killed_in: Counter[str] = Counter()
    with quiet():
        for seed in range(1_000, 1_060):
            weights = {"crash": 3, "restart all": 3}
            outcome, states = simulate_coordinated(seed, faults=Faults(trouble_ms=250, weights=weights))
            assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
            killed_in += states
    assert {state: killed_in[state] for state in STATES if not killed_in[state]} == {}
