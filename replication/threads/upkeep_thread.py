"""The threads that do the upkeep of all logs of a process, one for each root.

I/O: threads, and the memory of this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from stratalog.replication import cadence
from stratalog.replication.threads.free_memory import release_arrow_memory
from stratalog.storage.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")


class UpkeepTurn:
    """The turn to do upkeep, of one thread of a process at a time: merges use memory and CPU beside brokers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: object = None

    def take(self, taker: object, wait_s: float) -> None:
        """Wait for the turn; after `wait_s` it is taken from who has it, who goes on beside the taker."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None, wait_s)
            self._holder = taker

    def give(self, taker: object) -> None:
        """Give the turn up, unless it was taken away."""
        with self._changed:
            if self._holder is taker:
                self._holder = None
                self._changed.notify()


class UpkeepThread(Executor):
    """Does one piece of work after the other. `release` runs behind a long one, once in `cadence.MEMORY_RELEASED`.

    Its thread ends with the process, whatever it waits for.
    """

    def __init__(
        self,
        clock: Clock,
        release: Callable[[], object] = release_arrow_memory,
        turn: UpkeepTurn | None = None,
        name: str = "upkeep_0",
    ) -> None:
        """`turn`: shared with other threads."""
        self._name = name
        self._clock = clock
        self._release = release
        self._turn = turn or UpkeepTurn()
        self._released_ms = clock.monotonic_ms() - cadence.MEMORY_RELEASED.ms
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_shut_down = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            taker = object()
            self._turn.take(taker, cadence.UPKEEP_TURN.s)
            began_ms = self._clock.monotonic_ms()
            try:
                result = work(*args, **kwargs)
            except BaseException as failure:  # noqa: BLE001 - raised by `Future.result`
                future.set_exception(failure)
            else:
                future.set_result(result)
            finally:
                self._turn.give(taker)
            self._done(began_ms, self._clock.monotonic_ms())

        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._work.put(run)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # else a thread that waits for the next one keeps what this one read

    def _done(self, began_ms: int, now_ms: int) -> None:
        if now_ms - began_ms >= cadence.LONG_WORK.ms and now_ms - self._released_ms >= cadence.MEMORY_RELEASED.ms:
            self._released_ms = now_ms
            with suppress(OSError):
                self._release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`; it waits for `cadence.UPKEEP_END` at most, and cancels nothing."""
        del cancel_futures
        with self._lock:
            self._is_shut_down = True
            self._work.put(None)
        if wait and self._thread is not None:
            self._thread.join(cadence.UPKEEP_END.s)


class UpkeepThreads:
    """A thread for the upkeep of each root, and for what it reads of each other root: one that answers nothing stops
    only its own. They take turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = UpkeepTurn()
        self._lock = threading.Lock()
        self._threads: dict[tuple[str, str], UpkeepThread] = {}

    def at(self, root: str, read_root: str = "") -> UpkeepThread:
        """The thread for the upkeep of the logs in `root` that reads from `read_root`, too, if any."""
        with self._lock:
            key = root, read_root
            if key not in self._threads:
                self._threads[key] = UpkeepThread(self._clock, turn=self._turn)
            return self._threads[key]

    def shutdown(self) -> None:
        """End all threads after the work that is under way, `cadence.UPKEEP_END` each at most."""
        for thread in self._threads.values():
            thread.shutdown(wait=False)
        for thread in self._threads.values():
            thread.shutdown(wait=True)
