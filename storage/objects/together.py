"""Calls that wait for a store, made by the threads of a pool at the same time. I/O: through the pool.

A hedged call is made a second time when it takes longer than most of them do, and the first answer counts: the slowest
requests of an object store are slow by chance (Dean and Barroso, "The Tail at Scale", CACM 2013).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def run_together(pool: Executor, calls: Sequence[Callable[[], T]]) -> list[T]:
    """What the calls return, in their order, once all have returned. Raises what the first that failed raises.

    While the process ends no thread is begun, but those that run go on for a moment: they make the calls themselves.
    """
    made: list[Future[T]] = []
    with suppress(RuntimeError):
        made.extend(pool.submit(call) for call in calls)
    wait(made)
    return [each.result() for each in made] + [call() for call in calls[len(made) :]]


@dataclass(frozen=True, slots=True)
class Hedging:
    """When a call is made a second time.

    share_max    of all calls that are made again, at most; 0: none
    quantile     of the newest calls' times: a call that takes longer is made again
    samples      so many of the newest calls count,
    samples_min  and before so many none is made again
    """

    share_max: float = 0.03
    quantile: float = 0.95
    samples: int = 256
    samples_min: int = 32


NO_HEDGING = Hedging(share_max=0.0)


class Hedges:
    """The calls of one kind to one store, by any thread: how long they take, and how many may still be made again.

    >>> hedges = Hedges(Hedging(share_max=0.5, samples_min=4))
    >>> for took_ms in (20, 30, 25, 90):
    ...     hedges.took(took_ms)
    >>> hedges.pause_ms(), hedges.may_repeat(), hedges.may_repeat(), hedges.may_repeat(), hedges.repeated
    (90, True, True, False, 2)
    """

    def __init__(self, hedging: Hedging, on_repeated: Callable[[], None] = lambda: None) -> None:
        """`on_repeated` is called for each call that is made again, by one thread at a time."""
        self._hedging = hedging
        self._on_repeated = on_repeated
        self._times_ms: deque[float] = deque(maxlen=hedging.samples)
        self._allowed = 0.0
        self._lock = threading.Lock()
        self.repeated = 0

    @property
    def is_off(self) -> bool:
        """Whether no call is ever made again."""
        return self._hedging.share_max <= 0

    def took(self, duration_ms: float) -> None:
        """A call has ended after this time."""
        allowed_max = max(1.0, self._hedging.share_max * self._hedging.samples)
        with self._lock:
            self._times_ms.append(duration_ms)
            self._allowed = min(allowed_max, self._allowed + self._hedging.share_max)

    def pause_ms(self) -> float | None:
        """The time after which a call is made again; None: not yet known."""
        with self._lock:
            times_ms = sorted(self._times_ms)
        if len(times_ms) < self._hedging.samples_min:
            return None
        return times_ms[min(len(times_ms) - 1, int(self._hedging.quantile * len(times_ms)))]

    def may_repeat(self) -> bool:
        """Whether one more call may be made again; it counts as such."""
        with self._lock:
            if self._allowed < 1.0:
                return False
            self._allowed -= 1.0
            self.repeated += 1
            self._on_repeated()
            return True


def hedged(call: Callable[[], T], pool: Executor, hedges: Hedges, now_ms: Callable[[], float]) -> T:
    """What a call returns that may be made twice, even after this has returned. Raises what it raises, if the other one
    fails, too."""
    begun_ms, pause_ms = now_ms(), hedges.pause_ms()
    if pause_ms is None:
        answer = call()
    else:
        first = pool.submit(call)
        if wait([first], pause_ms / 1_000).done or not hedges.may_repeat():
            answer = first.result()
        else:
            answer = _first_answer(first, pool.submit(call))
    hedges.took(now_ms() - begun_ms)
    return answer


def _first_answer(first: Future[T], second: Future[T]) -> T:
    wait([first, second], return_when=FIRST_COMPLETED)
    quick, slow = (first, second) if first.done() else (second, first)
    return quick.result() if quick.exception() is None else slow.result()


def in_groups(items: Sequence[T], count_max: int) -> Iterator[list[T]]:
    """The items in groups of so many.

    >>> list(in_groups("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    left = iter(items)
    while group := list(islice(left, count_max)):
        yield group
