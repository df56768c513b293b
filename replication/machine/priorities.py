"""Which threads of Spark's JVM give way to brokers and fetch sessions: those for whose work nobody waits.

I/O: /proc and setpriority(2), on Linux. Elsewhere, and of a JVM that is not on this machine, it finds no thread.

Between two fetch sessions Spark plans a micro-batch. On two cores this was a burst of 250 ms in which every request
waited, two thirds of it the JVM's compilers, which go on for minutes after a start; now and then its collector marks,
50 ms and more. Nobody waits for any of them: until compiled, code runs as it did before, what is marked is collected
later, and the other session is at work meanwhile. A nice value is a share of the CPU, so that all still come to their
end beside a machine that is busy with other things.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

IN_BACKGROUND = ("C1 CompilerThre", "C2 CompilerThre", "G1 Conc#0", "G1 Conc#1", "G1 Main Marker")
STREAM_EXECUTION = ("stream executio",)
"""Names as the kernel keeps them: 15 characters."""
GIVING_WAY = 10
"""A nice value: a tenth of the CPU when everybody wants it."""


def threads_named(pid: int, names: Iterable[str]) -> set[int]:
    """The thread ids of a process whose names the kernel knows as one of these."""
    wanted, found = frozenset(names), set()
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # it has ended
            if (thread / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n") in wanted:
                found.add(int(thread.name))
    return found


def let_give_way(thread_ids: Iterable[int]) -> None:
    """Threads that they start give way, too. What has ended, or is another user's, is passed over."""
    for thread_id in thread_ids:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread_id, GIVING_WAY)
