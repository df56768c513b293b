"""Runs the real code of a whole cluster in one thread, under one seed and a virtual clock.

Every actor is a greenlet. It yields wherever it accesses storage or sleeps; the scheduler then decides at random which
actor continues, and may park an actor in the middle of any storage call for seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any, ParamSpec, TypeVar

import greenlet

from stratalog.storage.errors import StoreFullError, StoreUnavailableError, StratalogError
from stratalog.storage.objects.distance import FAR
from tests.simulation.faults import Faults

P = ParamSpec("P")
T = TypeVar("T")

WALL_MS = 1_700_000_000_000
SLOW_MS_MAX = 150
WAIT_MS_MAX = 100
"""Time after which a waiting actor looks at the turn again, in case its holder was killed."""
LATE_MS_MAX = 2_000
"""Longest time between a client's giving a request up, or its answer, and the request's arrival: two sessions."""
_WRITES = ("create", "put", "put:piece")
"""Operations that fail while the disk is full."""


@dataclass(slots=True, eq=False)
class Actor:
    name: str
    host: str
    run: Callable[[], None]
    wake_ms: int = 0
    serial: int = 0
    glet: greenlet.greenlet | None = None
    failure: BaseException | None = None
    is_over: bool = False
    is_parked: bool = False
    turn: SimTurn | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """A storage root that answers nothing until `until_ms`. `deadline_ms`: how long a call waits before it fails, as a
    request to an object store; None: it waits for the end and is applied then, as a system call on a mount."""

    until_ms: int
    deadline_ms: int | None


class LostRequestError(StoreUnavailableError):
    """A request was not applied when its client gave it up; it may arrive later: `Scheduler.give_up`."""


class Killed(greenlet.GreenletExit):
    """Thrown into an actor whose host crashed."""


@dataclass(slots=True)
class Scheduler:
    """Actors, virtual time, and the one random generator of a run.

    A step is the work of one actor between two points where it yields: a storage access, or a sleep. Actors that may
    run are in `_ready`, sleeping ones in the heap `_sleeping`, of whose entries an actor's last one counts.
    """

    seed: int
    faults: Faults = field(default_factory=Faults)
    now_ms: int = 1_000
    woke_ms: int = 0
    """When all machines last woke from a sleep. Invariants that bound a time count from here: nobody ran before."""
    steps: int = 0
    actors: dict[Actor, None] = field(default_factory=dict)
    paused_until_ms: dict[str, int] = field(default_factory=dict)
    cut_until_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    full_until_ms: dict[str, int] = field(default_factory=dict)
    slow_until_ms: dict[str, int] = field(default_factory=dict)
    hung: dict[str, Hang] = field(default_factory=dict)
    wall_offset_ms: dict[str, int] = field(default_factory=dict)
    answered_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a host's last write of a small object at a root was answered. The end of a data file's write, which may have
    been under way for long, does not show that the root answers what is asked of it now."""
    stops: Counter[str] = field(default_factory=Counter)
    """How often the machine of a root has lost power or its disk, and with it the requests that were on their way."""
    random: random.Random = field(init=False)
    current: Actor | None = None
    hub: greenlet.greenlet = field(default_factory=greenlet.getcurrent)
    _ready: list[Actor] = field(default_factory=list)
    _sleeping: list[tuple[int, int, Actor]] = field(default_factory=list)
    _serial: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def store_ms(self) -> int:
        """The wall clock of an object store, which nobody sets."""
        return WALL_MS + self.now_ms

    # -- for actors --------------------------------------------------------------------------------------

    def spawn(self, name: str, host: str, run: Callable[[], None], delay_ms: int = 0) -> Actor:
        actor = Actor(name, host, run, self.now_ms + delay_ms)
        actor.glet = greenlet.greenlet(lambda: self._body(actor), self.hub)
        self.actors[actor] = None
        self._put(actor)
        return actor

    def _body(self, actor: Actor) -> None:
        try:
            actor.run()
        except Killed:
            pass
        except BaseException as failure:  # noqa: BLE001 - reported by `step`
            actor.failure = failure

    def sleep(self, duration_ms: float) -> None:
        """Called by an actor: continue after `duration_ms` of virtual time."""
        actor = self.current
        if actor is None:
            return
        actor.wake_ms = self.now_ms + max(1, round(duration_ms))
        self.hub.switch()

    def wake(self, actor: Actor) -> None:
        """End an actor's sleep."""
        if actor.wake_ms > self.now_ms + 1 and not actor.is_over:
            actor.wake_ms = self.now_ms + 1
            self._put(actor)

    def happens(self, likelihood: float) -> bool:
        """Draw, while faults are on."""
        return likelihood > 0.0 and self.faults.is_on and self.random.random() < likelihood

    def access(self, root: str, operation: str, table: str, detail: str) -> None:
        """A storage access: perhaps another actor runs first, perhaps it lasts long, perhaps it fails."""
        actor = self.current
        if actor is None:
            return
        if self.faults.is_on:
            self._access_in_turn(actor, root, operation, table, detail)
        if operation == "put:done" and not table:
            self.answered_ms[actor.host, root] = self.now_ms

    def _access_in_turn(self, actor: Actor, root: str, operation: str, table: str, detail: str) -> None:
        turn = actor.turn
        if turn is None or root in turn.home:
            self._access(actor, root, operation, table, detail)
            return
        turn.__exit__()
        try:
            self._access(actor, root, operation, table, detail)
        finally:
            turn.__enter__()

    def _access(self, actor: Actor, root: str, operation: str, table: str, detail: str) -> None:
        faults = self.faults
        if self.hung:
            self._wait_for_answer(actor, root, operation)
        is_done = operation.endswith(":done")
        if is_done and operation != faults.focus.operation and not operation.startswith(("create", "put")):
            return  # to lose the answer of a read is to lose the request
        if self._is_hindered(actor, root, operation):
            raise StoreUnavailableError(f"simulated: {actor.name} cannot {operation} at {root}")
        draw = self.random.random()
        focus = faults.focus
        park = faults.park
        if operation == focus.operation and focus.matches(operation, actor.name, root, f"{table}/{detail}"):
            park = focus.park
        if draw < park:
            actor.wake_ms = self.now_ms + self.random.randrange(1, faults.park_ms_max)
            actor.is_parked = True
            self.hub.switch()
            actor.is_parked = False
        elif draw < park + faults.switch:
            self.hub.switch()
        elif not is_done and draw > 1 - (faults.failed_copy if operation == "put:piece" else faults.lost_request):
            raise LostRequestError(f"simulated: {operation} {root}/{table}/{detail} was lost")
        elif draw > 1 - faults.lost_answer and is_done:
            if faults.outage_ms:
                self.cut(actor.host, root, faults.outage_ms)
            raise StoreUnavailableError(f"simulated: the answer of {operation} {root}/{table}/{detail} was lost")

    def _wait_for_answer(self, actor: Actor, root: str, operation: str) -> None:
        """Block this actor, and no other, while the root answers nothing."""
        while (hang := self.hung.get(root)) is not None and hang.until_ms > self.now_ms and self.faults.is_on:
            is_failing = hang.deadline_ms is not None
            wait_ms = hang.until_ms - self.now_ms
            actor.wake_ms = self.now_ms + (wait_ms if hang.deadline_ms is None else min(wait_ms, hang.deadline_ms))
            actor.is_parked = True
            self.hub.switch()
            actor.is_parked = False
            if is_failing:
                raise LostRequestError(f"simulated: {root} did not answer {operation} of {actor.name}")

    def _is_hindered(self, actor: Actor, root: str, operation: str) -> bool:
        if self.cut_until_ms and self.is_cut(actor.host, root):
            return True
        if self.full_until_ms and operation in _WRITES and self.full_until_ms.get(root, 0) > self.now_ms:
            raise StoreFullError(f"simulated: the disk at {root} is full")
        if self.slow_until_ms and self.slow_until_ms.get(root, 0) > self.now_ms:
            actor.wake_ms = self.now_ms + self.random.randrange(1, SLOW_MS_MAX)
            self.hub.switch()
        return False

    def give_up(self, root: str, apply: Callable[[], None]) -> None:
        """A client gives up a write that was not applied; perhaps it arrives later, whatever has happened meanwhile."""
        if self.happens(self.faults.late):
            self.arrive_later(root, apply)

    def arrive_later(self, root: str, apply: Callable[[], None]) -> None:
        """A request is under way to a root without anybody who waits for it."""
        stops = self.stops[root]

        def arrive() -> None:
            self.sleep(self.random.randrange(1, LATE_MS_MAX))
            hang = self.hung.get(root)
            if self.stops[root] == stops and self.faults.is_on and (hang is None or hang.until_ms <= self.now_ms):
                apply()

        self.spawn("late", "network", arrive)

    # -- for the run -------------------------------------------------------------------------------------

    def kill(self, actors: list[Actor]) -> None:
        """Crash: the actors never run again."""
        for actor in actors:
            self._end(actor)
            if actor.glet is not None and not actor.glet.dead:
                if actor.glet:
                    previous, self.current = self.current, None
                    actor.glet.throw(Killed)
                    self.current = previous
                actor.glet = None

    def _end(self, actor: Actor) -> None:
        actor.is_over = True
        self.actors.pop(actor, None)

    def pause(self, host: str, duration_ms: int) -> None:
        """The host is paused (SIGSTOP): its actors do not run, its clock does."""
        self.paused_until_ms[host] = self.now_ms + duration_ms

    def resume(self, host: str) -> None:
        """The end of a pause (SIGCONT)."""
        self.paused_until_ms.pop(host, None)
        for actor in self.actors:
            if actor.host == host and actor not in self._ready and actor is not self.current:
                self._put(actor)

    def end_faults(self) -> None:
        """The end of all faults: paused and parked actors continue."""
        self.faults.is_on = False
        for hindrance in (self.cut_until_ms, self.full_until_ms, self.slow_until_ms, self.hung):
            hindrance.clear()
        for actor in self.actors:
            if actor.is_parked:
                actor.wake_ms = self.now_ms
        for host in list(self.paused_until_ms):
            self.resume(host)
        for actor in self.actors:
            if actor.is_parked and actor not in self._ready:
                self._put(actor)

    def cut(self, host: str, root: str, duration_ms: int) -> None:
        """The host cannot reach a storage root for a while."""
        self.cut_until_ms[host, root] = self.now_ms + duration_ms

    def is_cut(self, host: str, root: str) -> bool:
        """Whether the host cannot reach a storage root now."""
        return self.cut_until_ms.get((host, root), 0) > self.now_ms

    def hang(self, root: str, duration_ms: int, deadline_ms: int | None) -> None:
        """A storage root answers nothing to anybody for a while; see `Hang`."""
        self.hung[root] = Hang(self.now_ms + duration_ms, deadline_ms)

    def step(self) -> bool:
        """Run one actor until it yields; False when none is left."""
        actor = self._next()
        if actor is None:
            return False
        self.current = actor
        assert actor.glet is not None
        actor.glet.switch()
        self.current = None
        self.steps += 1
        if actor.glet is None or actor.glet.dead:
            self._end(actor)
            if actor.failure is not None:
                raise actor.failure
        elif not actor.is_over:
            self._put(actor)
        return True

    def _put(self, actor: Actor, paused_ms: int = 0) -> None:
        at_ms = max(actor.wake_ms, paused_ms)
        if at_ms <= self.now_ms:
            actor.serial = 0
            self._ready.append(actor)
            return
        self._serial = actor.serial = self._serial + 1
        heappush(self._sleeping, (at_ms, self._serial, actor))

    def _next(self) -> Actor | None:
        """A ready actor; time advances when there is none."""
        ready = self._ready
        while True:
            while ready:
                index = int(self.random.random() * len(ready))
                actor = ready[index]
                ready[index] = ready[-1]
                ready.pop()
                if actor.is_over:
                    continue
                paused_ms = self.paused_until_ms.get(actor.host, 0) if self.paused_until_ms else 0
                if paused_ms > self.now_ms:
                    self._put(actor, paused_ms)
                    continue
                return actor
            if not self._wake_next():
                return None

    def _wake_next(self) -> bool:
        """Time advances to the next wake time; False when no actor sleeps."""
        sleeping = self._sleeping
        while sleeping:
            wake_ms, serial, actor = heappop(sleeping)
            if actor.is_over or actor.serial != serial:
                continue
            self.now_ms = max(self.now_ms, wake_ms)
            self._ready.append(actor)
            while sleeping and sleeping[0][0] <= self.now_ms:
                _, serial, actor = heappop(sleeping)
                if not actor.is_over and actor.serial == serial:
                    self._ready.append(actor)
            return True
        return False

    def run_until(self, end_ms: int, done: Callable[[], bool] = lambda: False, poll_ms: int = 0) -> None:
        """Run until virtual time `end_ms` or until `done`, which is called every `poll_ms`."""
        due_ms = self.now_ms
        while self.now_ms < end_ms:
            if self.now_ms >= due_ms:
                if done():
                    return
                due_ms = self.now_ms + poll_ms
            if not self.step():
                return


class SimTurn:
    """`replication.threads.turn_lock.TurnLock` on actors: `Scheduler.access` gives it up for roots that are not
    `home`."""

    def __init__(self, scheduler: Scheduler, home: Collection[str]) -> None:
        self.home = frozenset(home)
        self._scheduler = scheduler
        self._holder: Actor | None = None
        self._waiting: list[Actor] = []

    def __enter__(self) -> None:
        scheduler = self._scheduler
        actor = scheduler.current
        if actor is None:  # it is killed
            return
        while self._holder is not None and not self._holder.is_over:
            self._waiting.append(actor)
            scheduler.sleep(WAIT_MS_MAX)
            if actor in self._waiting:
                self._waiting.remove(actor)
        self._holder, actor.turn = actor, self

    def __exit__(self, *_: object) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.turn = None
        for waiting in self._waiting[:1]:
            self._scheduler.wake(waiting)

    def away(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `TurnLock.away`."""
        if self._holder is None or self._holder is not self._scheduler.current:
            return call(*args, **kwargs)
        self.__exit__()
        try:
            return call(*args, **kwargs)
        finally:
            self.__enter__()


def _settle(future: Future[Any], work: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Do the work; its outcome is the future's."""
    try:
        future.set_result(work(*args, **kwargs))
    except Exception as failure:  # noqa: BLE001 - its owner raises it
        future.set_exception(failure)


class SimExecutor(Executor):
    """The executor of one process: each piece of work begins after some time, on its host."""

    def __init__(self, scheduler: Scheduler, name: str, host: str, duration_ms_max: int) -> None:
        self._scheduler = scheduler
        self._name = name
        self._host = host
        self._duration_ms_max = duration_ms_max

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            _settle(future, work, *args, **kwargs)

        duration_ms = self._scheduler.random.randrange(self._duration_ms_max // 2, self._duration_ms_max)
        self._scheduler.spawn(self._name, self._host, run, duration_ms)
        return future


class SimPool(Executor):
    """The threads of one process: each piece of work begins at once, and dies with the process's `actors`."""

    def __init__(self, scheduler: Scheduler, name: str, host: str, actors: list[Actor]) -> None:
        self._scheduler = scheduler
        self._name = name
        self._host = host
        self._actors = actors

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            _settle(future, work, *args, **kwargs)
            if actor in self._actors:
                self._actors.remove(actor)

        actor = self._scheduler.spawn(self._name, self._host, run)
        self._actors.append(actor)
        return future


def _at_once(call: Callable[[], T]) -> T:
    return call()


class SimSideBySide:
    """`replication.threads.side_by_side.SideBySide`: each call is an actor of the process `host`, of which any may run
    at each access of storage, and dies with its `actors`."""

    def __init__(
        self,
        scheduler: Scheduler,
        calls_max: int,
        host: str,
        actors: list[Actor],
        away: Callable[[Callable[[], Any]], Any] = _at_once,
    ) -> None:
        self.distance = replace(FAR, calls_max=calls_max)
        self._scheduler = scheduler
        self._host = host
        self._actors = actors
        self._away = away

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """As `SideBySide.run`."""
        if not calls:
            return []
        made: list[T] = self._away(partial(self._run, calls))
        return made

    def _run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        asking = self._scheduler.current
        if len(calls) == 1 or asking is None:
            return [call() for call in calls]
        made: dict[int, T] = {}
        failed: dict[int, StratalogError] = {}

        def make(number: int) -> None:
            try:
                made[number] = calls[number]()
            except StratalogError as reason:
                failed[number] = reason
            self._scheduler.wake(asking)

        making = [
            self._scheduler.spawn(f"{asking.name}+{number}", self._host, partial(make, number))
            for number in range(len(calls))
        ]
        self._actors += making
        while any(not each.is_over for each in making):
            self._scheduler.sleep(WAIT_MS_MAX)
        for each in making:
            if each in self._actors:
                self._actors.remove(each)
        for number in sorted(failed):
            raise failed[number]
        return [made[number] for number in range(len(calls))]


class SimEvent:
    """`storage.clock.Event` on virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiter: Actor | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None:
            self._scheduler.wake(self._waiter)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._waiter = self._scheduler.current
        try:
            self._scheduler.sleep(1 if self._is_set else 1_000 * (timeout or 0))
        finally:
            self._waiter = None
        return self._is_set


class SimClock:
    """`storage.clock.Clock` on virtual time; each host's wall clock has its own offset."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wall_ms(self) -> int:
        scheduler = self._scheduler
        offset_ms = 0
        if scheduler.wall_offset_ms and scheduler.current is not None:
            offset_ms = scheduler.wall_offset_ms.get(scheduler.current.host, 0)
        return WALL_MS + scheduler.now_ms + offset_ms

    def monotonic_ms(self) -> int:
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._scheduler.sleep(duration_ms)

    def event(self) -> SimEvent:
        return SimEvent(self._scheduler)


class SimIds:
    """Identifiers from the run's seed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def new_id(self) -> str:
        return f"{self._scheduler.random.getrandbits(128):032x}"
