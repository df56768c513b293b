"""One thread computes at a time, in the order in which they ask; one that waits loses its turn, not its work."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.replication.threads.computing_turn import ComputingTurn
from tests.waiting import wait_until

FOR_EVER_S = 60.0


def begun(turn: ComputingTurn, work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=turn.run, args=(work,), daemon=True)
    thread.start()
    return thread


def held(turn: ComputingTurn) -> tuple[threading.Thread, threading.Event]:
    """A thread that has the turn until the event is set."""
    has_turn, may_go = threading.Event(), threading.Event()

    def wait() -> None:
        has_turn.set()
        may_go.wait(10)

    thread = begun(turn, wait)
    assert has_turn.wait(10)
    return thread, may_go


def test_turns_are_in_the_order_of_asking() -> None:
    turn, done = ComputingTurn(FOR_EVER_S), list[int]()
    first, may_go = held(turn)
    threads = [first]
    for number in range(3):
        threads.append(begun(turn, lambda n=number: done.append(n)))
        wait_until(lambda n=number: turn.waiting == n + 1, "a thread in the line")
    assert done == []
    may_go.set()
    for thread in threads:
        thread.join(10)
    assert done == [0, 1, 2]
    assert turn.waiting == 0


def test_between_two_pieces_others_have_their_turns() -> None:
    turn, done, may_go, has_begun = ComputingTurn(FOR_EVER_S), list[str](), threading.Event(), threading.Event()

    def pieces() -> None:
        has_begun.set()
        may_go.wait(10)
        done.append("first piece")
        turn.between()
        turn.run(lambda: done.append("second piece"))

    long = begun(turn, pieces)
    assert has_begun.wait(10)
    other = begun(turn, lambda: done.append("other"))
    wait_until(lambda: turn.waiting == 1, "the other thread in the line")
    may_go.set()
    long.join(10)
    other.join(10)
    assert done == ["first piece", "other", "second piece"]


def test_without_a_turn_nobody_waits_between_pieces() -> None:
    turn = ComputingTurn(FOR_EVER_S)
    holder, may_go = held(turn)
    turn.between()
    may_go.set()
    holder.join(10)


def test_what_waits_for_something_keeps_nobody_for_long() -> None:
    turn, done = ComputingTurn(wait_s=0), list[str]()
    holder, may_go = held(turn)
    other = begun(turn, lambda: done.append("other"))
    other.join(10)
    assert done == ["other"]
    may_go.set()
    holder.join(10)
    begun(turn, lambda: done.append("next")).join(10)
    assert done == ["other", "next"]


def test_an_error_ends_the_turn() -> None:
    turn = ComputingTurn(FOR_EVER_S)

    def fails() -> None:
        raise ValueError

    def run() -> None:
        try:
            turn.run(fails)
        except ValueError:
            done.append("error")

    done: list[str] = []
    for _ in range(2):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(10)
    assert done == ["error", "error"]
