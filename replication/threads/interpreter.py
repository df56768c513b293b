"""How the threads of one process share Python's interpreter. I/O: settings of this process."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Final

SWITCH_INTERVAL_S = 0.0005
LARGE_SWITCH_INTERVAL_S = 0.0001
"""Beside large work: the threads of others compute little, and ask for the interpreter after each system call."""
COLLECT_AFTER = (700, 3, 1_000)
"""Thresholds of the garbage collector: new objects for a collection of the youngest generation, of these for one of the
middle generation, of those for one of the oldest (Python: 700, 10, 10).

What a broker makes for a record is freed as it goes. What stays are folds, in which a collection finds next to no
cycles while it holds the interpreter: so small collections are frequent, and those of all objects rare.
"""


def share_interpreter() -> None:
    """For a process that hosts brokers or fetch sessions, beside whatever else runs in it.

    A thread that computes releases the interpreter after the switch interval only, and an append or a copy asks for it
    after each system call: beside a busy thread, as upkeep is, it would wait Python's 5 ms each time. Frozen modules
    are left out of garbage collections.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    youngest, middle, oldest = gc.get_threshold()
    if youngest:  # 0: the user has turned it off
        after_young, after_middle, after_all = COLLECT_AFTER
        gc.set_threshold(max(youngest, after_young), min(middle, after_middle), max(oldest, after_all))
    gc.collect()
    gc.freeze()


NEVER: Final = 1 << 30


class LargeWork:
    """Python begins no garbage collection of all objects by itself as long as one of these lives, and threads release
    the interpreter sooner.

    A request that names 100,000 things is a million objects while it is under way. To look through them for circles
    takes a second or two, in which no thread runs, and finds none: what a request made is freed as its work goes.
    """

    _lock = threading.RLock()  # a collection of younger objects may end one of these within the block of another
    _count = 0
    _threshold = 0
    _switch_interval_s = 0.0

    def __init__(self) -> None:
        with LargeWork._lock:
            LargeWork._count += 1
            if LargeWork._count == 1:
                youngest, middle, LargeWork._threshold = gc.get_threshold()
                gc.set_threshold(youngest, middle, NEVER)
                LargeWork._switch_interval_s = sys.getswitchinterval()
                sys.setswitchinterval(min(LargeWork._switch_interval_s, LARGE_SWITCH_INTERVAL_S))

    @classmethod
    def is_under_way(cls) -> bool:
        """Whether one lives."""
        return cls._count > 0

    def __del__(self) -> None:
        with LargeWork._lock:
            LargeWork._count -= 1
            if LargeWork._count == 0:
                youngest, middle, _never = gc.get_threshold()
                gc.set_threshold(youngest, middle, LargeWork._threshold)
                sys.setswitchinterval(LargeWork._switch_interval_s)


def freeze_folds() -> None:
    """At the end of a fetch session: leave what it folded for the next one out of garbage collections.

    `pyspark.daemon` collects all garbage after every task, and a session's folds and modules have next to no cycles.
    What is frozen is freed as ever once nothing refers to it.
    """
    gc.freeze()
