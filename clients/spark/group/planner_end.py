"""How a planner's process ends: its stream's `stop` is called once, whichever way Spark takes.

I/O: signal handlers, a hook at the process's exit. Spark ends a planner by SIGTERM and hangs up at the same time, and
where its JVM dies it only hangs up. Either may come while the planner already stops because of the other.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable

from stratalog.clients.spark.worker import program
from stratalog.replication.fast_start.planners import PLANNER
from stratalog.storage.errors import IllegalStateError

LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The environment variable by which Spark tells a planner the local folders of its session, separated by commas."""


class PlannerEnd:
    """Calls `stop` once, at the latest when the process exits. `stop` does not raise, and is not interrupted."""

    def __init__(self, stop: Callable[[], None]) -> None:
        """Signals are received in the main thread of Spark's program for planners only."""
        self._stop = stop
        self._has_begun = False
        self._folders = [each for each in os.environ.get(LOCAL_FOLDERS, "").split(",") if os.path.isdir(each)]
        atexit.register(self)
        if threading.current_thread() is threading.main_thread() and program() == PLANNER:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; Spark ends its planners
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, *_: object) -> None:
        """As an exception it ends whatever call is under way, and Spark's program calls the stream's `stop`."""
        if not self._has_begun:
            sys.exit(0)

    def __call__(self) -> None:
        """Stop, unless that has begun already."""
        if not self._has_begun:
            self._has_begun = True
            atexit.unregister(self)
            self._stop()

    def check_session(self) -> None:
        """IllegalStateError once the session has stopped: its local folders are gone.

        Spark does not end the queries of a session that stops. One that has nothing to read asks its planner for
        offsets as long as the JVM lives, so its partitions would be read by nobody.
        """
        if self._folders and not any(os.path.isdir(each) for each in self._folders):
            raise IllegalStateError(
                f"Spark's local folders {', '.join(self._folders)} are gone, so its session has stopped. "
                "Stop a query before its session (query.stop()), and begin it again in a session that runs."
            )
