"""What a collection finds is closed by another thread: it may come within the lock that the close needs."""

from __future__ import annotations

import gc
import os
import threading

from stratalog.replication.threads.dropped import DROPPED, DroppedObjects
from tests.waiting import wait_until

WAIT_S = 60


class Opened:
    """Refers to itself, so that only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_dropped_within_the_lock_of_its_close_is_closed_behind_it() -> None:
    lock, closed = threading.Lock(), threading.Event()

    def close() -> None:
        with lock:
            closed.set()

    DROPPED.when(Opened(), close)
    with lock:
        gc.collect()
        assert not closed.is_set()
    assert closed.wait(WAIT_S)


def test_a_close_that_fails_keeps_no_other_from_its_end() -> None:
    closed = threading.Event()

    def fail() -> None:
        raise OSError("away")

    DROPPED.when(Opened(), fail)
    DROPPED.when(Opened(), closed.set)
    gc.collect()
    assert closed.wait(WAIT_S)


def test_one_thread_works_for_all() -> None:
    dropped, threads = DroppedObjects(), set[int]()
    for _ in range(3):
        dropped.when(Opened(), lambda: threads.add(threading.get_ident()))
    gc.collect()
    done = threading.Event()
    dropped.now(done.set)
    assert done.wait(WAIT_S)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_fork_has_a_thread_of_its_own() -> None:
    DROPPED.begin()
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            DROPPED.begin()
            DROPPED.now(lambda: os.write(written, b"closed"))
            wait_until(lambda: False, timeout_s=5, pause_s=0.1)
        finally:
            os._exit(0)
    try:
        assert os.read(read, 6) == b"closed"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(written)
