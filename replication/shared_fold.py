"""The fold of one log, shared by the parts of a process that each read that log. Pure.

Each part reads the log's commits for itself, as in a process of its own: its errors, its fencing and what it has to
sync are its own. What the records make of the state it receives from the part that folded them first. A key names the
content of the log that was folded, so that a part receives nothing that it has not read, and nothing that was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from stratalog.replication import cadence

S = TypeVar("S")
R = TypeVar("R")

STEPS_MAX = 64
RECORDS_MAX = 10_000
"""Limits of what is kept for parts that are behind: those that are further behind fold for themselves."""


@dataclass(frozen=True, slots=True)
class FoldedStep(Generic[S, R]):
    """`records` were folded onto the state at key `before`, which made `state` at key `after`.

    before  None: the fold began again, or its part was interrupted, and `records` are not all that led there
    after   None: of a log whose content has no key
    """

    before: Hashable | None
    after: Hashable | None
    state: S
    records: tuple[R, ...] = ()


class SharedFold(Generic[S, R]):
    """The newest steps of a log's fold. A state must be a value: all parts hold the same one."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        """`steps_max` 0: nothing is kept, for a part that shares with nobody."""
        self._steps_max = steps_max
        self._steps: dict[Hashable, FoldedStep[S, R]] = {}
        self._record_count = 0
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def turn(self, wait_s: float = cadence.FOLD_WAIT.s) -> Iterator[None]:
        """A block in which this part folds, while the others wait for what it adds. They wait for a bounded time, and
        then fold, too: that is double work, but no error."""
        is_held = self._turn.acquire(timeout=wait_s)
        try:
            yield
        finally:
            if is_held:
                self._turn.release()

    def state(self, key: Hashable | None) -> S | None:
        """The state at this key, if it is known."""
        with self._lock:
            step = self._steps.get(key)
            return None if step is None else step.state

    def since(self, before: Hashable | None, after: Hashable | None) -> tuple[S, list[R]] | None:
        """The state at `after` and the records between, oldest first; None when they are not all known."""
        found: list[FoldedStep[S, R]] = []
        with self._lock:
            key = after
            while key != before or not found:
                step = self._steps.get(key)
                if step is None or step.before is None:
                    return None
                found.append(step)
                key = step.before
        return found[0].state, [record for step in reversed(found) for record in step.records]

    def add(self, step: FoldedStep[S, R]) -> S:
        """Share a step. The state that all parts hold at that key: the one that was added first."""
        if step.after is None or not self._steps_max:
            return step.state
        with self._lock:
            known = self._steps.pop(step.after, None)
            if known is not None:
                self._record_count -= len(known.records)
                step = known if step.before is None else replace(step, state=known.state)
            self._steps[step.after] = step
            self._record_count += len(step.records)
            while len(self._steps) > 1 and (len(self._steps) > self._steps_max or self._record_count > RECORDS_MAX):
                self._record_count -= len(self._steps.pop(next(iter(self._steps))).records)
            return step.state
