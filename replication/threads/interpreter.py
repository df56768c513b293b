"""How the threads of one process share Python's interpreter. I/O: settings of this process."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
COLLECT_AFTER = (700, 3, 1_000)
"""A collection of the youngest after so many new objects, of the middle ones after so many of those, of all after so
many of these (Python: 700, 10, 10). What a broker makes for a record is freed as it goes; what stays are folds, and to
look through them for cycles finds next to none: 1.5 to 3 ms for 1,000 objects, in which nobody else has the
interpreter. With 500 records a second over 500 partitions 10,000 and 10 meant stops of 44 to 98 ms, 2,000 and 5 some
of 40 to 46. Often and little costs a fifth more of the CPU that goes into it: 1.3 instead of 1.1 % of one."""


def share_interpreter() -> None:
    """For a process that hosts brokers or fetch sessions, beside whatever else runs in it.

    A thread that computes gives the interpreter up after the switch interval only, and an append or a copy asks for it
    after each call of the system: with a busy thread beside it, as upkeep is, it would wait Python's 5 ms each time. A
    full garbage collection holds it the longer the more is loaded; frozen modules are not gone through any more.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
    youngest, middle, oldest = gc.get_threshold()
    if youngest:  # 0: the user has turned it off
        after_young, after_middle, after_all = COLLECT_AFTER
        gc.set_threshold(max(youngest, after_young), min(middle, after_middle), max(oldest, after_all))
    gc.collect()
    gc.freeze()


def keep_what_is_folded() -> None:
    """At the end of a fetch session: what it leaves for the next one is not gone through for cycles.

    `pyspark.daemon` collects all garbage after every task, 20 to 50 ms for the folds and modules of a session, in which
    there are next to no cycles (9 objects a session). What goes without one is freed as ever.
    """
    gc.freeze()
