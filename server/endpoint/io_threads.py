"""Threads for requests that read storage, and how many requests wait for one. I/O: threads.

Source: Kafka's `KafkaRequestHandlerPool`, `RequestChannel`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from stratalog.server.endpoint.admission import RequestBound
from stratalog.storage.clock import measured_ns

T = TypeVar("T")


class IoThreads(Executor):
    """`num.io.threads`; what waits for one is counted in `queued`, which network threads ask before they read on."""

    def __init__(self, threads: int, queued: RequestBound, name: str) -> None:
        self.queued = queued
        self.threads = threads
        self.busy_ns = 0
        """The time that its threads have worked."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As `Executor.submit`; never refused for want of room: who submits has asked `queued` before."""
        self.queued.add(1)

        def run() -> T:
            self.queued.release(1)
            begun_ns = measured_ns()
            try:
                return fn(*args, **kwargs)
            finally:
                self.busy_ns += measured_ns() - begun_ns

        try:
            return self._pool.submit(run)
        except BaseException:
            self.queued.release(1)
            raise

    def work(self) -> tuple[int, int]:
        """The time that its threads have worked, in ns, and their number."""
        return self.busy_ns, self.threads

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
