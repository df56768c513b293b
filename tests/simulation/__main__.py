"""`python -m tests.simulation`: run many seeds, or search for a seed that finds a deliberate bug.

--seeds 2000 --first-seed 0     every seed must hold all invariants; exit 1 and the story if one does not
--search a|b|c                  with that rule of DESIGN §4 switched off, look for a seed that notices
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import Outcome, run_seeds, simulate

SEEDS_A_TASK = 20


def search(mutation: str, first_seed: int, minutes: float) -> Outcome | None:
    """The first seed from `first_seed` on whose run breaks a safety invariant while the rule is off."""
    logging.disable(logging.CRITICAL)
    deadline = time.monotonic() + 60 * minutes
    seed = first_seed
    with MUTATIONS[mutation]():
        while time.monotonic() < deadline:
            outcome = simulate(seed)
            if outcome.violation is not None and outcome.violation.invariant != "Liveness":
                return outcome
            seed += 1
    print(f"rule ({mutation}) off: nothing found from seed {first_seed} to {seed - 1}", file=sys.stderr)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--search", choices=sorted(MUTATIONS))
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.search:
        found = search(arguments.search, arguments.first_seed, arguments.minutes)
        if found is None:
            return 1
        seconds = time.monotonic() - started
        print(f"rule ({arguments.search}) off: seed {found.seed} finds {found.violation} after {seconds:.0f} s")
        return 0
    return _run_all(arguments.first_seed, arguments.seeds, arguments.workers, started)


def _run_all(first_seed: int, seeds: int, workers: int, started: float) -> int:
    tasks = [
        (s, min(SEEDS_A_TASK, first_seed + seeds - s)) for s in range(first_seed, first_seed + seeds, SEEDS_A_TASK)
    ]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in pool.map(run_seeds, *zip(*tasks, strict=True)):
            outcomes += done
    bad = [outcome for outcome in outcomes if outcome.violation is not None]
    for outcome in bad[:3]:
        print("\n".join(outcome.story[-60:]), file=sys.stderr)
    for outcome in bad:
        print(f"seed {outcome.seed}: {outcome.violation}", file=sys.stderr)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{len(outcomes)} runs, {sum(o.steps for o in outcomes)} steps, {sum(o.acked for o in outcomes)} records "
        f"acknowledged, {sum(o.leader_epochs for o in outcomes)} leader changes, {len(bad)} violations, "
        f"{minutes:.1f} minutes with {workers} workers"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
