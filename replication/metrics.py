"""A broker's metrics, by Kafka's names: counters, and gauges from its image of the cluster. Pure.

The broker's loop changes counters, those of outgoing records the threads that answer fetches: each adds in one step of
the interpreter. A reader sees each counter's current number without waiting. Gauges are computed when they are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.records import TopicPartition

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


class LedLog(NamedTuple):
    """A log that a broker leads. The log may grow between the reads of two fields.

    first_dirty_offset  where the cleaner's next pass begins; 0 for a log that was never compacted
    """

    start_offset: int
    end_offset: int
    files: Sequence[FileEntry]
    first_dirty_offset: int = 0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its values by labels. A histogram's value is the histogram itself."""

    name: str
    kind: str
    doc: str
    values: Mapping[Labels, float | Histogram]


def image_metrics(image: ClusterImage, broker_id: int, replica_lag_max: int | None = None) -> list[Metric]:
    """The gauges of broker `broker_id` from the metadata: of its own partitions, and on the controller of all.

    replica_lag_max  the largest number of records that a follower of this broker's leaders lacks; None if unknown
    """
    states = list(image.partitions.values())
    hosted = [state for state in states if broker_id in state.replicas]
    led = [state for state in hosted if state.leader == broker_id]
    is_controller = image.controller_id == broker_id
    gauges = [
        ("server_ReplicaManager_LeaderCount", "Led partitions.", len(led)),
        ("server_ReplicaManager_PartitionCount", "Hosted replicas.", len(hosted)),
        (
            "server_ReplicaManager_UnderReplicatedPartitions",
            "Led partitions whose ISR is smaller than their set of replicas.",
            sum(is_under_replicated(state) for state in led),
        ),
        (
            "server_ReplicaManager_UnderMinIsrPartitionCount",
            "Led partitions whose ISR is smaller than min.insync.replicas.",
            sum(len(state.isr) < _min_isr(image, state) for state in led),
        ),
        (
            "server_ReplicaManager_AtMinIsrPartitionCount",
            "Led partitions whose ISR is just min.insync.replicas.",
            sum(len(state.isr) == _min_isr(image, state) for state in led),
        ),
        ("controller_KafkaController_ActiveControllerCount", "1 on the controller.", int(is_controller)),
        (
            "controller_KafkaController_OfflinePartitionsCount",
            "Partitions without a leader; on the controller.",
            sum(state.leader == NO_LEADER for state in states) if is_controller else 0,
        ),
        (
            "controller_KafkaController_PreferredReplicaImbalanceCount",
            "Partitions that their preferred replica does not lead; on the controller.",
            sum(state.leader != state.replicas[0] for state in states) if is_controller else 0,
        ),
        (
            "controller_KafkaController_GlobalTopicCount",
            "Topics; on the controller.",
            len(image.topic_ids) if is_controller else 0,
        ),
        (
            "controller_KafkaController_GlobalPartitionCount",
            "Partitions; on the controller.",
            len(states) if is_controller else 0,
        ),
        (
            "controller_KafkaController_ActiveBrokerCount",
            "Brokers that are not fenced; on the controller.",
            len(image.live_brokers()) if is_controller else 0,
        ),
        (
            "controller_KafkaController_FencedBrokerCount",
            "Brokers that are down; on the controller.",
            len(image.brokers) - len(image.live_brokers()) if is_controller else 0,
        ),
    ]
    preferred = [state for state in hosted if state.replicas[0] == broker_id]
    by_others = sum(state.leader not in (broker_id, NO_LEADER) for state in preferred)
    gauges.append(
        (
            "controller_KafkaController_LeaderImbalancePercentage",
            "Of the partitions that prefer this broker, those led by others: leader.imbalance.per.broker.percentage.",
            round(100 * by_others / len(preferred)) if preferred else 0,
        )
    )
    if replica_lag_max is not None:
        doc = "The largest number of records that a follower of a led partition lacks."
        gauges.append(("server_ReplicaFetcherManager_MaxLag", doc, replica_lag_max))
    return [Metric(f"kafka_{name}", GAUGE, doc, {(): value}) for name, doc, value in gauges]


def counter_metrics(counted: BrokerMetrics) -> list[Metric]:
    """The broker's counters."""
    times = {
        "RequestQueueTimeMs": ("From a batch's arrival to its turn in the broker's loop.", counted.queue_time),
        "LocalTimeMs": ("From there to the commit to the leader's table.", counted.local_time),
        "TotalTimeMs": ("From a batch's arrival to its answer.", counted.total_time),
    }
    produce = (("request", "Produce"),)
    return [
        Metric("kafka_server_ReplicaManager_IsrShrinks_total", COUNTER, "ISRs that shrank.", {(): counted.isr_shrinks}),
        Metric("kafka_server_ReplicaManager_IsrExpands_total", COUNTER, "ISRs that grew.", {(): counted.isr_expands}),
        Metric(
            "kafka_server_DelayedOperationPurgatory_PurgatorySize",
            GAUGE,
            "Batches that wait for the high watermark.",
            {(("delayedOperation", "Produce"),): counted.waiting_count()},
        ),
        Metric(
            "kafka_server_ReplicaManager_OfflineReplicaCount",
            GAUGE,
            "Led replicas that cannot be served: damaged, or on a full disk.",
            {(): counted.offline_count()},
        ),
        Metric(
            "stratalog_server_Upkeep_LiveFilesMax",
            GAUGE,
            "The largest number of live files of a led replica's log.",
            {(): counted.live_files_max()},
        ),
        Metric(
            "stratalog_server_Upkeep_AppendPauseMsMax",
            GAUGE,
            "The longest pause of appends to a led replica whose upkeep is overdue.",
            {(): counted.append_pause_ms_max()},
        ),
        *_topic_metrics(counted.topics),
        *(
            Metric(f"kafka_network_RequestMetrics_{name}", HISTOGRAM, doc, {produce: histogram})
            for name, (doc, histogram) in times.items()
        ),
    ]


def _topic_metrics(traffic_by_topic: Mapping[str, TopicTraffic]) -> list[Metric]:
    """Kafka's `BrokerTopicMetrics`."""
    topics = sorted(traffic_by_topic.items())
    by_topic: dict[str, tuple[str, Callable[[TopicTraffic], int]]] = {
        "MessagesIn": ("Stored records.", lambda of: of.messages_in),
        "BytesIn": ("Stored bytes: of Arrow data, or of the files that were handed over.", lambda of: of.bytes_in),
        "BytesOut": ("Bytes of record batches sent to consumers.", lambda of: of.bytes_out),
        "TotalProduceRequests": ("Stored batches.", lambda of: of.produce_requests),
        "FailedProduceRequests": (
            "Batches that were refused for a reason that a client's old metadata does not explain.",
            lambda of: of.failed_produce_requests,
        ),
        "TotalFetchRequests": (
            "Partitions with records in answers to Fetch; what finds nothing is not counted.",
            lambda of: of.fetch_requests,
        ),
        "FailedFetchRequests": (
            "Partitions that Fetch could not read, for a reason that a client's old metadata does not explain.",
            lambda of: of.failed_fetch_requests,
        ),
    }
    return [
        Metric(
            f"kafka_server_BrokerTopicMetrics_{name}_total",
            COUNTER,
            doc,
            {(("topic", topic),): value(traffic) for topic, traffic in topics},
        )
        for name, (doc, value) in by_topic.items()
    ]


def state_metric(state: RunState) -> Metric:
    """The metric with the state of a broker's process."""
    numbers = ", ".join(f"{each.value} {each.name.lower().replace('_', ' ')}" for each in RunState)
    return Metric("kafka_server_KafkaServer_BrokerState", GAUGE, f"State of the broker: {numbers}.", {(): state.value})


def log_metrics(logs: Mapping[TopicPartition, LedLog]) -> list[Metric]:
    """Sizes and offsets of the logs that a broker leads."""
    values: dict[str, tuple[str, Callable[[LedLog], int]]] = {
        "Size": ("Bytes of the log's files.", lambda log: sum(entry.file.size_bytes for entry in log.files)),
        "NumLogSegments": ("Segments of the log.", lambda log: len({entry.segment for entry in log.files})),
        "LogStartOffset": ("The log's first offset.", lambda log: log.start_offset),
        "LogEndOffset": ("The offset of the next record.", lambda log: log.end_offset),
    }
    ordered = [((("topic", tp.topic), ("partition", str(tp.partition))), log) for tp, log in sorted(logs.items())]
    compacted: dict[Labels, float | Histogram]
    compacted = {labels: log.first_dirty_offset for labels, log in ordered if log.first_dirty_offset}
    doc = "Offset below which a compacted log is clean, as in Kafka's file cleaner-offset-checkpoint."
    return [
        *(
            Metric(f"kafka_log_Log_{name}", GAUGE, of_log, {labels: value_of(log) for labels, log in ordered})
            for name, (of_log, value_of) in values.items()
        ),
        Metric("stratalog_log_LogCleaner_FirstDirtyOffset", GAUGE, doc, compacted),
    ]


def is_under_replicated(state: PartitionRecord) -> bool:
    """Whether fewer replicas are in sync than there are, without those that a reassignment is adding."""
    return len(state.isr) < len(state.replicas) - len(state.adding)


def prometheus_text(metrics_by_broker: Mapping[int, Iterable[Metric]], further: Iterable[Metric] = ()) -> str:
    """The metrics of several brokers in Prometheus' text format (0.0.4), each value labelled with its broker.

    further  metrics of no broker; none has the name of a broker's
    """
    families: dict[str, list[tuple[Labels, Metric]]] = {}
    for broker_id, metrics in sorted(metrics_by_broker.items()):
        for metric in metrics:
            families.setdefault(metric.name, []).append(((("broker", str(broker_id)),), metric))
    for metric in further:
        families.setdefault(metric.name, []).append(((), metric))
    lines = []
    for name, found in families.items():
        lines += [f"# HELP {name} {found[0][1].doc}", f"# TYPE {name} {found[0][1].kind}"]
        for of_broker, metric in found:
            for labels, value in metric.values.items():
                lines += _lines(name, (*of_broker, *labels), value)
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, labels: Labels, value: float | Histogram) -> list[str]:
    if not isinstance(value, Histogram):
        return [f"{name}{_braced(labels)} {value}"]
    lines, seen = [], 0
    for bound, count in zip((*map(str, BOUNDS_MS), "+Inf"), list(value.counts), strict=True):
        seen += count
        lines.append(f"{name}_bucket{_braced((*labels, ('le', bound)))} {seen}")
    return [*lines, f"{name}_sum{_braced(labels)} {value.sum_ms}", f"{name}_count{_braced(labels)} {seen}"]


def _braced(labels: Labels) -> str:
    """Labels in Prometheus' format.

    >>> _braced((("broker", "1"), ("topic", "a"))), _braced(())
    ('{broker="1",topic="a"}', '')
    """
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels) + "}"


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _min_isr(image: ClusterImage, state: PartitionRecord) -> int:
    """As far as it can be reached: Kafka's `Partition.effectiveMinIsr`."""
    return min(int(image.topic_config(state.topic).get("min.insync.replicas", "1")), len(state.replicas))
