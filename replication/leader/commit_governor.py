"""How long the commits of led partitions gather, so that their requests keep to a budget. Pure.

On an object store each commit is paid by number, whatever its size, and each partition has commits of its own: a cost
of partitions times rate. With a budget (`stratalog.requests.budget`, of one broker) a partition that committed lately
begins its next commit an interval later; what comes meanwhile goes with it. No commit gathers longer than the topic's
`stratalog.commit.latency.ms`: where that does not meet the budget, records are acknowledged all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from stratalog.replication import cadence
from stratalog.replication.internal_topics import is_internal
from stratalog.storage.cadence import DAY_MS
from stratalog.storage.records import TopicPartition

WRITES_OF_COMMIT = 2
"""The data file and the commit."""
MILLION = 1_000_000


class CommitInterval(NamedTuple):
    """ms               from the beginning of a partition's commit to that of its next one
    missing_dollars  a day that the commits cost above the budget at this interval; 0: the budget is met
    """

    ms: int
    missing_dollars: float


AT_ONCE = CommitInterval(0, 0.0)


def commit_interval(bound_ms: int, budget: float, write_price: float, busy: int) -> CommitInterval:
    """The interval of each of a broker's partitions.

    bound_ms     the longest that a commit may gather
    budget       dollars a day for the commits of all; 0: without a bound
    write_price  dollars of a million writes
    busy         partitions that commit now

    At $5 a million writes a dollar a day is 100,000 commits, one each 864 ms:

    >>> commit_interval(1_000, budget=1, write_price=5, busy=1)
    CommitInterval(ms=864, missing_dollars=0.0)
    >>> commit_interval(1_000, budget=1, write_price=5, busy=2)
    CommitInterval(ms=1000, missing_dollars=0.728)
    """
    if not budget or not write_price or not busy:
        return AT_ONCE
    dollars_a_day = busy * WRITES_OF_COMMIT * write_price * DAY_MS / MILLION  # of commits a millisecond apart
    needed_ms = math.ceil(dollars_a_day / budget)
    if needed_ms <= bound_ms:
        return CommitInterval(needed_ms, 0.0)
    return CommitInterval(bound_ms, dollars_a_day / max(bound_ms, 1) - budget)


class CommitGovernor:
    """The intervals of one broker's partitions. Only its loop uses it."""

    def __init__(
        self, budget: float = 0.0, price_of: Callable[[TopicPartition], float] = lambda _partition: 0.0
    ) -> None:
        """`budget` as in `commit_interval`. `price_of`: of a million writes where a partition's table is."""
        self._shown = AT_ONCE
        """The longest interval of a partition that commits now, and the most that is missing."""
        self._budget = budget
        self._price_of = price_of
        self._begun_ms: dict[TopicPartition, int] = {}
        """When each partition that commits now began its last commit."""
        self._counted_ms = 0

    def interval_ms(self, named: TopicPartition, latency_ms: int, now_ms: int) -> int:
        """From one commit of a partition to the next, at most its topic's `latency_ms`; 0: they are not held back.
        Coordinators' answers wait for several commits in turn: their topics count, and are never held back."""
        if not self._budget:
            return 0
        self._forget(now_ms)
        bound_ms = 0 if is_internal(named.topic) else latency_ms
        found = commit_interval(bound_ms, self._budget, self._price_of(named), len({*self._begun_ms, named}))
        if not is_internal(named.topic):
            before = self._shown
            self._shown = CommitInterval(max(before.ms, found.ms), max(before.missing_dollars, found.missing_dollars))
        return found.ms

    def shown(self, now_ms: int) -> CommitInterval:
        """For metrics, from any thread: the longest interval of a partition that commits now, and what is missing."""
        return self._shown if now_ms - self._counted_ms < cadence.COMMITS_LATELY.ms else AT_ONCE

    def held_ms(self, named: TopicPartition, latency_ms: int, now_ms: int) -> int:
        """How much longer a partition's next commit gathers; 0: it may begin. The first one after a quiet time may."""
        begun_ms = self._begun_ms.get(named)
        interval_ms = self.interval_ms(named, latency_ms, now_ms)
        return 0 if begun_ms is None else max(0, begun_ms + interval_ms - now_ms)

    def begins(self, named: TopicPartition, now_ms: int) -> None:
        """A commit of this partition begins."""
        if self._budget:
            self._begun_ms[named] = now_ms

    def _forget(self, now_ms: int) -> None:
        """Now and then those that commit no more are left out, and what is shown is found anew."""
        if now_ms - self._counted_ms < cadence.COMMITS_COUNTED.ms:
            return
        self._counted_ms, self._shown = now_ms, AT_ONCE
        kept_ms = cadence.COMMITS_LATELY.ms
        self._begun_ms = {each: begun_ms for each, begun_ms in self._begun_ms.items() if now_ms - begun_ms < kept_ms}
