"""The protocol under crashes, pauses, cut links, lost answers and parked storage calls, by seed.

A failing seed prints itself; `python -m tests.simulation --seeds 1 --first-seed N` tells its story.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS, SEEDS_TRIED
from tests.simulation.run import STEPS_MIN, run_seeds, simulate
from tests.simulation.search import pinned, run_one

SEEDS = 200
"""`make simulate` runs 20,000."""


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 50))
def test_all_invariants_hold_in_every_run(first_seed: int) -> None:
    outcomes = run_seeds(first_seed, 50)
    bad = {outcome.seed: str(outcome.violation) for outcome in outcomes if outcome.violation is not None}
    assert bad == {}, f"run `python -m tests.simulation --seeds 1 --first-seed {next(iter(bad), 0)}`"
    assert sum(outcome.acked for outcome in outcomes) > 500, "the runs must do some work"
    assert sum(outcome.leader_epochs for outcome in outcomes) > 25, "and leaders must change"
    assert min(outcome.steps for outcome in outcomes) >= STEPS_MIN


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_this_rule_an_invariant_breaks(name: str) -> None:
    """A change of the product may change what a seed does, so one of several is enough."""
    found = pinned(name)
    assert found is not None, f"find other seeds: python -m tests.simulation --search {name!r}"
    with_all_rules = run_one(MUTATIONS[name], found.seed, is_on=False)
    assert with_all_rules.violation is None, "with all rules the same seed is clean"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_with_all_rules_the_same_faults_break_nothing(name: str) -> None:
    mutation = MUTATIONS[name]
    seeds = range(mutation.first_seed, mutation.first_seed + 2 * SEEDS_TRIED)
    outcomes = [run_one(mutation, seed, is_on=False) for seed in seeds]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.steps, first.story) == (second.steps, second.story)
