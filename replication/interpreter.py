"""How the threads of one process share Python's interpreter. I/O: settings of this process."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
COLLECT_AFTER = 10_000
"""A collection of the youngest after so many new objects (Python: 700). What a broker makes for a record is freed as it
goes; what stays are folds, and to look through them for cycles again and again finds none."""


def share_interpreter() -> None:
    """For a process that hosts brokers or fetch sessions, beside whatever else runs in it.

    A thread that computes gives the interpreter up after the switch interval only, and an append or a copy asks for it
    after each call of the system: with a busy thread beside it, as upkeep is, it would wait Python's 5 ms each time. A
    full garbage collection holds it the longer the more is loaded; frozen modules are not gone through any more.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    youngest, *older = gc.get_threshold()
    if youngest:  # 0: the user has turned it off
        gc.set_threshold(max(youngest, COLLECT_AFTER), *older)
    gc.collect()
    gc.freeze()


def keep_what_is_folded() -> None:
    """At the end of a fetch session: what it leaves for the next one is not gone through for cycles.

    `pyspark.daemon` collects all garbage after every task, 20 to 50 ms for the folds and modules of a session, in which
    there are next to no cycles (9 objects a session). What goes without one is freed as ever.
    """
    gc.freeze()
