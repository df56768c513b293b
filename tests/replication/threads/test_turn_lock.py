"""One thread of a session works at a time, and one that waits for another broker's root keeps nobody from working."""

from __future__ import annotations

import threading

from stratalog.replication.threads.turn_lock import TurnLock

WAIT_S = 60


def test_a_call_to_another_root_gives_the_turn_up_until_it_is_answered() -> None:
    turn, is_asked, answers = TurnLock(("own",)), threading.Event(), threading.Event()
    done: list[str] = []

    def ask() -> str:
        is_asked.set()
        assert answers.wait(WAIT_S)
        return "answer"

    def fetch() -> None:
        with turn:
            done.append(turn.away(ask))

    thread = threading.Thread(target=fetch)
    thread.start()
    assert is_asked.wait(WAIT_S)
    with turn:
        done.append("other work")
        answers.set()
    thread.join(WAIT_S)
    assert done == ["other work", "answer"]


def test_who_does_not_have_the_turn_just_makes_the_call() -> None:
    turn = TurnLock(())
    assert turn.away(len, "abc") == 3
    with turn:
        other = threading.Thread(target=turn.away, args=(len, "abc"))
        other.start()
        other.join(WAIT_S)
        assert not other.is_alive()


def test_a_call_that_fails_takes_the_turn_back() -> None:
    turn = TurnLock(())

    def fail() -> None:
        raise OSError("away")

    with turn:
        try:
            turn.away(fail)
        except OSError:
            taken = threading.Thread(target=turn.__enter__, daemon=True)
            taken.start()
            taken.join(0.05)
            assert taken.is_alive(), "another thread works beside this one"
