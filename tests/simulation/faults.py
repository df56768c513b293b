"""The faults of a run, and how often they occur: drawn from the seed, or aimed at a certain history."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

POWER_CUT_OF_ALL = "power cut of all"
"""A trouble of few runs: after it most promises are over, since it takes records from every member of an ISR."""

DAYS = "clock jumps by days"
TWO_CRASH = "two crash"
CUT_DOMAIN, DOMAIN_AWAY = "cut from domain", "domain away"
"""Of runs with a storage domain."""
TROUBLES = (
    "crash",
    "restart all",
    "pause broker",
    "pause session",
    "pause controller",
    "cut broker",
    "cut session",
    "second process",
    "power cut",
    "disk full",
    "slow store",
    "black hole",
    "clock jump",
    "machine sleeps",
    "damage",
    "shut down",
    "another disk",
    POWER_CUT_OF_ALL,
    "removed table",
    "metadata power cut",
    DAYS,
    TWO_CRASH,
    CUT_DOMAIN,
    DOMAIN_AWAY,
)
"""The larger troubles; `tests.simulation.troubles` has a function for each."""


@dataclass(frozen=True, slots=True)
class Focus:
    """Accesses of one kind, parked far more often than others.

    operation  `create`, `create:done`, `put`, `get` …
    actors     first letters of the actors' names (`f` fetch, `b` broker, `c` controller); empty: all
    place      a part of `root/path`; empty: everywhere
    """

    operation: str = ""
    park: float = 0.0
    actors: str = ""
    place: str = ""

    def matches(self, operation: str, actor: str, root: str, detail: str) -> bool:
        if operation != self.operation or (self.actors and actor[0] not in self.actors):
            return False
        return not self.place or self.place in f"{root}/{detail}"


@dataclass(slots=True)
class Faults:
    """How likely each fault is at one storage access, and how long a parked call stays parked.

    switch        another actor runs first
    lost_request  the call fails and was not applied; `lost_answer`: it was applied, but fails
    outage_ms     after a lost answer the store is out of reach for so long
    failed_copy   the copy of a file fails half way
    late          a lost write arrives up to two seconds after its client gave it up, and perhaps made another one
    doubled       a commit's request arrives twice: the answer is a lost race, or the second one arrives late
    stale         a progress object is read as it was before its last write
    slow_work_ms  the longest time of one piece of a follower's upkeep, in the executor of its process; 0: none has one
    trouble_ms    the mean pause between two larger troubles; `weights`: the probability of each of `TROUBLES`, by name
    """

    switch: float = 0.2
    park: float = 0.002
    park_ms_max: int = 3_000
    focus: Focus = Focus()
    lost_request: float = 0.001
    lost_answer: float = 0.001
    outage_ms: int = 0
    doubled: float = 0.0
    stale: float = 0.0
    trouble_ms: int = 600
    weights: Mapping[str, int] = field(default_factory=dict)
    failed_copy: float = 0.0
    slow_work_ms: int = 0
    late: float = 0.0
    is_on: bool = True

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        """Every run has a mix of its own: rare histories need many of one fault and none of another."""
        focus = Focus(
            rng.choice(["", "create", "create:done", "put", "put:done", "get:done"]), rng.choice([0.01, 0.03, 0.1])
        )
        drawn = cls(
            switch=rng.choice([0.1, 0.2, 0.4]),
            park=rng.choice([0.0, 0.0005, 0.002, 0.005]),
            park_ms_max=rng.choice([300, 1_000, 2_500]),
            focus=focus,
            lost_request=rng.choice([0.0, 0.001, 0.003]),
            lost_answer=rng.choice([0.0, 0.001, 0.003]),
            doubled=rng.choice([0.0, 0.01, 0.05]),
            stale=rng.choice([0.0, 0.01, 0.1]),
            trouble_ms=rng.choice([150, 300]),
            weights=dict(_weights(rng)),
            failed_copy=rng.choice([0.0, 0.01, 0.1]),
            slow_work_ms=rng.choice([0, 0, 300, 1_000]),
        )
        drawn.weights = {**drawn.weights, DAYS: int(rng.random() < 0.2), TWO_CRASH: int(rng.random() < 0.2)}
        if rng.random() < 0.4:
            drawn.late, drawn.lost_request = 0.8, rng.choice([0.005, 0.02])
        return drawn

    def aimed(self, rng: random.Random, **changes: object) -> Faults:
        """This mix, a little different in every run, with `changes`."""
        return replace(self, switch=rng.choice([0.1, 0.2, 0.4]), **changes)  # type: ignore[arg-type]


def _weights(rng: random.Random) -> Iterator[tuple[str, int]]:
    for name in TROUBLES[: TROUBLES.index(DAYS)]:
        yield name, rng.choice([0, 1, 3]) if name != POWER_CUT_OF_ALL else int(rng.random() < 0.1)
