"""The thread that does upkeep releases memory behind long work, after its future is done, and not too often."""

from __future__ import annotations

import threading

import pytest

from stratalog.replication import cadence
from stratalog.replication.threads.upkeep_thread import UpkeepThread, UpkeepThreads
from tests.storage.logs import FakeClock


@pytest.mark.parametrize(
    ("pieces_ms", "expected"),
    [
        pytest.param([(0, cadence.LONG_WORK.ms)], ["work", "free"], id="behind a long piece"),
        pytest.param([(0, cadence.LONG_WORK.ms - 1)], ["work"], id="not behind a short one"),
        pytest.param(
            [(0, cadence.LONG_WORK.ms), (0, cadence.MEMORY_RELEASED.ms - 1)],
            ["work", "free", "work"],
            id="not yet again",
        ),
        pytest.param(
            [(0, cadence.LONG_WORK.ms), (0, cadence.MEMORY_RELEASED.ms)],
            ["work", "free", "work", "free"],
            id="again when it is time",
        ),
        pytest.param(
            [(0, cadence.LONG_WORK.ms), (cadence.MEMORY_RELEASED.ms, 0), (0, cadence.LONG_WORK.ms)],
            ["work", "free", "work", "work", "free"],
            id="by the work, not by the rest before it",
        ),
    ],
)
def test_memory_is_released_behind_long_work(pieces_ms: list[tuple[int, int]], expected: list[str]) -> None:
    """Each piece: a rest, then so long a work."""
    clock, done = FakeClock(), []

    def work(duration_ms: int) -> None:
        done.append("work")
        clock.sleep_ms(duration_ms)

    thread = UpkeepThread(clock, lambda: done.append("free"))
    for rest_ms, duration_ms in pieces_ms:
        clock.sleep_ms(rest_ms)
        thread.submit(work, duration_ms).result()
    thread.shutdown(wait=True)
    assert done == expected


def test_a_release_is_no_part_of_the_work() -> None:
    """The future is done as soon as the work is, with its result, whatever becomes of the release."""
    clock, may_end = FakeClock(), threading.Event()

    def release() -> None:
        may_end.wait()
        raise OSError("no memory was released")

    def halved(number: int, by: int) -> int:
        clock.sleep_ms(cadence.LONG_WORK.ms)
        return number // by

    thread = UpkeepThread(clock, release)
    assert thread.submit(halved, 7, 2).result(timeout=60) == 3
    may_end.set()
    with pytest.raises(ZeroDivisionError):
        thread.submit(halved, 7, 0).result(timeout=60)
    thread.shutdown(wait=True)


def test_work_that_ends_after_the_shutdown_ends_well() -> None:
    clock, may_end = FakeClock(), threading.Event()

    def slow() -> str:
        may_end.wait()
        clock.sleep_ms(cadence.LONG_WORK.ms)
        return "done"

    thread = UpkeepThread(clock)
    last = thread.submit(slow)
    thread.shutdown(wait=False)
    may_end.set()
    assert last.result(timeout=60) == "done"


def test_one_piece_at_a_time() -> None:
    thread = UpkeepThread(FakeClock())
    names = {thread.submit(lambda: threading.current_thread().name).result() for _ in range(5)}
    thread.shutdown(wait=True)
    assert names == {"upkeep_0"}


def test_a_root_that_answers_nothing_stops_no_other_upkeep() -> None:
    """Neither that of another root, nor what reads from another leader's root."""
    threads, answers, is_begun = UpkeepThreads(FakeClock()), threading.Event(), threading.Event()

    def hang() -> None:
        is_begun.set()
        answers.wait()

    hung = threads.at("broker-1", "broker-3").submit(hang)
    assert is_begun.wait(60)
    assert threads.at("broker-1", "broker-2").submit(lambda: "copied").result(timeout=60) == "copied"
    assert threads.at("broker-1").submit(lambda: "merged").result(timeout=60) == "merged"
    assert not hung.done()
    answers.set()
    threads.shutdown()
    assert hung.done()
