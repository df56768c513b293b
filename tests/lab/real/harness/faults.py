"""Faults of processes: they are killed or paused, and come back when the time of the fault is over.

I/O: signals to processes, lines on the standard output.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from math import inf

from tests.lab.real.harness.broker_processes import ServerProcess

KILL, PAUSE = "SIGKILL", "SIGSTOP"
TICK_S = 0.05


class Faults:
    """The faults of a run. `counts`: how many there were, by kind and role. One thread uses it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._ends_s: dict[ServerProcess, float] = {}

    def has_struck(self, process: ServerProcess) -> bool:
        """Whether a process is killed or paused by a fault that is not over."""
        return process in self._ends_s

    def strike(self, process: ServerProcess, kind: str, lasts_s: float = inf, role: str = "") -> None:
        """Kill or pause a process for so long; by default until all are repaired at once."""
        (process.kill if kind == KILL else process.pause)()
        self._ends_s[process] = time.monotonic() + lasts_s
        self.counts[f"{kind} {role}".strip()] += 1
        duration = "" if lasts_s == inf else f" for {lasts_s:.1f} s"
        show(f"{kind} {process.name}{f' ({role})' * bool(role)}{duration}")

    def repair(self, *, at_once: bool = False) -> None:
        """Restore the processes whose fault is over; with `at_once` all."""
        now_s = time.monotonic()
        for process in [each for each, end_s in self._ends_s.items() if at_once or end_s <= now_s]:
            del self._ends_s[process]
            process.restore()

    def run(self, every_s: float, inject: Callable[[], None], is_over: Callable[[], bool], first_s: float = 0) -> None:
        """Inject a fault after `first_s`, and then one each `every_s`, until it is over. Open faults stay."""
        due_s = time.monotonic() + first_s
        while not is_over():
            self.repair()
            if time.monotonic() >= due_s:
                due_s += every_s
                inject()
            time.sleep(TICK_S)


def after(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed since this call."""
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


def show(line: str) -> None:
    print(line, flush=True)
