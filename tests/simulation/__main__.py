"""`python -m tests.simulation`: run many seeds, or search for those that find deliberate bugs.

--seeds 20000 --first-seed 0    every seed must hold all invariants; if one does not, exit 1 with its events
--coordinated 1000              seeds with groups and transactions after these; by default a twentieth
--pin [NAME …] [--write]        the first seed that finds a bug, with that rule switched off, searched from the first
                                one on for --seconds; without a name: for each rule whose pinned seeds find nothing any
                                more. --write puts it into first_seeds.json. Exit 1 if there is none
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.simulation.coordinators.coordinated import run_coordinated
from tests.simulation.run import Outcome, run_seeds
from tests.simulation.search import BUGS, pin, pinned, state_first_seeds

SEEDS_A_TASK = 25
STORY_LINES = 80
HASH_SEED = "0"
"""As in the Makefile."""

Run = Callable[[int, int], list[Outcome]]
"""First seed and number of seeds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--coordinated", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pin", nargs="*", choices=list(BUGS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:  # the order of a set of names is part of a run's history
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    if arguments.pin is not None:
        return _pin(arguments.pin, arguments)
    coordinated = arguments.seeds // 20 if arguments.coordinated is None else arguments.coordinated
    ends = [
        _run_all(name, run, arguments.first_seed, seeds, arguments.workers)
        for name, run, seeds in (("", run_seeds, arguments.seeds), ("coordinated ", run_coordinated, coordinated))
        if seeds
    ]
    return max(ends, default=0)


def _pin(names: list[str], arguments: argparse.Namespace) -> int:
    is_found = True
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        if not names:
            names = [found.name for found in pool.map(pinned, BUGS) if found.seed is None]
        search = partial(pin, first_seed=arguments.first_seed, seconds=arguments.seconds)
        for found in pool.map(search, names):
            print(found, flush=True)
            is_found = is_found and found.seed is not None and found.is_sound
            if arguments.write:
                state_first_seeds([found])
    return 0 if is_found else 1


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
    """The summary of all runs, with the stories of the first that broke an invariant."""

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
