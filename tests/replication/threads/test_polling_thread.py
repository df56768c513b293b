"""A thread that looks for news beside a loop."""

from __future__ import annotations

import threading
from collections import deque

from stratalog.replication.threads.daemon_threads import DaemonThreads
from stratalog.replication.threads.polling_thread import PollingThread
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StoreUnavailableError
from tests.waiting import wait_until

HOUR_MS = 3_600_000


class Looked:
    """Looks that find what the test says, one after the other; then nothing."""

    def __init__(self, *finds: bool | StoreUnavailableError, pause_ms: int = 1) -> None:
        self.finds = deque(finds)
        self.count = 0
        self.woken = threading.Semaphore(0)
        self.thread = PollingThread(
            DaemonThreads().start, SystemClock(), self.look, lambda: pause_ms, self.woken.release
        )
        self.thread.start("look")

    def look(self) -> bool:
        found = self.finds.popleft() if self.finds else False
        self.count += 1
        if isinstance(found, StoreUnavailableError):
            raise found
        return found


def test_news_wakes_the_loop_and_is_not_looked_for_again_before_it_was_read() -> None:
    looked = Looked(False, StoreUnavailableError("away"), True, True)
    assert looked.woken.acquire(timeout=30)
    assert (looked.thread.has_changed, looked.count) == (True, 3)
    looked.thread.read()
    assert looked.woken.acquire(timeout=30)
    assert looked.count == 4
    looked.thread.close()


def test_expected_news_is_looked_for_before_the_pause_is_over() -> None:
    looked = Looked(False, True, pause_ms=HOUR_MS)
    wait_until(lambda: looked.count == 1, "the first look")
    looked.thread.poll_now()
    assert looked.woken.acquire(timeout=30)
    looked.thread.close()


def test_a_closed_thread_looks_no_more() -> None:
    looked = Looked(pause_ms=HOUR_MS)
    wait_until(lambda: looked.count == 1, "the first look")
    looked.thread.close()
    wait_until(lambda: not any(each.name == "look" for each in threading.enumerate()), "the thread is over")
    assert looked.count == 1
