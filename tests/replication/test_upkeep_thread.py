"""The thread that does upkeep gives memory back behind the work, not before, and not too often."""

from __future__ import annotations

import threading

import pytest

from replication.upkeep_thread import GIVE_BACK_MS, UpkeepThread
from tests.storage.logs import FakeClock


@pytest.mark.parametrize(
    ("pauses_ms", "expected"),
    [
        pytest.param([0], ["work", "free"], id="behind the first piece"),
        pytest.param([0, GIVE_BACK_MS - 1], ["work", "free", "work"], id="not yet again"),
        pytest.param([0, GIVE_BACK_MS], ["work", "free", "work", "free"], id="again when it is time"),
        pytest.param([0, GIVE_BACK_MS - 1, 1], ["work", "free", "work", "work", "free"], id="timed from the last one"),
    ],
)
def test_memory_is_given_back_behind_a_piece_of_work(pauses_ms: list[int], expected: list[str]) -> None:
    clock, done = FakeClock(), []
    thread = UpkeepThread(clock, lambda: done.append("free"))
    for pause_ms in pauses_ms:
        clock.sleep_ms(pause_ms)
        thread.submit(done.append, "work").result()
    thread.shutdown(wait=True)
    assert done == expected


def test_what_is_given_back_is_no_part_of_the_work() -> None:
    """Its end is told as soon as it is done, with what came of it, whatever becomes of the rest."""
    may_end = threading.Event()

    def give_back() -> None:
        may_end.wait()
        raise OSError("no memory was given back")

    thread = UpkeepThread(FakeClock(), give_back)
    assert thread.submit(divmod, 7, 2).result(timeout=60) == (3, 1)
    may_end.set()
    with pytest.raises(ZeroDivisionError):
        thread.submit(divmod, 7, 0).result(timeout=60)
    thread.shutdown(wait=True)


def test_one_piece_at_a_time() -> None:
    thread = UpkeepThread(FakeClock())
    names = {thread.submit(lambda: threading.current_thread().name).result() for _ in range(5)}
    thread.shutdown(wait=True)
    assert names == {"upkeep_0"}
