"""Proof that the simulation finds bugs: runs with one rule switched off, and the first seeds that find it.

I/O: `first_seeds.json`, with the first seed that finds each deliberate bug. A change of the product shifts the runs of
seeds; `python -m tests.simulation --pin --write` then writes other ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.simulation.coordinators.coordinator_mutations import COORDINATOR_MUTATIONS, CoordinatorMutation
from tests.simulation.mutations.availability_mutations import AVAILABILITY_MUTATIONS
from tests.simulation.mutations.domain_mutations import DOMAIN_MUTATIONS
from tests.simulation.mutations.endpoint_mutations import ENDPOINT_MUTATIONS
from tests.simulation.mutations.erasure_mutations import ERASURE_MUTATIONS
from tests.simulation.mutations.late_mutations import LATE_MUTATIONS
from tests.simulation.mutations.log_mutations import LOG_MUTATIONS
from tests.simulation.mutations.move_mutations import MOVE_MUTATIONS
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.transaction_mutations import TRANSACTION_MUTATIONS
from tests.simulation.run import Outcome, quiet, simulate

SEEDS_TRIED = 20
"""Seeds that the tests try, from the first one on: a change of the product may shift the run of one seed."""
FIRST_SEEDS = Path(__file__).with_name("first_seeds.json")


@dataclass(frozen=True, slots=True)
class Bug:
    """A rule switched off. `run`: a seed without the rule; `run_sound`: with it. `invariants`: one of these breaks, any
    if there is none."""

    run: Callable[[int], Outcome]
    run_sound: Callable[[int], Outcome]
    invariants: tuple[str, ...]

    def is_found_by(self, outcome: Outcome) -> bool:
        broken = outcome.violation
        return broken is not None and (not self.invariants or broken.invariant in self.invariants)


@dataclass(frozen=True, slots=True)
class Pin:
    """The result of the search for a bug's first seed.

    seed      the first one that finds it; None: none of the `tried` seeds does
    is_sound  whether nothing breaks in that seed with the rule; if not, the rule is not all that is wrong
    """

    name: str
    seed: int | None
    tried: int
    is_sound: bool = True

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.name}: nothing found in {self.tried} seeds"
        return f"{self.name}: seed {self.seed}, the {self.tried}. tried" + ("" if self.is_sound else ": BREAKS ANYWAY")


def _of_log(mutation: Mutation) -> Bug:
    def run(seed: int) -> Outcome:
        faults = mutation.faults(Random(seed))
        return simulate(seed, duration_ms=mutation.duration_ms, faults=faults, setting=mutation.setting)

    return Bug(partial(_without, mutation, run), run, mutation.invariants)


def _of_coordinators(mutation: CoordinatorMutation) -> Bug:
    run = partial(_without, mutation, mutation.run_off or mutation.run)
    return Bug(run, mutation.run, mutation.invariants)


def _without(mutation: Mutation | CoordinatorMutation, run: Callable[[int], Outcome], seed: int) -> Outcome:
    with mutation.patches():
        return run(seed)


MUTATIONS: Mapping[str, Mutation] = (
    LOG_MUTATIONS
    | LATE_MUTATIONS
    | ERASURE_MUTATIONS
    | ENDPOINT_MUTATIONS
    | AVAILABILITY_MUTATIONS
    | DOMAIN_MUTATIONS
    | MOVE_MUTATIONS
)
BUGS: Mapping[str, Bug] = {name: _of_log(mutation) for name, mutation in MUTATIONS.items()} | {
    name: _of_coordinators(mutation) for name, mutation in {**COORDINATOR_MUTATIONS, **TRANSACTION_MUTATIONS}.items()
}


def first_seeds(path: Path = FIRST_SEEDS) -> dict[str, int]:
    """By the bug's name."""
    seeds: dict[str, int] = json.loads(path.read_text())
    return seeds


def state_first_seeds(pins: Iterable[Pin], path: Path = FIRST_SEEDS) -> None:
    """Write the found ones, in the order of `BUGS`."""
    seeds = first_seeds(path) | {pin.name: pin.seed for pin in pins if pin.seed is not None}
    path.write_text(json.dumps({name: seeds[name] for name in BUGS if name in seeds}, indent=2) + "\n")


def find(name: str, seeds: Iterable[int]) -> Pin:
    """The first of these seeds whose run breaks an invariant of the rule."""
    bug, tried = BUGS[name], 0
    with quiet():
        for tried, seed in enumerate(seeds, 1):
            if bug.is_found_by(bug.run(seed)):
                return Pin(name, seed, tried, bug.run_sound(seed).violation is None)
    return Pin(name, None, tried)


def pinned(name: str) -> Pin:
    """The result of the seeds that the tests try."""
    first = first_seeds()[name]
    return find(name, range(first, first + SEEDS_TRIED))


def pin(name: str, first_seed: int, seconds: float) -> Pin:
    """As `find`, from `first_seed` on for so long."""
    return find(name, _for_so_long(first_seed, seconds))


def _for_so_long(first_seed: int, seconds: float) -> Iterator[int]:
    end = time.monotonic() + seconds
    seed = first_seed
    while time.monotonic() < end:
        yield seed
        seed += 1
