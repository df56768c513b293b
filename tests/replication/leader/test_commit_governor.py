"""Commits gather so that their requests keep to a budget, and never longer than the topic's bound."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.leader.commit_governor import AT_ONCE, CommitGovernor, commit_interval
from stratalog.storage.topic_config import LogConfig
from tests.replication.leader.test_append_queue import Queued

S3_WRITE = 5.0
"""Dollars of a million writes: a dollar a day is a commit each 864 ms."""


@pytest.mark.parametrize(
    ("bound_ms", "budget", "price", "busy", "interval_ms", "missing"),
    [
        (500, 0, S3_WRITE, 100, 0, 0),  # no budget
        (500, 1, 0, 100, 0, 0),  # requests that cost nothing
        (500, 1, S3_WRITE, 0, 0, 0),
        (1_000, 1, S3_WRITE, 1, 864, 0),
        (1_000, 10, S3_WRITE, 1, 87, 0),
        (10_000, 10, S3_WRITE, 100, 8_640, 0),
        (8_640, 10, S3_WRITE, 100, 8_640, 0),
        (500, 10, S3_WRITE, 100, 500, 162.8),  # 100 partitions, two commits a second each
        (1_000, 1, 1.13, 1, 196, 0),  # S3 Express
        (0, 1, S3_WRITE, 1, 0, 863),
    ],
)
def test_the_interval_follows_from_bound_budget_price_and_busy_partitions(
    bound_ms: int, budget: float, price: float, busy: int, interval_ms: int, missing: float
) -> None:
    found = commit_interval(bound_ms, budget, price, busy)
    assert found.ms == interval_ms
    assert found.missing_dollars == pytest.approx(missing)


class Governed(Queued):
    """Queued partitions whose commits cost what S3's do."""

    def __init__(self, partitions: int, budget: float, latency_ms: int) -> None:
        super().__init__(partitions)
        self.queue.governor = CommitGovernor(budget, lambda _partition: S3_WRITE)
        for replica in self.leaders.values():
            replica.reconfigure(LogConfig.from_properties({"stratalog.commit.latency.ms": latency_ms}))

    def after(self, pause_ms: int) -> list[int]:
        """The partitions that append in a turn after a pause."""
        self.stores.clock.now_ms += pause_ms
        return self.turn()


def test_a_first_record_is_stored_at_once_and_the_next_ones_go_together() -> None:
    governed = Governed(1, budget=1, latency_ms=1_000)
    governed.put(0, "a")
    assert governed.after(0) == [0]
    governed.put(0, "b")
    assert governed.after(1) == []
    assert governed.queue.held_ms == 863
    assert not governed.queue.is_empty
    governed.put(0, "c")
    assert governed.after(862) == []
    assert governed.after(1) == [0]
    assert governed.answers == [("a", "0"), ("b", "1"), ("c", "2")]
    governed.put(0, "d")
    assert governed.after(cadence.COMMITS_LATELY.ms) == [0]


def test_a_budget_that_cannot_be_met_is_shown_and_records_are_acknowledged() -> None:
    governed = Governed(3, budget=1, latency_ms=500)
    for value in "ab":
        for partition in range(3):
            governed.put(partition, value)
        assert governed.after(500) == [0, 1, 2]
    assert [name for _, name in governed.answers] == ["0", "0", "0", "1", "1", "1"]
    shown = governed.queue.governor.shown(governed.stores.clock.now_ms)
    assert shown.ms == 500
    assert shown.missing_dollars == pytest.approx(3 * 0.864 / 0.5 - 1)
    assert governed.queue.governor.shown(governed.stores.clock.now_ms + cadence.COMMITS_LATELY.ms) == AT_ONCE


def test_without_a_budget_nothing_gathers() -> None:
    governed = Governed(1, budget=0, latency_ms=500)
    for value in "ab":
        governed.put(0, value)
        assert governed.after(0) == [0]
