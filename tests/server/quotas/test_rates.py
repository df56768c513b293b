"""Rates over a sliding window and buckets of tokens, as Kafka's `Rate` and `TokenBucket` compute them."""

from __future__ import annotations

import doctest

import pytest

from stratalog.server.quotas import rates
from stratalog.server.quotas.rates import QuotaTokens, QuotaWindow, WindowedRate

WINDOW = QuotaWindow(samples=11, sample_ms=1_000)


def test_the_examples_hold() -> None:
    assert doctest.testmod(rates).failed == 0


def recorded(*events: tuple[int, float]) -> WindowedRate:
    rate = WindowedRate(WINDOW)
    for at_ms, amount in events:
        rate.record(amount, at_ms)
    return rate


@pytest.mark.parametrize(
    ("events", "now_ms", "window_ms", "per_second"),
    [
        ((), 5_000, 10_000, 0),
        (((0, 500),), 0, 10_000, 50),  # a short window counts as ten whole samples
        (((0, 500),), 999, 10_999, 500 / 10.999),
        (((0, 500),), 1_000, 10_000, 50),  # one sample is whole now, nine are missing
        (((0, 500), (500, 500)), 10_400, 10_400, 1_000 / 10.4),
        (((0, 500), (5_000, 500)), 11_000, 10_000, 50),  # the first sample has left the window
        (((0, 500), (900, 500), (5_000, 100)), 11_500, 11_500, 1_100 / 11.5),  # one that overlaps it counts in whole
        (((0, 500),), 20_000, 10_000, 0),
    ],
)
def test_a_rate_is_a_sum_over_the_window(
    events: tuple[tuple[int, float], ...], now_ms: int, window_ms: int, per_second: float
) -> None:
    rate = recorded(*events)
    assert rate.window_ms(now_ms) == window_ms
    assert rate.measure(now_ms) == pytest.approx(per_second)


def test_only_as_many_samples_are_kept_as_the_window_has_and_one() -> None:
    rate = recorded(*((second * 1_000, 10.0) for second in range(40)))
    assert len(rate.samples) == 12
    assert rate.measure(39_000) == pytest.approx(110 / 10)


@pytest.mark.parametrize(("amount", "throttle_ms"), [(1_000, 0), (1_001, 10), (2_000, 10_000), (10_000, 90_000)])
def test_a_client_waits_until_its_rate_is_that_of_its_quota(amount: float, throttle_ms: int) -> None:
    """(O - T) / T * W. After that wait, without anything new, the rate is the quota."""
    assert recorded((0, amount)).throttle_ms(100, 0) == throttle_ms


def test_a_bucket_holds_a_windows_worth_and_its_debt_is_waited_for() -> None:
    bucket = QuotaTokens(WINDOW)
    now_ms = 1_000_000
    bucket.take(110, 10, now_ms)
    assert bucket.owed_ms(10, now_ms) == 0
    bucket.take(5, 10, now_ms)
    assert (bucket.owed_ms(10, now_ms), bucket.owed_ms(10, now_ms + 500)) == (500, 0)
    bucket.take(111, 10, now_ms + 60_000)
    assert bucket.owed_ms(10, now_ms + 60_000) == 100, "it never holds more than a window's worth"
