"""Beside large requests no garbage collection of all objects begins, and behind them memory goes back to the system."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from stratalog.replication.threads.free_memory import release_free_memory
from stratalog.replication.threads.interpreter import LARGE_SWITCH_INTERVAL_S, NEVER
from stratalog.replication.threads.scheduler import CallScheduler
from stratalog.server.request.large_requests import RELEASE_MS, LargeRequests
from stratalog.storage.clock import SystemClock


class Scheduled(CallScheduler):
    """Its calls are made when the test says so."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), "test")
        self.calls: list[Callable[[], None]] = []

    def schedule_once(self, call: Callable[[], None], delay_ms: int) -> None:
        assert delay_ms == RELEASE_MS
        if self.is_closed:
            call()
        else:
            self.calls.append(call)

    def make_calls(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_no_collection_of_all_objects_begins_by_itself_while_one_is_under_way() -> None:
    before, large = gc.get_threshold(), LargeRequests(Scheduled(), lambda: None)
    first, second = large.begins(), large.begins()
    assert gc.get_threshold() == (*before[:2], NEVER)
    del first
    assert gc.get_threshold() == (*before[:2], NEVER)
    del second
    assert gc.get_threshold() == before


def test_beside_them_a_thread_that_computes_releases_the_interpreter_sooner() -> None:
    before, large = sys.getswitchinterval(), LargeRequests(Scheduled(), lambda: None)
    first, second = large.begins(), large.begins()
    assert sys.getswitchinterval() <= LARGE_SWITCH_INTERVAL_S
    del first, second
    assert sys.getswitchinterval() == before


def test_memory_is_returned_again_and_again_until_none_is_under_way() -> None:
    scheduler, released = Scheduled(), list[str]()
    large = LargeRequests(scheduler, lambda: released.append("memory"))
    under_way = [large.begins(), large.begins()]
    assert len(scheduler.calls) == 1
    scheduler.make_calls()
    assert (len(released), len(scheduler.calls)) == (1, 1)
    under_way.clear()
    scheduler.make_calls()
    assert (len(released), len(scheduler.calls)) == (2, 0)
    under_way.append(large.begins())
    assert len(scheduler.calls) == 1


def test_memory_is_returned_once_behind_a_request_that_is_large_by_its_bytes() -> None:
    scheduler, released, before = Scheduled(), list[str](), gc.get_threshold()
    large = LargeRequests(scheduler, lambda: released.append("memory"))
    large.release_later()
    large.release_later()
    assert gc.get_threshold() == before
    scheduler.make_calls()
    assert (len(released), len(scheduler.calls)) == (1, 0)


def test_the_end_of_the_scheduler_ends_it() -> None:
    scheduler, released = Scheduled(), list[str]()
    large = LargeRequests(scheduler, lambda: released.append("memory"))
    _under_way = large.begins()
    scheduler.close()
    scheduler.make_calls()
    assert (len(released), len(scheduler.calls)) == (1, 0)


def test_freed_memory_goes_back_to_the_system() -> None:
    release_free_memory()
