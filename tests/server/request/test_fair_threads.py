"""Clients take turns; a connection's work keeps its order, and is forgotten with it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from weakref import ref

from stratalog.replication.metadata.acls import Principal
from stratalog.server.request.api import AT_A_TIME, Call, Connection, gather_in_turns
from stratalog.server.request.fair_threads import HELD_MAX, FairThreads, Line
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import RequestFrame
from tests.waiting import wait_until


class Waiting:
    """A question that is not answered yet."""

    put: Callable[[int], None]


def of(user: str) -> Connection:
    return Connection(Principal(f"User:{user}", "10.0.0.1"))


def test_users_take_turns_and_so_do_the_connections_of_a_user() -> None:
    threads, begun, may_go, done = FairThreads(1, "test"), threading.Event(), threading.Event(), []
    all_done = threading.Event()
    stranger, other, neighbour = of("stranger"), of("stranger"), of("neighbour")

    def wait() -> None:
        begun.set()
        may_go.wait(10)

    threads.submit(stranger, wait)
    assert begun.wait(10)
    for number in range(3):
        threads.submit(stranger, lambda n=number: done.append(f"stranger {n}"))
    threads.submit(other, lambda: done.append("other"))
    threads.submit(neighbour, lambda: done.append("neighbour"))
    threads.submit(stranger, all_done.set)
    may_go.set()
    assert all_done.wait(10)
    threads.close()
    assert done == ["stranger 0", "neighbour", "other", "stranger 1", "stranger 2"]


def test_the_work_of_a_connection_that_has_ended_is_forgotten() -> None:
    threads, begun, may_go, done = FairThreads(1, "test"), threading.Event(), threading.Event(), []
    gone, there, all_done = of("gone"), of("there"), threading.Event()

    def wait() -> None:
        begun.set()
        may_go.wait(10)

    threads.submit(there, wait)
    assert begun.wait(10)
    threads.submit(gone, lambda: done.append("gone"))
    threads.submit(there, all_done.set)
    gone.memory.end()
    may_go.set()
    assert all_done.wait(10)
    threads.close()
    assert done == []


def test_a_connection_has_a_line_in_each_kind_of_threads() -> None:
    """With one for both, what came for the second kind while the first took its last piece was never begun."""
    busy, free, may_go, done = FairThreads(1, "busy"), FairThreads(1, "free"), threading.Event(), threading.Event()
    connection = of("client")
    busy.submit(connection, lambda: may_go.wait(10))
    busy.submit(connection, lambda: None)
    free.submit(connection, done.set)
    assert done.wait(10)
    may_go.set()
    busy.close()
    free.close()


def test_a_user_has_few_large_requests_under_way() -> None:
    """Those that wait have their bytes alone. What has begun goes on, and other users' requests begin."""
    threads, done = FairThreads(1, "test"), []
    stranger, other, neighbour = of("stranger"), of("stranger"), of("neighbour")
    held = [threads.hold(stranger) for _ in range(HELD_MAX)]
    threads.submit(stranger, lambda: done.append("next"))
    threads.submit(other, lambda: done.append("other"))
    threads.take_over(stranger, lambda: done.append("goes on"))
    threads.submit(neighbour, lambda: done.append("neighbour"))
    wait_until(lambda: len(done) == 2, "what may be done")
    assert sorted(done) == ["goes on", "neighbour"]
    held.pop()
    wait_until(lambda: len(done) == 4, "what waited")
    assert sorted(done[2:]) == ["next", "other"]
    threads.close()


def test_a_request_that_is_answered_is_not_under_way() -> None:
    threads, done, connection = FairThreads(1, "test"), threading.Event(), of("client")
    calls = [Call(RequestFrame(ApiKey.METADATA, 1, 0, None, None), connection, lambda _: None) for _ in range(HELD_MAX)]
    for call in calls:
        call.large = threads.hold(connection)
    threads.submit(connection, done.set)
    assert not done.is_set()
    calls[0].end()
    assert done.wait(10)
    threads.close()


class Large:
    """What a request refers to."""


def test_a_thread_that_waits_for_work_keeps_nothing_of_the_last_one() -> None:
    threads, large = FairThreads(1, "test"), Large()
    is_there = ref(large)
    threads.submit(of("client"), partial(lambda _large: None, large))
    del large
    wait_until(lambda: is_there() is None, "the end of what the work referred to")
    threads.close()


def test_after_the_end_a_connection_is_closed() -> None:
    reasons: list[str] = []
    threads = FairThreads(1, "test")
    threads.close()
    threads.submit(Connection(close=reasons.append), lambda: None)
    assert reasons == ["the broker stops"]


def test_a_line_waits_for_the_step_that_is_done_later() -> None:
    line, done, ends = Line(), [], []

    def later(end: Callable[[], None]) -> None:
        done.append("begins")
        ends.append(end)

    def at_once(name: str) -> Callable[[Callable[[], None]], None]:
        def step(end: Callable[[], None]) -> None:
            done.append(name)
            end()

        return step

    line.put(at_once("first"))
    line.put(later)
    line.put(at_once("second"))
    line.put(at_once("third"))
    assert done == ["first", "begins"]
    ends[0]()
    assert done == ["first", "begins", "second", "third"]
    line.put(at_once("fourth"))
    assert done[-1] == "fourth"


def test_many_questions_are_asked_some_at_a_time_and_all_are_answered() -> None:
    count, under_way, most, waiting = 1_000, 0, 0, []
    found: list[dict[int, int]] = []

    def ask(key: int, put: Callable[[int], None]) -> None:
        nonlocal under_way, most
        if key % 7 == 0:
            put(-key)
            return
        under_way += 1
        most = max(most, under_way)
        waiting.append((key, put))

    gather_in_turns(range(count), ask, found.append)
    while waiting:
        key, put = waiting.pop()
        under_way -= 1
        put(key)
    assert most == AT_A_TIME
    assert found == [{key: -key if key % 7 == 0 else key for key in range(count)}]


def test_who_brings_an_answer_asks_nothing_where_the_work_goes_elsewhere() -> None:
    """A broker's loop brings the answers, and most of the next questions are answered at once."""
    asked, works, found, waiting = list[int](), list[Callable[[], None]](), list[dict[int, int]](), []

    def ask(key: int, put: Callable[[int], None]) -> None:
        asked.append(key)
        if key < AT_A_TIME:
            waiting.append((key, put))
        else:
            put(key)

    gather_in_turns(range(10_000), ask, found.append, elsewhere=works.append)
    for key, put in waiting[: AT_A_TIME // 2]:
        put(key)
    assert (len(asked), len(works)) == (AT_A_TIME, 1)
    works.pop()()
    assert len(asked) == 10_000
    for key, put in waiting[AT_A_TIME // 2 :]:
        put(key)
    assert found == []
    works.pop()()
    assert found == [{key: key for key in range(10_000)}]


def test_questions_whose_next_turn_is_dropped_are_freed() -> None:
    """Garbage collections of all objects wait for the end of a large request."""
    asking = [Waiting() for _ in range(AT_A_TIME + 1)]
    freed = ref(asking[-1])

    def ask(key: Waiting, put: Callable[[int], None]) -> None:
        key.put = put

    gather_in_turns(asking, ask, lambda _: None, elsewhere=lambda _: None)
    gc.disable()
    try:
        for each in asking[:AT_A_TIME]:
            each.put(1)
            del each.put
        del asking, each
        assert freed() is None
    finally:
        gc.enable()


def test_each_thread_runs_what_concerns_itself_once_it_has_nothing_under_way() -> None:
    threads, names, begun, may_go = FairThreads(2, "test"), list[str](), threading.Event(), threading.Event()

    def named() -> None:
        names.append(threading.current_thread().name)

    def wait() -> None:
        begun.set()
        may_go.wait(10)

    threads.run_in_each(named)  # none has begun
    threads.submit(of("a"), wait)
    assert begun.wait(10)
    for _ in range(3):
        threads.run_in_each(named)
    wait_until(lambda: len(set(names)) == 1, "the thread that has nothing under way")
    may_go.set()
    wait_until(lambda: set(names) == {"test-0", "test-1"}, "the other one")
    threads.close()
    busy = min(set(names), key=names.count)
    assert names.count(busy) == 1
