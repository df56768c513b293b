"""Calls that wait for a store: all at once, answered in order, and none is left behind when one fails."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from stratalog.replication.stores import OneByOne
from stratalog.replication.threads.side_by_side import SideBySide
from stratalog.replication.threads.turn_lock import TurnLock
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.distance import FAR

WAIT_S = 30


def meet(barrier: threading.Barrier, number: int) -> int:
    """Returns only when so many calls are under way as the barrier counts."""
    barrier.wait(WAIT_S)
    return number


def test_so_many_calls_are_under_way_at_a_time() -> None:
    barrier = threading.Barrier(FAR.calls_max)
    calls = [partial(meet, barrier, number) for number in range(2 * FAR.calls_max)]
    assert SideBySide("io").run(calls) == list(range(2 * FAR.calls_max))


def test_nothing_to_do_and_a_single_call() -> None:
    for together in (SideBySide("io"), OneByOne()):
        assert together.run([]) == []
        assert together.run([lambda: 7]) == [7]


def test_an_error_is_raised_after_all_have_returned() -> None:
    returned = threading.Event()

    def fail() -> None:
        raise StoreUnavailableError("away")

    def return_late() -> None:
        assert not returned.wait(0.05)
        returned.set()

    with pytest.raises(StoreUnavailableError, match="away"):
        SideBySide("io").run([fail, return_late])
    assert returned.is_set()


def test_the_turn_is_given_up_until_all_have_returned() -> None:
    turn = TurnLock(())
    barrier = threading.Barrier(2)

    def take_the_turn(number: int) -> int:
        with turn:
            pass
        return meet(barrier, number)

    with turn:
        assert SideBySide("io", turn.away).run([partial(take_the_turn, number) for number in range(2)]) == [0, 1]
        taken = threading.Thread(target=turn.__enter__, daemon=True)
        taken.start()
        taken.join(0.05)
        assert taken.is_alive(), "the caller has its turn again"


def test_while_the_process_ends_the_calling_thread_makes_the_calls() -> None:
    """Then no thread is begun any more, but those that run go on for a moment."""
    together = SideBySide("io")
    assert together.run([lambda: 1, lambda: 2]) == [1, 2]
    together._pool.shutdown()
    assert together.run([lambda: 3, lambda: 4]) == [3, 4]
