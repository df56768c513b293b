"""The protocol under crashes, pauses, cut links, lost answers and parked storage calls, by seed.

A failing seed prints itself; `python -m tests.simulation --seeds 1 --first-seed N` prints its story.
"""

from __future__ import annotations

import pytest

from tests.simulation.run import STEPS_MIN, run_seeds, simulate

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


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.steps, first.story) == (second.steps, second.story)
