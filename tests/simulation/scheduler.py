"""Runs the real code of a whole cluster in one thread, under one seed and a virtual clock.

Every actor is a greenlet. It gives control away wherever it touches storage or sleeps; the scheduler then
decides at random who goes on, and may park an actor in the middle of any storage call for seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import greenlet

from storage.errors import StoreUnavailableError


@dataclass(slots=True)
class Faults:
    """How likely each fault is at one storage access, and how long a parked call stays parked.

    `focus` is the one kind of access that is parked with `focus_park`. `weights` are those of the larger
    troubles, in the order of `tests.simulation.run.TROUBLES`.
    """

    switch: float = 0.2
    park: float = 0.002
    park_ms_max: int = 3_000
    focus: str = ""
    focus_park: float = 0.0
    lost_request: float = 0.001
    lost_answer: float = 0.001
    weights: tuple[int, ...] = (2, 2, 1, 1, 2, 1)
    is_on: bool = True

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        """Every run has a mix of its own: rare histories need many of one fault and none of another."""
        return cls(
            park=rng.choice([0.0, 0.0005, 0.002, 0.005]),
            park_ms_max=rng.choice([500, 2_000, 4_000, 6_000]),
            focus=rng.choice(["", "create", "create:done", "put", "put:done", "get:done"]),
            focus_park=rng.choice([0.01, 0.03, 0.1]),
            lost_request=rng.choice([0.0, 0.001, 0.003]),
            lost_answer=rng.choice([0.0, 0.001, 0.003]),
            weights=tuple(rng.choice([0, 1, 3]) for _ in range(6)),
        )


@dataclass(slots=True)
class Actor:
    name: str
    host: str
    run: Callable[[], None]
    wake_ms: int = 0
    glet: greenlet.greenlet | None = None
    failure: BaseException | None = None


class Killed(greenlet.GreenletExit):
    """Thrown into an actor whose host crashed."""


@dataclass(slots=True)
class Scheduler:
    """Actors, virtual time, and the one random generator of a run."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    now_ms: int = 1_000
    steps: int = 0
    actors: list[Actor] = field(default_factory=list)
    paused_until_ms: dict[str, int] = field(default_factory=dict)
    cut_until_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    random: random.Random = field(init=False)
    current: Actor | None = None
    on_step: Callable[[], None] = lambda: None
    hub: greenlet.greenlet = field(default_factory=greenlet.getcurrent)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    # -- for actors --------------------------------------------------------------------------------------

    def spawn(self, name: str, host: str, run: Callable[[], None], delay_ms: int = 0) -> Actor:
        actor = Actor(name, host, run, self.now_ms + delay_ms)
        actor.glet = greenlet.greenlet(lambda: self._body(actor), self.hub)
        self.actors.append(actor)
        return actor

    def _body(self, actor: Actor) -> None:
        try:
            actor.run()
        except Killed:
            pass
        except BaseException as failure:  # noqa: BLE001 - reported by `step`
            actor.failure = failure

    def sleep(self, duration_ms: float) -> None:
        """Called by an actor: go on after `duration_ms` of virtual time."""
        actor = self.current
        if actor is None:
            return
        actor.wake_ms = self.now_ms + max(1, round(duration_ms))
        self._give_way()

    def access(self, operation: str, root: str, detail: str) -> None:
        """A storage access: perhaps somebody else goes first, perhaps it takes long, perhaps it fails."""
        actor = self.current
        if actor is None or not self.faults.is_on:
            return
        if self.cut_until_ms and self.cut_until_ms.get((actor.host, root), 0) > self.now_ms:
            raise StoreUnavailableError(f"simulated: {actor.host} cannot reach {root}")
        draw = self.random.random()
        faults = self.faults
        if draw < (faults.focus_park if operation == faults.focus else faults.park):
            actor.wake_ms = self.now_ms + self.random.randrange(1, faults.park_ms_max)
            self._give_way()
        elif draw < faults.switch:
            self._give_way()
        elif draw > 1 - faults.lost_request and not operation.endswith(":done"):
            raise StoreUnavailableError(f"simulated: {operation} {root}/{detail} was lost")
        elif draw > 1 - faults.lost_answer and operation.endswith(":done"):
            raise StoreUnavailableError(f"simulated: the answer of {operation} {root}/{detail} was lost")

    def _give_way(self) -> None:
        self.hub.switch()

    # -- for the run -------------------------------------------------------------------------------------

    def kill(self, actors: list[Actor]) -> None:
        """Crash: the actors never run again."""
        for actor in actors:
            if actor in self.actors:
                self.actors.remove(actor)
            if actor.glet is not None and not actor.glet.dead:
                if actor.glet:
                    previous, self.current = self.current, None
                    actor.glet.throw(Killed)
                    self.current = previous
                actor.glet = None

    def pause(self, host: str, duration_ms: int) -> None:
        """The host stands still (SIGSTOP): its actors do not run, its clock goes on."""
        self.paused_until_ms[host] = self.now_ms + duration_ms

    def cut(self, host: str, root: str, duration_ms: int) -> None:
        """The host cannot reach a storage root for a while."""
        self.cut_until_ms[host, root] = self.now_ms + duration_ms

    def step(self) -> bool:
        """Let one actor run until it gives way; False when nobody is left."""
        ready = [a for a in self.actors if self._ready_ms(a) <= self.now_ms]
        if not ready:
            if not self.actors:
                return False
            self.now_ms = min(self._ready_ms(a) for a in self.actors)
            ready = [a for a in self.actors if self._ready_ms(a) <= self.now_ms]
        actor = self.random.choice(ready)
        self.current = actor
        assert actor.glet is not None
        actor.glet.switch()
        self.current = None
        self.steps += 1
        if actor.glet is None or actor.glet.dead:
            if actor in self.actors:
                self.actors.remove(actor)
            if actor.failure is not None:
                raise actor.failure
        self.on_step()
        return True

    def _ready_ms(self, actor: Actor) -> int:
        return max(actor.wake_ms, self.paused_until_ms.get(actor.host, 0))

    def run_until(self, end_ms: int, done: Callable[[], bool] = lambda: False) -> None:
        """Run until virtual time `end_ms` or until `done`."""
        while self.now_ms < end_ms and not done():
            if not self.step():
                return


class SimClock:
    """`storage.clock.Clock` on virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self._scheduler.now_ms

    def monotonic_ms(self) -> int:
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._scheduler.sleep(duration_ms)


class SimIds:
    """Identifiers from the run's seed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def new_id(self) -> str:
        return f"{self._scheduler.random.getrandbits(128):032x}"
