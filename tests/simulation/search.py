"""Does the simulation bite? Runs with one rule switched off, each under the faults that go with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from tests.simulation.mutations import MUTATIONS, SEEDS_TRIED, Mutation
from tests.simulation.run import Outcome, quiet, simulate


def run_one(mutation: Mutation, seed: int, *, is_on: bool = True) -> Outcome:
    """One seed under the mutation's mix of faults; `is_on` False: with all rules."""
    faults, setting = mutation.faults(Random(seed)), mutation.setting
    if not is_on:
        return simulate(seed, duration_ms=mutation.duration_ms, faults=faults, setting=setting)
    with mutation.patches():
        return simulate(seed, duration_ms=mutation.duration_ms, faults=faults, setting=setting)


def finding(name: str, seeds: Iterator[int] | range) -> Outcome | None:
    """The first of these seeds whose run breaks an invariant that the rule is there for."""
    mutation = MUTATIONS[name]
    with quiet():
        for seed in seeds:
            outcome = run_one(mutation, seed)
            if outcome.violation is not None and outcome.violation.invariant in mutation.invariants:
                return outcome
    return None


def pinned(name: str) -> Outcome | None:
    """What the seeds find that are tried in the tests."""
    first = MUTATIONS[name].first_seed
    return finding(name, range(first, first + SEEDS_TRIED))


def search(name: str, first_seed: int, minutes: float) -> tuple[Outcome | None, int]:
    """As `finding`, from `first_seed` on for so long; and how many seeds were tried."""
    deadline = time.monotonic() + 60 * minutes
    tried = 0

    def seeds() -> Iterator[int]:
        nonlocal tried
        while time.monotonic() < deadline:
            yield first_seed + tried
            tried += 1

    return finding(name, seeds()), tried + 1
