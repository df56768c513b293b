"""The protocol under crashes, pauses, cut links, lost answers and parked storage calls, by seed.

A failing seed prints itself; `python -m tests.simulation --seeds 1 --first-seed N` tells its story.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import run_seeds, simulate

SEEDS = 120
"""`make simulate` runs 2,000."""

PINNED = {"a": 339, "b": 1176, "c": 220}
"""Seeds that notice a rule switched off. A change of the protocol's code changes what a seed does: then
`python -m tests.simulation --search a` (b, c) finds the next one."""


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 20))
def test_all_invariants_hold_in_every_run(first_seed: int) -> None:
    outcomes = run_seeds(first_seed, 20)
    bad = {outcome.seed: str(outcome.violation) for outcome in outcomes if outcome.violation is not None}
    assert bad == {}, f"run `python -m tests.simulation --seeds 1 --first-seed {next(iter(bad), 0)}`"
    assert sum(outcome.acked for outcome in outcomes) > 200, "the runs must do some work"
    assert sum(outcome.leader_epochs for outcome in outcomes) > 20, "and leaders must change"


@pytest.mark.parametrize("rule", sorted(MUTATIONS))
def test_without_this_rule_the_pinned_seed_breaks_an_invariant(rule: str) -> None:
    seed = PINNED[rule]
    with MUTATIONS[rule]():
        mutated = simulate(seed)
    assert mutated.violation is not None, f"find the next seed: python -m tests.simulation --search {rule}"
    assert mutated.violation.invariant != "Liveness"
    assert simulate(seed).violation is None, "with all rules the same seed is clean"


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.steps, first.story) == (second.steps, second.story)
