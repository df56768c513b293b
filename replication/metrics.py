"""What a broker counts, and a metric with its values. Pure.

The broker's loop changes counters, those of outgoing records the threads that answer fetches: each adds in one step of
the interpreter. A reader sees each counter's current number without waiting. `server.metrics` shows them, by the names
that Kafka's MBeans have in Prometheus under Strimzi's rules: `kafka.server:type=ReplicaManager,name=LeaderCount` is
`kafka_server_replicamanager_leadercount`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper bounds of a histogram's buckets, in milliseconds."""

Labels = tuple[tuple[str, str], ...]


class RunState(IntEnum):
    """The state of a broker's process, with the numbers of Kafka's `BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


class Histogram:
    """Durations in milliseconds: counts by `BOUNDS_MS`, and a last one above all bounds."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def observe(self, duration_ms: int, count: int = 1) -> None:
        """Add `count` durations. One below 0, of something that began within the same turn, counts as 0."""
        duration_ms = max(duration_ms, 0)
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += count
        self.sum_ms += duration_ms * count

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def add(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.sum_ms += other.sum_ms

    def percentile_ms(self, percent: float) -> float:
        """The bound of the bucket that holds this percentile; infinite above the last bound, 0 without observations.

        >>> times = Histogram()
        >>> for took in (1, 3, 3, 40): times.observe(took)
        >>> times.percentile_ms(50), times.percentile_ms(99)
        (5, 50)
        """
        wanted, seen = self.count * percent / 100, 0
        for bound, count in zip((*BOUNDS_MS, float("inf")), self.counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound
        return 0


@dataclass(slots=True)
class TopicTraffic:
    """Counters of one topic. `bytes_out` does not include what Spark and `Consumer` read directly from storage."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0

    def appended(self, messages: int, size_bytes: int, requests: int) -> None:
        """Count a stored group of batches."""
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.produce_requests += requests


@dataclass(slots=True)
class BrokerMetrics:
    """A broker's counters.

    bytes_out            of all topics
    queue_time           from a request's arrival to its turn in the broker's loop
    local_time           from there to the commit to the leader's table
    total_time           from arrival to the answer
    waiting_count        batches that wait for the high watermark now
    offline_count        led replicas that cannot be served now: damaged, or without space
    live_files_max       the largest number of live files of a led replica's log now
    append_pause_ms_max  the longest pause that upkeep imposes on appends to a led replica now
    commit_interval      what `stratalog.requests.budget` asks of the partitions that commit now: the longest interval
                         of one's commits [ms], and the dollars a day that these cost above the budget
    further              returns the metrics of the broker's listeners
    """

    isr_shrinks: int = 0
    isr_expands: int = 0
    bytes_out: int = 0
    queue_time: Histogram = field(default_factory=Histogram)
    local_time: Histogram = field(default_factory=Histogram)
    total_time: Histogram = field(default_factory=Histogram)
    topics: dict[str, TopicTraffic] = field(default_factory=dict)
    waiting_count: Callable[[], int] = lambda: 0
    offline_count: Callable[[], int] = lambda: 0
    live_files_max: Callable[[], int] = lambda: 0
    append_pause_ms_max: Callable[[], int] = lambda: 0
    commit_interval: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
    further: Callable[[], Iterable[Metric]] = tuple

    def topic(self, name: str) -> TopicTraffic:
        """The counters of one topic, created on first use."""
        return self.topics.setdefault(name, TopicTraffic())

    def fetched(self, topic: str, size_bytes: int) -> None:
        """A consumer was sent so many bytes of a topic's record batches, of one partition."""
        self.bytes_out += size_bytes
        traffic = self.topic(topic)
        traffic.bytes_out += size_bytes
        traffic.fetch_requests += 1

    def isr_changed(self, before: Sequence[int], after: Sequence[int]) -> None:
        """The ISR of a led partition changed within its leader epoch."""
        self.isr_shrinks += bool(set(before) - set(after))
        self.isr_expands += bool(set(after) - set(before))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its values by labels. A histogram's value is the histogram itself; a counter's name ends in
    `_total`, or in `_count` where Kafka's counts the values of a histogram."""

    name: str
    kind: str
    doc: str
    values: Mapping[Labels, float | Histogram]
