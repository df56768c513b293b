"""Threads that end with the process, whatever they wait for. I/O: starts threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class DaemonThreads:
    """`replication.stores.Threads` of this process. A thread that waits for a dead disk does not keep it alive."""

    def start(self, name: str, run: Callable[[], None]) -> None:
        """Run `run` in a thread of its own."""
        threading.Thread(target=run, name=name, daemon=True).start()


def is_done_within(limit_s: float, name: str, part: Callable[[], object]) -> bool:
    """Run `part` in a thread of its own and wait for it: False when it takes longer than `limit_s`, and goes on.

    Raises what `part` raises.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            part()
        except BaseException as reason:  # noqa: BLE001 - raised to the caller
            failures.append(reason)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failures:
        raise failures[0]
    return not thread.is_alive()
