"""`python -m tests.simulation`: run many seeds, or search for those that find deliberate bugs.

--seeds 20000 --first-seed 0    every seed must hold all invariants; if one does not, exit 1 with its events
--coordinated 1000              seeds with groups and transactions after these; by default a twentieth
--domains 1000                  seeds whose topics are in a storage domain; by default a twentieth
--coordinated-domains 50        of those with groups and transactions; by default a twentieth of those
--moves 1000                    seeds whose topics move between roots and domains; by default a twentieth
--killed 700                    seeds with some 15 kills each in a storage domain; by default none
--hash-seeds 5                  all of these once for each of so many hash seeds: the order of a set of names is part of
                                a run's history. The first one is PYTHONHASHSEED, or drawn
--pin [NAME …] [--write]        the first seed that finds a bug, with that rule switched off, searched from the first
                                one on for --seconds; without a name: for each rule whose pinned seeds find nothing any
                                more. --write puts it into first_seeds.json. Exit 1 if there is none. The hash seed
                                is 0, as that of the tests
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.coordinators.coordinated import run_coordinated, run_coordinated_in_domain
from tests.simulation.run import Outcome, run_in_domain, run_killed_in_domain, run_seeds, run_with_moves
from tests.simulation.search import BUGS, pin, pinned, state_first_seeds

SEEDS_A_TASK = 25
STORY_LINES = 80
HASH_SEED = "PYTHONHASHSEED"
"""The variable of the environment: a process takes its hash seed from there when it begins, as the workers do here."""
PINNED_HASH_SEED = 0
"""That of the tests, as in the Makefile."""
HASH_SEEDS = 1 << 32

Run = Callable[[int, int], list[Outcome]]
"""First seed and number of seeds."""


class Kind(NamedTuple):
    """One kind of runs. `one`: the options that run one seed of it."""

    name: str
    one: str
    run: Run
    seeds: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--coordinated", type=int, default=None)
    parser.add_argument("--domains", type=int, default=None)
    parser.add_argument("--coordinated-domains", type=int, default=None)
    parser.add_argument("--moves", type=int, default=None)
    parser.add_argument("--killed", type=int, default=0)
    parser.add_argument("--hash-seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pin", nargs="*", choices=list(BUGS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.pin is not None:
        os.environ[HASH_SEED] = str(PINNED_HASH_SEED)
        return _pin(arguments.pin, arguments)
    first = _first_hash_seed()
    hash_seeds = [(first + n) % HASH_SEEDS for n in range(arguments.hash_seeds)]
    return max([_run_under(hash_seed, arguments) for hash_seed in hash_seeds], default=0)


def _first_hash_seed() -> int:
    """The one of the environment; drawn if there is none."""
    given = os.environ.get(HASH_SEED, "")
    return int(given) if given.isdigit() else secrets.randbelow(HASH_SEEDS)


def _run_under(hash_seed: int, arguments: argparse.Namespace) -> int:
    """All seeds under one hash seed; 1 if an invariant broke."""
    os.environ[HASH_SEED] = str(hash_seed)
    coordinated = arguments.seeds // 20 if arguments.coordinated is None else arguments.coordinated
    domains = arguments.seeds // 20 if arguments.domains is None else arguments.domains
    moves = arguments.seeds // 20 if arguments.moves is None else arguments.moves
    killed = arguments.killed
    in_both = arguments.coordinated_domains
    kinds = (
        Kind("", "--coordinated 0 --domains 0 --moves 0 --seeds 1", run_seeds, arguments.seeds),
        Kind("coordinated ", "--seeds 0 --domains 0 --moves 0 --coordinated 1", run_coordinated, coordinated),
        Kind("domain ", "--seeds 0 --coordinated 0 --moves 0 --domains 1", run_in_domain, domains),
        Kind(
            "coordinated domain ",
            "--seeds 0 --coordinated-domains 1",
            run_coordinated_in_domain,
            domains // 20 if in_both is None else in_both,
        ),
        Kind("moving ", "--seeds 0 --coordinated 0 --domains 0 --moves 1", run_with_moves, moves),
        Kind("killed ", "--seeds 0 --coordinated 0 --domains 0 --moves 0 --killed 1", run_killed_in_domain, killed),
    )
    return max([_run_all(kind, hash_seed, arguments) for kind in kinds if kind.seeds], default=0)


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


def _run_all(kind: Kind, hash_seed: int, arguments: argparse.Namespace) -> int:
    started, workers = time.monotonic(), arguments.workers
    totals = _Totals(f"{HASH_SEED}={hash_seed} python -m tests.simulation {kind.one} --first-seed")
    for outcome in _outcomes(kind.run, arguments.first_seed, kind.seeds, workers):
        totals.take(outcome)
    minutes = (time.monotonic() - started) / 60
    print(
        f"hash seed {hash_seed}: {totals.runs} {kind.name}runs, {totals.steps} steps "
        f"(least {totals.steps_min}, mean {totals.steps // totals.runs}), "
        f"{totals.acked} records acknowledged, {totals.answered} coordinators' decisions, "
        f"{totals.leader_epochs} leader changes, {totals.kills} kills, {totals.violations} violations, "
        f"{minutes:.1f} minutes with {workers} workers: {totals.runs / minutes / workers:.0f} runs a minute and core",
        flush=True,
    )
    return 1 if totals.violations else 0


class _Totals:
    """The summary of all runs, with the stories of the first that broke an invariant. `again`: the command that runs
    one of them, without its seed."""

    def __init__(self, again: str) -> None:
        self._again = again
        self.runs = self.steps = self.acked = self.answered = self.leader_epochs = self.violations = self.kills = 0
        self.steps_min = sys.maxsize

    def take(self, outcome: Outcome) -> None:
        self.runs += 1
        self.steps += outcome.steps
        self.steps_min = min(self.steps_min, outcome.steps)
        self.acked += outcome.acked
        self.answered += outcome.answered
        self.leader_epochs += outcome.leader_epochs
        self.kills += outcome.kills
        if outcome.violation is None:
            return
        self.violations += 1
        if self.violations <= 3:
            print("\n".join(outcome.story[-STORY_LINES:]), file=sys.stderr)
        found = f"seed {outcome.seed}: {outcome.violation}\nagain: {self._again} {outcome.seed}"
        print(found, file=sys.stderr, flush=True)


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
