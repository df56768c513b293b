"""A slow call is made a second time, few calls are, and the first answer counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.together import NO_HEDGING, Hedges, Hedging, hedged

QUICK = Hedging(share_max=0.5, samples_min=4)


class Calls:
    """Calls of which a test says what each does. `made`: how many were."""

    def __init__(self, *answers: Callable[[], str]) -> None:
        self._answers = list(answers)
        self._lock = threading.Lock()
        self.made = 0

    def __call__(self) -> str:
        with self._lock:
            answer = self._answers[self.made]
            self.made += 1
        return answer()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Set at the end: slow calls wait for it."""
    made = threading.Event()
    yield made
    made.set()


def known(hedging: Hedging = QUICK) -> Hedges:
    """After calls that took a millisecond each."""
    hedges = Hedges(hedging)
    for _ in range(hedging.samples_min):
        hedges.took(1)
    return hedges


def run(calls: Calls, pool: ThreadPoolExecutor, hedges: Hedges) -> str:
    return hedged(calls, pool, hedges, lambda: 0.0)


def failing() -> str:
    raise StoreUnavailableError("away")


def slow(over: threading.Event, answer: str = "slow") -> Callable[[], str]:
    def call() -> str:
        assert over.wait(60)
        return answer

    return call


def test_the_second_call_answers_where_the_first_is_slow(pool: ThreadPoolExecutor, over: threading.Event) -> None:
    hedges, calls = known(), Calls(slow(over), lambda: "quick")
    assert run(calls, pool, hedges) == "quick"
    assert (calls.made, hedges.repeated) == (2, 1)
    over.set()


def test_the_first_one_counts_where_the_second_fails(pool: ThreadPoolExecutor, over: threading.Event) -> None:
    def fail_later() -> str:
        over.set()
        return failing()

    assert run(Calls(slow(over, "late"), fail_later), pool, known()) == "late"


def test_both_fail(pool: ThreadPoolExecutor, over: threading.Event) -> None:
    def fail_first() -> str:
        assert over.wait(60)
        return failing()

    def fail_second() -> str:
        over.set()
        return failing()

    with pytest.raises(StoreUnavailableError):
        run(Calls(fail_first, fail_second), pool, known())


def test_a_failure_in_time_is_not_hedged(pool: ThreadPoolExecutor) -> None:
    hedges = Hedges(QUICK)
    for _ in range(4):
        hedges.took(60_000)
    calls = Calls(failing)
    with pytest.raises(StoreUnavailableError):
        run(calls, pool, hedges)
    assert (calls.made, hedges.repeated) == (1, 0)


def test_nothing_is_made_again_before_enough_calls_have_ended(pool: ThreadPoolExecutor) -> None:
    hedges = Hedges(QUICK)
    assert run(Calls(lambda: "a"), pool, hedges) == "a"
    assert hedges.pause_ms() is None


def test_only_a_share_of_calls_is_made_again() -> None:
    hedges = known(Hedging(share_max=0.25, samples_min=4))
    assert [hedges.may_repeat(), hedges.may_repeat()] == [True, False]
    for _ in range(100):
        hedges.took(1)
    assert [hedges.may_repeat() for _ in range(27)] == [True] * 25 + [False] * 2
    assert Hedges(NO_HEDGING).is_off


def test_the_pause_is_that_of_the_slowest_of_the_newest() -> None:
    hedges = Hedges(Hedging(quantile=0.9, samples=10, samples_min=10))
    for took_ms in range(1, 21):
        hedges.took(took_ms)
    assert hedges.pause_ms() == 20
