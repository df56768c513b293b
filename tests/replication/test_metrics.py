"""Counters of a broker, durations in buckets, and what fetch sessions publish."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.follower.metrics import CopyClock, CopyTimes, ThreadFetch, fetch_metrics
from stratalog.replication.metrics import BrokerMetrics, Histogram


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((1, 2, 3), (1, 2), (1, 0)),
        ((1, 2), (1, 2, 3), (0, 1)),
        ((1, 2), (1, 3), (1, 1)),
        ((1, 2), (2, 1), (0, 0)),
    ],
)
def test_isr_changes_are_counted(before: tuple[int, ...], after: tuple[int, ...], expected: tuple[int, int]) -> None:
    counted = BrokerMetrics()
    counted.isr_changed(before, after)
    assert (counted.isr_shrinks, counted.isr_expands) == expected


@pytest.mark.parametrize(
    ("times", "percent", "expected"),
    [
        ([], 50, 0),
        ([0], 50, 1),
        ([-3], 99, 1),
        ([1, 3, 3, 40], 50, 5),
        ([1, 3, 3, 40], 99, 50),
        ([40_000], 50, float("inf")),
    ],
)
def test_percentiles_are_the_bounds_of_buckets(times: list[int], percent: float, expected: float) -> None:
    histogram = Histogram()
    for took_ms in times:
        histogram.observe(took_ms)
    assert histogram.percentile_ms(percent) == expected


def test_copy_times_are_of_the_last_seconds() -> None:
    clock = CopyClock(1, now_ms=1_000)
    for took_ms in (2, 4, 9):
        clock.copied(took_ms)
    told = clock.read(now_ms=3_000, wall_ms=70_000, live_files_max=6_000, pause_ms_max=20)
    assert told == CopyTimes(1, 70_000, 2_000, 3, 15, 9, 6_000, 20)
    assert CopyTimes.from_json(told.to_json()) == told
    assert clock.read(now_ms=4_000, wall_ms=71_000).turns == 0
    values = {m.name.rsplit("_", 1)[1]: dict(m.values) for m in fetch_metrics([told, None], wall_ms=72_000)}
    assert values.pop("inthreads") == {(): 0}
    share = (("share", "1"),)
    assert values == {"copiespersec": {share: 1.5}, "copytimems": {share: 5.0}, "copytimemsmax": {share: 9}} | {
        "livefilesmax": {share: 6_000},
        "copypausemsmax": {share: 20},
    }
    stale = fetch_metrics([told], wall_ms=70_000 + cadence.COPY_TIMES_STALE.ms + 1)
    assert all(not m.values for m in stale if not m.name.endswith("_inthreads"))
    assert CopyTimes.from_json(b"{}") is None


def test_a_broker_that_fetches_in_threads_says_so() -> None:
    state = ThreadFetch("no module", 70_000)
    assert ThreadFetch.from_json(state.to_json()) == state
    (in_threads,) = [m for m in fetch_metrics([], 71_000, state) if m.name.endswith("_inthreads")]
    assert dict(in_threads.values) == {(): 1}
    assert ThreadFetch.from_json(b"[]").reason == "unknown"
