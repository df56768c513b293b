"""Calls after a delay come in order, each once, and none is lost when the scheduler closes."""

from __future__ import annotations

import threading

from stratalog.replication.threads.scheduler import CallScheduler
from stratalog.storage.clock import SystemClock


def test_calls_come_in_the_order_in_which_they_are_due() -> None:
    scheduler, calls, done = CallScheduler(SystemClock(), "test"), [], threading.Event()
    scheduler.schedule_once(lambda: (calls.append("third"), done.set()), 40)  # type: ignore[func-returns-value]
    scheduler.schedule_once(lambda: calls.append("first"), 0)
    scheduler.schedule_once(lambda: calls.append("second"), 0)
    assert done.wait(10)
    assert calls == ["first", "second", "third"]
    scheduler.close()


def test_a_call_that_fails_does_not_end_the_others() -> None:
    scheduler, done = CallScheduler(SystemClock(), "test"), threading.Event()
    scheduler.schedule_once(lambda: 1 // 0, 0)  # type: ignore[arg-type, return-value]
    scheduler.schedule_once(done.set, 1)
    assert done.wait(10)
    scheduler.close()


def test_what_waits_is_called_at_the_end() -> None:
    scheduler, calls = CallScheduler(SystemClock(), "test"), []
    scheduler.schedule_once(lambda: calls.append("waits"), 3_600_000)
    scheduler.close()
    scheduler.schedule_once(lambda: calls.append("late"), 3_600_000)
    assert calls == ["waits", "late"]
