"""`python -m tests.simulation`: run many seeds, or search for a seed that finds a deliberate bug.

--seeds 20000 --first-seed 0    every seed must hold all invariants; exit 1 and the story if one does not
--coordinated 1000              so many seeds with groups and transactions after these; a twentieth unless told
--search NAME                   with that rule switched off (`tests.simulation.mutations`), look for a seed that
                                notices; `all`: each of them in turn
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.coordinated import run_coordinated
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import Outcome, run_seeds
from tests.simulation.search import search

SEEDS_A_TASK = 25
STORY_LINES = 80
HASH_SEED = "0"
"""As in the Makefile."""

Run = Callable[[int, int], list[Outcome]]
"""Of the first seed and how many there are."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--coordinated", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--search", choices=["all", *MUTATIONS])
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:  # the order of a set of names is part of a run's history
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    if arguments.search:
        names = list(MUTATIONS) if arguments.search == "all" else [arguments.search]
        found = [_search(name, arguments.first_seed, arguments.minutes) for name in names]
        return 0 if all(found) else 1
    coordinated = arguments.seeds // 20 if arguments.coordinated is None else arguments.coordinated
    ends = [
        _run_all(name, run, arguments.first_seed, seeds, arguments.workers)
        for name, run, seeds in (("", run_seeds, arguments.seeds), ("coordinated ", run_coordinated, coordinated))
        if seeds
    ]
    return max(ends, default=0)


def _search(name: str, first_seed: int, minutes: float) -> bool:
    started = time.monotonic()
    outcome, tried = search(name, first_seed, minutes)
    seconds = time.monotonic() - started
    if outcome is None:
        print(f"{name}: nothing found in {tried} seeds from {first_seed} on, {seconds:.0f} s")
        return False
    print(f"{name}: seed {outcome.seed} after {tried} seeds and {seconds:.1f} s: {outcome.violation}", flush=True)
    return True


def _run_all(name: str, run: Run, first_seed: int, seeds: int, workers: int) -> int:
    started = time.monotonic()
    totals = _Totals()
    for outcome in _outcomes(run, first_seed, seeds, workers):
        totals.take(outcome)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{totals.runs} {name}runs, {totals.steps} steps "
        f"(least {totals.steps_min}, mean {totals.steps // totals.runs}), "
        f"{totals.acked} records acknowledged, {totals.answered} coordinators' decisions, "
        f"{totals.leader_epochs} leader changes, {totals.violations} violations, "
        f"{minutes:.1f} minutes with {workers} workers: {totals.runs / minutes / workers:.0f} runs a minute and core"
    )
    return 1 if totals.violations else 0


class _Totals:
    """What is told of all runs; of those that broke an invariant the first stories."""

    def __init__(self) -> None:
        self.runs = self.steps = self.acked = self.answered = self.leader_epochs = self.violations = 0
        self.steps_min = sys.maxsize

    def take(self, outcome: Outcome) -> None:
        self.runs += 1
        self.steps += outcome.steps
        self.steps_min = min(self.steps_min, outcome.steps)
        self.acked += outcome.acked
        self.answered += outcome.answered
        self.leader_epochs += outcome.leader_epochs
        if outcome.violation is None:
            return
        self.violations += 1
        if self.violations <= 3:
            print("\n".join(outcome.story[-STORY_LINES:]), file=sys.stderr)
        print(f"seed {outcome.seed}: {outcome.violation}", file=sys.stderr, flush=True)


def _outcomes(run: Run, first_seed: int, seeds: int, workers: int) -> Iterator[Outcome]:
    tasks = [
        (seed, min(SEEDS_A_TASK, first_seed + seeds - seed))
        for seed in range(first_seed, first_seed + seeds, SEEDS_A_TASK)
    ]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in pool.map(run, *zip(*tasks, strict=True)):
            yield from done


if __name__ == "__main__":
    sys.exit(main())
