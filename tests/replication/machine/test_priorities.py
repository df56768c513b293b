"""Threads that give way: found by the kernel's name of them, and only these."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.replication.machine.priorities import GIVING_WAY, IN_BACKGROUND, let_give_way, threads_named
from tests.real.storm.parties import wait_until


@contextmanager
def thread_with(name: str) -> Iterator[int]:
    """The kernel's id of a thread that has this name there, and waits."""
    named, over = threading.Event(), threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        named.set()
        over.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert named.wait(10)
        assert thread.native_id is not None
        yield thread.native_id
    finally:
        over.set()
        thread.join()
        task = Path(f"/proc/self/task/{thread.native_id}")
        wait_until(lambda: not task.exists(), f"the kernel lists {thread.native_id} no more")  # a little after the join


def nice_of(thread_id: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread_id)


def test_only_the_named_threads_give_way() -> None:
    before = nice_of(0)
    with thread_with("C2 CompilerThread0") as compiler, thread_with("stream execution thread") as other:
        assert threads_named(os.getpid(), IN_BACKGROUND) == {compiler}
        let_give_way(threads_named(os.getpid(), IN_BACKGROUND))
        assert (nice_of(compiler), nice_of(other), nice_of(0)) == (GIVING_WAY, before, before)


def test_a_thread_that_has_ended_is_passed_over() -> None:
    with thread_with("C1 CompilerThread0") as ended:
        pass
    assert threads_named(os.getpid(), IN_BACKGROUND) == set()
    let_give_way([ended])


def test_a_process_that_is_not_here_has_no_threads() -> None:
    assert threads_named(2**22 + 1, IN_BACKGROUND) == set()
