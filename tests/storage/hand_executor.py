"""An executor whose work a test does by hand."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class HandExecutor(Executor):
    """`waiting`: the pieces of work that were submitted and not done. Once it `has_ended` it refuses more."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.has_ended = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.has_ended:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work(*args, **kwargs))
            except Exception as failure:  # noqa: BLE001 - raised by `Future.result`
                future.set_exception(failure)

        self.waiting.append(run)
        return future

    def work(self, count: int | None = None) -> None:
        """Do the first `count` pieces that wait (None: all)."""
        begun = self.waiting[:count]
        del self.waiting[: len(begun)]
        for run in begun:
            run()
