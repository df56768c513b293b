"""Coordinators under crashes, pauses, cut links, lost answers and parked storage calls, by seed."""

from __future__ import annotations

import pytest

from tests.simulation.coordinators.coordinator_mutations import run_lists
from tests.simulation.run import quiet

SEEDS = 40


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 20))
def test_no_request_has_two_answers_and_no_answer_is_revoked(first_seed: int) -> None:
    with quiet():
        outcomes = [run_lists(seed) for seed in range(first_seed, first_seed + 20)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 100, "the runs must do some work"
