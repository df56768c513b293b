"""What a deliberate bug is: a rule that is switched off, and the mix of faults under which its history is likely.

Used as context managers; the product has no switches for its rules. A mix is random and seeded like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.cluster import Setting
from tests.simulation.faults import Faults, Focus

Patches = Callable[[], AbstractContextManager[object]]


def drawn(rng: Random) -> Faults:
    return Faults.drawn(rng)


NO_FOCUS = Focus()


def mix(focus: Focus = NO_FOCUS, park_ms_max: int = 2_000, **weights: int) -> Callable[[Random], Faults]:
    """Of a seed: a mix of these troubles (`cut_broker=4`), one kind of access parked, and little else."""

    def mixed(rng: Random) -> Faults:
        return Faults(
            switch=rng.choice([0.1, 0.2, 0.4]),
            park=rng.choice([0.0, 0.002]),
            park_ms_max=park_ms_max,
            focus=replace(focus, park=focus.park * rng.choice([0.3, 1.0])),
            lost_request=rng.choice([0.0, 0.002]),
            lost_answer=rng.choice([0.0, 0.002]),
            doubled=rng.choice([0.0, 0.02]),
            trouble_ms=rng.choice([200, 400]),
            weights={name.replace("_", " "): weight for name, weight in weights.items()},
        )

    return mixed


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule switched off.

    invariants  one of these breaks
    faults      the mix of a seed
    """

    patches: Patches
    invariants: tuple[str, ...]
    faults: Callable[[Random], Faults] = drawn
    setting: Setting = field(default_factory=Setting)
    duration_ms: int = 4_000


COMPLETE = ("LeaderCompleteness", "AckedRecordsNotLost", "LogMatching", "ConsistentRead")
TWO_NEEDED = Setting(configs=(("min.insync.replicas", "2"),))
