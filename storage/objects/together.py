"""Calls that wait for a store, made by the threads of a pool at the same time. I/O: through the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
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


def in_groups(items: Sequence[T], count_max: int) -> Iterator[list[T]]:
    """The items in groups of so many.

    >>> list(in_groups("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    left = iter(items)
    while group := list(islice(left, count_max)):
        yield group
